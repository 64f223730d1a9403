"""A prospect for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from replay.explain.planned import Prospect
from replay.views import duration

#: Jobs named.
_NAMED = 5


def told(found: Prospect) -> RenderableType:
    """When, where, for how much, at whose cost."""
    head = Text(f"job {found.job_id}", "bold")
    if found.never:
        return head.append(f" can never run: {found.never}", "not bold")
    there = "1 job that is" if found.jobs == 1 else f"{found.jobs} jobs that are"
    head.append(f" under {found.policy}, beside {there} there", "not bold")
    lines = [head, _line("starts", _in(found, found.starts_s))]
    if found.starts_s is not None:
        lines.append(_line("ends", _in(found, found.ends_s)))
        where = ", ".join(f"{t} for {duration(s)}" for t, s in sorted(found.held_s.items()))
        is_part = "" if found.ends_s is not None else ", as far as was simulated"
        lines.append(_line("on", where + is_part))
        cost = "no price is known"
        if found.cost_usd is not None:
            cost = f"{found.cost_usd:,.2f} USD{is_part}"
        lines.append(_line("cost", cost))
    later = [(j, s) for j, s in found.delays_s.items() if s > 0]
    sooner = [(j, -s) for j, s in reversed(found.delays_s.items()) if s < 0]
    unseen = ""
    if found.unseen:
        unseen = f"; not seen to end, with it or without it: {len(found.unseen)} of {found.jobs}"
    lines.append(_line("delays", (_named(later) or "nobody") + unseen))
    if sooner:
        lines.append(_line("sooner", _named(sooner)))
    if found.policy_fails:
        lines.append(_line("note", f"the policy has no answer: {found.policy_fails}"))
    return Group(*lines)


def _in(found: Prospect, at_s: float | None) -> str:
    if at_s is None:
        return "never, as things are" if found.is_over else "not within what was simulated"
    return f"in {duration(at_s - found.at_s)}"


def _named(jobs: list[tuple[str, float]]) -> str:
    if not jobs:
        return ""
    named = ", ".join(f"{job_id} by {duration(seconds)}" for job_id, seconds in jobs[:_NAMED])
    return f"{len(jobs)} jobs, most of all {named}" if len(jobs) > 1 else named


def _line(name: str, value: str) -> Text:
    return Text(f"  {name:<7}", "bold").append(value, "not bold")

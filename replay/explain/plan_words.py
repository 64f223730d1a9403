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
    head.append(f" under {found.policy}, beside {found.jobs} jobs that are there", "not bold")
    lines = [head, _line("starts", _in(found, found.starts_s))]
    lines.append(_line("ends", _in(found, found.ends_s)))
    where = ", ".join(f"{t} for {duration(s)}" for t, s in sorted(found.held_s.items()))
    lines.append(_line("on", where or "-"))
    cost = "no price is known" if found.cost_usd is None else f"{found.cost_usd:,.2f} USD"
    lines.append(_line("cost", cost))
    later = [(j, s) for j, s in found.delays_s.items() if s > 0]
    sooner = [(j, -s) for j, s in reversed(found.delays_s.items()) if s < 0]
    lines.append(_line("delays", _named(later) or "nobody"))
    if sooner:
        lines.append(_line("sooner", _named(sooner)))
    return Group(*lines)


def _in(found: Prospect, at_s: float | None) -> str:
    return "not within what was simulated" if at_s is None else f"in {duration(at_s - found.at_s)}"


def _named(jobs: list[tuple[str, float]]) -> str:
    if not jobs:
        return ""
    named = ", ".join(f"{job_id} by {duration(seconds)}" for job_id, seconds in jobs[:_NAMED])
    return f"{len(jobs)} jobs, most of all {named}" if len(jobs) > 1 else named


def _line(name: str, value: str) -> Text:
    return Text(f"  {name:<7}", "bold").append(value, "not bold")

"""An explanation for people: what decides, the numbers, what will come, what would change it."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from replay.explain.explanation import Explanation, Likely
from replay.explain.foresee import Help
from replay.explain.reasons import CODES
from replay.explain.standing import OnType
from replay.explain.waterfall import PARTS
from replay.views import duration

#: Holders named per type.
_NAMED = 4
_BAR = 24
#: Less is no difference, and shorter parts are left out, s.
_NOTICED_S, _SHOWN_S = 1.0, 0.05


def told(found: Explanation) -> RenderableType:
    """All of it."""
    parts: list[RenderableType] = [_head(found)]
    width = max((len(reason.code) for reason in found.reasons), default=0)
    for reason in found.reasons:
        line = Text(f"  {reason.code:<{width}}  ", "bold")
        parts.append(line.append(f"{CODES[reason.code]}: {reason.text}", "not bold"))
    if found.types:
        parts += [_types(found.types), *_holders(found)]
    parts += list(_likely(found))
    if found.waterfall:
        parts.append(_waterfall(found))
    return Group(*parts)


def codes() -> RenderableType:
    """The codes, and the parts of a waterfall."""
    table = _table("code", "what it means")
    for code, meaning in (*CODES.items(), *PARTS.items()):
        table.add_row(code, meaning)
    return table


def _head(found: Explanation) -> Text:
    workers = "1 worker" if found.scale_factor == 1 else f"{found.scale_factor} workers"
    line = Text(f"job {found.job_id}", "bold").append(f": {found.job_type}, {workers}", "not bold")
    age = duration(found.at_s - found.submitted_s)
    since = duration(found.at_s - found.since_s)
    if found.status in ("waiting", "running"):
        line.append(f"; {found.status} for {since}, submitted {age} ago")
    else:
        line.append(
            f"; {found.status} {duration(found.since_s - found.submitted_s)} after submission"
        )
    if found.total_steps:
        line.append(f"; {found.steps / found.total_steps:.1%} done")
    return line


def _types(types: list[OnType]) -> RenderableType:
    table = _table(
        "on", "workers", "steps/s", "share", "promised", "received", "priority", "before it"
    )
    table.add_column("last served", justify="right")
    for on in types:
        last = "-"
        if on.last_priority is not None:
            last = f"{'+'.join(on.last_served)} at {on.last_priority:g}"
        table.add_row(
            on.worker_type,
            str(on.workers) + (f" of {on.registered}" if on.workers != on.registered else ""),
            f"{on.steps_per_s:.3g}",
            f"{on.share:.3f}",
            duration(on.entitled_s),
            duration(on.received_s),
            "-" if on.priority is None else f"{on.priority:g}",
            "-" if on.before_it is None else f"{on.before_it}",
            last,
        )
    return table


def _holders(found: Explanation) -> Iterator[Text]:
    """Who has the workers that the job would get."""
    for on in found.types:
        if on.share > 0 and on.holders:
            named = [
                f"{'+'.join(each.job_ids)} (priority {each.priority:g})"
                for each in sorted(on.holders, key=lambda each: each.priority)[:_NAMED]
            ]
            more = f" and {len(on.holders) - _NAMED} more" if len(on.holders) > _NAMED else ""
            yield Text(f"{on.worker_type} is held by {', '.join(named)}{more}")


def _likely(found: Explanation) -> Iterator[Text]:
    likely = found.likely
    if likely is None:
        return
    line = Text("likely, if nothing else comes: ", "bold")
    if likely.starts_s is not None:
        where = ", ".join(likely.worker_ids)
        line.append(f"starts in {duration(likely.starts_s - found.at_s)} on {where}; ", "not bold")
    elif found.status == "waiting" and likely.ends_s is None:
        line.append(_not_seen("start", likely, found.at_s), "not bold")
    if likely.ends_s is not None:
        line.append(f"{likely.outcome} in {duration(likely.ends_s - found.at_s)}", "not bold")
    elif likely.starts_s is not None or found.status == "running":
        line.append(_not_seen("end", likely, found.at_s), "not bold")
    yield line
    for each in found.helps:
        line = Text(f"  {each.change}: ", "bold")
        yield line.append(_helps(each, found.at_s), "not bold")


def _not_seen(what: str, likely: Likely, at_s: float) -> str:
    if likely.is_over:
        return f"never {what}s"
    return f"does not {what} within {duration(likely.seen_to_s - at_s)}, as far as was looked"


def _helps(each: Help, at_s: float) -> str:
    if each.at_s is None:
        return f"not seen to {each.of}, as far as was looked"
    if each.earlier_s is None:
        return f"{each.of}s in {duration(each.at_s - at_s)}"
    if abs(each.earlier_s) < _NOTICED_S:
        return f"no other {each.of}"
    way = "earlier" if each.earlier_s > 0 else "later"
    return f"{each.of}s {duration(abs(each.earlier_s))} {way}"


def _waterfall(found: Explanation) -> RenderableType:
    whole = sum(found.waterfall.values())
    table = _table("where its time went", "", "share")
    table.add_column("")
    for part, seconds in found.waterfall.items():
        if abs(seconds) < _SHOWN_S:
            continue
        bar = "█" * round(_BAR * max(0.0, seconds) / whole)
        name = f"{part}: {PARTS[part]}"
        table.add_row(name, duration(seconds), f"{seconds / whole:.1%}", bar)
    table.add_row("JCT", duration(whole), "100.0%", "")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="left" if name == "what it means" else "right")
    return table

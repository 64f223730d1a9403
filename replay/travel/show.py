"""What services know and decide, as tables and lines. Text and layout only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from replay import story
from replay.travel.decided import told
from replay.travel.diff import Difference, Found
from replay.travel.facts import Known
from replay.travel.journey import Step
from schemas.record import Record

#: Rows of a table, unless all are asked for.
ROWS = 30
#: Longest value of a field in a comparison.
_SHOWN = 60

Row = tuple[object, ...]


def state(known: Known, rows: int | None = ROWS) -> RenderableType:
    """One service as tables; ``rows`` of each at most."""
    head = f"{known.service} after record {known.seq}, {known.at_s:.2f} s; epoch {known.epoch}"
    parts: list[RenderableType] = [Text(head, style="bold")]
    facts = (f"{name} {_cell(value)}" for name, value in known.facts.items() if value is not None)
    parts.append(Text(", ".join(facts), style="dim"))
    for title, columns, lines in _tables(known):
        if lines:
            parts.append(_table(title, columns, lines, rows))
    return Group(*parts)


def _tables(known: Known) -> Iterator[tuple[str, Sequence[str], Sequence[Row]]]:
    """(title, columns, rows) of what there is."""
    jobs = ("job", "type", "workers", "weight", "state", "steps", "of", "held (s)")
    yield (
        "jobs",
        jobs,
        [
            (
                *(j.job_id, j.job_type, j.scale_factor, j.priority_weight, j.state),
                *(round(j.steps), "?" if j.total_steps is None else round(j.total_steps)),
                j.held_s,
            )
            for j in known.jobs
        ],
    )
    workers = ("worker", "type", "server", "state", "jobs")
    yield (
        "workers",
        workers,
        [
            (w.worker_id, w.worker_type, w.server_id, w.state, _names(w.job_ids))
            for w in known.workers
        ],
    )
    leases = ("lease", "jobs", "type", "workers", "until round", "priority")
    yield (
        "leases",
        leases,
        [
            (*(x.lease_id, _names(x.job_ids), x.worker_type, _names(x.worker_ids)), *rest)
            for x in known.leases
            for rest in [(x.until_round, x.priority)]
        ],
    )
    shares = ("jobs", "type", "X", "t (s)", "f", "priority", "next round")
    yield (
        "shares: X, time received t since the newest allocation, its fraction f",
        shares,
        [
            (
                *(_names(s.job_ids), s.worker_type, f"{s.share:.3f}", f"{s.received_s:.1f}"),
                *(f"{s.fraction:.3f}", s.priority, "served" if s.is_served else None),
            )
            for s in known.shares
        ],
    )
    types = sorted({name for each in known.speeds for name in each.steps_per_s})
    yield (
        "steps/s alone",
        ("job type", "workers", *types),
        [
            (s.job_type, s.scale_factor, *(s.steps_per_s.get(name) for name in types))
            for s in known.speeds
        ],
    )
    yield (
        "decided, and not in the log yet",
        ("on record", "index", "what"),
        [(*each,) for each in known.owed],
    )


def _table(
    title: str, columns: Sequence[str], lines: Sequence[Row], rows: int | None
) -> RenderableType:
    """A table; columns in which nothing stands are left out."""
    shown = lines if rows is None else lines[:rows]
    kept = [i for i in range(len(columns)) if any(line[i] not in (None, "") for line in lines)]
    more = f" (the first {len(shown)} of {len(lines)}; --all shows all)"
    table = Table(box=box.SIMPLE, pad_edge=False)
    for i in kept:
        is_number = any(isinstance(line[i], int | float) for line in lines)
        table.add_column(columns[i], justify="right" if is_number else "left")
    for line in shown:
        table.add_row(*(escape(_cell(line[i])) for i in kept))
    return Group(Text(title + (more if len(shown) < len(lines) else ""), style="bold"), table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _names(names: Iterable[str]) -> str:
    return ", ".join(names)


# --- records --------------------------------------------------------------------------------------


def step(taken: Step) -> Iterator[str]:
    """A record, and under it what each service decided on it."""
    yield line(taken.record)
    for service, decisions in taken.decided.items():
        for decision in decisions:
            yield f"{'':>8}{service}: {told(decision)}"


def line(record: Record) -> str:
    """A record on one line."""
    return story.line(record, story.describe(record.event))


# --- two logs -------------------------------------------------------------------------------------


def difference(found: Difference) -> RenderableType:
    """Where two logs part, and what was there before; its lines are not to be wrapped."""
    a, b = found.names
    parts: list[RenderableType] = [Text(found.verdict, style="bold")]
    parts += [Text(f"note: {note}") for note in found.notes]
    if found.before:
        parts.append(Text("\nthe last that both have:", style="bold"))
        parts += [Text(line(record)) for record in found.before]
    for name, record in zip(("in A:", "in B:"), found.records, strict=True):
        parts.append(Text(f"\n{name}", style="bold"))
        parts.append(Text("(it has ended)" if record is None else line(record)))
    if found.fields:
        lines: list[Row] = [(each.path, _short(each.a), _short(each.b)) for each in found.fields]
        parts.append(_table("\nfields that differ", ("field", f"A: {a}", f"B: {b}"), lines, None))
    if found.decided:
        parts.append(Text(f"this release's {found.decided[0]} decides: {found.decided[1]}"))
    parts.append(Text("\nwhat services had decided, and was not in the log yet:", style="bold"))
    owed = [(each.service, seq, what) for each in found.services for seq, _, what in each.owed]
    parts += [Text(f"  {service}, on record {seq}: {what}") for service, seq, what in owed]
    if not owed:
        parts.append(Text("  nothing"))
    return Group(*parts)


def _short(value: Found) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."

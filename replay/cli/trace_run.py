"""Carries out ``gavel trace convert``, ``stats`` and ``inject --into``; nothing half-written."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table

from replay import options, views
from replay.options import OptionError
from replay.reading import Reading, cluster_of, read, table_of
from replay.traces.change import at_load, cut, injected, scaled
from replay.traces.events import write_events
from replay.traces.files import STDIN
from replay.traces.jobs import write_jobs
from replay.traces.measure import Stats
from replay.traces.measure import stats as measure
from replay.traces.reader import Trace

#: Lines that a table of counts shows, and characters of its longest bar.
_SHOWN, _BAR = 12, 40


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What is to be done to arrivals: options as they were typed."""

    only: str = ""
    jobs_only: bool = False
    load: float | None = None
    stretch: float | None = None
    cluster: str = ""


def convert(
    file: Path, reading: Reading, moved: Moved, out: Path | None, *, force: bool, json: bool
) -> int:
    """See ``trace.convert``."""
    if json and out is None:
        raise OptionError("--json", "without --out", "--out FILE: the jobs go to standard output")
    table = table_of(reading.throughputs)
    if moved.load is not None and moved.stretch is not None:
        raise OptionError("--load, --stretch", "both", "one of the two")
    _check_out(out, file, force=force)
    trace = as_read = read(file, reading, table)
    if moved.jobs_only:
        trace = replace(trace, events=())
    if moved.only:
        trace = cut(trace, *options.window("--only", moved.only, trace.kept))
    if moved.load is not None:
        cluster = cluster_of(moved.cluster, table)
        if not 0 < moved.load < float("inf"):
            raise OptionError("--load", moved.load, "a part of the cluster, above 0: 0.7")
        trace = at_load(trace, moved.load, table, cluster)
    if moved.stretch is not None:
        trace = scaled(trace, options.positive("--stretch", moved.stretch, "times", zero=True))
    write(trace, out)
    if json:
        told = {**account(as_read), "written": trace.kept}
        views.print_json(told)
    else:
        Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 100).print(
            account_table(as_read, written=trace.kept)
        )
    return 0


def stats(file: Path, reading: Reading, cluster: str, *, json: bool) -> int:
    """See ``trace.stats``."""
    table = table_of(reading.throughputs)
    workers = cluster_of(cluster, table)
    trace = read(file, reading, table)
    found = measure(trace.jobs, table, reading.reference_type, workers)
    if json:
        told = {**account(trace), **msgspec.to_builtins(found)}
        views.print_json(told)
    else:
        views.out().print(Group(account_table(trace), stats_table(found)))
    return 0


def inject(
    file: Path,
    into: Path,
    reading: Reading,
    at_s: float,
    prefix: str,
    out: Path | None,
    *,
    force: bool,
) -> int:
    """See ``trace.inject``, into a trace."""
    if file == into:
        raise OptionError("--into", str(into), "another trace than the one that is injected")
    _check_out(out, file, into, force=force)
    options.positive("--at", at_s, zero=True)
    table = table_of(reading.throughputs)
    # The format that is named is that of the file.
    trace = read(into, replace(reading, format=""), table)
    both = injected(trace, read(file, reading, table), at_s, prefix)
    write(both, out)
    added = both.kept - trace.kept
    print(f"{both.kept} jobs, {added} of them from {file}", file=sys.stderr)
    return 0


def _check_out(out: Path | None, *read_from: Path, force: bool) -> None:
    if out is None:
        return
    options.new_file("--out", out, force=force)
    if any(
        path != STDIN and path.exists() and out.exists() and out.samefile(path)
        for path in read_from
    ):
        raise OptionError("--out", str(out), "a file that is not read here")


def write(trace: Trace, out: Path | None) -> None:
    """A job a line, or an event a line where other things happen than jobs."""
    text = write_events(trace.jobs, trace.events) if trace.events else write_jobs(trace.jobs)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, "utf-8")


def account(trace: Trace) -> dict[str, Any]:
    """What became of the rows, by name."""
    return {
        "source": trace.source,
        "format": trace.format,
        "kept": trace.kept,
        "events": len(trace.events),
        "repaired": dict(trace.repaired),
        "refused": {
            why: {"rows": count, "first_lines": list(trace.lines.get(why, ()))}
            for why, count in trace.refused.items()
        },
    }


def account_table(trace: Trace, written: int | None = None) -> RenderableType:
    """What became of the rows, for people."""
    table = Table(box=box.SIMPLE, pad_edge=False, title=f"{trace.source} ({trace.format})")
    table.title_justify = "left"
    table.add_column("rows", justify="right")
    table.add_column("")
    table.add_column("why, and where first", overflow="fold")
    table.add_row(f"{trace.kept:,}", "kept", "")
    if trace.events:
        table.add_row(f"{len(trace.events):,}", "events", "")
    for why, count in trace.repaired.items():
        table.add_row(f"{count:,}", "put right", why)
    for why, count in trace.refused.items():
        lines = ", ".join(map(str, trace.lines.get(why, ())))
        more = ", ..." if count > len(trace.lines.get(why, ())) else ""
        table.add_row(f"{count:,}", "left out", f"{why} (line {lines}{more})" if lines else why)
    if written not in (None, trace.kept):
        table.add_row(f"{written:,}", "written", "")
    return table


def stats_table(found: Stats) -> RenderableType:
    """The figures for people: one table, and bars for what is spread."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("figure")
    table.add_column("", justify="right")
    days = views.duration
    table.add_row("jobs", f"{found.jobs:,}")
    table.add_row("span", days(found.span_s))
    table.add_row("arrivals per hour", f"{found.arrivals_per_h:,.2f}")
    table.add_row("  in the busiest hour", f"{found.peak_per_h:,}")
    table.add_row(f"mean duration on {found.reference_type}", days(found.mean_duration_s))
    ends = {"0%": "shortest", "50%": "median", "100%": "longest"}
    for quantile, seconds in found.durations_s.items():
        table.add_row(f"  {ends.get(quantile, f'{quantile} take at most')}", days(seconds))
    table.add_row(f"worker-hours on {found.reference_type}", f"{found.worker_hours:,.1f}")
    if found.with_slo:
        table.add_row("with a deadline", f"{found.with_slo:,}")
    cluster = ", ".join(f"{name}={n}" for name, n in found.cluster.items())
    shown = "-" if found.load is None else f"{found.load:.1%}"
    table.add_row(f"load on {cluster}", shown)
    for what, count in (
        (f"do not run on {found.reference_type}", found.off_reference),
        ("can never run on the cluster", found.off_cluster),
    ):
        if count:
            table.add_row(f"jobs that {what}", f"{count:,}")
    parts: list[RenderableType] = [table]
    for title, counts in (
        ("duration", found.durations),
        ("workers", found.scale_factors),
        ("job type", found.job_types),
        ("entity", found.entities),
        ("weight", found.weights if len(found.weights) > 1 else {}),
        ("outcome in the source", found.statuses),
    ):
        if counts:
            parts.append(_bars(title, {str(name): n for name, n in counts.items()}))
    return Group(*parts)


def _bars(title: str, counts: Mapping[str, int]) -> Table:
    """The most frequent values, each with a bar."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column(title)
    table.add_column("jobs", justify="right")
    table.add_column("")
    order = list(counts.items())
    if len(order) > _SHOWN:
        order = sorted(order, key=lambda item: -item[1])[:_SHOWN]
    most = max(1, *counts.values())
    for name, count in order:
        table.add_row(name, f"{count:,}", "#" * math.ceil(_BAR * count / most))
    if len(counts) > _SHOWN:
        rest = sum(counts.values()) - sum(count for _, count in order)
        table.add_row(f"{len(counts) - _SHOWN} others", f"{rest:,}", "")
    return table

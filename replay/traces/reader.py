"""From a trace file, in whatever format, to jobs that can be submitted.

Read, resolve (durations to steps, relative deadlines to seconds), leave out or refuse what has no
throughput, sort by arrival. Nothing is left out or put right without being counted.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from replay.traces.errors import Fault, TraceError
from replay.traces.files import read_text
from replay.traces.fitting import How
from replay.traces.formats import FORMATS, recognise
from replay.traces.rows import Rows, TimedEvent, first_line
from replay.traces.rules import RULES
from schemas.domain import JobSpec
from services.estimator.tables import ClassKey, ThroughputTable

#: What to do about job classes without a throughput: refuse the trace, leave them out, run them on
#: fewer workers; or ``auto``: refuse a trace of ours, clamp those of other clusters.
Unknown = Literal["auto", "reject", "skip", "clamp"]


@dataclass(frozen=True)
class Trace:
    """The jobs of a trace, and what had to be done to the file to get them."""

    source: str
    #: In order of arrival; those that arrive together in the order of the file.
    jobs: list[JobSpec]
    #: {what was put right: in how many rows}
    repaired: Mapping[str, int]
    #: {why rows were left out: how many}
    refused: Mapping[str, int]
    #: {why rows were left out: lines of the first of them}
    lines: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: What else happens, in order of time.
    events: Sequence[TimedEvent] = ()
    #: Name of its format.
    format: str = ""

    @property
    def kept(self) -> int:
        """Number of jobs."""
        return len(self.jobs)


def read_trace(
    path: Path,
    table: ThroughputTable,
    *,
    unknown: Unknown = "auto",
    reference_type: str = "v100",
    format: str = "",  # noqa: A002 - as the option is called
    how: How | None = None,
) -> Trace:
    """Read a trace file, plain, gzip or zstd, or ``-`` for the standard input.

    The format is told from what is in it, where it is not named (see ``parse_trace``).

    Raises
    ------
    TraceError
        The file is no text, or see ``parse_trace``.
    OSError
        The file cannot be read.
    """
    return parse_trace(
        read_text(path),
        str(path),
        table,
        unknown=unknown,
        reference_type=reference_type,
        format=format,
        how=how,
    )


def parse_trace(
    text: str,
    source: str,
    table: ThroughputTable,
    *,
    unknown: Unknown = "auto",
    reference_type: str = "v100",
    format: str = "",  # noqa: A002 - as the option is called
    how: How | None = None,
) -> Trace:
    """Read a trace in any of ``formats.FORMATS``.

    Parameters
    ----------
    text
        What the file holds; blank lines, CRLF and a byte order mark are ordinary.
    source
        The file's name, for messages.
    table
        Turns durations into steps, and says which job classes are known.
    unknown
        Job classes without a throughput: ``reject`` the trace, ``skip`` and count them, or
        ``clamp`` them to the most workers below that there is a throughput for. A job that
        declares throughputs of its own is known.
    reference_type
        Worker type on which a duration or a relative deadline is meant, where not said.
    format
        Its name; empty: as the first line looks.
    how
        How rows of other clusters' traces become jobs; what is said above goes before.

    Returns
    -------
    Trace
        Every job has ``total_steps``, none has ``duration_s``.

    Raises
    ------
    TraceError
        Every bad row (the message shows the first 20) with line, column, value and what would be
        right; the unknown job classes with how many jobs each has; a format that is not known; or
        no jobs at all.
    """
    text = text.removeprefix("\ufeff")
    first = first_line(text)
    if first is None:
        raise TraceError(source, "the trace is empty; expected at least one job")
    name = format or recognise(first[1])
    if not name:
        fault = Fault(first[0], "format", first[1], f"one of {', '.join(FORMATS)} (--format)")
        raise TraceError(source, "not a trace that is known by its first line", [fault])
    kind = FORMATS[name]
    how = replace(
        how or How(table=table),
        table=table,
        reference_type=reference_type,
        fit="skip" if unknown == "skip" else "clamp",
    )
    rows = kind.read(text, Rows(), how)
    return _finish(rows, source, name, how, _resolved_unknown(unknown, strict=kind.strict))


def _resolved_unknown(unknown: Unknown, *, strict: bool) -> Unknown:
    if unknown == "auto":
        return "reject" if strict else "clamp"
    return unknown


def _finish(rows: Rows, source: str, name: str, how: How, unknown: Unknown) -> Trace:
    """Jobs that can be submitted, in order, or the error that there are none."""
    table = how.table
    if unknown == "clamp":
        _clamp(rows, table)
    strangers = _strangers(rows, table)
    if unknown == "reject":
        rows.faults.extend(_stranger_faults(strangers, table))
    resolved = list(_resolved(rows, table, how.reference_type, strangers))
    if rows.faults:
        faults = sorted(rows.faults, key=lambda fault: fault.line)
        count = len({fault.line for fault in faults})
        raise TraceError(source, f"nothing was read; lines at fault: {count}", faults)
    for (job_type, scale_factor), lines in sorted(strangers.items()):
        for line in lines:
            rows.refuse(f"no throughput for {job_type!r} at scale factor {scale_factor}", line)
    refused = dict(sorted(rows.refused.items()))
    if not resolved:
        raise TraceError(source, *_nothing_left(rows, strangers, table))
    disorder = sum(b.arrival_s < a.arrival_s for a, b in pairwise(resolved))
    if disorder:
        rows.repaired["arrived before the row above: sorted"] += disorder
    return Trace(
        source=source,
        jobs=sorted(resolved, key=lambda job: job.arrival_s),
        repaired=dict(sorted(rows.repaired.items())),
        refused={why: left_out.count for why, left_out in refused.items()},
        lines={why: tuple(left_out.lines) for why, left_out in refused.items()},
        events=sorted(rows.events, key=lambda event: event.at_s),
        format=name,
    )


def _nothing_left(
    rows: Rows, strangers: Mapping[ClassKey, list[int]], table: ThroughputTable
) -> tuple[str, list[Fault]]:
    """What to say of a trace of which no job is left."""
    if strangers:
        return "no job is left: none has a throughput", list(_stranger_faults(strangers, table))
    counted = sorted(rows.refused.items(), key=lambda item: -item[1].count)
    faults = [
        Fault(left_out.lines[0], "row", f"{why} (rows like it: {left_out.count})", "a job")
        for why, left_out in counted
    ]
    return "no job is left: every row was left out", faults


def _clamp(rows: Rows, table: ThroughputTable) -> None:
    """Run jobs on as many workers as their job type has a throughput for, at most those asked."""
    known: dict[str, list[int]] = {}
    for job_type, scale_factor in table.classes():
        known.setdefault(job_type, []).append(scale_factor)
    for index, job in enumerate(rows.jobs):
        offered = known.get(job.job_type, ())
        if job.scale_factor in offered or job.declared_throughputs:
            continue
        below = [scale for scale in offered if scale < job.scale_factor]
        if below:
            rows.jobs[index] = msgspec.structs.replace(job, scale_factor=max(below))
            rows.repaired[f"more workers than its job type runs on: {max(below)}"] += 1


def _strangers(rows: Rows, table: ThroughputTable) -> dict[ClassKey, list[int]]:
    """Lines of the jobs of each class that has no throughput."""
    known = set(table.classes())
    found: dict[ClassKey, list[int]] = {}
    for job, line in zip(rows.jobs, rows.lines, strict=True):
        key = (job.job_type, job.scale_factor)
        if key not in known and not job.declared_throughputs:
            found.setdefault(key, []).append(line)
    return found


def _stranger_faults(
    strangers: Mapping[ClassKey, list[int]], table: ThroughputTable
) -> Iterator[Fault]:
    """One fault for each class, at its first line, with the nearest classes of the table."""
    known: dict[str, list[int]] = {}
    for job_type, scale_factor in table.classes():
        known.setdefault(job_type, []).append(scale_factor)
    for (job_type, scale_factor), lines in sorted(strangers.items()):
        asked = f"(jobs like it: {len(lines)}; {job_type!r} at scale factor {scale_factor})"
        if job_type in known:
            offered = ", ".join(map(str, known[job_type]))
            expected = f"a scale factor with a throughput: {offered} {asked}"
            yield Fault(lines[0], "scale_factor", scale_factor, expected)
        else:
            near = get_close_matches(job_type, known, n=3) or list(known)[:3]
            offered = ", ".join(repr(name) for name in near)
            expected = f"a job type with a throughput, such as {offered} {asked}"
            yield Fault(lines[0], "job_type", job_type, expected)


def _resolved(
    rows: Rows,
    table: ThroughputTable,
    reference_type: str,
    strangers: Container[ClassKey],
) -> Iterator[JobSpec]:
    """Jobs that are no strangers, with steps and with deadlines in seconds; may add faults."""
    for index, (job, line) in enumerate(zip(rows.jobs, rows.lines, strict=True)):
        multiplier = rows.slo_multipliers.get(index)
        job_class = (job.job_type, job.scale_factor)
        if job_class in strangers and not job.declared_throughputs:
            continue
        if job.duration_s is None and multiplier is None:
            yield job
            continue
        worker_type = job.reference_type or reference_type
        rate = table.alone(*job_class, worker_type) or job.declared_throughputs.get(worker_type)
        if not rate:
            expected = f"a worker type on which {job.job_type!r} runs at {job.scale_factor} workers"
            rows.faults.append(Fault(line, "reference_type", worker_type, expected))
            continue
        steps = job.total_steps
        if steps is None:
            assert job.duration_s is not None, "one of the two is given"
            steps = float(round(job.duration_s * rate))
        if not RULES["total_steps"].holds(steps):
            shortest = f"at least one step at {rate:g} steps/s, at most 2^53"
            rows.faults.append(Fault(line, "duration_s", job.duration_s, shortest))
            continue
        slo_s = job.slo_s if multiplier is None else multiplier * steps / rate
        yield msgspec.structs.replace(
            job, total_steps=steps, duration_s=None, reference_type="", slo_s=slo_s
        )

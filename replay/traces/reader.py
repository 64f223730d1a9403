"""From a trace file, in whatever format, to jobs that can be submitted.

Read, resolve (durations to steps, relative deadlines to seconds), leave out or refuse what has no
throughput, sort by arrival. Nothing is left out or put right without being counted.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from replay.traces import artifact, jobs
from replay.traces.errors import Fault, TraceError
from replay.traces.rows import Rows, numbered_lines
from replay.traces.rules import RULES
from schemas.domain import JobSpec
from services.estimator.tables import ClassKey, ThroughputTable

#: What to do about job classes without a throughput.
Unknown = Literal["reject", "skip"]


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

    @property
    def kept(self) -> int:
        """Number of jobs."""
        return len(self.jobs)


def read_trace(
    path: Path,
    table: ThroughputTable,
    *,
    unknown: Unknown = "reject",
    reference_type: str = "v100",
) -> Trace:
    """Read a trace file; the format is told from what is in it (see ``parse_trace``).

    Raises
    ------
    TraceError
        The file is not UTF-8, or see ``parse_trace``.
    OSError
        The file cannot be read.
    """
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fault = Fault(line, "text", content[error.start : error.end], "UTF-8")
        raise TraceError(str(path), "not a text file", [fault]) from None
    return parse_trace(text, str(path), table, unknown=unknown, reference_type=reference_type)


def parse_trace(
    text: str,
    source: str,
    table: ThroughputTable,
    *,
    unknown: Unknown = "reject",
    reference_type: str = "v100",
) -> Trace:
    """Read a trace: JSON lines of ``JobSpec``, or the artifact's 7, 10 or 12 columns.

    Parameters
    ----------
    text
        What the file holds; blank lines, CRLF and a byte order mark are ordinary.
    source
        The file's name, for messages.
    table
        Turns durations into steps, and says which job classes are known.
    unknown
        Job classes without a throughput: ``reject`` the trace, or ``skip`` and count them. A job
        that declares throughputs of its own is known.
    reference_type
        Worker type on which a duration or a relative deadline is meant, where not said.

    Returns
    -------
    Trace
        Every job has ``total_steps``, none has ``duration_s``.

    Raises
    ------
    TraceError
        Every bad row (the message shows the first 20) with line, column, value and what would be
        right; the unknown job classes with how many jobs each has; or no jobs at all.
    """
    text = text.removeprefix("\ufeff")
    first = next(numbered_lines(text), None)
    if first is None:
        raise TraceError(source, "the trace is empty; expected at least one job")
    rows: Rows = (jobs if first[1].lstrip().startswith("{") else artifact).parse(text)
    strangers = _strangers(rows, table)
    if unknown == "reject":
        rows.faults.extend(_stranger_faults(strangers, table))
    resolved = list(_resolved(rows, table, reference_type, strangers))
    if rows.faults:
        faults = sorted(rows.faults, key=lambda fault: fault.line)
        count = len({fault.line for fault in faults})
        raise TraceError(source, f"nothing was read; lines at fault: {count}", faults)
    if not resolved:
        faults = list(_stranger_faults(strangers, table))
        raise TraceError(source, "no job is left: none has a throughput", faults)
    disorder = sum(b.arrival_s < a.arrival_s for a, b in pairwise(resolved))
    if disorder:
        rows.repaired["arrived before the row above: sorted"] += disorder
    return Trace(
        source=source,
        jobs=sorted(resolved, key=lambda job: job.arrival_s),
        repaired=dict(sorted(rows.repaired.items())),
        refused={
            f"no throughput for {name!r} at scale factor {scale_factor}": len(lines)
            for (name, scale_factor), lines in sorted(strangers.items())
        },
    )


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

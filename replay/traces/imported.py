"""From the rows of another cluster's trace to jobs of ours.

Such a trace knows when a job came, how many GPUs it had and how long it ran, but seldom what it
was, and never its steps. So each job is given a job type of the throughput table, by seed, and as
many steps as that type makes in the job's time on a reference type. What cannot be a job here is
left out, what can be put right is; both are counted.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Container, Iterator, Sequence

import msgspec

from replay.traces.cells import safe_id
from replay.traces.fitting import Choices, Fitting, How
from replay.traces.rows import Rows
from replay.traces.rules import MAX_S
from schemas.domain import JobSource, JobSpec
from schemas.subjects import is_safe_name

#: Characters of an id that is made, without the number that tells it from others; and of an id
#: of the source that is kept.
_SAFE_ID_LENGTH, _SOURCE_ID_LENGTH = 55, 128
#: Durations of jobs that say none: as the paper draws them (§7.3), by seed.
_SHORT, _LONG, _LONG_SHARE = (1.5, 1.5), (3.0, 1.0), 0.2


class Row(msgspec.Struct, gc=False):
    """One job as its source tells of it."""

    line: int
    #: In the source's words; empty where rows have no ids.
    job_id: str
    arrival_s: float
    #: GPUs it had at once; a fraction where it shared one.
    workers: float
    #: Seconds it ran; None where the format does not say.
    duration_s: float | None
    #: What it trained, if told.
    model: str = ""
    user: str = ""
    entity: str = ""
    weight: float = 1.0
    #: GPU types it may run on, in the source's words; empty: any.
    types: tuple[str, ...] = ()
    #: GPU type its duration was had on, if told.
    ran_on: str = ""
    slo_s: float | None = None
    status: str = ""
    #: Its id in the source, where another one had to be found.
    source_id: str = ""


def to_jobs(found: Sequence[Row], name: str, how: How, rows: Rows, *, dated: bool) -> None:
    """Add the jobs of ``found`` to ``rows``.

    Parameters
    ----------
    found : rows that a reader could make sense of
    name : of the format
    how : see ``How``
    rows : gets jobs and counts
    dated : arrivals are dates, or no times that begin with the trace: the first is then at 0
    """
    fitting = Fitting(how)
    kept: list[tuple[Row, Choices]] = []
    for row in _unlike(found, rows):
        choices = fitting.choices(row.workers, row.ran_on, row.types, row.model)
        why = choices.refused or _no_job(row)
        if why:
            rows.refuse(why, row.line)
            continue
        for repair in choices.repaired:
            rows.repaired[repair] += 1
        kept.append((row, choices))
    first_s = min((row.arrival_s for row, _ in kept), default=0.0) if dated else 0.0
    for row, choices in kept:
        arrival_s = row.arrival_s - first_s
        if not 0 <= arrival_s <= MAX_S:
            rows.refuse(f"arrival is not between 0 and {MAX_S:g} s", row.line)
            continue
        rows.jobs.append(_job(row, choices, arrival_s, name, how, rows))
        rows.lines.append(row.line)


def _no_job(row: Row) -> str:
    """Why a row is no job, apart from its workers; empty if it is one."""
    duration_s = row.duration_s
    if duration_s is None or 0 < duration_s <= MAX_S:
        return ""
    if duration_s == 0:
        return "ran for 0 s"
    return "ended before it began" if duration_s < 0 else f"ran for more than {MAX_S:g} s"


def _unlike(found: Sequence[Row], rows: Rows) -> Iterator[Row]:
    """Each job once, under an id of its own that is safe everywhere."""
    seen: dict[str, Row] = {}
    # Where rows have no ids, the same twice may well be two jobs.
    alike: set[tuple[object, ...]] = set()
    renamed: Counter[str] = Counter()
    for position, row in enumerate(found):
        if not row.job_id:
            row.job_id = str(position)
            look = (row.arrival_s, row.duration_s, row.workers, row.user, row.entity, row.model)
            if look in alike:
                rows.repaired["the same row again, without an id: taken for another job"] += 1
            alike.add(look)
            yield row
            continue
        if not is_safe_name(row.job_id):
            row.source_id, row.job_id = row.job_id[:_SOURCE_ID_LENGTH], safe_id(row.job_id)
            rows.repaired["id with characters that are not safe in a path: replaced"] += 1
        known = seen.get(row.job_id)
        if known is not None and _same(known, row):
            rows.refuse("the same row again", row.line)
            continue
        if known is not None:
            rows.repaired["another job under an id that is taken: renamed"] += 1
            row.source_id = row.source_id or row.job_id
            row.job_id = _free_id(row.job_id, seen, renamed)
        seen[row.job_id] = row
        yield row


def _free_id(job_id: str, taken: Container[str], renamed: Counter[str]) -> str:
    """``job_id`` with the next number behind it under which there is no job yet."""
    free = job_id
    while free in taken:
        renamed[job_id] += 1
        free = f"{job_id[:_SAFE_ID_LENGTH]}-{renamed[job_id] + 1}"
    return free


def _same(one: Row, other: Row) -> bool:
    """Whether two rows under one id are one."""
    return one == msgspec.structs.replace(other, line=one.line, source_id=one.source_id)


def _job(row: Row, choices: Choices, arrival_s: float, name: str, how: How, rows: Rows) -> JobSpec:
    job_types = choices.job_types
    # Runs of the same model are jobs of the same type.
    draw = zlib.crc32(f"{how.seed}/{row.model or row.job_id}".encode())
    job_type, steps_per_s = job_types[draw % len(job_types)]
    duration_s = row.duration_s
    if duration_s is None:
        duration_s = _drawn_s(f"{how.seed}/{row.job_id}")
        rows.repaired["no duration in this format: drawn as in the paper (by seed)"] += 1
    steps = float(round(duration_s * choices.stretch * steps_per_s))
    if steps < 1.0:
        steps = 1.0
        rows.repaired["shorter than a step: one step"] += 1
    slo_s = row.slo_s
    if slo_s is not None and slo_s < duration_s:
        rows.repaired["deadline sooner than its duration: kept, cannot be met there"] += 1
    scale_factor = choices.scale_factor
    fraction = row.workers / math.ceil(row.workers)
    return JobSpec(
        job_id=row.job_id,
        job_type=job_type,
        scale_factor=scale_factor,
        total_steps=steps,
        priority_weight=row.weight,
        slo_s=slo_s,
        allowed_worker_types=choices.worker_types,
        entity=row.entity,
        user=row.user,
        arrival_s=arrival_s,
        source=JobSource(
            format=name,
            row=row.line,
            job_id=row.source_id,
            status=row.status,
            worker_fraction=fraction,
            job_type_assigned=job_type != row.model,
        ),
    )


def _drawn_s(key: str) -> float:
    """A duration from the paper's distribution, a function of ``key``."""
    low, width = _LONG if zlib.crc32(f"long/{key}".encode()) < _LONG_SHARE * 2**32 else _SHORT
    place = zlib.crc32(f"place/{key}".encode()) / 2**32
    return float(60.0 * 10.0 ** (low + place * width))

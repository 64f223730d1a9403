"""From the rows of another cluster's trace to jobs of ours.

Such a trace knows when a job came, how many GPUs it had and how long it ran, but seldom what it
was, and never its steps. So each job is given a job type of the throughput table, by seed, and as
many steps as that type makes in the job's time on a reference type. What cannot be a job here is
left out, what can be put right is; both are counted.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

import msgspec

from replay.traces.cells import safe_id
from replay.traces.rows import Rows
from replay.traces.rules import MAX_S
from schemas.domain import JobSource, JobSpec
from services.estimator.tables import MAX_SCALE_FACTOR, ThroughputTable

#: What to do about jobs whose number of workers no job type of the table has.
Fit = Literal["clamp", "skip"]
#: Our worker types for what others call theirs; the first that the table has.
_ALSO_CALLED = {
    "v100m16": ("v100-16gb", "v100"),
    "v100m32": ("v100-32gb", "v100"),
    "v100": ("v100-16gb",),
    "a100sxm480gb": ("a100-80gb", "a100"),
    "a100": ("a100-80gb", "a100-40gb"),
}
#: Durations of jobs that say none: as the paper draws them (§7.3), by seed.
_SHORT, _LONG, _LONG_SHARE = (1.5, 1.5), (3.0, 1.0), 0.2


class Row(msgspec.Struct, gc=False):
    """One job as its source tells of it."""

    line: int
    #: Empty where rows have no ids.
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


@dataclass(frozen=True, kw_only=True)
class How:
    """How rows are made into jobs."""

    table: ThroughputTable
    #: Worker type that durations are taken to be on, where the source does not say.
    reference_type: str = "v100"
    #: Of job types, and of durations where there are none.
    seed: int = 0
    #: Job types to draw from; empty: all of the table.
    job_types: tuple[str, ...] = ()
    fit: Fit = "clamp"
    #: {GPU type in the source's words: our worker type}
    type_names: dict[str, str] = field(default_factory=dict)
    #: Let jobs run on any type, whatever they ask for.
    any_type: bool = False
    #: Time zone of dates without one; empty: the format's own.
    zone: str = ""
    #: Processors of a source without GPUs that count as one worker.
    processors: int = 1


class _Choices(NamedTuple):
    """What jobs alike in workers and types can be."""

    scale_factor: int
    #: Times longer they run on so many workers than on those they had.
    stretch: float
    #: (job type, steps/s on the reference type)
    job_types: Sequence[tuple[str, float]]
    worker_types: tuple[str, ...]
    repaired: tuple[str, ...]
    refused: str = ""


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
    fitting = _Fitting(how)
    kept: list[tuple[Row, _Choices]] = []
    for row in _unlike(found, rows):
        choices = fitting.choices(row)
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
    for position, row in enumerate(found):
        if not row.job_id:
            row.job_id = str(position)
            look = (row.arrival_s, row.duration_s, row.workers, row.user, row.entity, row.model)
            if look in alike:
                rows.repaired["the same row again, without an id: taken for another job"] += 1
            alike.add(look)
            yield row
            continue
        known = seen.get(row.job_id)
        if known is None:
            seen[row.job_id] = row
        elif _same(known, row):
            rows.refuse("the same row again", row.line)
            continue
        else:
            rows.repaired["another job under an id that is taken: renamed"] += 1
            again = 2
            while f"{row.job_id}-{again}" in seen:
                again += 1
            row.job_id = f"{row.job_id}-{again}"
            seen[row.job_id] = row
        yield row


def _same(one: Row, other: Row) -> bool:
    return one == msgspec.structs.replace(other, line=one.line)


def _job(row: Row, choices: _Choices, arrival_s: float, name: str, how: How, rows: Rows) -> JobSpec:
    job_id = safe_id(row.job_id)
    if job_id is not row.job_id:
        rows.repaired["id with characters that are not safe in a path: replaced"] += 1
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
        job_id=job_id,
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
            job_id="" if job_id == row.job_id else row.job_id[:128],
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


class _Fitting:
    """Which job types of the table a row can be; each kind of row is looked up once."""

    def __init__(self, how: How) -> None:
        self._how = how
        self._table = how.table
        known = how.table.worker_types()
        self._plain = {_plain(worker_type): worker_type for worker_type in known}
        self._names = {_plain(n): worker_type for n, worker_type in how.type_names.items()}
        classes = how.table.classes()
        self._scale_factors = sorted({scale for _, scale in classes})
        self._found: dict[tuple[float, str, tuple[str, ...], str], _Choices] = {}

    def choices(self, row: Row) -> _Choices:
        """See ``_Choices``."""
        key = (row.workers, row.ran_on, row.types, row.model)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look(*key)
        return found

    def _look(self, workers: float, ran_on: str, types: tuple[str, ...], model: str) -> _Choices:
        if workers <= 0:
            return _refused("asks for no GPU")
        if workers > MAX_SCALE_FACTOR:
            return _refused(f"more than {MAX_SCALE_FACTOR} workers")
        repaired = []
        whole = math.ceil(workers)
        if whole != workers:
            repaired.append("part of a worker: scheduled as a whole one")
        allowed, unknown = self._allowed(types)
        if types and not allowed and not self._how.any_type:
            return _refused(f"asks for GPU types that the table has not: {'|'.join(types)}")
        if unknown and not self._how.any_type:
            repaired.append("asks for GPU types, some of which the table has not: left to the rest")
        usual = self._how.reference_type
        references = dict.fromkeys(each for each in (self._ours(ran_on), usual) if each)
        for scale_factor, reference in product(self._scale_factors_for(whole), references):
            job_types = self._job_types(scale_factor, reference, allowed, model)
            if job_types:
                break
        else:
            on = f" and on one of {', '.join(allowed)}" if allowed else ""
            return _refused(f"no job type of the table runs on {whole} workers of {usual}{on}")
        if scale_factor != whole:
            repaired.append(f"more workers than job types run on: {scale_factor}, as much longer")
        if ran_on and reference != self._ours(ran_on):
            repaired.append(f"ran on {ran_on}: its time is taken for that of the reference type")
        return _Choices(scale_factor, whole / scale_factor, job_types, allowed, tuple(repaired))

    def _scale_factors_for(self, workers: int) -> list[int]:
        """Workers to look for job types on, best first: fewer than asked for where it may be."""
        if self._how.fit == "skip":
            return [workers]
        return [scale for scale in reversed(self._scale_factors) if scale <= workers]

    def _allowed(self, types: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
        """Our names of GPU types asked for, and whether some have none."""
        if self._how.any_type:
            return (), False
        found = [self._ours(each) for each in types]
        return tuple(dict.fromkeys(each for each in found if each)), "" in found

    def _ours(self, name: str) -> str:
        plain = _plain(name)
        tried = (self._names.get(plain, ""), self._plain.get(plain, ""))
        others = (each for each in _ALSO_CALLED.get(plain, ()) if each in self._plain.values())
        return next((each for each in (*tried, *others) if each), "")

    def _job_types(
        self, scale_factor: int, reference: str, allowed: tuple[str, ...], model: str
    ) -> list[tuple[str, float]]:
        table, wanted = self._table, self._how.job_types
        found = []
        for job_type, scale in table.classes():
            if scale != scale_factor or (wanted and job_type not in wanted):
                continue
            rate = table.alone(job_type, scale, reference)
            runs = not allowed or any(table.alone(job_type, scale, each) for each in allowed)
            if rate and runs:
                found.append((job_type, rate))
        same = [each for each in found if each[0] == model]
        return same or found


def _refused(why: str) -> _Choices:
    return _Choices(0, 1.0, (), (), (), why)


def _plain(name: str) -> str:
    """A GPU type without what its many spellings differ in."""
    letters = "".join(c for c in name.lower() if c.isalnum())
    return letters.removeprefix("nvidia").removeprefix("tesla")

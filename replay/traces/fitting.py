"""What jobs of another cluster can be here: job types of the table, on how many workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

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


class Choices(NamedTuple):
    """What jobs alike in workers and types can be."""

    scale_factor: int
    #: Times longer they run on so many workers than on those they had.
    stretch: float
    #: (job type, steps/s on the reference type)
    job_types: Sequence[tuple[str, float]]
    worker_types: tuple[str, ...]
    repaired: tuple[str, ...]
    refused: str = ""


class Fitting:
    """Which job types of the table a row can be; each kind of row is looked up once."""

    def __init__(self, how: How) -> None:
        self._how = how
        self._table = how.table
        known = how.table.worker_types()
        self._plain = {_plain(worker_type): worker_type for worker_type in known}
        self._names = {_plain(n): worker_type for n, worker_type in how.type_names.items()}
        classes = how.table.classes()
        self._scale_factors = sorted({scale for _, scale in classes})
        self._found: dict[tuple[float, str, tuple[str, ...], str], Choices] = {}

    def choices(self, workers: float, ran_on: str, types: tuple[str, ...], model: str) -> Choices:
        """What a job on so many workers can be, that ran on one type, and asks for some."""
        key = (workers, ran_on, types, model)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._look(*key)
        return found

    def _look(self, workers: float, ran_on: str, types: tuple[str, ...], model: str) -> Choices:
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
        return Choices(scale_factor, whole / scale_factor, job_types, allowed, tuple(repaired))

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


def _refused(why: str) -> Choices:
    return Choices(0, 1.0, (), (), (), why)


def _plain(name: str) -> str:
    """A GPU type without what its many spellings differ in."""
    letters = "".join(c for c in name.lower() if c.isalnum())
    return letters.removeprefix("nvidia").removeprefix("tesla")

"""The estimator's tables: what is known of job classes, and what of it has been published.

A class is published when its first job needs it, and again only when a table or a measurement
changes it. A pair of classes is published once, with the later of the two. A class is the row of
a table, or made of a job that was like none of them (``learn``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median

from schemas.decisions import Emit
from schemas.domain import PairThroughput, Throughput, ThroughputRow
from schemas.events import ThroughputEstimated
from services.estimator.rates import MovingRate, rate_on

#: (job type, scale factor).
ClassKey = tuple[str, int]
#: {worker type: steps/s of (the class, the other beside it)}
_Cells = dict[str, tuple[float, float]]

#: Begins the name of a class that is called by its first job, and not by a job type.
NAMELESS = "job "
#: Nameless classes that are remembered when no job is of them, at each scale factor.
_CLASSES_REMEMBERED = 32
#: Jobs of a class whose measurements stand for it, at most: the last ones.
_JOBS_MEASURED = 9
#: Two jobs that should have made so many steps each, and made none, do not run together.
_STEPS_MISSED = 5.0


@dataclass(slots=True)
class References:
    """Job classes by key, alone and beside each other."""

    imported: bool = False
    alone: dict[ClassKey, tuple[Throughput, ...]] = field(default_factory=dict)
    #: {class: {other class: what both make together}}, each pair seen from either side
    _beside: dict[ClassKey, dict[ClassKey, _Cells]] = field(default_factory=dict)
    #: Classes that no table has, oldest first: there is nothing to start beside another job, to
    #: profile it.
    _learned: dict[ClassKey, None] = field(default_factory=dict)
    #: {class: the row last published}, in the order of first publication
    published: dict[ClassKey, ThroughputRow] = field(default_factory=dict)
    #: Published classes that have pairs which were measured to be otherwise.
    _stale: set[ClassKey] = field(default_factory=set)
    #: {(class, worker type): {job id: steps/s measured}}, newest last
    _measured: dict[tuple[ClassKey, str], dict[str, float]] = field(default_factory=dict)
    #: {(class, class beside it, worker type): steps/s}, where jobs have shared workers
    _measured_beside: dict[tuple[ClassKey, ClassKey, str], MovingRate] = field(default_factory=dict)
    #: {scale factor: rows of its tables' classes}, made when asked for
    _rows: dict[int, tuple[ThroughputRow, ...]] = field(default_factory=dict)

    def load(self, rows: Sequence[ThroughputRow]) -> list[Emit]:
        """Take over a table: its rows replace what was known of their classes."""
        self.imported = True
        self._forget({(row.job_type, row.scale_factor) for row in rows})
        for row in rows:
            self._add(row)
        return [emit for key in tuple(self.published) for emit in self.publish(key)]

    def learn(self, row: ThroughputRow, in_use: Collection[str]) -> None:
        """A job is like none there is: it is the first of a class.

        Where all jobs are unlike, each would be one, and know all before it. Of the nameless ones
        that no job is of any more (``in_use``, names, are of some) the last are remembered.
        """
        key = (row.job_type, row.scale_factor)
        self._learned[key] = None
        self._add(row)
        nameless = (k for k in self._learned if k[1] == key[1] and k[0].startswith(NAMELESS))
        dropped = set([k for k in nameless if k[0] not in in_use][:-_CLASSES_REMEMBERED])
        if dropped:
            self._forget(dropped)
        self._stale -= dropped
        for each in dropped:
            del self.alone[each]
            self.published.pop(each, None)

    def publish(self, key: ClassKey, source: str = "table") -> tuple[Emit, ...]:
        """Publish the class, with its pairs among the classes published before it."""
        earlier = set(takewhile(lambda other: other != key, self.published))
        row = self._row(key, {key, *earlier})
        before = self.published.get(key)
        if before is not None and before.alone == row.alone and before.beside == row.beside:
            return ()
        self.published[key] = row
        if source == "table" and key in self._learned:
            source = "learned"
        return (Emit(ThroughputEstimated(row=row, source=source)),)

    def publish_stale(self) -> tuple[Emit, ...]:
        """Publish the classes anew whose pairs were measured to be otherwise."""
        stale, self._stale = sorted(self._stale), set()
        return tuple(emit for key in stale for emit in self.publish(key, "measured"))

    def rates(self, key: ClassKey) -> dict[str, float]:
        """{worker type: isolated steps/s} of a class; empty if it is not known."""
        return {cell.worker_type: cell.steps_per_s for cell in self.alone.get(key, ())}

    def measure(
        self, key: ClassKey, worker_type: str, job_id: str, rate: float, tolerance: float
    ) -> tuple[Emit, ...]:
        """A job of the class is measured; the class is what its last jobs are in the middle.

        What it makes beside others goes with that, where it was not measured itself.
        """
        jobs = self._measured.setdefault((key, worker_type), {})
        jobs.pop(job_id, None)
        jobs[job_id] = rate
        if len(jobs) > _JOBS_MEASURED:
            del jobs[next(iter(jobs))]
        rates = self.rates(key)
        now, before = median(jobs.values()), rate_on(rates, worker_type)
        if before > 0 and abs(math.log(now / before)) <= math.log1p(tolerance):
            return ()
        rates[worker_type] = now
        self.alone[key] = tuple(Throughput(*cell) for cell in sorted(rates.items()))
        if before > 0:
            self._scale_pairs(key, worker_type, now / before)
        self._rows.pop(key[1], None)
        return (*self.publish(key, "measured"), *self.publish_stale())

    def measure_pair(
        self,
        keys: tuple[ClassKey, ClassKey],
        worker_type: str,
        rates: tuple[float, float],
        seconds: float,
        tolerance: float,
    ) -> None:
        """Jobs of two classes have shared workers for so long; ``publish_stale`` says what is new.

        ``rates`` are what jobs as fast as their classes would have made. None at all is a fact
        where several steps were due: they do not fit together.
        """
        one, other = keys
        known = self._beside.get(one, {}).get(other, {}).get(worker_type, (0.0, 0.0))
        if not any(rates):
            if min(known) * seconds >= _STEPS_MISSED:
                self._set_pair(one, other, worker_type, (0.0, 0.0))
            return
        moving = self._moving((one, other, worker_type), known[0])
        moving_other = self._moving((other, one, worker_type), known[1])
        moving.observe(rates[0])
        moving_other.observe(rates[1])
        if moving.is_news(known[0], tolerance) or moving_other.is_news(known[1], tolerance):
            self._set_pair(one, other, worker_type, (moving.value, moving_other.value))

    def rows(self, scale_factor: int) -> tuple[ThroughputRow, ...]:
        """The classes of a scale factor that tables have, in name order, each pair once."""
        if scale_factor not in self._rows:
            keys = sorted(k for k in self.alone if k[1] == scale_factor and k not in self._learned)
            rows = (self._row(key, keys[: place + 1]) for place, key in enumerate(keys))
            self._rows[scale_factor] = tuple(rows)
        return self._rows[scale_factor]

    def learned(self, scale_factor: int) -> tuple[ThroughputRow, ...]:
        """The classes of a scale factor that no table has, with all their pairs."""
        keys = sorted(key for key in self._learned if key[1] == scale_factor)
        return tuple(self._row(key, self.alone) for key in keys)

    def typical(self, scale_factor: int, worker_types: Iterable[str]) -> dict[str, float]:
        """Geometric mean of the isolated steps/s of the classes that run there, by worker type.

        Of these types, one that no class was ever measured on is taken to be like the others are
        on average: that nothing is known of it does not mean that nothing runs there.
        """
        logs: dict[str, list[float]] = {}
        for row in self.rows(scale_factor):
            for cell in row.alone:
                of_type = logs.setdefault(cell.worker_type, [])
                if cell.steps_per_s > 0:
                    of_type.append(math.log(cell.steps_per_s))
        means = {t: math.fsum(each) / len(each) for t, each in sorted(logs.items()) if each}
        average = math.fsum(means.values()) / len(means) if means else 0.0
        means |= {t: average for t in worker_types if t not in logs or not means}
        return {t: math.exp(mean) for t, mean in means.items()}

    def _row(self, key: ClassKey, others: Collection[ClassKey]) -> ThroughputRow:
        """The class, and what is known of it beside others."""
        beside = self._beside.get(key, {})
        pairs = tuple(
            PairThroughput(worker_type, other[0], *both)
            for other in sorted(beside)
            if other in others
            for worker_type, both in beside[other].items()
        )
        return ThroughputRow(
            job_type=key[0], scale_factor=key[1], alone=self.alone[key], beside=pairs
        )

    def _add(self, row: ThroughputRow) -> None:
        key = (row.job_type, row.scale_factor)
        self.alone[key] = row.alone
        for pair in row.beside:
            both = (pair.steps_per_s, pair.other_steps_per_s)
            self._believe_pair(key, (pair.other_job_type, key[1]), pair.worker_type, both)

    def _forget(self, keys: Iterable[ClassKey]) -> None:
        """Pairs of these classes are no longer known, seen from either side."""
        forgotten = set(keys)
        self._rows.clear()
        for key in forgotten:
            self._learned.pop(key, None)
            for other in self._beside.pop(key, {}):
                self._beside.get(other, {}).pop(key, None)
        for measured in [m for m in self._measured if m[0] in forgotten]:
            del self._measured[measured]
        for beside in [m for m in self._measured_beside if forgotten.intersection(m[:2])]:
            del self._measured_beside[beside]

    def _moving(self, place: tuple[ClassKey, ClassKey, str], known: float) -> MovingRate:
        return self._measured_beside.setdefault(place, MovingRate(known))

    def _scale_pairs(self, key: ClassKey, worker_type: str, factor: float) -> None:
        """What was believed of a class beside others was so by its speed alone."""
        for other, cells in self._beside.get(key, {}).items():
            both = cells.get(worker_type)
            if both is None or (key, other, worker_type) in self._measured_beside:
                continue
            other_factor = factor if other == key else 1.0
            self._set_pair(key, other, worker_type, (both[0] * factor, both[1] * other_factor))

    def _set_pair(
        self, key: ClassKey, other: ClassKey, worker_type: str, both: tuple[float, float]
    ) -> None:
        self._believe_pair(key, other, worker_type, both)
        self._rows.pop(key[1], None)
        later = [k for k in self.published if k in (key, other)][-1:]
        self._stale.update(later)

    def _believe_pair(
        self, key: ClassKey, other: ClassKey, worker_type: str, both: tuple[float, float]
    ) -> None:
        self._beside.setdefault(key, {}).setdefault(other, {})[worker_type] = both
        if other != key:
            self._beside.setdefault(other, {}).setdefault(key, {})[worker_type] = (both[1], both[0])

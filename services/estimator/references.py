"""The estimator's tables: what is known of job classes, and what of it has been published.

A class is published when its first job needs it, and again only when a table or a measurement
changes it. A pair of classes is published once, with the later of the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median

from schemas.decisions import Emit
from schemas.domain import PairThroughput, Throughput, ThroughputRow
from schemas.events import ThroughputEstimated

#: (job type, scale factor).
ClassKey = tuple[str, int]

#: Jobs of a class whose measurements stand for it, at most: the last ones.
_JOBS_MEASURED = 9


@dataclass(slots=True)
class References:
    """Job classes by key, alone and beside each other."""

    imported: bool = False
    alone: dict[ClassKey, tuple[Throughput, ...]] = field(default_factory=dict)
    #: {class: {other class: pair rows as seen from the class}}
    _beside: dict[ClassKey, dict[ClassKey, list[PairThroughput]]] = field(default_factory=dict)
    #: {class: the row last published}, in the order of first publication
    published: dict[ClassKey, ThroughputRow] = field(default_factory=dict)
    #: {(class, worker type): {job id: steps/s measured}}, newest last
    _measured: dict[tuple[ClassKey, str], dict[str, float]] = field(default_factory=dict)
    #: {scale factor: its classes as rows}, made when asked for
    _rows: dict[int, tuple[ThroughputRow, ...]] = field(default_factory=dict)

    def load(self, rows: Sequence[ThroughputRow]) -> list[Emit]:
        """Take over a table: its rows replace what was known of their classes."""
        self.imported = True
        self._forget({(row.job_type, row.scale_factor) for row in rows})
        for row in rows:
            key = (row.job_type, row.scale_factor)
            self.alone[key] = row.alone
            for pair in row.beside:
                self._add_pair(key, pair)
        return [emit for key in tuple(self.published) for emit in self.publish(key)]

    def publish(self, key: ClassKey, source: str = "table") -> tuple[Emit, ...]:
        """Publish the class, with its pairs among the classes published before it."""
        beside = self._beside.get(key, {})
        earlier = set(takewhile(lambda other: other != key, self.published))
        pairs = tuple(
            pair
            for other in sorted(beside)
            if other == key or other in earlier
            for pair in beside[other]
        )
        row = ThroughputRow(
            job_type=key[0], scale_factor=key[1], alone=self.alone[key], beside=pairs
        )
        before = self.published.get(key)
        if before is not None and before.alone == row.alone and before.beside == row.beside:
            return ()
        self.published[key] = row
        return (Emit(ThroughputEstimated(row=row, source=source)),)

    def rates(self, key: ClassKey) -> dict[str, float]:
        """{worker type: isolated steps/s} of a class; empty if it is not known."""
        return {cell.worker_type: cell.steps_per_s for cell in self.alone.get(key, ())}

    def measure(
        self, key: ClassKey, worker_type: str, job_id: str, rate: float, tolerance: float
    ) -> tuple[Emit, ...]:
        """A job of the class is measured; the class is what its last jobs are in the middle."""
        jobs = self._measured.setdefault((key, worker_type), {})
        jobs.pop(job_id, None)
        jobs[job_id] = rate
        if len(jobs) > _JOBS_MEASURED:
            del jobs[next(iter(jobs))]
        rates = self.rates(key)
        now, before = median(jobs.values()), rates.get(worker_type, 0.0)
        if before > 0 and abs(math.log(now / before)) <= math.log1p(tolerance):
            return ()
        rates[worker_type] = now
        self.alone[key] = tuple(Throughput(*cell) for cell in sorted(rates.items()))
        self._rows.pop(key[1], None)
        return self.publish(key, "measured")

    def rows(self, scale_factor: int) -> tuple[ThroughputRow, ...]:
        """The classes of a scale factor, in name order, with their pairs."""
        if scale_factor not in self._rows:
            keys = sorted(key for key in self.alone if key[1] == scale_factor)
            self._rows[scale_factor] = tuple(self._row(key) for key in keys)
        return self._rows[scale_factor]

    def typical(self, scale_factor: int) -> dict[str, float]:
        """Geometric mean of the isolated steps/s of the classes that run there, by worker type."""
        logs: dict[str, list[float]] = {}
        for row in self.rows(scale_factor):
            for cell in row.alone:
                if cell.steps_per_s > 0:
                    logs.setdefault(cell.worker_type, []).append(math.log(cell.steps_per_s))
        return {t: math.exp(math.fsum(each) / len(each)) for t, each in sorted(logs.items())}

    def _row(self, key: ClassKey) -> ThroughputRow:
        beside = self._beside.get(key, {})
        pairs = tuple(pair for other in sorted(beside) if other <= key for pair in beside[other])
        return ThroughputRow(
            job_type=key[0], scale_factor=key[1], alone=self.alone[key], beside=pairs
        )

    def _forget(self, keys: Iterable[ClassKey]) -> None:
        """Pairs of these classes are no longer known, seen from either side."""
        forgotten = set(keys)
        self._rows.clear()
        for key in forgotten:
            for other in self._beside.pop(key, {}):
                self._beside.get(other, {}).pop(key, None)
        for measured in [m for m in self._measured if m[0] in forgotten]:
            del self._measured[measured]

    def _add_pair(self, key: ClassKey, pair: PairThroughput) -> None:
        other = (pair.other_job_type, key[1])
        self._beside.setdefault(key, {}).setdefault(other, []).append(pair)
        if other != key:
            mirrored = PairThroughput(
                pair.worker_type, key[0], pair.other_steps_per_s, pair.steps_per_s
            )
            self._beside.setdefault(other, {}).setdefault(key, []).append(mirrored)

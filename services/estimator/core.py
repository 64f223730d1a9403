"""The estimator's core: says of each job what throughput policies and admission may believe.

It answers from reference tables imported into the log. An estimate is published once per job
class, when its first job is submitted, and again only when the table changes it; pairs are
published between classes, never between jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import takewhile

from schemas.decisions import Decision, Emit
from schemas.domain import JobSpec, PairThroughput, Throughput, ThroughputRow
from schemas.events import (
    AnyEvent,
    Event,
    JobSubmitted,
    ThroughputEstimated,
    ThroughputTableImported,
    ThroughputUnknown,
)

#: (job type, scale factor).
ClassKey = tuple[str, int]


class EstimatorCore:
    """Folds tables and submitted jobs into estimates."""

    def __init__(self) -> None:
        self._imported = False
        self._alone: dict[ClassKey, tuple[Throughput, ...]] = {}
        #: {class: {other class: pair rows as seen from the class}}
        self._beside: dict[ClassKey, dict[ClassKey, list[PairThroughput]]] = {}
        #: {class: the row last published}, in the order of first publication
        self._published: dict[ClassKey, ThroughputRow] = {}
        #: Jobs submitted before any table.
        self._waiting: list[JobSpec] = []
        self._handlers: dict[type[Event], Callable[..., Sequence[Decision]]] = {
            ThroughputTableImported: self._import,
            JobSubmitted: self._estimate,
        }

    @property
    def handles(self) -> Collection[type[Event]]:
        """See ``services.runtime.actor.Core``."""
        return self._handlers

    def handle(self, event: AnyEvent, now: float) -> Sequence[Decision]:
        """See ``services.runtime.actor.Core``."""
        handler = self._handlers.get(type(event))
        return handler(event) if handler else ()

    def _import(self, event: ThroughputTableImported) -> Sequence[Decision]:
        self._imported = True
        self._forget_pairs({(row.job_type, row.scale_factor) for row in event.rows})
        for row in event.rows:
            key = (row.job_type, row.scale_factor)
            self._alone[key] = row.alone
            for pair in row.beside:
                self._add_pair(key, pair)
        decisions: list[Decision] = []
        for key in tuple(self._published):
            decisions += self._publish(key)
        waiting, self._waiting = self._waiting, []
        for spec in waiting:
            decisions += self._estimate_job(spec)
        return decisions

    def _forget_pairs(self, keys: Iterable[ClassKey]) -> None:
        """Imported rows replace what was known of their classes, seen from either side."""
        for key in keys:
            for other in self._beside.pop(key, {}):
                self._beside.get(other, {}).pop(key, None)

    def _add_pair(self, key: ClassKey, pair: PairThroughput) -> None:
        other = (pair.other_job_type, key[1])
        self._beside.setdefault(key, {}).setdefault(other, []).append(pair)
        if other != key:
            mirrored = PairThroughput(
                pair.worker_type, key[0], pair.other_steps_per_s, pair.steps_per_s
            )
            self._beside.setdefault(other, {}).setdefault(key, []).append(mirrored)

    def _estimate(self, event: JobSubmitted) -> Sequence[Decision]:
        spec = event.job
        if (spec.job_type, spec.scale_factor) in self._published and self._imported:
            return ()
        return self._estimate_job(spec)

    def _estimate_job(self, spec: JobSpec) -> Sequence[Decision]:
        key = (spec.job_type, spec.scale_factor)
        if key in self._alone:
            return self._publish(key)
        if spec.declared_throughputs:
            alone = tuple(
                Throughput(worker_type, steps_per_s)
                for worker_type, steps_per_s in sorted(spec.declared_throughputs.items())
            )
            row = ThroughputRow(job_type=spec.job_type, scale_factor=spec.scale_factor, alone=alone)
            return (Emit(ThroughputEstimated(row=row, job_id=spec.job_id, source="declared")),)
        if not self._imported:
            self._waiting.append(spec)
            return ()
        return (Emit(ThroughputUnknown(job_id=spec.job_id, reason=self._unknown(key))),)

    def _publish(self, key: ClassKey) -> Sequence[Decision]:
        """Publish the class, with its pairs among the classes published before it."""
        beside = self._beside.get(key, {})
        earlier = set(takewhile(lambda other: other != key, self._published))
        pairs = tuple(
            pair
            for other in sorted(beside)
            if other == key or other in earlier
            for pair in beside[other]
        )
        row = ThroughputRow(
            job_type=key[0], scale_factor=key[1], alone=self._alone[key], beside=pairs
        )
        before = self._published.get(key)
        if before is not None and before.alone == row.alone and before.beside == row.beside:
            return ()
        self._published[key] = row
        return (Emit(ThroughputEstimated(row=row, source="table")),)

    def _unknown(self, key: ClassKey) -> str:
        job_type, scale_factor = key
        known = sorted(scale for name, scale in self._alone if name == job_type)
        if known:
            scales = ", ".join(str(scale) for scale in known)
            return (
                f"no throughput of {job_type!r} on {scale_factor} workers is known, "
                f"only on {scales}"
            )
        return f"no throughput of job type {job_type!r} is known"

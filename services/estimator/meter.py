"""Reads throughputs off what real leases report.

A report holds absolute steps, so a speed is the difference of two of them over the seconds between
that were spent training: loading (until the first step is done, warm-up included) and saving are
left out. Only a job alone on its workers is read: beside another, what it makes is the pair's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.domain import TaskProgress
from schemas.events import ProgressReported, RoundScheduled, TaskStopped

#: Seconds of training below which a report says too little.
_LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Steps/s that a job made, alone on workers of one type."""

    job_id: str
    worker_type: str
    steps_per_s: float


@dataclass(slots=True)
class _Lease:
    worker_type: str
    num_jobs: int
    last_round: int
    #: Steps of its job when last heard of, under this lease.
    steps: float | None = None


@dataclass(slots=True)
class Meter:
    """Folds rounds and reports into readings."""

    _leases: dict[str, _Lease] = field(default_factory=dict)
    #: {job id: steps of its newest checkpoint, which the next lease goes on from}
    _saved: dict[str, float] = field(default_factory=dict)

    def plan(self, event: RoundScheduled) -> None:
        """A round is planned; leases long over are forgotten."""
        for lease in event.granted:
            self._leases[lease.lease_id] = _Lease(
                lease.worker_type, len(lease.tasks), event.round_id
            )
        for lease_id in event.renewed:
            if lease_id in self._leases:
                self._leases[lease_id].last_round = event.round_id
        # The last report of a lease comes after the plan that ends it.
        over = [i for i, held in self._leases.items() if held.last_round < event.round_id - 1]
        for lease_id in over:
            del self._leases[lease_id]

    def read(self, event: ProgressReported | TaskStopped) -> Iterator[Reading]:
        """What a report says of throughputs."""
        rows = (event.task,) if isinstance(event, TaskStopped) else event.rows
        for row in rows:
            reading = self._read(row)
            if reading is not None:
                yield reading

    def forget(self, job_id: str) -> None:
        """The job is over."""
        self._saved.pop(job_id, None)

    def _read(self, row: TaskProgress) -> Reading | None:
        lease = self._leases.get(row.lease_id)
        saved = self._saved.get(row.job_id, 0.0)
        self._saved[row.job_id] = max(saved, row.checkpointed_steps)
        if lease is None or lease.num_jobs > 1:
            return None
        before = saved if lease.steps is None else lease.steps
        lease.steps = row.steps
        trained_s = row.run_s - row.load_s - row.save_s
        if trained_s < _LEAST_S or row.steps <= before:
            return None
        rate = (row.steps - before) / trained_s
        return Reading(row.job_id, lease.worker_type, rate)

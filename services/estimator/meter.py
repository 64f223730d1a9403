"""Reads throughputs off what real leases report.

A report holds absolute steps, so a speed is the difference of two of them over the seconds between
that were spent training: loading (from the lease's start until training begins) and saving are
left out. Two jobs that share workers are read together, as long as both run: what one makes after
the other has left is neither the pair's speed nor its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from schemas.domain import TaskProgress
from schemas.events import ProgressReported, RoundScheduled, TaskStopped, WorkerRegistered
from schemas.servers import Servers

#: Seconds of training below which a report says too little.
_LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Steps/s that a job made, alone on workers of one type (or of its unconsolidated way)."""

    job_id: str
    worker_type: str
    steps_per_s: float


@dataclass(frozen=True, slots=True)
class PairReading:
    """Steps/s that two jobs made on workers they shared; both 0: together they do not run."""

    job_ids: tuple[str, str]
    worker_type: str
    steps_per_s: tuple[float, float]
    #: That were trained, of the job with fewer.
    seconds: float


@dataclass(slots=True)
class _Lease:
    worker_type: str
    #: Of its jobs, those that run.
    running: list[str]
    last_round: int
    #: {job id: its steps when last heard of, under this lease}
    steps: dict[str, float] = field(default_factory=dict)
    #: A job has left since the last report: what the other makes until the next is of both ways.
    mixed: bool = False


@dataclass(slots=True)
class Meter:
    """Folds rounds and reports into readings."""

    #: Where workers are: which ways gangs are, and can be, held in.
    servers: Servers = field(default_factory=Servers)
    _leases: dict[str, _Lease] = field(default_factory=dict)
    #: {job id: steps of its newest checkpoint, which the next lease goes on from}
    _saved: dict[str, float] = field(default_factory=dict)

    def register(self, event: WorkerRegistered) -> None:
        """A worker is there: its server says how gangs are placed."""
        self.servers.add(event)

    def plan(self, event: RoundScheduled) -> None:
        """A round is planned; leases long over are forgotten."""
        for lease in event.granted:
            way = self.servers.way(lease)
            jobs = [task.job_id for task in lease.tasks]
            self._leases[lease.lease_id] = _Lease(way, jobs, event.round_id)
        for lease_id in event.renewed:
            if lease_id in self._leases:
                self._leases[lease_id].last_round = event.round_id
        # The last report of a lease comes after the plan that ends it.
        over = [i for i, held in self._leases.items() if held.last_round < event.round_id - 1]
        for lease_id in over:
            del self._leases[lease_id]

    def read(self, event: ProgressReported | TaskStopped) -> Iterator[Reading | PairReading]:
        """What a report says of throughputs; of tasks stopped, only a completion does."""
        if isinstance(event, TaskStopped):
            yield from self._stopped(event)
            return
        rows: dict[str, list[TaskProgress]] = {}
        for row in event.rows:
            rows.setdefault(row.lease_id, []).append(row)
        for lease_id, tasks in rows.items():
            yield from self._reported(lease_id, tasks)

    def forget(self, job_id: str) -> None:
        """The job is over."""
        self._saved.pop(job_id, None)

    def _stopped(self, event: TaskStopped) -> Iterator[Reading]:
        row = event.task
        steps, trained_s = self._made(row)
        lease = self._leases.get(row.lease_id)
        if lease is None or row.job_id not in lease.running:
            return
        lease.running.remove(row.job_id)
        if lease.running:
            lease.mixed = True
        elif event.reason == "completed" and not lease.mixed:
            yield from _alone(row, lease, steps, trained_s)

    def _reported(
        self, lease_id: str, rows: Sequence[TaskProgress]
    ) -> Iterator[Reading | PairReading]:
        made = [self._made(row) for row in rows]
        lease = self._leases.get(lease_id)
        if lease is None:
            return
        mixed, lease.mixed = lease.mixed, False
        jobs = [row.job_id for row in rows]
        if mixed or sorted(jobs) != sorted(lease.running):
            return
        if len(rows) == 1:
            yield from _alone(rows[0], lease, *made[0])
        elif all(trained_s >= _LEAST_S for _, trained_s in made):
            (first, first_s), (second, second_s) = made
            rates = (first / first_s, second / second_s)
            both = (jobs[0], jobs[1])
            yield PairReading(both, lease.worker_type, rates, min(first_s, second_s))

    def _made(self, row: TaskProgress) -> tuple[float, float]:
        """Steps since the job was last heard of, and the seconds that were trained for them."""
        lease = self._leases.get(row.lease_id)
        saved = self._saved.get(row.job_id, 0.0)
        self._saved[row.job_id] = max(saved, row.checkpointed_steps)
        before = saved if lease is None else lease.steps.get(row.job_id, saved)
        if lease is not None:
            lease.steps[row.job_id] = row.steps
        return max(0.0, row.steps - before), row.run_s - row.load_s - row.save_s


def _alone(row: TaskProgress, lease: _Lease, steps: float, trained_s: float) -> Iterator[Reading]:
    if trained_s >= _LEAST_S and steps > 0:
        yield Reading(row.job_id, lease.worker_type, steps / trained_s)

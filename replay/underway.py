"""What a cluster is in the midst of: a fold of the log, from which a simulated one goes on.

A log says how far a task was at the end of each round, and when it or the job that shares its
workers ended inside one; the rest is arithmetic, and the simulated cluster's (``cluster.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from replay.cluster import Running, TakenOver
from schemas.domain import Lease, TaskProgress
from schemas.events import (
    ClusterConfigured,
    Event,
    LeasesChanged,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
)
from schemas.record import Record


@dataclass(frozen=True, slots=True)
class Holding:
    """Who holds workers, since when and (if nobody renews it) until when, by which priority."""

    lease: Lease
    #: Those of its jobs that have not ended.
    job_ids: tuple[str, ...]
    since_s: float
    until_s: float
    priority: float


@dataclass(slots=True)
class _Out:
    """A lease that is out."""

    lease: Lease
    until_round: int
    starts_at_s: float
    priority: float
    #: When its tasks' steps were last told, s; None: not yet.
    since_s: float | None = None
    #: {job id: steps then}
    steps: dict[str, float] = field(default_factory=dict)
    #: (when, job id) of those that have ended since.
    ended: list[tuple[float, str]] = field(default_factory=list)
    #: Its last report is still to come, and never does if its service is dead.
    revoked: bool = False


class UnderWay:
    """Folds records into what runs, and what is saved."""

    _saved: dict[str, float]
    #: {job id: seconds that it has held workers}
    _held_s: dict[str, float]
    #: (lease id, job id) of leases still out under which the job runs no more.
    _over: dict[tuple[str, str], None]
    _out: dict[str, _Out]
    #: {round: when it ends, s}, of those not over yet
    _ends: dict[int, float]
    _last_seq: int
    #: Such a round is computed when it begins: it is run again, and reports the same again.
    _whole_steps: bool

    def __init__(self) -> None:
        self._saved, self._held_s, self._over, self._out, self._ends = {}, {}, {}, {}, {}
        self._last_seq, self._whole_steps = 0, False
        self._takes: dict[type[Event], Callable[..., None]] = {
            ClusterConfigured: self._configure,
            RoundScheduled: self._plan,
            LeasesChanged: self._revoke,
            ProgressReported: self._book_round,
            TaskStopped: self._book_stop,
        }

    def take(self, record: Record) -> None:
        """Take in the next record."""
        self._last_seq = record.seq
        take = self._takes.get(type(record.event))
        if take is not None:
            take(record.event, record.at)

    def holdings(self) -> list[Holding]:
        """Leases under which somebody runs, or is about to."""
        return [
            Holding(out.lease, jobs, out.starts_at_s, self._ends[out.until_round], out.priority)
            for out in self._out.values()
            # Of rounds that were over when the newest began, nothing but reports is to come.
            if out.until_round in self._ends and not out.revoked and (jobs := self._of_lease(out))
        ]

    def of_job(self, job_id: str) -> Holding | None:
        """The lease under which a job runs, or is about to."""
        return next((each for each in self.holdings() if job_id in each.job_ids), None)

    def taken_over(self) -> TakenOver:
        """The cluster as it is now."""
        return TakenOver(
            saved=dict(self._saved),
            held_s=dict(self._held_s),
            over=frozenset(self._over),
            running={
                lease_id: self._running(out)
                for lease_id, out in self._out.items()
                if out.since_s is not None or out.ended
            },
            last_n=0 if self._whole_steps else self._last_seq,
        )

    def _of_lease(self, out: _Out) -> tuple[str, ...]:
        jobs = (task.job_id for task in out.lease.tasks)
        return tuple(job_id for job_id in jobs if (out.lease.lease_id, job_id) not in self._over)

    def _running(self, out: _Out) -> Running:
        if out.since_s is not None:
            return Running(out.starts_at_s, out.since_s, dict(out.steps), tuple(out.ended))
        steps = {task.job_id: self._saved.get(task.job_id, 0.0) for task in out.lease.tasks}
        return Running(out.starts_at_s, out.starts_at_s, steps, tuple(out.ended))

    def _configure(self, event: ClusterConfigured, at: float) -> None:
        self._whole_steps = event.round_end == "last_task"

    def _plan(self, event: RoundScheduled, at: float) -> None:
        if self._whole_steps:
            # Such a round is planned when the one before is over: what it does not renew is gone.
            self._out = {i: out for i, out in self._out.items() if i in event.renewed}
        running = {n: ends for n, ends in self._ends.items() if ends >= event.starts_at_s}
        self._ends = running | {event.round_id: event.ends_at_s}
        for lease_id, priority in zip(event.renewed, event.renewed_priorities, strict=True):
            if lease_id in self._out:
                out = self._out[lease_id]
                out.until_round, out.priority = event.round_id, priority
        for lease in event.granted:
            out = _Out(lease, event.round_id, event.starts_at_s, lease.priority)
            self._out[lease.lease_id] = out

    def _revoke(self, event: LeasesChanged, at: float) -> None:
        for lease_id in event.revoked:
            if lease_id in self._out:
                self._out[lease_id].revoked = True

    def _book_round(self, event: ProgressReported, at: float) -> None:
        ends_at_s = self._ends.get(event.round_id, at)
        for row in event.rows:
            self._save(row)
        told = [
            (out, row)
            for row in event.rows
            if (out := self._out.get(row.lease_id)) is not None
            and out.lease.reporters[0] == event.reporter
        ]
        for out, _ in told:
            out.since_s, out.steps, out.ended = ends_at_s, {}, []
        for out, row in told:
            out.steps[row.job_id] = row.steps
        over = [
            lease_id
            for lease_id, out in self._out.items()
            if out.until_round <= event.round_id
            and out.lease.reporters[0] == event.reporter
            and not self._whole_steps
        ]
        for lease_id in over:
            for task in self._out.pop(lease_id).lease.tasks:
                self._over.pop((lease_id, task.job_id), None)

    def _book_stop(self, event: TaskStopped, at: float) -> None:
        if self._whole_steps:
            return
        row = event.task
        self._save(row)
        out = self._out.get(row.lease_id)
        if out is None or out.lease.reporters[0] != event.reporter:
            return
        self._over[row.lease_id, row.job_id] = None
        out.ended.append((at, row.job_id))

    def _save(self, row: TaskProgress) -> None:
        saved = self._saved.get(row.job_id, 0.0)
        self._saved[row.job_id] = max(saved, row.checkpointed_steps)
        self._held_s[row.job_id] = self._held_s.get(row.job_id, 0.0) + row.run_s

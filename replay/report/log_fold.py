"""What a report needs of a log, in one pass: leases, who waited and why, what was promised.

A plan is made before its round begins; here it counts from the moment that it takes effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from replay.summary import Summary
from schemas.domain import JobSpec, Lease
from schemas.events import (
    AllocationComputed,
    ClusterConfigured,
    Event,
    JobCancelled,
    JobCompleted,
    JobEnded,
    JobFailed,
    JobRejected,
    JobRequeued,
    JobSubmitted,
    LeasesChanged,
    RoundScheduled,
    TaskStopped,
    ThroughputEstimated,
    WorkerRegistered,
)
from schemas.record import Record

#: Why a job waits, in the order it usually does.
BEFORE_ROUND = "for a round to begin"
NO_ALLOCATION = "not in an allocation yet"
NO_SHARE = "its share is 0"
TURN = "its turn comes later"
RETRY = "restarting after a failure"
CAUSES = (BEFORE_ROUND, NO_ALLOCATION, NO_SHARE, TURN, RETRY)
_RUNNING = ""


@dataclass(slots=True)
class Held:
    """A lease: which workers it held, and from when to when."""

    lease: Lease
    start_s: float
    end_s: float | None = None
    running: set[str] = field(default_factory=set)
    #: "profile", or empty.
    kind: str = ""


@dataclass(slots=True)
class _Waiting:
    since_s: float
    cause: str


class LogFold:
    """Folds the records of a log."""

    def __init__(self) -> None:
        self.summary = Summary()
        self.config = ClusterConfigured()
        self.workers: dict[str, WorkerRegistered] = {}
        self.jobs: dict[str, JobSpec] = {}
        #: {(job type, scale factor): {worker type: steps/s}}, as first estimated.
        self.speeds: dict[tuple[str, int], dict[str, float]] = {}
        self.held: list[Held] = []
        #: {job id: {why: seconds}}
        self.waited_s: dict[str, dict[str, float]] = {}
        #: {job id: seconds on workers that allocations promised it while it was there}
        self.promised_s: dict[str, float] = defaultdict(float)
        #: (time, change of the number of jobs there)
        self.coming_and_going: list[tuple[float, int]] = []
        #: Times of solves.
        self.solved_at: list[float] = []
        self.records = 0
        self.at = 0.0
        self._open: dict[str, Held] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._share: dict[str, float] = {}
        self._shares_since = 0.0
        self._plan: RoundScheduled | None = None
        #: Leases that were revoked before their round began.
        self._revoked: set[str] = set()
        self._takers: dict[type[Event], Callable[..., None]] = {
            ClusterConfigured: self._configured,
            WorkerRegistered: self._registered,
            ThroughputEstimated: self._estimated,
            JobSubmitted: self._submitted,
            RoundScheduled: self._planned,
            LeasesChanged: self._changed,
            TaskStopped: self._stopped,
            JobRequeued: self._requeued,
            JobCompleted: self._ended,
            JobFailed: self._ended,
            JobCancelled: self._ended,
            JobRejected: self._ended,
            AllocationComputed: self._solved,
        }

    def take(self, record: Record) -> None:
        """Fold one record."""
        self.records += 1
        self.summary.take(record)
        if self._plan is not None and record.at >= self._plan.starts_at_s:
            self._begin(self._plan)
        self.at = max(self.at, record.at)
        taker = self._takers.get(type(record.event))
        if taker is not None:
            taker(record.event, record.at)

    def close(self) -> None:
        """End what is open with the log."""
        if self._plan is not None and self._plan.starts_at_s <= self.at:
            self._begin(self._plan)
        self._keep_promises(self.at)
        for held in self._open.values():
            held.end_s = max(self.at, held.start_s)
        self._open.clear()
        for job_id in list(self._waiting):
            self._wait(job_id, self.at, self._waiting[job_id].cause)

    def _configured(self, event: ClusterConfigured, at: float) -> None:
        self.config = event

    def _registered(self, event: WorkerRegistered, at: float) -> None:
        self.workers[event.worker_id] = event

    def _estimated(self, event: ThroughputEstimated, at: float) -> None:
        if not event.job_id:
            key = (event.row.job_type, event.row.scale_factor)
            speeds = {cell.worker_type: cell.steps_per_s for cell in event.row.alone}
            self.speeds.setdefault(key, speeds)

    def _submitted(self, event: JobSubmitted, at: float) -> None:
        self.jobs[event.job.job_id] = event.job
        self.waited_s[event.job.job_id] = dict.fromkeys(CAUSES, 0.0)
        self._waiting[event.job.job_id] = _Waiting(at, BEFORE_ROUND)
        self.coming_and_going.append((at, 1))

    def _planned(self, event: RoundScheduled, at: float) -> None:
        self._plan = event
        if event.starts_at_s <= at:
            self._begin(event)

    def _begin(self, plan: RoundScheduled) -> None:
        """The plan's round begins: leases end, leases start, and whoever has none waits."""
        self._plan = None
        for lease_id in plan.ended:
            self._end(lease_id, plan.starts_at_s)
        for lease in plan.granted:
            running = {task.job_id for task in lease.tasks} & self._waiting.keys()
            if lease.lease_id in self._revoked or not running:
                continue
            held = Held(lease, plan.starts_at_s, running=running)
            self._open[lease.lease_id] = held
            self.held.append(held)
        running = {job_id for held in self._open.values() for job_id in held.running}
        for job_id, waiting in self._waiting.items():
            if job_id in running:
                cause = _RUNNING
            elif waiting.cause == RETRY:
                continue
            elif job_id not in self._share:
                cause = NO_ALLOCATION
            else:
                cause = TURN if self._share[job_id] > 0 else NO_SHARE
            if cause != waiting.cause:
                self._wait(job_id, plan.starts_at_s, cause)

    def _changed(self, event: LeasesChanged, at: float) -> None:
        for lease_id in event.revoked:
            self._revoked.add(lease_id)
            self._end(lease_id, at)
        for lease in event.granted:
            self.held.append(Held(lease, event.starts_at_s, event.ends_at_s, kind="profile"))

    def _stopped(self, event: TaskStopped, at: float) -> None:
        held = self._open.get(event.task.lease_id)
        if held is None:
            return
        held.running.discard(event.task.job_id)
        if event.task.job_id in self._waiting:
            self._wait(event.task.job_id, at, BEFORE_ROUND)
        if not held.running:
            self._end(event.task.lease_id, at)

    def _end(self, lease_id: str, at: float) -> None:
        held = self._open.pop(lease_id, None)
        if held is not None:
            held.end_s = max(at, held.start_s)
            for job_id in held.running & self._waiting.keys():
                self._wait(job_id, held.end_s, TURN)

    def _requeued(self, event: JobRequeued, at: float) -> None:
        if event.job_id in self._waiting:
            self._wait(event.job_id, at, RETRY)

    def _ended(self, event: JobEnded, at: float) -> None:
        if event.job_id in self._waiting:
            self._wait(event.job_id, at, _RUNNING)
            del self._waiting[event.job_id]
            self.coming_and_going.append((at, -1))
        self.promised_s[event.job_id] += self._share.pop(event.job_id, 0.0) * (
            at - self._shares_since
        )

    def _solved(self, event: AllocationComputed, at: float) -> None:
        self.solved_at.append(at)
        self._keep_promises(at)
        self._share = {}
        for row in event.rows:
            share = sum(row.shares.values())
            for combination in row.combinations:
                for job_id in combination:
                    self._share[job_id] = self._share.get(job_id, 0.0) + share

    def _keep_promises(self, at: float) -> None:
        """Add up what the allocation in force has promised until now."""
        for job_id, share in self._share.items():
            self.promised_s[job_id] += share * (at - self._shares_since)
        self._shares_since = at

    def _wait(self, job_id: str, at: float, cause: str) -> None:
        """From now on the job waits for another reason, or runs."""
        waiting = self._waiting[job_id]
        if waiting.cause != _RUNNING:
            self.waited_s[job_id][waiting.cause] += max(0.0, at - waiting.since_s)
        self._waiting[job_id] = _Waiting(at, cause)

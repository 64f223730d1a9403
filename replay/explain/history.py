"""What happened to jobs, for whoever asks why one took so long: a fold.

A job's life is cut into *stretches*: under one lease in one round, from when to when, how many
steps further. What lies between two of them is waiting, and the log says for what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from schemas.domain import UNCONSOLIDATED, JobSpec, Lease, TaskProgress
from schemas.events import (
    AllocationComputed,
    ClusterConfigured,
    Event,
    JobAdmitted,
    JobCancelled,
    JobCompleted,
    JobEnded,
    JobFailed,
    JobRejected,
    JobRequeued,
    JobSubmitted,
    LeasesChanged,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    ThroughputEstimated,
    WorkerRegistered,
)
from schemas.record import Record
from schemas.servers import Servers


@dataclass(slots=True)
class Stretch:
    """A job under one lease in one round."""

    lease_id: str
    #: Worker type, in which of the two ways it was held.
    way: str
    #: Who shared the workers; empty: nobody.
    beside: str
    starts_s: float
    run_s: float
    load_s: float
    save_s: float
    #: Whole-job steps made.
    steps: float

    @property
    def ends_s(self) -> float:
        """Its end, s."""
        return self.starts_s + self.run_s


@dataclass(slots=True)
class Parting:
    """A job gave its workers up undone: ``preempted`` by a plan, ``failed``, or ``revoked``."""

    at_s: float
    how: str
    reason: str = ""
    not_before_s: float = 0.0
    #: Failures in a row that it then had.
    failures: int = 0


@dataclass(slots=True)
class JobHistory:
    """All that happened to one job."""

    spec: JobSpec
    submitted_s: float
    admitted_s: float | None = None
    #: When its throughput was first known.
    estimated_s: float | None = None
    estimate: ThroughputEstimated | None = None
    #: When the first round starts that could have had it.
    first_round_s: float | None = None
    stretches: list[Stretch] = field(default_factory=list)
    partings: list[Parting] = field(default_factory=list)
    #: Whole-job steps that it has, as last told.
    steps: float = 0.0
    ended_s: float | None = None
    #: The event that ended it.
    ending: JobEnded | None = None
    #: {worker type: X}, in force since ``shares_since_s``, and seconds promised before that.
    shares: dict[str, float] = field(default_factory=dict)
    shares_since_s: float = 0.0
    promised_s: dict[str, float] = field(default_factory=dict)
    #: Whether the newest allocation knows of it.
    is_allocated: bool = False
    #: Of its newest lease: in which way workers are held, and X there when it was last planned;
    #: None: no allocation knew of it, and it had an equal share.
    way: str = ""
    planned_share: float | None = 0.0

    def entitled_s(self, now: float) -> dict[str, float]:
        """{worker type: seconds that the policy has promised so far}."""
        until = now if self.ended_s is None else self.ended_s
        entitled = dict(self.promised_s)
        for worker_type, share in self.shares.items():
            more = share * max(0.0, until - self.shares_since_s)
            entitled[worker_type] = entitled.get(worker_type, 0.0) + more
        return entitled

    def received_s(self) -> dict[str, float]:
        """{worker type: seconds that it has held workers}, as far as they were reported."""
        received: dict[str, float] = {}
        for stretch in self.stretches:
            received[stretch.way] = received.get(stretch.way, 0.0) + stretch.run_s
        return received


@dataclass(slots=True)
class _Out:
    """A lease that is out, with what its jobs had done when they last said so."""

    lease: Lease
    way: str
    running: set[str]
    steps: dict[str, float] = field(default_factory=dict)
    #: Its last report is still to come.
    is_ending: bool = False


def share_on(worker_type: str, shares: Mapping[str, float]) -> float:
    """X on a type, in both ways to hold it."""
    return sum(shares.get(way, 0.0) for way in (worker_type, worker_type + UNCONSOLIDATED))


class Histories:
    """Folds records into the histories of some jobs, or of all.

    Parameters
    ----------
    only : ids of the jobs that are asked about; None: all
    """

    def __init__(self, only: Collection[str] | None = None) -> None:
        self.jobs: dict[str, JobHistory] = {}
        self._only = only
        self._servers = Servers()
        self._whole_steps = self._new_jobs_wait = False
        #: {(job type, scale factor): its newest estimate}
        self._of_class: dict[tuple[str, int], ThroughputEstimated] = {}
        self._round_starts: dict[int, float] = {}
        self._out: dict[str, _Out] = {}
        self._saved: dict[str, float] = {}
        self._takes: dict[type[Event], Callable[..., None]] = {
            ClusterConfigured: self._configure,
            WorkerRegistered: self._register,
            ThroughputEstimated: self._estimate,
            JobSubmitted: self._submit,
            JobAdmitted: self._admit,
            JobRequeued: self._requeue,
            JobRejected: self._end,
            JobCancelled: self._end,
            JobCompleted: self._end,
            JobFailed: self._end,
            AllocationComputed: self._allocate,
            RoundScheduled: self._plan,
            LeasesChanged: self._change,
            ProgressReported: self._book_round,
            TaskStopped: self._book_stop,
        }

    def take(self, record: Record) -> None:
        """Take in the next record."""
        take = self._takes.get(type(record.event))
        if take is not None:
            take(record.event, record.at)

    # --- coming and going ------------------------------------------------------------------------

    def _configure(self, event: ClusterConfigured, at: float) -> None:
        self._whole_steps = event.round_end == "last_task"
        self._new_jobs_wait = event.new_jobs == "wait"

    def _register(self, event: WorkerRegistered, at: float) -> None:
        self._servers.add(event)

    def _submit(self, event: JobSubmitted, at: float) -> None:
        spec = event.job
        is_asked = self._only is None or spec.job_id in self._only
        if not is_asked or spec.job_id in self.jobs:
            return
        history = self.jobs[spec.job_id] = JobHistory(spec, at)
        known = self._of_class.get((spec.job_type, spec.scale_factor))
        if known is not None:
            history.estimate, history.estimated_s = known, at

    def _estimate(self, event: ThroughputEstimated, at: float) -> None:
        key = (event.row.job_type, event.row.scale_factor)
        if not event.job_id:
            self._of_class[key] = event
        for history in self.jobs.values():
            spec = history.spec
            own = history.estimate is not None and history.estimate.job_id
            of_class = (spec.job_type, spec.scale_factor) == key and not event.job_id and not own
            if event.job_id == spec.job_id or of_class:
                history.estimate = event
                history.estimated_s = at if history.estimated_s is None else history.estimated_s

    def _admit(self, event: JobAdmitted, at: float) -> None:
        if event.job_id in self.jobs:
            self.jobs[event.job_id].admitted_s = at

    def _end(self, event: JobEnded, at: float) -> None:
        history = self.jobs.get(event.job_id)
        if history is not None and history.ended_s is None:
            self._promise(history, {}, at)
            history.ended_s, history.ending = at, event

    def _requeue(self, event: JobRequeued, at: float) -> None:
        history = self.jobs.get(event.job_id)
        if history is None:
            return
        history.steps = event.steps
        parting = Parting(at, "failed", event.reason, event.not_before_s, event.attempt)
        history.partings.append(parting)

    def _allocate(self, event: AllocationComputed, at: float) -> None:
        shares: dict[str, dict[str, float]] = {}
        for row in event.rows:
            for combination in row.combinations:
                for job_id in combination:
                    if job_id in self.jobs:
                        mine = shares.setdefault(job_id, {})
                        for worker_type, share in row.shares.items():
                            mine[worker_type] = mine.get(worker_type, 0.0) + share
        for job_id, history in self.jobs.items():
            if history.ended_s is None:
                history.is_allocated = job_id in shares
                self._promise(history, shares.get(job_id, {}), at)

    def _promise(self, history: JobHistory, shares: dict[str, float], at: float) -> None:
        history.promised_s = history.entitled_s(at)
        history.shares, history.shares_since_s = shares, at

    # --- leases ----------------------------------------------------------------------------------

    def _asked(self, jobs: Iterable[str]) -> list[JobHistory]:
        return [self.jobs[job_id] for job_id in sorted(jobs) if job_id in self.jobs]

    def _plan(self, event: RoundScheduled, at: float) -> None:
        starts = {n: s for n, s in self._round_starts.items() if n >= event.round_id - 2}
        self._round_starts = starts | {event.round_id: event.starts_at_s}
        for history in self.jobs.values():
            if history.first_round_s is None and history.estimated_s is not None:
                history.first_round_s = event.starts_at_s
        for lease_id in event.ended:
            out = self._out.get(lease_id)
            if out is None:
                continue
            out.is_ending = True
            for history in self._asked(out.running):
                if history.ended_s is None:
                    history.partings.append(Parting(event.starts_at_s, "preempted"))
        for lease in event.granted:
            jobs = {task.job_id for task in lease.tasks}
            if self._asked(jobs):
                way = lease.worker_type if self._whole_steps else self._servers.way(lease)
                self._out[lease.lease_id] = _Out(lease, way, jobs)
        self._keep_shares((*event.renewed, *(lease.lease_id for lease in event.granted)))

    def _keep_shares(self, held: Iterable[str]) -> None:
        """By which share its jobs were given a lease."""
        for planned in (self._out[lease_id] for lease_id in held if lease_id in self._out):
            for history in self._asked(planned.running):
                history.way = planned.way
                history.planned_share = self._share_on(planned.lease.worker_type, history)

    def _share_on(self, worker_type: str, history: JobHistory) -> float | None:
        if not (history.is_allocated or self._new_jobs_wait):
            return None
        return share_on(worker_type, history.shares)

    def _change(self, event: LeasesChanged, at: float) -> None:
        for lease_id in event.revoked:
            out = self._out.get(lease_id)
            for history in self._asked(out.running) if out is not None else ():
                if history.ended_s is None:
                    history.partings.append(Parting(at, "revoked", event.reason))

    def _book_round(self, event: ProgressReported, at: float) -> None:
        for row in event.rows:
            if row.job_id in self.jobs:
                starts_s = self._round_starts.get(event.round_id, at - row.run_s)
                self._book(row, event.reporter, starts_s)
        for row in event.rows:
            if row.lease_id in self._out and self._out[row.lease_id].is_ending:
                del self._out[row.lease_id]

    def _book_stop(self, event: TaskStopped, at: float) -> None:
        row = event.task
        out = self._out.get(row.lease_id)
        history = self.jobs.get(row.job_id)
        if out is None or (event.reason != "failed" and out.lease.reporters[0] != event.reporter):
            # Of ranks elsewhere only a failure counts.
            return
        if history is not None:
            self._book(row, event.reporter, at - row.run_s)
            if event.reason != "completed":
                history.steps = row.checkpointed_steps
        out.running.discard(row.job_id)

    def _book(self, row: TaskProgress, reporter: str, starts_s: float) -> None:
        out = self._out.get(row.lease_id)
        if out is None or out.lease.reporters[0] != reporter or row.job_id not in out.running:
            return
        self.jobs[row.job_id].steps = row.steps
        before = out.steps.get(row.job_id, self._saved.get(row.job_id, 0.0))
        out.steps[row.job_id] = row.steps
        saved = self._saved.get(row.job_id, 0.0)
        self._saved[row.job_id] = max(saved, row.checkpointed_steps)
        if row.run_s <= 0:
            return
        others = [task.job_id for task in out.lease.tasks if task.job_id != row.job_id]
        self.jobs[row.job_id].stretches.append(
            Stretch(
                lease_id=row.lease_id,
                way=out.way,
                beside=others[0] if others and others[0] in out.running else "",
                starts_s=starts_s,
                run_s=row.run_s,
                load_s=row.load_s,
                save_s=row.save_s,
                steps=row.steps - before,
            )
        )

"""What a log says of a cluster, as people ask for it: a fold, to be printed or given as JSON."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from schemas import events as ev
from schemas.domain import Lease, TaskProgress
from schemas.events import Event
from schemas.record import Record

#: Rounds kept.
_ROUNDS = 1000
WAITING, RUNNING, COMPLETED = "waiting", "running", "completed"
#: Of jobs: nothing more will come of them.
ENDED = (COMPLETED, "failed", "cancelled", "rejected")


class JobLine(msgspec.Struct, kw_only=True):
    """One job."""

    job_id: str
    job_type: str
    scale_factor: int
    total_steps: float | None
    priority_weight: float
    #: ``submitted``, ``waiting``, ``running``, or one of ``ENDED``.
    status: str = "submitted"
    steps: float = 0.0
    checkpointed_steps: float = 0.0
    submitted_s: float
    first_started_s: float | None = None
    ended_s: float | None = None
    #: Where it runs.
    lease_id: str = ""
    worker_ids: tuple[str, ...] = ()
    leases: int = 0
    #: {worker type: share of time the policy wants it to have}
    shares: dict[str, float] = {}
    reason: str = ""
    command: str = ""
    #: What its owner declared of its throughputs was measured, and is not so.
    claim_refuted: bool = False


class Estimate(msgspec.Struct, kw_only=True):
    """What policies believe of a job's speed, and where that comes from."""

    #: See ``ThroughputEstimated``; empty: nothing is known yet.
    source: str = ""
    #: {worker type: steps/s}
    steps_per_s: dict[str, float] = {}
    #: The class whose pairs hold for it, how likely that is the right one, and the job's speed
    #: over the class's.
    job_class: str = ""
    confidence: float = 1.0
    multiplier: float = 1.0
    #: It was like no class there was, and is the first of this one.
    first_of_class: bool = False
    #: {outcome: how many of its profiles}, and why the last that failed did.
    profiles: dict[str, int] = {}
    last_failure: str = ""


class WorkerLine(msgspec.Struct, kw_only=True):
    """One accelerator."""

    worker_id: str
    worker_type: str
    server_id: str
    reporter: str
    #: ``ready``, ``unreachable``, ``lost``, ``draining`` or ``drained``.
    state: str = "ready"
    job_ids: tuple[str, ...] = ()


class RoundLine(msgspec.Struct, kw_only=True):
    """One round."""

    round_id: int
    starts_at_s: float
    ends_at_s: float
    granted: int
    renewed: int
    ended: int
    jobs: int


class Picture:
    """Folds records; see the attributes."""

    def __init__(self) -> None:
        self.last_seq = 0
        self.at_s = 0.0
        self.config: ev.ClusterConfigured | None = None
        self.table: ev.ThroughputTableImported | None = None
        self.jobs: dict[str, JobLine] = {}
        self.workers: dict[str, WorkerLine] = {}
        self.rounds: deque[RoundLine] = deque(maxlen=_ROUNDS)
        self.allocation: ev.AllocationComputed | None = None
        self.allocated_at_s = 0.0
        #: {(job type, scale factor): {worker type: steps/s}}
        self.class_speeds: dict[tuple[str, int], dict[str, float]] = {}
        #: {job id: the newest estimate of it alone}, {(job type, scale factor): of its class}
        self._job_estimates: dict[str, ev.ThroughputEstimated] = {}
        self._class_estimates: dict[tuple[str, int], ev.ThroughputEstimated] = {}
        #: {job id: {outcome: profiles}}, {job id: why the last that failed did}
        self._profiles: dict[str, dict[str, int]] = {}
        self._failures: dict[str, str] = {}
        #: Jobs that are the first of a class.
        self._first: set[str] = set()
        #: Jobs whose owners declared what is not so.
        self.refuted: dict[str, ev.ClaimRefuted] = {}
        #: {service: its newest start}
        self.starts: dict[str, ev.LeaderElected] = {}
        self._leases: dict[str, Lease] = {}
        self._takes: dict[type[Event], Callable[..., None]] = {
            ev.ClusterConfigured: self._configure,
            ev.ThroughputTableImported: self._import,
            ev.JobSubmitted: self._submit,
            ev.JobAdmitted: self._admit,
            ev.JobRejected: self._end,
            ev.JobCancelled: self._end,
            ev.JobCompleted: self._end,
            ev.JobFailed: self._end,
            ev.JobRequeued: self._requeue,
            ev.WorkerRegistered: self._register,
            ev.WorkerReturned: self._return,
            ev.WorkerUnreachable: self._miss,
            ev.WorkerLost: self._miss,
            ev.WorkerDrained: self._drained,
            ev.DrainRequested: self._drain,
            ev.RoundScheduled: self._plan,
            ev.LeasesChanged: self._revoke,
            ev.TasksStarted: self._start,
            ev.ProgressReported: self._book_round,
            ev.TaskStopped: self._book_stop,
            ev.AllocationComputed: self._allocate,
            ev.ThroughputEstimated: self._estimate,
            ev.ThroughputMeasured: self._profile,
            ev.ClaimRefuted: self._refute,
        }

    def take(self, record: Record) -> None:
        """Take in the next record."""
        self.last_seq, self.at_s = record.seq, record.at
        if isinstance(record.event, ev.LeaderElected):
            self.starts[record.actor] = record.event
        take = self._takes.get(type(record.event))
        if take is not None:
            take(record.event)

    @property
    def counts(self) -> dict[str, int]:
        """{worker type: registered workers}."""
        found: dict[str, int] = {}
        for worker in self.workers.values():
            found[worker.worker_type] = found.get(worker.worker_type, 0) + 1
        return found

    def estimate(self, line: JobLine) -> Estimate:
        """What is believed of a job's speed."""
        job_id = line.job_id
        own = self._job_estimates.get(job_id)
        said = own or self._class_estimates.get((line.job_type, line.scale_factor))
        found = Estimate(
            profiles=dict(sorted(self._profiles.get(job_id, {}).items())),
            last_failure=self._failures.get(job_id, ""),
            first_of_class=job_id in self._first,
        )
        if said is None:
            return found
        return msgspec.structs.replace(
            found,
            source=said.source if own else f"its class, from {said.source}",
            steps_per_s={cell.worker_type: cell.steps_per_s for cell in said.row.alone},
            job_class=said.row.job_type,
            confidence=said.confidence,
            multiplier=said.multiplier,
        )

    # --- settings, estimates, workers ------------------------------------------------------------

    def _configure(self, event: ev.ClusterConfigured) -> None:
        self.config = event

    def _import(self, event: ev.ThroughputTableImported) -> None:
        self.table = event

    def _estimate(self, event: ev.ThroughputEstimated) -> None:
        if event.job_id:
            self._job_estimates[event.job_id] = event
            if event.row.beside:
                self._first.add(event.job_id)
        else:
            speeds = {cell.worker_type: cell.steps_per_s for cell in event.row.alone}
            self.class_speeds[event.row.job_type, event.row.scale_factor] = speeds
            self._class_estimates[event.row.job_type, event.row.scale_factor] = event

    def _profile(self, event: ev.ThroughputMeasured) -> None:
        outcomes = self._profiles.setdefault(event.job_id, {})
        outcomes[event.outcome] = outcomes.get(event.outcome, 0) + 1
        if event.outcome != "measured":
            beside = f" beside {event.beside}" if event.beside else ""
            self._failures[event.job_id] = f"on {event.worker_type}{beside}: {event.detail}"

    def _refute(self, event: ev.ClaimRefuted) -> None:
        self.refuted[event.job_id] = event
        if event.job_id in self.jobs:
            self.jobs[event.job_id].claim_refuted = True

    def _register(self, event: ev.WorkerRegistered) -> None:
        self.workers[event.worker_id] = WorkerLine(
            worker_id=event.worker_id,
            worker_type=event.worker_type,
            server_id=event.server_id,
            reporter=event.reporter,
        )

    def _return(self, event: ev.WorkerReturned) -> None:
        self._set_state(event.worker_id, "ready")

    def _miss(self, event: ev.WorkerUnreachable | ev.WorkerLost) -> None:
        lost = isinstance(event, ev.WorkerLost)
        self._set_state(event.worker_id, "lost" if lost else "unreachable")

    def _drained(self, event: ev.WorkerDrained) -> None:
        self._set_state(event.worker_id, "drained")

    def _drain(self, event: ev.DrainRequested) -> None:
        for worker in self.workers.values():
            if event.worker_id == worker.worker_id or event.server_id == worker.server_id:
                worker.state = "draining"

    def _set_state(self, worker_id: str, state: str) -> None:
        if worker_id in self.workers:
            self.workers[worker_id].state = state

    # --- jobs ------------------------------------------------------------------------------------

    def _submit(self, event: ev.JobSubmitted) -> None:
        spec = event.job
        if spec.job_id in self.jobs:
            return
        self.jobs[spec.job_id] = JobLine(
            job_id=spec.job_id,
            job_type=spec.job_type,
            scale_factor=spec.scale_factor,
            total_steps=spec.total_steps,
            priority_weight=spec.priority_weight,
            submitted_s=self.at_s,
            command=spec.command,
        )

    def _admit(self, event: ev.JobAdmitted) -> None:
        if event.job_id in self.jobs:
            self.jobs[event.job_id].status = WAITING

    def _requeue(self, event: ev.JobRequeued) -> None:
        job = self.jobs.get(event.job_id)
        if job is not None:
            job.status, job.reason, job.steps = WAITING, event.reason, event.steps
            self._leave(event.job_id)

    def _end(
        self, event: ev.JobRejected | ev.JobCancelled | ev.JobCompleted | ev.JobFailed
    ) -> None:
        job = self.jobs.get(event.job_id)
        if job is None:
            return
        job.status = type(event).__name__.removeprefix("Job").lower()
        job.ended_s = self.at_s
        job.reason = getattr(event, "reason", "")
        if isinstance(event, ev.JobCompleted):
            job.steps = job.checkpointed_steps = event.steps
        self._leave(event.job_id)

    def _allocate(self, event: ev.AllocationComputed) -> None:
        self.allocation, self.allocated_at_s = event, self.at_s
        for job in self.jobs.values():
            job.shares = {}
        for row in event.rows:
            listed = (job_id for combination in row.combinations for job_id in combination)
            for line in (self.jobs[job_id] for job_id in listed if job_id in self.jobs):
                shares = line.shares
                line.shares = shares | {
                    t: shares.get(t, 0.0) + share for t, share in row.shares.items()
                }

    # --- leases ----------------------------------------------------------------------------------

    def _plan(self, event: ev.RoundScheduled) -> None:
        for lease_id in event.ended:
            self._drop(lease_id)
        for lease in event.granted:
            self._leases[lease.lease_id] = lease
        known = (*event.renewed, *(lease.lease_id for lease in event.granted))
        jobs = sum(len(self._leases[i].tasks) for i in known if i in self._leases)
        self.rounds.append(
            RoundLine(
                round_id=event.round_id,
                starts_at_s=event.starts_at_s,
                ends_at_s=event.ends_at_s,
                granted=len(event.granted),
                renewed=len(event.renewed),
                ended=len(event.ended),
                jobs=jobs,
            )
        )

    def _start(self, event: ev.TasksStarted) -> None:
        for lease_id in event.lease_ids:
            lease = self._leases.get(lease_id)
            if lease is None:
                continue
            for task in lease.tasks:
                job = self.jobs.get(task.job_id)
                if job is None or job.status in ENDED:
                    continue
                job.status, job.lease_id, job.worker_ids = RUNNING, lease_id, lease.worker_ids
                job.leases += 1
                if job.first_started_s is None:
                    job.first_started_s = self.at_s
            job_ids = tuple(task.job_id for task in lease.tasks)
            for worker_id in lease.worker_ids:
                if worker_id in self.workers:
                    self.workers[worker_id].job_ids = job_ids

    def _revoke(self, event: ev.LeasesChanged) -> None:
        for lease_id in event.revoked:
            self._drop(lease_id)

    def _drop(self, lease_id: str) -> None:
        lease = self._leases.pop(lease_id, None)
        for task in lease.tasks if lease is not None else ():
            job = self.jobs.get(task.job_id)
            if job is not None and job.lease_id == lease_id:
                if job.status == RUNNING:
                    job.status = WAITING
                self._leave(task.job_id)

    def _leave(self, job_id: str) -> None:
        job = self.jobs[job_id]
        for worker_id in job.worker_ids:
            worker = self.workers.get(worker_id)
            if worker is not None:
                worker.job_ids = tuple(other for other in worker.job_ids if other != job_id)
        job.lease_id, job.worker_ids = "", ()

    def _book_round(self, event: ev.ProgressReported) -> None:
        for row in event.rows:
            self._book(row)

    def _book_stop(self, event: ev.TaskStopped) -> None:
        self._book(event.task)

    def _book(self, row: TaskProgress) -> None:
        job = self.jobs.get(row.job_id)
        if job is not None and job.status not in ENDED:
            job.steps = row.steps
            job.checkpointed_steps = max(job.checkpointed_steps, row.checkpointed_steps)

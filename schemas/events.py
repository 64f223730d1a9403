"""Everything that can happen to a cluster. Read this file first.

Rules
-----
1. An event says what *has happened*: past tense, one class per outcome.
2. An event is the only thing services share. What a service knows is a fold of these; what it
   wants others to know, it appends. Nothing is passed on the side.
3. Each class has exactly one kind of writer (the headings below; ``subjects.py`` enforces it).
   A record from anyone else is skipped and counted, live and in replay alike.
4. Fields carry units in their names. Steps are absolute whole-job counts, so that a report that
   arrives twice, late or never cannot make them wrong.
5. Classes and fields are only ever added. What a reader does not know it ignores, unless the
   record's schema number says that it must not (``record.py``). A field at its default is not
   written, so a default is part of the format: it never changes either.

One round, as it appears on the log (``gavel log tail`` prints it)::

    operator   ClusterConfigured, ThroughputTableImported
    worker     WorkerRegistered ...
    client     JobSubmitted             estimator  ThroughputEstimated   (a class not seen before)
                                        mechanism  JobAdmitted
    policy     AllocationComputed       (the share of time each job should have on each type)
    mechanism  TimerFired, RoundScheduled   (leases granted, renewed and ended)
    worker     TasksStarted ... TaskStopped (done in mid-round) ... ProgressReported (round's end)
    mechanism  JobCompleted             policy     AllocationComputed ...
"""

from __future__ import annotations

import msgspec

from schemas.domain import (
    AllocationRow,
    Entity,
    JobSpec,
    Lease,
    ProfileCell,
    TaskProgress,
    ThroughputRow,
)


class Event(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="kind"
):
    """Base of all events; the class name is the ``kind`` on the wire.

    ``gc=False``: events hold no cycles, and a log of millions is not to be walked by the collector.
    """


# --- operator ------------------------------------------------------------------------------------


class ClusterConfigured(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """How the cluster is to be run. The last one counts; a change takes effect at the next round.

    The defaults are those of a real cluster; ``replay/modes.py`` has the bundle of settings that
    makes the simulator comparable with the paper's.
    """

    policy: str = "las"
    policy_parameters: dict[str, float | str] = {}
    round_duration_s: float = 360.0
    #: How long before a boundary the next round is planned; see ``plan_lead()`` for the default.
    plan_lead_s: float | None = None
    #: ``grid``: rounds lie on a fixed grid. ``last_task``: a round ends with its last task. One
    #: of the two for a cluster's whole life: between them, rounds that run would never end.
    round_end: str = "grid"
    #: ``credit``: entitlement that outlives a solve. ``reset``: X/f, restarted at each solve (§5).
    priority: str = "credit"
    #: ``global``: one list over all types. ``per_type``: type after type, in ``type_orders``,
    #: whatever is owed on the others, so that credit would grow: for ``reset`` only.
    selection: str = "global"
    #: Pairs with X = 0 come ``last``, ``in_order`` (at the end of each type's list) or ``none``.
    fill: str = "last"
    #: Orders in which ``per_type`` selection visits worker types: one a round, over and over.
    #: Types that an order does not name follow by name.
    type_orders: tuple[tuple[str, ...], ...] = ()
    #: Jobs newer than the last solve get their ``equal_share`` of rounds, or ``wait`` for the next.
    new_jobs: str = "equal_share"
    #: Least time between two solves.
    resolve_min_gap_s: float = 0.0
    #: Worker unreachable for longer than this is lost.
    worker_lost_after_s: float = 120.0
    #: {worker type: USD per worker and hour}
    prices_usd_per_h: dict[str, float] = {}
    #: Type whose speed stands for "the" speed of a job in heterogeneity-agnostic policies.
    reference_type: str = ""
    entities: tuple[Entity, ...] = ()
    #: Whom the estimator believes. ``oracle``: tables, else what the owner declares.
    #: ``declared``: the owner first. ``learned``: tables; other jobs are profiled and matched.
    estimator: str = "oracle"
    #: Whether a job type's name says which reference job it is; if not, every job is learned.
    trust_job_types: bool = True
    #: Of the pairs of a new job with references, the share that is profiled.
    profile_fraction: float = 0.2
    #: Seconds of one profile (at most a quarter of a round), and worker-seconds that all of a
    #: job's may take.
    profile_s: float = 30.0
    profile_budget_s: float = 1800.0
    #: Relative change of a throughput below which an estimate stands.
    estimate_tolerance: float = 0.03
    #: ``check``: declared throughputs are measured and corrected. ``cap``: and until then no type
    #: is believed to be faster than another by more than it is for any reference job.
    #: ``believe``: neither.
    claims: str = "check"

    def plan_lead(self) -> float:
        """Seconds between plan and boundary: as given, else the smaller of 10 s and 5 %."""
        if self.plan_lead_s is not None:
            return self.plan_lead_s
        return min(10.0, 0.05 * self.round_duration_s)

    def profile_seconds(self) -> float:
        """Seconds of one profile: several fit into a round that leaves a worker idle."""
        return min(self.profile_s, 0.25 * self.round_duration_s)


class ThroughputTableImported(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """Reference throughputs, with their source; rows of a class replace what was known of it."""

    source: str
    rows: tuple[ThroughputRow, ...]


class DrainRequested(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A worker, or every worker of a server, is to be emptied at the end of the round."""

    worker_id: str = ""
    server_id: str = ""


# --- submit client -------------------------------------------------------------------------------


class JobSubmitted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    job: JobSpec


class CancelRequested(Event, frozen=True, gc=False, kw_only=True, tag=True):
    job_id: str


# --- worker service ------------------------------------------------------------------------------


class WorkerRegistered(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """One accelerator is there to be leased; again with the same id, its facts have changed."""

    worker_id: str
    worker_type: str
    server_id: str
    #: The worker service that speaks for it; equals the writer of the record.
    reporter: str
    rack: str = ""
    address: str = ""
    #: From the first to before the second: where ranks on several servers may meet.
    ports: tuple[int, int] | None = None
    memory_gib: float | None = None
    usd_per_h: float | None = None
    #: Leased for profiles only, never to run jobs.
    profiles_only: bool = False


class WorkerReturned(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A worker that was unreachable, lost or had disappeared is back."""

    worker_id: str
    reporter: str


class WorkerDisappeared(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """An accelerator is no longer there, by the word of its own service: lost at once."""

    worker_id: str
    reporter: str


class TasksStarted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """Tasks whose processes are up under their leases."""

    reporter: str
    lease_ids: tuple[str, ...]


class ProgressReported(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """All tasks of one worker service over one round: one record, however many tasks."""

    reporter: str
    round_id: int
    rows: tuple[TaskProgress, ...]


class TaskStopped(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A task ended inside its lease, by itself or by order.

    ``reason`` is ``completed``, ``failed``, ``lost`` or ``cancelled``. A task whose lease is not
    renewed ends without this: its last ``ProgressReported`` row has the final counts.
    """

    reporter: str
    task: TaskProgress
    reason: str
    exit_code: int | None = None
    detail: str = ""


class StopStepProposed(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """Of a gang over several worker services, whose lease ends: where one could have it stop.

    Its ranks stand there and wait for ``StopStepAgreed``. An iteration is one batch of each rank,
    counted from the job's first: whole-job steps are iterations x scale factor.
    """

    reporter: str
    round_id: int
    lease_id: str
    job_id: str
    iteration: int


class ThroughputMeasured(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A profile is over: what the job, and the reference beside it, made of its seconds.

    ``outcome`` is ``measured``, ``does_not_fit`` (a fact about the job) or ``failed`` (none).
    """

    reporter: str
    lease_id: str
    job_id: str
    worker_type: str
    #: Job type of the reference beside it; empty: alone.
    beside: str = ""
    steps_per_s: float = 0.0
    other_steps_per_s: float = 0.0
    #: Seconds that were measured over, warm-up left out.
    seconds: float = 0.0
    outcome: str = "measured"
    #: Why nothing was measured.
    detail: str = ""


# --- mechanism -----------------------------------------------------------------------------------


class JobAdmitted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    job_id: str


class JobRejected(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The job can never run; ``reason`` has the numbers that say so."""

    job_id: str
    reason: str


class JobCancelled(Event, frozen=True, gc=False, kw_only=True, tag=True):
    job_id: str


class JobCompleted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    job_id: str
    steps: float


class JobFailed(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """All attempts are used up."""

    job_id: str
    attempts: int
    reason: str


class JobRequeued(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The job lost its workers or its process; it goes on from its checkpoint, not before."""

    job_id: str
    steps: float
    attempt: int
    not_before_s: float
    reason: str


class RoundDue(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """``last_task`` rounds only: all leases have reported.

    The policy solves on this; the mechanism plans on a timer it asks for here, and so always
    after the policy's answer.
    """

    round_id: int


class RoundScheduled(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """The plan of one round: what holds the accelerators from ``starts_at_s`` to ``ends_at_s``."""

    round_id: int
    starts_at_s: float
    ends_at_s: float
    granted: tuple[Lease, ...] = ()
    #: Lease ids that go on from the round before: same job, same workers, no checkpoint.
    renewed: tuple[str, ...] = ()
    #: Behind each renewed lease, what Algorithm 1 ranked it by.
    renewed_priorities: tuple[float, ...] = ()
    #: Lease ids that end with the round before.
    ended: tuple[str, ...] = ()


class LeasesChanged(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """Inside a round: leases revoked at once, or granted for a part of it, and why."""

    round_id: int
    revoked: tuple[str, ...]
    reason: str
    #: Profiles, from ``starts_at_s`` to ``ends_at_s``.
    granted: tuple[Lease, ...] = ()
    starts_at_s: float = 0.0
    ends_at_s: float = 0.0


class StopStepAgreed(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """All services of the lease have proposed; every rank saves and stops at the highest."""

    round_id: int
    lease_id: str
    job_id: str
    iteration: int


class WorkerUnreachable(Event, frozen=True, gc=False, kw_only=True, tag=True):
    worker_id: str
    since_s: float


class WorkerLost(Event, frozen=True, gc=False, kw_only=True, tag=True):
    worker_id: str
    since_s: float


class WorkerDrained(Event, frozen=True, gc=False, kw_only=True, tag=True):
    worker_id: str


# --- estimator -----------------------------------------------------------------------------------


class ThroughputEstimated(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """What policies and admission may believe of one job class, or of one job.

    ``source`` is ``table``, ``declared``, ``provisional`` (a job not yet profiled: what jobs make
    on average), ``learned`` (from profiles) or ``measured`` (from leases).
    """

    #: Of one job: its isolated throughputs, and the class whose pairs hold for it in proportion.
    row: ThroughputRow
    #: Set where the estimate holds for one job only.
    job_id: str = ""
    source: str
    #: How likely it is that the class is the right one.
    confidence: float = 1.0
    #: Of one job: its isolated throughput over that of its class.
    multiplier: float = 1.0


class ProfileRequested(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """These cells are to be measured of a job, each for so many seconds, most telling first."""

    job_id: str
    cells: tuple[ProfileCell, ...]
    seconds: float


class ClaimRefuted(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """What a job's owner declared is not what it does, beyond any noise.

    The ratios are of throughput on ``worker_type`` over that on ``base_type``.
    """

    job_id: str
    worker_type: str
    base_type: str
    declared_ratio: float
    measured_ratio: float


class ThroughputUnknown(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """No throughput is known for the job, and none can be had."""

    job_id: str
    reason: str


# --- policy --------------------------------------------------------------------------------------


class AllocationComputed(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """X: the fraction of wall-clock time each combination is to spend on each worker type (§3.1).

    The record's ``cause`` is the record it is based on. Shares are rounded to 1e-8, so that every
    path to the same optimum writes the same bytes.
    """

    policy: str
    rows: tuple[AllocationRow, ...]
    objective: float | None = None
    #: {worker type: dual of its capacity}: by how much one more worker would raise the objective.
    prices: dict[str, float] = {}
    #: Job ids that cannot be given more without taking from a job that has less.
    bottlenecked: tuple[str, ...] = ()
    #: {job id: why} for jobs that no allocation can serve.
    set_aside: dict[str, str] = {}
    #: {job id: which of its demands is not met, and by how much}; it is served all the same.
    unmet: dict[str, str] = {}


class AllocationFailed(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """No solver of the chain had an answer; the last allocation stays in force."""

    policy: str
    reason: str


# --- every service -------------------------------------------------------------------------------


class LeaderElected(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A replica of the writer leads from here on; appends of earlier epochs are void."""

    epoch: int
    replica: str
    #: Version of the decisions the code makes; records of an older one are folded, not re-decided.
    behaviour: int
    #: Decisions caused at or before this record are done with, except those still listed open.
    settled: int = 0
    #: (cause, index) of timers and effects at or before ``settled`` that are still to be done.
    still_open: tuple[tuple[int, int], ...] = ()


class TimerFired(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """A timer its writer asked for (``Wake``) is due; only the writer itself sees it."""

    timer: str
    due_s: float


class UnknownEvent(Event, frozen=True, gc=False, kw_only=True, tag=True):
    """Stands for an event kind this release does not know; every core ignores it."""

    unknown_kind: str


#: How a job ends: of these, each job has one.
JobEnded = JobRejected | JobCancelled | JobCompleted | JobFailed

AnyEvent = (
    ClusterConfigured
    | ThroughputTableImported
    | DrainRequested
    | JobSubmitted
    | CancelRequested
    | WorkerRegistered
    | WorkerReturned
    | WorkerDisappeared
    | TasksStarted
    | ProgressReported
    | TaskStopped
    | StopStepProposed
    | ThroughputMeasured
    | JobAdmitted
    | JobRejected
    | JobCancelled
    | JobCompleted
    | JobFailed
    | JobRequeued
    | RoundDue
    | RoundScheduled
    | LeasesChanged
    | StopStepAgreed
    | WorkerUnreachable
    | WorkerLost
    | WorkerDrained
    | ThroughputEstimated
    | ThroughputUnknown
    | ProfileRequested
    | ClaimRefuted
    | AllocationComputed
    | AllocationFailed
    | LeaderElected
    | TimerFired
    | UnknownEvent
)

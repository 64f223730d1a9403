"""The mechanism: turns the shares a policy wants into leases on workers, round by round (§5).

Rules
-----
1. Only the mechanism grants accelerators, and only in a plan (``RoundScheduled``). A lease is
   out until its worker service has reported its last round; reports under any other are ignored.
2. A plan covers every worker anew. A combination that keeps its workers has its lease renewed
   (no checkpoint); what is neither granted nor renewed ends with the round before.
3. A job's steps only ever grow, and only by checkpoints and completions: a report that comes
   late, twice or never cannot make them wrong.
4. Timers are asked for only while there is something to plan. An idle cluster is silent.

Theory
------
Rounds either lie on a grid (``round_end = grid``, a real cluster) or end with their last task
(``last_task``, the paper's simulator).

- On the grid, the plan for round r + 1 is made ``plan_lead`` before round r ends, so that workers
  know before the boundary what goes on. When nothing runs, the grid starts anew ``plan_lead``
  after the first arrival: long enough for jobs submitted together to be planned together.
- With ``last_task``, once all services have reported, ``RoundDue`` is emitted; the policy may
  answer it with an allocation; the timer asked for on it then brings the plan.

How a round is chosen is in ``priorities.py`` (who is owed), ``selection.py`` (Algorithm 1) and
``placement.py`` (which workers); ``claims.py`` holds the arrays they share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

from schemas.decisions import Decision, Effect, Emit, Wake
from schemas.domain import Combination, TaskProgress
from schemas.events import (
    AllocationComputed,
    AnyEvent,
    CancelRequested,
    ClusterConfigured,
    DrainRequested,
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
    ProfileRequested,
    ProgressReported,
    RoundDue,
    RoundScheduled,
    StopStepProposed,
    TaskStopped,
    ThroughputEstimated,
    ThroughputMeasured,
    ThroughputUnknown,
    TimerFired,
    WorkerDisappeared,
    WorkerDrained,
    WorkerLost,
    WorkerRegistered,
    WorkerReturned,
    WorkerUnreachable,
)
from services.mechanism.admission import hopeless, refusal
from services.mechanism.jobs import Jobs
from services.mechanism.leases import Held, Leases
from services.mechanism.placement import Workers
from services.mechanism.planning import Planner, Ranking, Standing
from services.mechanism.priorities import CreditPriorities, ResetPriorities
from services.mechanism.profiles import Profiles

#: Seconds a job waits after its first failure in a row; doubled at each further one.
_BACKOFF_S = 10.0


class MechanismCore:
    """Folds what happens to jobs, workers and allocations; plans rounds. Declares its state."""

    effects: ClassVar[tuple[type[Effect], ...]] = ()

    _config: ClusterConfigured
    _jobs: Jobs
    _workers: Workers
    #: {worker id: when it last registered or returned}
    _seen_at: dict[str, float]
    _leases: Leases
    _profiles: Profiles
    _planner: Planner
    #: The newest plan; leases held in it may be renewed by the next.
    _round: RoundScheduled | None
    #: What the next plan waits for, by the name of its timer; None: nothing.
    _armed: str | None
    #: ``last_task``: services that have yet to report the running round.
    _awaited: set[str]

    def __init__(self) -> None:
        self._config = ClusterConfigured()
        self._jobs = Jobs()
        self._workers = Workers()
        self._seen_at = {}
        self._leases = Leases()
        self._profiles = Profiles()
        self._planner = Planner(_priorities(self._config))
        self._round = None
        self._armed = None
        self._awaited = set()
        #: Told how each plan was come to, for those who ask why; it changes nothing here.
        self.on_ranking: Callable[[Ranking], None] | None = None
        self._handlers: dict[type[Event], Callable[..., Sequence[Decision]]] = {
            ClusterConfigured: self._configure,
            JobSubmitted: self._admit,
            **dict.fromkeys(JobEnded.__args__, self._ended),
            CancelRequested: self._cancel,
            DrainRequested: self._drain,
            WorkerRegistered: self._register,
            WorkerReturned: self._take_back,
            WorkerUnreachable: self._miss,
            WorkerDisappeared: self._disappear,
            ThroughputEstimated: self._estimate,
            ThroughputUnknown: self._give_up,
            AllocationComputed: self._allocate,
            ProfileRequested: self._profile,
            ThroughputMeasured: self._profiled,
            TimerFired: self._fire,
            RoundDue: self._due,
            ProgressReported: self._book_round,
            TaskStopped: self._book_stop,
            StopStepProposed: self._agree_stop,
        }

    @property
    def handles(self) -> Collection[type[Event]]:
        """See ``services.runtime.actor.Core``."""
        return self._handlers

    def handle(self, event: AnyEvent, now: float) -> Sequence[Decision]:
        """See ``services.runtime.actor.Core``."""
        handler = self._handlers.get(type(event))
        return handler(event, now) if handler else ()

    # --- settings, jobs, workers -----------------------------------------------------------------

    def _configure(self, event: ClusterConfigured, now: float) -> Sequence[Decision]:
        before, self._config = self._config, event
        books = ("priority", "round_duration_s")
        if any(getattr(before, name) != getattr(event, name) for name in books):
            self._planner.start_books(_priorities(event), now)
        self._planner.stale = True
        return ()

    def _admit(self, event: JobSubmitted, now: float) -> Sequence[Decision]:
        spec = event.job
        if spec.job_id in self._jobs.active or spec.job_id in self._jobs.ending:
            return ()
        reason = refusal(spec, self._workers.counts)
        if reason is not None:
            self._jobs.ending.add(spec.job_id)
            return (Emit(JobRejected(job_id=spec.job_id, reason=reason)),)
        self._jobs.admit(spec)
        self._planner.stale = True
        admitted = Emit(JobAdmitted(job_id=spec.job_id))
        return (admitted, *self._set_aside(spec.job_id), *self._arm(now))

    def _estimate(self, event: ThroughputEstimated, now: float) -> Sequence[Decision]:
        self._jobs.estimate(event.row, event.job_id)
        self._planner.stale = True
        key = (event.row.job_type, event.row.scale_factor)
        affected = [
            job_id
            for job_id, job in self._jobs.active.items()
            if job_id == event.job_id or (not event.job_id and job.key == key)
        ]
        rejected = [decision for job_id in affected for decision in self._set_aside(job_id)]
        return (*rejected, *self._arm(now))

    def _set_aside(self, job_id: str) -> Sequence[Decision]:
        """Reject an admitted job that turns out unable to run anywhere."""
        job = self._jobs.active[job_id]
        speeds = self._jobs.speeds(job)
        reason = None if speeds is None else hopeless(job.spec, speeds, self._workers.counts)
        return () if reason is None else self._reject(job_id, reason)

    def _give_up(self, event: ThroughputUnknown, now: float) -> Sequence[Decision]:
        if event.job_id not in self._jobs.active:
            return ()
        return self._reject(event.job_id, event.reason)

    def _reject(self, job_id: str, reason: str) -> Sequence[Decision]:
        revoked = self._end_job(job_id, "the job can never run")
        return (Emit(JobRejected(job_id=job_id, reason=reason)), *revoked)

    def _ended(self, event: JobEnded, now: float) -> Sequence[Decision]:
        self._jobs.ending.discard(event.job_id)
        return ()

    def _cancel(self, event: CancelRequested, now: float) -> Sequence[Decision]:
        if event.job_id not in self._jobs.active:
            return ()
        revoked = self._end_job(event.job_id, "the job was cancelled")
        return (Emit(JobCancelled(job_id=event.job_id)), *revoked)

    def _register(self, event: WorkerRegistered, now: float) -> Sequence[Decision]:
        self._workers.register(event)
        self._seen_at[event.worker_id] = now
        self._planner.stale = True
        return (*self._arm(now), *self._grant_profiles(now))

    def _take_back(self, event: WorkerReturned, now: float) -> Sequence[Decision]:
        self._workers.found(event.worker_id)
        self._seen_at[event.worker_id] = now
        self._planner.stale = True
        return (*self._arm(now), *self._grant_profiles(now))

    def _drain(self, event: DrainRequested, now: float) -> Sequence[Decision]:
        for worker in self._workers.registered.values():
            if event.worker_id == worker.worker_id or event.server_id == worker.server_id:
                self._workers.drain(worker.worker_id)
        self._planner.stale = True
        return self._drained()

    def _drained(self) -> Sequence[Decision]:
        """Say of each draining worker, once, that nothing holds it any more."""
        free = [
            worker_id
            for worker_id, said in self._workers.draining.items()
            if not (said or self._leases.of_worker(worker_id) or self._profiles.hold(worker_id))
        ]
        self._workers.draining.update(dict.fromkeys(free, True))
        return tuple(Emit(WorkerDrained(worker_id=worker_id)) for worker_id in free)

    def _miss(self, event: WorkerUnreachable, now: float) -> Sequence[Decision]:
        unknown = event.worker_id not in self._workers.registered
        if unknown or event.worker_id in self._workers.missing:
            return ()
        if event.since_s < self._seen_at[event.worker_id]:
            # The news is older than its return.
            return ()
        self._workers.miss(event.worker_id, f"unreachable since {event.since_s}")
        self._planner.stale = True
        timer = f"lost/{event.worker_id}/{event.since_s}"
        return (Wake(timer, event.since_s + self._config.worker_lost_after_s),)

    def _lose(self, timer: str, now: float) -> Sequence[Decision]:
        """A worker has been unreachable for too long."""
        worker_id, _, since = timer.removeprefix("lost/").rpartition("/")
        if self._workers.missing.get(worker_id) != f"unreachable since {since}":
            return ()
        return self._give_up_on(worker_id, float(since), now)

    def _disappear(self, event: WorkerDisappeared, now: float) -> Sequence[Decision]:
        """Its own service says so: there is nothing to wait for."""
        worker = self._workers.registered.get(event.worker_id)
        if worker is None or worker.reporter != event.reporter:
            return ()
        if self._workers.missing.get(event.worker_id) == "lost":
            return ()
        self._planner.stale = True
        return self._give_up_on(event.worker_id, now, now)

    def _give_up_on(self, worker_id: str, since_s: float, now: float) -> Sequence[Decision]:
        """A worker is lost: its jobs go on elsewhere."""
        self._workers.miss(worker_id, "lost")
        lost = self._leases.of_worker(worker_id)
        decisions: list[Decision] = [Emit(WorkerLost(worker_id=worker_id, since_s=since_s))]
        if lost:
            decisions.append(self._revoke(lost, f"worker {worker_id} is lost"))
        for job_id in dict.fromkeys(job for held in lost for job in sorted(held.running)):
            # A job that has been moved off the worker already has lost nothing.
            if not self._leases.of_job(job_id):
                resumed = self._resume(job_id, f"worker {worker_id} is lost", now)
                decisions.append(resumed)
        decisions += self._profiles.lost(worker_id)
        return (*decisions, *self._arm(now))

    def _profile(self, event: ProfileRequested, now: float) -> Sequence[Decision]:
        self._profiles.request(event)
        return self._grant_profiles(now)

    def _profiled(self, event: ThroughputMeasured, now: float) -> Sequence[Decision]:
        self._profiles.returned(event.lease_id)
        return (*self._drained(), *self._grant_profiles(now))

    def _grant_profiles(self, now: float) -> Sequence[Decision]:
        return self._profiles.grant(self._jobs, self._workers, now)

    # --- reports ---------------------------------------------------------------------------------

    def _book_round(self, event: ProgressReported, now: float) -> Sequence[Decision]:
        uses = [(self._book(row, event.reporter), row) for row in event.rows]
        self._planner.received(
            (held, row.run_s)
            for held, row in uses
            if held is not None and row.job_id == held.combination[0]
        )
        planned_on = self._round is not None and self._round.round_id > event.round_id
        if planned_on:
            self._leases.round_over(event.reporter, event.round_id)
        self._awaited.discard(event.reporter)
        if self._config.round_end == "last_task" and not self._awaited and not planned_on:
            return (*self._drained(), *self._announce())
        return self._drained()

    def _book(self, row: TaskProgress, reporter: str) -> Held | None:
        held = self._leases.reported(row.lease_id, row.job_id, reporter)
        job = self._jobs.active.get(row.job_id)
        if held is None or job is None:
            return None
        if row.checkpointed_steps > job.steps:
            job.steps = row.checkpointed_steps
            job.failures = 0
        return held

    def _book_stop(self, event: TaskStopped, now: float) -> Sequence[Decision]:
        job_id = event.task.job_id
        held = self._leases.of_rank(event.task.lease_id, job_id, event.reporter)
        if held is None or event.reason != "failed":
            held = self._book(event.task, event.reporter)
        if held is None:
            return ()
        if event.reason == "completed":
            steps = event.task.steps
            revoked = self._end_job(job_id, "the job is complete", ended_by=held)
            return (Emit(JobCompleted(job_id=job_id, steps=steps)), *revoked)
        self._leases.stop(held, job_id)
        if event.reason == "cancelled":
            return ()
        left: tuple[Decision, ...] = ()
        if len(held.lease.reporters) > 1 and not held.running:
            # Ranks elsewhere are of no use without this one, and may wait for it for long.
            left = (self._revoke([held], f"a rank of job {job_id} has {event.reason}"),)
        code = "" if event.exit_code is None else f" with exit code {event.exit_code}"
        reason = f"task {event.reason}{code}{': ' if event.detail else ''}{event.detail}"
        if event.reason == "lost":
            return (self._resume(job_id, reason, now), *left, *self._arm(now))
        return (*self._requeue(job_id, reason, now), *left, *self._arm(now))

    def _agree_stop(self, event: StopStepProposed, now: float) -> Sequence[Decision]:
        agreed = self._leases.propose(event)
        return () if agreed is None else (Emit(agreed),)

    def _requeue(self, job_id: str, reason: str, now: float) -> Sequence[Decision]:
        """After a failure: again later, from the checkpoint, or never if it keeps failing."""
        job = self._jobs.active[job_id]
        job.failures += 1
        if job.failures >= job.spec.max_attempts:
            revoked = self._end_job(job_id, "the job has failed")
            failed = JobFailed(job_id=job_id, attempts=job.failures, reason=reason)
            return (Emit(failed), *revoked)
        wait_s = min(_BACKOFF_S * 2.0 ** (job.failures - 1), self._config.round_duration_s)
        timer = f"retry/{job_id}/{now + wait_s}"
        return (self._resume(job_id, reason, now + wait_s), Wake(timer, now + wait_s))

    def _resume(self, job_id: str, reason: str, not_before_s: float) -> Decision:
        """Let the job go on from its checkpoint; to lose its workers is no failure of its own."""
        job = self._jobs.active[job_id]
        job.not_before_s = not_before_s
        self._planner.stale = True
        requeued = JobRequeued(
            job_id=job_id,
            steps=job.steps,
            attempt=job.failures,
            not_before_s=not_before_s,
            reason=reason,
        )
        return Emit(requeued)

    def _end_job(
        self, job_id: str, reason: str, ended_by: Held | None = None
    ) -> Sequence[Decision]:
        """Strike a job off the books; leases left without a job are revoked."""
        self._jobs.forget(job_id)
        self._planner.stale = True
        empty = []
        for held in self._leases.of_job(job_id):
            self._leases.stop(held, job_id)
            if not held.running and held is not ended_by:
                empty.append(held)
        return (self._revoke(empty, reason),) if empty else ()

    def _revoke(self, leases: Sequence[Held], reason: str) -> Decision:
        revoked = self._leases.revoke(leases)
        round_id = self._round.round_id if self._round else 0
        return Emit(LeasesChanged(round_id=round_id, revoked=revoked, reason=reason))

    # --- when to plan ----------------------------------------------------------------------------

    def _arm(self, now: float) -> Sequence[Decision]:
        """Ask for the next plan, if there is something to plan and none is asked for yet."""
        if self._armed or self._awaited or not self._jobs.active or not self._workers.counts:
            return ()
        round_id = self._round.round_id + 1 if self._round else 1
        lead_s = self._config.plan_lead()
        if self._config.round_end == "last_task":
            self._armed = f"due/{round_id}"
            return (Wake(self._armed, now),)
        self._armed = f"round/{round_id}"
        if self._round is not None and now < self._round.ends_at_s:
            return (Wake(self._armed, max(now, self._round.ends_at_s - lead_s)),)
        return (Wake(self._armed, now + lead_s),)

    def _announce(self) -> Sequence[Decision]:
        """``last_task``: the round is over; let the policy have its say, then plan."""
        if not self._jobs.active:
            self._armed = None
            return ()
        round_id = self._round.round_id + 1 if self._round else 1
        self._armed = f"due/{round_id}"
        return (Emit(RoundDue(round_id=round_id)),)

    def _due(self, event: RoundDue, now: float) -> Sequence[Decision]:
        self._armed = f"round/{event.round_id}"
        return (Wake(self._armed, now),)

    def _fire(self, event: TimerFired, now: float) -> Sequence[Decision]:
        kind = event.timer.partition("/")[0]
        if kind == "lost":
            return self._lose(event.timer, now)
        if kind == "retry":
            self._planner.stale = True
            return self._arm(now)
        if kind == "profile":
            over = tuple(self._profiles.expire(now))
            return (*over, *self._drained(), *self._grant_profiles(now))
        if event.timer != self._armed:
            return ()
        return self._announce() if kind == "due" else self._plan(now)

    # --- the plan --------------------------------------------------------------------------------

    def _plan(self, now: float) -> Sequence[Decision]:
        self._armed = None
        previous = self._round
        starts_at_s, round_id = self._next_start(now)
        contiguous = previous is not None and starts_at_s <= previous.ends_at_s
        if self._config.round_end == "last_task":
            contiguous = previous is not None
        held = self._leases.in_round(previous.round_id) if previous and contiguous else {}
        standing = Standing(self._config, self._jobs, self._workers, held, round_id)
        plan, ranking = self._planner.plan(standing, starts_at_s)
        if self.on_ranking is not None:
            self.on_ranking(ranking)
        if not (plan.granted or plan.renewed or held):
            return ()
        self._round = plan
        self._hold(plan, held)
        decisions: list[Decision] = [Emit(plan)]
        if self._config.round_end == "last_task":
            self._awaited = {
                reporter
                for each in self._leases.in_round(round_id).values()
                for reporter in each.lease.reporters[:1]
            }
        elif plan.granted or plan.renewed:
            decisions += self._arm(now)
        if self._config.round_end == "grid" and self._config.estimator != "oracle":
            self._profiles.round_planned(plan, self._leases)
        decisions += self._grant_profiles(now)
        return (*decisions, *self._drained())

    def _next_start(self, now: float) -> tuple[float, int]:
        """When the round to be planned starts, and its number; boundaries missed are skipped."""
        if self._round is None:
            return now, 1
        round_id = self._round.round_id + 1
        if self._config.round_end == "last_task" or now >= self._round.ends_at_s:
            duration_s = self._config.round_duration_s
            missed = 0
            if self._config.round_end == "grid" and self._leases.held:
                missed = math.floor((now - self._round.ends_at_s) / duration_s)
            return now, round_id + missed
        return self._round.ends_at_s, round_id

    def _hold(self, plan: RoundScheduled, before: dict[Combination, Held]) -> None:
        """Put the plan's leases on the books; those that end stay there until reported."""
        for lease_id in plan.renewed:
            self._leases.held[lease_id].until_round = plan.round_id
        for lease in plan.granted:
            self._leases.grant(lease, plan.round_id)
            for task in lease.tasks:
                self._jobs.active[task.job_id].last_lease = lease.lease_id
        if self._config.round_end == "last_task":
            for held in before.values():
                if held.until_round < plan.round_id:
                    self._leases.held.pop(held.lease.lease_id, None)

    def _allocate(self, event: AllocationComputed, now: float) -> Sequence[Decision]:
        self._planner.allocate(event, now)
        return self._arm(now)


def _priorities(config: ClusterConfigured) -> CreditPriorities | ResetPriorities:
    if config.priority == "reset":
        return ResetPriorities(config.round_duration_s)
    return CreditPriorities(config.round_duration_s)

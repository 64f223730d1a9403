"""The policy's core: knows when X is stale, and asks for one solve at a time.

X is stale when a job arrives or ends, a worker comes or goes, or an estimate changes (a *reset
event*, §3). The solve itself is an effect that carries its whole input; its recorded result is
the authority, and replay does not solve again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar

import msgspec

from schemas.decisions import Decision, Effect, Run, Wake
from schemas.domain import UNCONSOLIDATED, AllocationRow, JobSpec, ThroughputRow
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    AnyEvent,
    ClusterConfigured,
    DrainRequested,
    Event,
    JobAdmitted,
    JobCancelled,
    JobCompleted,
    JobEnded,
    JobFailed,
    JobRejected,
    JobSubmitted,
    ProgressReported,
    RoundDue,
    TaskStopped,
    ThroughputEstimated,
    TimerFired,
    WorkerLost,
    WorkerRegistered,
    WorkerReturned,
)
from services.policy.catalog import needs
from services.policy.isolated import isolated_speeds
from services.policy.jobs import blind
from services.policy.placement import fastest, unconsolidated
from services.policy.problem import JobClass, PolicyError, Problem
from services.policy.sharing.colocated import colocated_speeds

#: Jobs alike in all that a solver sees: (job type, scale factor, weight, entity, allowed worker
#: types, what is estimated of the job alone, in text; empty if a class's estimate holds, or holds
#: but for one factor on all worker types, which is then the job's own).
ClassKey = tuple[str, int, float, str, tuple[str, ...], str]

#: Relative distance between factors that are one.
_SAME_FACTOR = 1e-9


class Solve(msgspec.Struct, frozen=True):
    """Compute an allocation."""

    ends_with: ClassVar[tuple[type[Event], ...]] = (AllocationComputed, AllocationFailed)
    policy: str
    parameters: dict[str, float | str]
    problem: Problem


class _Job(msgspec.Struct):
    """An admitted job."""

    spec: JobSpec
    arrival_rank: int
    arrived_at: float
    key: ClassKey
    #: Its steps/s over those of its class, on every worker type.
    factor: float = 1.0
    steps: float = 0.0
    held_s: float = 0.0
    #: Seconds that its steps up to ``steps_counted`` would have taken on isolated shares.
    isolated_s: float = 0.0
    steps_counted: float = 0.0
    #: Steps/s on the isolated share of the last solve; 0 before the first.
    isolated_steps_per_s: float = 0.0

    def count_isolated(self) -> None:
        """Add the steps since the last solve, at the isolated speed of that solve."""
        if self.isolated_steps_per_s > 0:
            steps = (self.steps - self.steps_counted) / self.factor
            self.isolated_s += steps / self.isolated_steps_per_s
        self.steps_counted = self.steps


class PolicyCore:
    """Folds jobs, workers, estimates and progress into problems; its state is declared here."""

    effects: ClassVar[tuple[type[Effect], ...]] = (Solve,)

    _config: ClusterConfigured
    _workers: dict[str, WorkerRegistered]
    _lost: set[str]
    #: {worker id: when it last registered or returned}
    _seen_at: dict[str, float]
    _draining: set[str]
    #: Submitted, not yet admitted: {job id: (spec, arrival time)}.
    _submitted: dict[str, tuple[JobSpec, float]]
    _jobs: dict[str, _Job]
    _arrivals: int
    #: {class: {job id: None}}, jobs in order of arrival
    _classes: dict[ClassKey, dict[str, None]]
    _class_rows: dict[tuple[str, int], ThroughputRow]
    _job_rows: dict[str, ThroughputRow]
    #: {class: as it stood in the last problem}, where it has not changed since.
    _unchanged: dict[ClassKey, JobClass]
    #: {worker type: workers that can be leased}; None when out of date.
    _counts: dict[str, int] | None
    _needs_progress: bool
    _needs_placement: bool
    #: Rows with shares of the newest allocation.
    _previous: tuple[AllocationRow, ...]
    _stale: bool
    _solving: bool
    #: ``last_task``: when asked last, it knew of nothing to solve.
    _owes_answer: bool
    _solved_at: float
    #: Active jobs that the newest allocation, or the solve under way, knows of.
    _known: set[str]
    #: A timer asked for to solve once the least gap has passed.
    _timer: str | None

    def __init__(self) -> None:
        self._config = ClusterConfigured()
        self._workers = {}
        self._lost = set()
        self._seen_at = {}
        self._draining = set()
        self._submitted = {}
        self._jobs = {}
        self._arrivals = 0
        self._classes = {}
        self._class_rows = {}
        self._job_rows = {}
        self._unchanged = {}
        self._counts = None
        self._needs_progress = False
        self._needs_placement = False
        self._previous = ()
        self._stale = False
        self._solving = False
        self._owes_answer = False
        self._solved_at = -math.inf
        self._known = set()
        self._timer = None
        self._handlers: dict[type[Event], Callable[..., Sequence[Decision]]] = {
            ClusterConfigured: self._configure,
            WorkerRegistered: self._register,
            WorkerReturned: self._take_back,
            WorkerLost: self._lose,
            DrainRequested: self._drain,
            JobSubmitted: self._submit,
            JobAdmitted: self._admit,
            JobRejected: self._remove,
            JobCancelled: self._remove,
            JobCompleted: self._remove,
            JobFailed: self._remove,
            ThroughputEstimated: self._estimate,
            ProgressReported: self._progress,
            TaskStopped: self._task_progress,
            RoundDue: self._due,
            TimerFired: self._due,
            AllocationComputed: self._answered,
            AllocationFailed: self._answered,
        }

    @property
    def handles(self) -> Collection[type[Event]]:
        """See ``services.runtime.actor.Core``."""
        return self._handlers

    def handle(self, event: AnyEvent, now: float) -> Sequence[Decision]:
        """See ``services.runtime.actor.Core``."""
        handler = self._handlers.get(type(event))
        return handler(event, now) if handler else ()

    # --- what the problem is made of -------------------------------------------------------------

    def _configure(self, event: ClusterConfigured, now: float) -> Sequence[Decision]:
        self._config = event
        self._needs_progress = needs(event.policy, "progress")
        self._needs_placement = needs(event.policy, "placement")
        self._unchanged.clear()
        return self._reset(now)

    def _register(self, event: WorkerRegistered, now: float) -> Sequence[Decision]:
        if event.profiles_only:
            self._workers.pop(event.worker_id, None)
        else:
            self._workers[event.worker_id] = event
        self._seen_at[event.worker_id] = now
        self._draining.discard(event.worker_id)
        self._lost.discard(event.worker_id)
        self._recount()
        return self._reset(now)

    def _take_back(self, event: WorkerReturned, now: float) -> Sequence[Decision]:
        self._seen_at[event.worker_id] = now
        self._lost.discard(event.worker_id)
        self._recount()
        return self._reset(now)

    def _lose(self, event: WorkerLost, now: float) -> Sequence[Decision]:
        if event.since_s < self._seen_at.get(event.worker_id, -math.inf):
            # It came back while the mechanism was giving it up.
            return ()
        self._lost.add(event.worker_id)
        self._recount()
        return self._reset(now)

    def _drain(self, event: DrainRequested, now: float) -> Sequence[Decision]:
        for worker in self._workers.values():
            if event.worker_id == worker.worker_id or event.server_id == worker.server_id:
                self._draining.add(worker.worker_id)
        self._recount()
        return self._reset(now)

    def _submit(self, event: JobSubmitted, now: float) -> Sequence[Decision]:
        if event.job.job_id not in self._jobs:
            self._submitted.setdefault(event.job.job_id, (event.job, now))
        return ()

    def _admit(self, event: JobAdmitted, now: float) -> Sequence[Decision]:
        spec, arrived_at = self._submitted.pop(event.job_id)
        key, factor = self._key(spec)
        self._jobs[spec.job_id] = _Job(spec, self._arrivals, arrived_at, key, factor)
        self._arrivals += 1
        self._join_class(key, spec.job_id)
        return self._reset(now) if self._row(key) is not None else ()

    def _remove(self, event: JobEnded, now: float) -> Sequence[Decision]:
        self._submitted.pop(event.job_id, None)
        self._job_rows.pop(event.job_id, None)
        job = self._jobs.pop(event.job_id, None)
        if job is None:
            return ()
        self._leave_class(job)
        self._known.discard(event.job_id)
        return self._reset(now)

    def _estimate(self, event: ThroughputEstimated, now: float) -> Sequence[Decision]:
        if event.job_id:
            self._job_rows[event.job_id] = event.row
            job = self._jobs.get(event.job_id)
            if job is None:
                return ()
            self._move(job)
            return self._reset(now)
        class_key = (event.row.job_type, event.row.scale_factor)
        self._class_rows[class_key] = event.row
        for job_id, row in self._job_rows.items():
            if (row.job_type, row.scale_factor) == class_key and job_id in self._jobs:
                self._move(self._jobs[job_id])
        self._unchanged.clear()
        if any(key[:2] == class_key for key in self._classes):
            return self._reset(now)
        return ()

    def _progress(self, event: ProgressReported, now: float) -> Sequence[Decision]:
        for row in event.rows:
            job = self._jobs.get(row.job_id)
            if job is not None:
                job.steps = max(job.steps, row.steps)
                job.held_s += row.run_s
        return ()

    def _task_progress(self, event: TaskStopped, now: float) -> Sequence[Decision]:
        job = self._jobs.get(event.task.job_id)
        if job is not None:
            job.steps = max(job.steps, event.task.checkpointed_steps)
            job.held_s += event.task.run_s
        return ()

    def _key(self, spec: JobSpec) -> tuple[ClassKey, float]:
        """The job's class, and how many times as fast as the class it is."""
        row = self._job_rows.get(spec.job_id)
        factor = 1.0 if row is None else self._common_factor(row)
        job_type, own = spec.job_type, ""
        if row is not None and factor is not None:
            job_type = row.job_type
        elif row is not None:
            own = f"{row.job_type}: {row.alone}"
        rest = (spec.scale_factor, spec.priority_weight, spec.entity, spec.allowed_worker_types)
        return (job_type, *rest, own), factor or 1.0

    def _common_factor(self, row: ThroughputRow) -> float | None:
        """What a job's steps/s are to its class's, if on all worker types the same.

        Then the job is in the class: what a policy asks of it, it asks in terms of its speed.
        """
        of_class = self._class_rows.get((row.job_type, row.scale_factor))
        if of_class is None:
            return None
        rates = {t.worker_type: t.steps_per_s for t in row.alone if t.steps_per_s > 0}
        references = {t.worker_type: t.steps_per_s for t in of_class.alone if t.steps_per_s > 0}
        if not rates or rates.keys() != references.keys():
            return None
        factors = [rates[t] / references[t] for t in sorted(rates)]
        return factors[0] if max(factors) <= min(factors) * (1 + _SAME_FACTOR) else None

    def _move(self, job: _Job) -> None:
        """Into the class that the newest estimates say."""
        self._leave_class(job)
        job.key, job.factor = self._key(job.spec)
        self._join_class(job.key, job.spec.job_id)

    def _recount(self) -> None:
        self._counts = None
        self._unchanged.clear()

    def _join_class(self, key: ClassKey, job_id: str) -> None:
        self._classes.setdefault(key, {})[job_id] = None
        self._unchanged.pop(key, None)

    def _leave_class(self, job: _Job) -> None:
        self._unchanged.pop(job.key, None)
        members = self._classes[job.key]
        del members[job.spec.job_id]
        if not members:
            del self._classes[job.key]

    def _row(self, key: ClassKey) -> ThroughputRow | None:
        if key[5]:
            return self._job_rows[next(iter(self._classes[key]))]
        return self._class_rows.get(key[:2])

    # --- when to solve ---------------------------------------------------------------------------

    def _reset(self, now: float) -> Sequence[Decision]:
        """A reset event: X is stale; solve now, or at the next round boundary (``last_task``).

        Who could not be told of any X when asked plans nothing, and will not ask again.
        """
        self._stale = True
        waits = self._config.round_end == "last_task" and not self._owes_answer
        return () if waits else self._solve_when_due(now)

    def _due(self, event: RoundDue | TimerFired, now: float) -> Sequence[Decision]:
        if isinstance(event, TimerFired) and event.timer == self._timer:
            self._timer = None
        return self._solve_when_due(now) if self._stale else ()

    def _answered(
        self, event: AllocationComputed | AllocationFailed, now: float
    ) -> Sequence[Decision]:
        self._solving = False
        if isinstance(event, AllocationComputed):
            self._previous = tuple(row for row in event.rows if row.shares)
        if self._config.fill == "none" and isinstance(event, AllocationComputed):
            # Who has no share waits for the next solve, as if X did not know of it.
            served = (row for row in event.rows if row.shares)
            self._known &= {job for row in served for c in row.combinations for job in c}
        if self._stale and self._config.round_end == "grid":
            return self._solve_when_due(now)
        return ()

    def _solve_when_due(self, now: float) -> Sequence[Decision]:
        if self._solving:
            return ()
        if not self._jobs or not self._workers:
            self._solved_at = -math.inf
            return ()
        wait_s = self._solved_at + self._config.resolve_min_gap_s - now
        # Once every job that X knows of is done, waiting would leave the cluster idle.
        if wait_s > 0 and self._known:
            if self._config.round_end == "last_task" or self._timer is not None:
                return ()
            self._timer = f"solve/{now + wait_s}"
            return (Wake(self._timer, now + wait_s),)
        counts_isolated = needs(self._config.policy, "isolated")
        if counts_isolated:
            for job in self._jobs.values():
                job.count_isolated()
        problem = self._problem(now)
        if not problem.classes:
            self._owes_answer = True
            return ()
        if counts_isolated:
            self._take_isolated_speeds(problem)
        self._owes_answer = False
        self._stale = False
        self._solving = True
        self._solved_at = now
        self._known = {job_id for c in problem.classes for job_id in c.job_ids}
        return (Run(Solve(self._config.policy, self._config.policy_parameters, problem)),)

    def _take_isolated_speeds(self, problem: Problem) -> None:
        """Steps until the next solve count at the speeds of this one's 1/n shares."""
        blinded = blind(problem) if ":agnostic" in self._config.policy else fastest(problem)
        with suppress(PolicyError):  # The solve will say what is wrong.
            for job_class, speed in zip(problem.classes, isolated_speeds(blinded), strict=True):
                for job_id in job_class.job_ids:
                    self._jobs[job_id].isolated_steps_per_s = speed

    def _problem(self, now: float) -> Problem:
        counts = self._workers_by_type()
        types = tuple(sorted(counts))
        classes: list[JobClass] = []
        keys: list[tuple[str, int]] = []
        own: list[ThroughputRow | None] = []
        for key in sorted(self._classes):
            row = self._row(key)
            if row is not None:
                classes.append(self._unchanged.get(key) or self._job_class(key, row, types, now))
                keys.append((row.job_type, row.scale_factor))
                own.append(row if key[5] else None)
        prices = self._config.prices_usd_per_h
        shared = needs(self._config.policy, "pairs")
        colocated = partial(colocated_speeds, self._class_rows, keys, own)
        return Problem(
            worker_types=types,
            num_workers=tuple(counts[t] for t in types),
            classes=tuple(classes),
            prices_usd_per_h=tuple(prices.get(t, 0.0) for t in types),
            pairs=colocated(types) if shared else {},
            pairs_unconsolidated=colocated(unconsolidated(types))
            if shared and self._needs_placement
            else {},
            reference_type=self._config.reference_type,
            entities=self._config.entities,
            previous=self._previous if needs(self._config.policy, "previous") else (),
        )

    def _job_class(
        self, key: ClassKey, row: ThroughputRow, types: tuple[str, ...], now: float
    ) -> JobClass:
        speeds = {t.worker_type: t.steps_per_s for t in row.alone}
        allowed = key[4] or types
        throughputs = tuple(speeds.get(t, 0.0) if t in allowed else 0.0 for t in types)
        jobs = [self._jobs[job_id] for job_id in self._classes[key]]
        moving = jobs if self._needs_progress else []
        job_class = JobClass(
            job_type=key[0],
            scale_factor=key[1],
            priority_weight=key[2],
            entity=key[3],
            throughputs=throughputs,
            unconsolidated=tuple(
                speeds.get(t + UNCONSOLIDATED, consolidated) if t in allowed else 0.0
                for t, consolidated in zip(types, throughputs, strict=True)
            )
            if self._needs_placement and key[1] > 1
            else (),
            job_ids=tuple(self._classes[key]),
            arrival_ranks=tuple(job.arrival_rank for job in jobs),
            steps_remaining=tuple(
                max(0.0, (job.spec.total_steps or 0.0) - job.steps) / job.factor for job in moving
            ),
            elapsed_s=tuple(now - job.arrived_at for job in moving),
            isolated_s=tuple(job.isolated_s for job in moving),
            held_s=tuple(job.held_s for job in moving),
            slo_remaining_s=tuple(
                math.inf if job.spec.slo_s is None else job.arrived_at + job.spec.slo_s - now
                for job in moving
            ),
            factors=tuple(job.factor for job in jobs) if any(j.factor != 1 for j in jobs) else (),
        )
        if not moving:
            self._unchanged[key] = job_class
        return job_class

    def _workers_by_type(self) -> dict[str, int]:
        if self._counts is None:
            self._counts = {}
            withdrawn = self._lost | self._draining
            for worker in self._workers.values():
                available = worker.worker_id not in withdrawn
                before = self._counts.get(worker.worker_type, 0)
                self._counts[worker.worker_type] = before + available
        return self._counts

"""The estimator's core: says of each job what throughput policies and admission may believe.

Whom it believes is a setting (``ClusterConfigured.estimator``):

- ``oracle``: tables, by the job type's name; for a job that no table knows, what its owner says.
- ``declared``: the owner first. What an owner says is a claim: it is believed until measured,
  then checked, corrected, and said to be untrue if it is.
- ``learned``: tables; a job that none knows runs on a provisional estimate while a few profiles of
  it are taken, and is then matched with a reference job and has that one's pairs in proportion; or
  it is the first of a class of its own.

But for ``oracle``, whatever real leases show corrects all of it: a class if the job's type is
believed (``References``), else the job alone (``JobEstimate``); and always classes beside each
other. Pairs are published between classes, never between jobs. What is heavy is an effect
(``effects.py``, ``learning.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

from schemas.decisions import Decision, Effect, Emit, Run
from schemas.domain import UNCONSOLIDATED, JobSpec, ProfileCell, ThroughputRow
from schemas.events import (
    AnyEvent,
    ClusterConfigured,
    Event,
    JobCancelled,
    JobCompleted,
    JobEnded,
    JobFailed,
    JobRejected,
    JobSubmitted,
    LeasesChanged,
    ProfileRequested,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    ThroughputEstimated,
    ThroughputMeasured,
    ThroughputTableImported,
    ThroughputUnknown,
    WorkerRegistered,
)
from services.estimator.effects import Fingerprint, MeasuredCell, PlanProfiles
from services.estimator.jobs import JobEstimate, capped
from services.estimator.meter import Meter, PairReading, Reading
from services.estimator.rates import MovingRate, rate_on, rates_of
from services.estimator.references import NAMELESS, ClassKey, References

#: A job that has run for so many rounds is matched with what is known of it by then: where no
#: worker is ever idle, its profiles may never be taken; elsewhere, they may have found nothing.
_ROUNDS_AWAITED = 10
#: A job whose throughput is further than this factor from its class's has an estimate of its own.
_OF_ITS_OWN = math.log(1.1)


class EstimatorCore:
    """Folds tables, submitted jobs, profiles and reports into estimates; declares its state."""

    effects: ClassVar[tuple[type[Effect], ...]] = (PlanProfiles, Fingerprint)

    _config: ClusterConfigured
    _references: References
    _worker_types: tuple[str, ...]
    #: Jobs submitted before it could be told what they are.
    _waiting: list[JobSpec]
    #: Jobs that are not over, by id; none of them with ``oracle``, which learns nothing.
    _jobs: dict[str, JobEstimate]
    _meter: Meter
    #: {lease id: job id, what it measures} of profiles that are out
    _profiles: dict[str, tuple[str, ProfileCell]]

    def __init__(self) -> None:
        self._config = ClusterConfigured()
        self._references = References()
        self._worker_types = ()
        self._waiting = []
        self._jobs = {}
        self._meter = Meter()
        self._profiles = {}
        self._handlers: dict[type[Event], Callable[..., Sequence[Decision]]] = {
            ClusterConfigured: self._configure,
            WorkerRegistered: self._register,
            ThroughputTableImported: self._import,
            JobSubmitted: self._submit,
            ProfileRequested: self._await_profiles,
            LeasesChanged: self._follow_profiles,
            ThroughputMeasured: self._profiled,
            ThroughputEstimated: self._learned,
            RoundScheduled: self._planned,
            ProgressReported: self._reported,
            TaskStopped: self._reported,
            JobRejected: self._forget,
            JobCancelled: self._forget,
            JobCompleted: self._forget,
            JobFailed: self._forget,
        }

    @property
    def handles(self) -> Collection[type[Event]]:
        """See ``services.runtime.actor.Core``."""
        return self._handlers

    def handle(self, event: AnyEvent, now: float) -> Sequence[Decision]:
        """See ``services.runtime.actor.Core``."""
        handler = self._handlers.get(type(event))
        return handler(event) if handler else ()

    def _configure(self, event: ClusterConfigured) -> Sequence[Decision]:
        self._config = event
        return ()

    def _register(self, event: WorkerRegistered) -> Sequence[Decision]:
        self._meter.register(event)
        if event.worker_type in self._worker_types:
            return ()
        self._worker_types = tuple(sorted((*self._worker_types, event.worker_type)))
        return self._estimate_waiting()

    def _import(self, event: ThroughputTableImported) -> Sequence[Decision]:
        return (*self._references.load(event.rows), *self._estimate_waiting())

    # --- a new job -------------------------------------------------------------------------------

    def _submit(self, event: JobSubmitted) -> Sequence[Decision]:
        return () if event.job.job_id in self._jobs else self._estimate(event.job)

    def _estimate_waiting(self) -> Sequence[Decision]:
        waiting, self._waiting = self._waiting, []
        return [decision for spec in waiting for decision in self._estimate(spec)]

    def _estimate(self, spec: JobSpec) -> Sequence[Decision]:
        key = (spec.job_type, spec.scale_factor)
        mode = self._config.estimator
        in_table = key in self._references.alone and (
            mode == "oracle" or self._config.trust_job_types
        )
        job = JobEstimate(spec)
        if mode != "oracle":
            self._jobs[spec.job_id] = job
        if in_table and not (mode == "declared" and spec.declared_throughputs):
            return self._references.publish(key)
        if spec.declared_throughputs and mode != "learned":
            return self._claim(job)
        if mode == "learned" and self._worker_types:
            return self._learn(job)
        self._jobs.pop(spec.job_id, None)
        if mode == "learned" or not self._references.imported:
            self._waiting.append(spec)
            return ()
        return (Emit(ThroughputUnknown(job_id=spec.job_id, reason=self._unknown(key))),)

    def _claim(self, job: JobEstimate) -> Sequence[Decision]:
        """Believe the owner; but for ``oracle``, measure the job on each type as soon as may be."""
        spec, config = job.spec, self._config
        declared = spec.declared_throughputs
        job.job_class = spec.job_type
        if config.claims == "cap" and any(rate > 0 for rate in declared.values()):
            rows = self._references.rows(spec.scale_factor)
            declared = capped(declared, {row.job_type: rates_of(row) for row in rows})
        job.believe(declared, "declared")
        key = (spec.job_type, spec.scale_factor)
        claim = job.publish(self._references.rates(key), config.estimate_tolerance)
        if config.estimator == "oracle":
            return claim
        of_class = self._references.publish(key) if key in self._references.alone else ()
        if config.claims == "believe":
            return (*of_class, *claim)
        # Those it is said not to run on, too: that is a claim like any other.
        types = [t for t in self._worker_types if t in (spec.allowed_worker_types or (t,))]
        cells = tuple(ProfileCell(worker_type, "") for worker_type in types)
        asked = ProfileRequested(job_id=spec.job_id, cells=cells, seconds=config.profile_seconds())
        return (*of_class, *claim, *((Emit(asked),) if len(cells) > 1 else ()))

    def _learn(self, job: JobEstimate) -> Sequence[Decision]:
        """Let the job run on what jobs make on average, and ask for profiles of it."""
        spec, config = job.spec, self._config
        typical = self._references.typical(spec.scale_factor, self._worker_types)
        job.believe(spec.declared_throughputs or typical, "provisional")
        job.confidence = 0.0
        provisional = job.publish({}, config.estimate_tolerance)
        references = self._references.rows(spec.scale_factor)
        if not references:
            cells = tuple(ProfileCell(worker_type, "") for worker_type in self._worker_types)
            asked = ProfileRequested(
                job_id=spec.job_id, cells=cells, seconds=config.profile_seconds()
            )
            return (*provisional, Emit(asked))
        effect = PlanProfiles(
            job_id=spec.job_id,
            scale_factor=spec.scale_factor,
            references=references,
            worker_types=self._worker_types,
            ways=self._ways(spec.scale_factor, references),
            fraction=config.profile_fraction,
            profile_s=config.profile_seconds(),
            budget_s=config.profile_budget_s,
        )
        return (*provisional, Run(effect))

    def _ways(self, scale_factor: int, references: Sequence[ThroughputRow]) -> tuple[str, ...]:
        """Unconsolidated ways that a gang can be held in, and that references were measured in."""
        known = {cell.worker_type for row in references for cell in row.alone}
        ways = {t: t + UNCONSOLIDATED for t in self._worker_types}
        apart = self._meter.servers.can_be_apart
        return tuple(way for t, way in ways.items() if way in known and apart(t, scale_factor))

    def _unknown(self, key: ClassKey) -> str:
        job_type, scale_factor = key
        known = sorted(scale for name, scale in self._references.alone if name == job_type)
        if known:
            scales = ", ".join(str(scale) for scale in known)
            return (
                f"no throughput of {job_type!r} on {scale_factor} workers is known, "
                f"only on {scales}"
            )
        return f"no throughput of job type {job_type!r} is known"

    # --- profiles --------------------------------------------------------------------------------

    def _await_profiles(self, event: ProfileRequested) -> Sequence[Decision]:
        job = self._jobs.get(event.job_id)
        if job is not None:
            job.awaited.update(dict.fromkeys(event.cells))
        return ()

    def _follow_profiles(self, event: LeasesChanged) -> Sequence[Decision]:
        """Remember which profile a lease is for; one that is revoked finds nothing."""
        for lease in event.granted:
            task, *others = lease.tasks
            way = lease.worker_type + UNCONSOLIDATED * lease.unconsolidated
            cell = ProfileCell(way, others[0].job_type if others else "")
            self._profiles[lease.lease_id] = (task.job_id, cell)
        over = [self._profiles.pop(i) for i in event.revoked if i in self._profiles]
        return [decision for job_id, cell in over for decision in self._found(job_id, cell, None)]

    def _profiled(self, event: ThroughputMeasured) -> Sequence[Decision]:
        job_id, cell = self._profiles.pop(event.lease_id, ("", None))
        if cell is None:
            return ()
        rates = (event.steps_per_s, event.other_steps_per_s)
        fits = event.outcome != "does_not_fit"
        says_something = all(0 <= rate < math.inf for rate in rates) and any(rates)
        if event.outcome == "failed" or (fits and not says_something):
            return self._found(job_id, cell, None)
        return self._found(job_id, cell, MeasuredCell(cell, *(rates if fits else (0.0, 0.0))))

    def _found(
        self, job_id: str, cell: ProfileCell, measured: MeasuredCell | None
    ) -> Sequence[Decision]:
        """One profile is over; with the last of a job's, it is known what there is to know."""
        job = self._jobs.get(job_id)
        if job is None:
            return ()
        job.awaited.pop(cell, None)
        if measured is not None:
            job.profiled.append(measured)
            if job.claimed:
                job.measured(cell.worker_type, measured.steps_per_s)
        if job.awaited:
            return ()
        return self._correct(job) if job.claimed else self._match(job)

    def _match(self, job: JobEstimate) -> Sequence[Decision]:
        """All profiles of an unknown job are over, or it has waited for them long enough."""
        measured = [*job.profiled, *job.read_off_leases(self._worker_types)]
        alone = {
            each.cell.worker_type: each.steps_per_s for each in measured if not each.cell.beside
        }
        references = self._references.rows(job.spec.scale_factor)
        if any(alone.values()) and references:
            effect = Fingerprint(
                job_id=job.spec.job_id,
                scale_factor=job.spec.scale_factor,
                references=references,
                learned=self._references.learned(job.spec.scale_factor),
                worker_types=self._worker_types,
                measured=tuple(measured),
                own_class=self._own_class(job.spec),
            )
            return (Run(effect),)
        for each in job.profiled:
            if not each.cell.beside:
                job.measured(each.cell.worker_type, each.steps_per_s)
        if not alone:
            return ()
        # That it is known now is news, whatever it is.
        job.source, job.published = "learned", None
        return job.publish({}, self._config.estimate_tolerance)

    def _learned(self, event: ThroughputEstimated) -> Sequence[Decision]:
        """The effect has matched a job: its class is known from now on, if it was not yet."""
        job = self._jobs.get(event.job_id)
        if job is None or event.source != "learned":
            return ()
        job.learned(event)
        key = (event.row.job_type, event.row.scale_factor)
        if event.row.beside and key not in self._references.alone:
            of_jobs = {each.job_class or each.spec.job_type for each in self._jobs.values()}
            self._references.learn(event.row, of_jobs)
        return self._references.publish(key) if key in self._references.alone else ()

    def _own_class(self, spec: JobSpec) -> str:
        """What to call the class that a job may be the first of."""
        if self._config.trust_job_types and spec.job_type:
            return spec.job_type
        return f"{NAMELESS}{spec.job_id}"

    # --- real leases -----------------------------------------------------------------------------

    def _planned(self, event: RoundScheduled) -> Sequence[Decision]:
        if self._config.estimator != "oracle":
            self._meter.plan(event)
        return ()

    def _reported(self, event: ProgressReported | TaskStopped) -> Sequence[Decision]:
        if self._config.estimator == "oracle":
            return ()
        decisions: list[Decision] = []
        for reading in self._meter.read(event):
            if isinstance(reading, PairReading):
                self._take_pair(reading)
            elif reading.job_id in self._jobs:
                decisions += self._take(self._jobs[reading.job_id], reading)
        return [*decisions, *self._references.publish_stale()]

    def _take(self, job: JobEstimate, reading: Reading) -> Sequence[Decision]:
        spec, tolerance = job.spec, self._config.estimate_tolerance
        if job.claimed and self._config.claims == "believe":
            return ()
        decisions: list[Decision] = []
        if not job.source:
            key = (spec.job_type, spec.scale_factor)
            believed = rate_on(self._references.rates(key), reading.worker_type)
            job.rates.setdefault(reading.worker_type, MovingRate(believed))
            job.measured(reading.worker_type, reading.steps_per_s)
            measured = job.rates[reading.worker_type]
            if not measured.count:
                # Too far off to be believed yet; and what is believed is no measurement.
                return ()
            decisions += self._references.measure(
                key, reading.worker_type, spec.job_id, measured.value, tolerance
            )
            of_class = rate_on(self._references.rates(key), reading.worker_type)
            if abs(math.log(measured.value / of_class)) > _OF_ITS_OWN:
                decisions += self._on_its_own(job, key)
            return decisions
        job.measured(reading.worker_type, reading.steps_per_s)
        decisions += self._correct(job)
        if job.source == "provisional":
            job.rounds_awaited += 1
            if job.rounds_awaited == _ROUNDS_AWAITED:
                job.awaited.clear()
                decisions += self._match(job)
        return decisions

    def _take_pair(self, reading: PairReading) -> None:
        """Two jobs have shared workers: what their classes would have made is known better now."""
        jobs = [self._jobs[job_id] for job_id in reading.job_ids if job_id in self._jobs]
        if len(jobs) < 2:
            return
        keys, rates = [], []
        for job, rate in zip(jobs, reading.steps_per_s, strict=True):
            key = (job.job_class if job.source else job.spec.job_type, job.spec.scale_factor)
            of_class = rate_on(self._references.rates(key), reading.worker_type)
            own = job.rates.get(reading.worker_type, MovingRate(of_class))
            hearsay = job.source == "declared" and not own.count
            if of_class <= 0 or own.value <= 0 or hearsay:
                return
            keys.append(key)
            rates.append(rate * of_class / own.value)
        self._references.measure_pair(
            (keys[0], keys[1]),
            reading.worker_type,
            (rates[0], rates[1]),
            reading.seconds,
            self._config.estimate_tolerance,
        )

    def _correct(self, job: JobEstimate) -> Sequence[Decision]:
        """Publish what measurement makes of a job with an estimate of its own, if it is news."""
        refuted = job.check_claim() if job.claimed else ()
        if job.source != "provisional" and any(rate.count for rate in job.rates.values()):
            job.source = "measured"
        of_class = self._references.rates((job.job_class, job.spec.scale_factor))
        return (*refuted, *job.publish(of_class, self._config.estimate_tolerance))

    def _on_its_own(self, job: JobEstimate, key: ClassKey) -> Sequence[Decision]:
        """A job that has left its class: what was not measured goes as what was."""
        of_class = self._references.rates(key)
        logs = [
            math.log(rate.value / rate_on(of_class, t))
            for t, rate in sorted(job.rates.items())
            if rate.count and rate_on(of_class, t) > 0
        ]
        factor = math.exp(math.fsum(logs) / len(logs))
        job.job_class = key[0]
        job.believe({t: rate * factor for t, rate in of_class.items()}, "measured")
        return job.publish(of_class, self._config.estimate_tolerance)

    def _forget(self, event: JobEnded) -> Sequence[Decision]:
        self._jobs.pop(event.job_id, None)
        self._meter.forget(event.job_id)
        return ()

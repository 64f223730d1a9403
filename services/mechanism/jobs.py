"""The mechanism's book of jobs: who is admitted, where each can run, how far each has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from schemas.domain import UNCONSOLIDATED, JobSpec, ThroughputRow

#: (job type, scale factor): the key of a throughput estimate.
ClassKey = tuple[str, int]
#: Jobs of one kind can run on the same types: (class, allowed types, own id if own estimate).
Kind = tuple[ClassKey, tuple[str, ...], str]


@dataclass(slots=True)
class Job:
    """One admitted job that is not done."""

    spec: JobSpec
    arrival: int
    #: Whole-job steps that no failure can take away any more.
    steps: float = 0.0
    #: The lease that wrote, or loaded, the newest checkpoint.
    last_lease: str = ""
    #: Failed attempts since it last made progress.
    failures: int = 0
    #: Not to be started before this, after a failure.
    not_before_s: float = 0.0

    @property
    def key(self) -> ClassKey:
        """What its throughput is looked up by."""
        return (self.spec.job_type, self.spec.scale_factor)


@dataclass(slots=True)
class Jobs:
    """Jobs by id, in order of arrival, and what is estimated of them."""

    active: dict[str, Job] = field(default_factory=dict)
    #: Jobs whose end, or rejection, is decided but not on the log yet: to others they are there.
    ending: set[str] = field(default_factory=set)
    #: Jobs ever admitted; the rank of the next arrival.
    admitted: int = 0
    #: {class: {worker type: steps/s alone}}
    _class_speeds: dict[ClassKey, dict[str, float]] = field(default_factory=dict)
    #: {job id: {worker type: steps/s alone}}, where a job has an estimate of its own
    _job_speeds: dict[str, dict[str, float]] = field(default_factory=dict)
    #: {job id: class whose pairs hold for it}, where a job has an estimate of its own
    _job_class: dict[str, ClassKey] = field(default_factory=dict)
    #: {class: {(other class, worker type)}} that fit one worker together; a pair once, either way
    _pairs: dict[ClassKey, set[tuple[ClassKey, str]]] = field(default_factory=dict)

    def admit(self, spec: JobSpec) -> None:
        """Put a job on the books."""
        self.active[spec.job_id] = Job(spec, self.admitted)
        self.admitted += 1

    def forget(self, job_id: str) -> None:
        """Strike a job off the books; its end is yet to be told."""
        self.active.pop(job_id, None)
        self.ending.add(job_id)
        self._job_speeds.pop(job_id, None)
        self._job_class.pop(job_id, None)

    def estimate(self, row: ThroughputRow, job_id: str) -> None:
        """Take over an estimate, of a class or (``job_id`` given) of one job."""
        speeds = {t.worker_type: t.steps_per_s for t in row.alone}
        if job_id:
            self._job_speeds[job_id] = speeds
            self._job_class[job_id] = (row.job_type, row.scale_factor)
            return
        key = (row.job_type, row.scale_factor)
        self._class_speeds[key] = speeds
        self._pairs[key] = {
            ((pair.other_job_type, row.scale_factor), pair.worker_type)
            for pair in row.beside
            if pair.steps_per_s > 0 and pair.other_steps_per_s > 0
        }

    def speeds(self, job: Job) -> dict[str, float] | None:
        """{worker type: steps/s}, None while nothing is known."""
        own = self._job_speeds.get(job.spec.job_id)
        return own if own is not None else self._class_speeds.get(job.key)

    def kind(self, job: Job) -> Kind:
        """What decides where the job can run."""
        own = job.spec.job_id if job.spec.job_id in self._job_speeds else ""
        return (job.key, job.spec.allowed_worker_types, own)

    def speed(self, job: Job, worker_type: str) -> float:
        """Steps/s alone, as far as is known; 0 where the job may not run.

        A type may be held unconsolidated by jobs of several workers. Unless their throughput is
        known to differ then, it does not.
        """
        speeds = self.speeds(job) or {}
        physical = worker_type.removesuffix(UNCONSOLIDATED)
        allowed = job.spec.allowed_worker_types
        if allowed and physical not in allowed:
            return 0.0
        if physical != worker_type and job.spec.scale_factor == 1:
            return 0.0
        return speeds.get(worker_type, speeds.get(physical, 0.0))

    def run_on(self, members: Sequence[Job], worker_type: str) -> bool:
        """Whether the jobs can and may run on the type, together if two, as far as is known."""
        if any(self.speed(job, worker_type) <= 0 for job in members):
            return False
        if len(members) == 1:
            return True
        first, last = (self._job_class.get(job.spec.job_id, job.key) for job in members)
        return (last, worker_type) in self._pairs.get(first, ()) or (
            first,
            worker_type,
        ) in self._pairs.get(last, ())

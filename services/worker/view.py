"""What a worker service's hands must know of the log beyond the effect they carry out: a fold.

An effect says what to run. That a job's earlier lease has come to its end elsewhere, how far an
emulated job had come, how fast the table says that it runs, where the first rank of a gang is:
that stands in other records, by whomever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from schemas.domain import TaskProgress, TaskSpec
from schemas.events import (
    ClusterConfigured,
    Event,
    JobSubmitted,
    LeasesChanged,
    ProgressReported,
    RoundScheduled,
    StopStepAgreed,
    TaskStopped,
    ThroughputTableImported,
    WorkerLost,
    WorkerRegistered,
    WorkerReturned,
    WorkerUnreachable,
)
from schemas.record import Record

#: A lease whose service has said nothing for so long after its end is forgotten.
_LONG_SILENT_S = 86400.0


@dataclass(slots=True)
class _Out:
    """A lease that is out."""

    #: The services that run it; the first counts its steps.
    reporters: tuple[str, ...]
    until_round: int
    ends_at_s: float
    running: set[str]
    revoked: bool = False
    #: Services that have reported its end; a plan that was late may still renew it.
    over: set[str] = field(default_factory=set)
    #: When such a plan came; 0: never.
    resumed_at_s: float = 0.0
    #: {job id: whole-job steps in its last report under this lease}
    reported: dict[str, float] = field(default_factory=dict)
    #: {job id: iteration that all ranks stop at, as this lease ends}
    stop_at: dict[str, int] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether none of its services runs any of it."""
        return len(self.over) == len(self.reporters)


class LogView:
    """Folds a log for the worker service ``name``; its state is what is declared here.

    ``pace``, {worker type: factor}: how many times as fast as the log's table says the service's
    imagined accelerators are, in truth.
    """

    #: {job id: whole-job steps in its newest checkpoint}
    saved: dict[str, float]
    #: {worker id: its last registration}
    workers: dict[str, WorkerRegistered]
    #: Seconds between the plan of a round and its beginning.
    plan_lead_s: float
    #: Own workers that the mechanism misses.
    missing: set[str]
    _out: dict[str, _Out]
    _at_s: float
    #: {(job type, scale factor): {worker type: steps/s}}
    _alone: dict[tuple[str, int], dict[str, float]]
    #: {(job type, other job type, scale factor, worker type): steps/s of each}
    _pairs: dict[tuple[str, str, int, str], tuple[float, float]]
    #: {job id: {worker type: steps/s}}, as its owner declared
    _declared: dict[str, dict[str, float]]

    def __init__(self, name: str, pace: Mapping[str, float] | None = None) -> None:
        self._name = name
        self._pace = pace or {}
        self.saved = {}
        self.workers = {}
        self.plan_lead_s = ClusterConfigured().plan_lead()
        self.missing = set()
        self._out = {}
        self._at_s = 0.0
        self._alone = {}
        self._pairs = {}
        self._declared = {}
        self._takes: dict[type[Event], Callable[..., None]] = {
            ClusterConfigured: self._configure,
            ThroughputTableImported: self._import,
            JobSubmitted: self._submit,
            WorkerRegistered: self._register,
            WorkerReturned: self._return,
            WorkerUnreachable: self._miss,
            WorkerLost: self._miss,
            RoundScheduled: self._plan,
            LeasesChanged: self._revoke,
            StopStepAgreed: self._agree,
            ProgressReported: self._book_round,
            TaskStopped: self._book_stop,
        }

    def take(self, record: Record) -> None:
        """Take in one record."""
        self._at_s = record.at
        take = self._takes.get(type(record.event))
        if take is not None:
            take(record.event)

    def held_until(self, lease_id: str) -> float | None:
        """When a lease ends whose tasks may still run; None: its service has reported its end.

        A revoked lease counts as long as its service has not said that it has stopped its tasks:
        one that is cut off does not know.
        """
        out = self._out.get(lease_id)
        return None if out is None or out.ended else out.ends_at_s

    def is_over(self, lease_id: str, job_id: str) -> bool:
        """Whether the task is to run no more, whenever its lease ends."""
        out = self._out.get(lease_id)
        return out is None or out.revoked or job_id not in out.running

    def steps(self, lease_id: str, job_id: str) -> float:
        """Whole-job steps an emulated job has: as last reported under the lease, else as saved."""
        out = self._out.get(lease_id)
        saved = self.saved.get(job_id, 0.0)
        return saved if out is None else out.reported.get(job_id, saved)

    def stop_step(self, lease_id: str, job_id: str) -> int | None:
        """Iteration at which all ranks are to stop, once that is agreed."""
        out = self._out.get(lease_id)
        return None if out is None else out.stop_at.get(job_id)

    def resumed_at_s(self, lease_id: str) -> float:
        """When a lease that was over already was renewed, by a plan that came late; 0 if never."""
        out = self._out.get(lease_id)
        return 0.0 if out is None else out.resumed_at_s

    def rates(self, tasks: Sequence[TaskSpec], worker_type: str) -> Sequence[float]:
        """Steps/s of each task of a lease, as ``known_rates``; 0 where nothing is known."""
        return self.known_rates(tasks, worker_type) or (0.0,) * len(tasks)

    def known_rates(self, tasks: Sequence[TaskSpec], worker_type: str) -> Sequence[float] | None:
        """Steps/s of each task of a lease by the table, else as declared, at the service's pace.

        None: not known.

        Parameters
        ----------
        tasks : those that share the workers, one or two
        worker_type : of the workers
        """
        if len(tasks) == 2:
            first, other = tasks
            both = (first.job_type, other.job_type, first.scale_factor, worker_type)
            speeds: Sequence[float] | None = self._pairs.get(both)
        else:
            (task,) = tasks
            known = self._alone.get((task.job_type, task.scale_factor))
            known = self._declared.get(task.job_id, {}) if known is None else known
            speeds = (known[worker_type],) if worker_type in known else None
        pace = self._pace.get(worker_type, 1.0)
        return None if speeds is None else [speed * pace for speed in speeds]

    # --- records ---------------------------------------------------------------------------------

    def _configure(self, event: ClusterConfigured) -> None:
        self.plan_lead_s = event.plan_lead()

    def _import(self, event: ThroughputTableImported) -> None:
        for row in event.rows:
            speeds = {cell.worker_type: cell.steps_per_s for cell in row.alone}
            self._alone[row.job_type, row.scale_factor] = speeds
            for pair in row.beside:
                one, other = row.job_type, pair.other_job_type
                speed, other_speed = pair.steps_per_s, pair.other_steps_per_s
                where = (row.scale_factor, pair.worker_type)
                self._pairs[one, other, *where] = (speed, other_speed)
                self._pairs[other, one, *where] = (other_speed, speed)

    def _submit(self, event: JobSubmitted) -> None:
        if event.job.declared_throughputs:
            self._declared.setdefault(event.job.job_id, event.job.declared_throughputs)

    def _register(self, event: WorkerRegistered) -> None:
        self.workers[event.worker_id] = event
        self.missing.discard(event.worker_id)

    def _return(self, event: WorkerReturned) -> None:
        self.missing.discard(event.worker_id)

    def _miss(self, event: WorkerUnreachable | WorkerLost) -> None:
        worker = self.workers.get(event.worker_id)
        if worker is not None and worker.reporter == self._name:
            self.missing.add(event.worker_id)

    def _plan(self, event: RoundScheduled) -> None:
        silent = event.starts_at_s - _LONG_SILENT_S
        for lease_id in event.renewed:
            out = self._out.get(lease_id)
            if out is not None:
                out.until_round, out.ends_at_s = event.round_id, event.ends_at_s
                if out.ended:
                    out.resumed_at_s = self._at_s
                out.over, out.stop_at = set(), {}
        self._out = {
            lease_id: out
            for lease_id, out in self._out.items()
            if out.ends_at_s > silent and not out.ended
        }
        for lease in event.granted:
            jobs = {task.job_id for task in lease.tasks}
            out = _Out(lease.reporters, event.round_id, event.ends_at_s, jobs)
            self._out[lease.lease_id] = out

    def _revoke(self, event: LeasesChanged) -> None:
        for lease_id in event.revoked:
            if lease_id in self._out:
                self._out[lease_id].revoked = True

    def _agree(self, event: StopStepAgreed) -> None:
        out = self._out.get(event.lease_id)
        if out is not None and out.until_round == event.round_id:
            out.stop_at[event.job_id] = event.iteration

    def _book_round(self, event: ProgressReported) -> None:
        for row in event.rows:
            self._book(row, event.reporter)
        for out in self._out.values():
            if event.reporter in out.reporters and out.until_round <= event.round_id:
                out.over.add(event.reporter)

    def _book_stop(self, event: TaskStopped) -> None:
        self._book(event.task, event.reporter)
        out = self._out.get(event.task.lease_id)
        if out is not None and out.reporters[0] == event.reporter:
            out.running.discard(event.task.job_id)
            if not out.running:
                del self._out[event.task.lease_id]

    def _book(self, row: TaskProgress, reporter: str) -> None:
        out = self._out.get(row.lease_id)
        if out is not None and out.reporters[0] == reporter:
            out.reported[row.job_id] = row.steps
            saved = self.saved.get(row.job_id, 0.0)
            self.saved[row.job_id] = max(saved, row.checkpointed_steps)

"""What a log comes to: the figures people compare schedules by. A fold, like everything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from schemas.domain import TaskProgress
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    Event,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobRejected,
    JobSubmitted,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    WorkerRegistered,
)
from schemas.record import Record


@dataclass(slots=True)
class JobLine:
    """One job's times, seconds of log time."""

    job_id: str
    job_type: str
    scale_factor: int
    arrival_s: float
    first_start_s: float | None = None
    completion_s: float | None = None
    outcome: str = "waiting"
    #: Why it was rejected or has failed.
    reason: str = ""
    #: Seconds it held workers, and of these, loading and saving checkpoints.
    run_s: float = 0.0
    load_s: float = 0.0
    save_s: float = 0.0

    @property
    def jct_s(self) -> float | None:
        """Arrival to completion."""
        return None if self.completion_s is None else self.completion_s - self.arrival_s


@dataclass(slots=True)
class _TypeUse:
    workers: int = 0
    usd_per_h: float = 0.0
    busy_s: float = 0.0


@dataclass(slots=True)
class _LeaseUse:
    worker_type: str
    workers: int
    running: set[str]
    ended: bool = False
    #: Seconds of the current round already counted: two jobs of one lease hold workers once.
    counted_s: float = 0.0


class Summary:
    """Folds records into job times and cluster use.

    Parameters
    ----------
    measured : job ids that the figures are over and that ``done`` waits for; None means all
    """

    def __init__(self, measured: Iterable[str] | None = None) -> None:
        self.jobs: dict[str, JobLine] = {}
        self._measured = None if measured is None else dict.fromkeys(measured)
        self._open = set(self._measured or ())
        self._types: dict[str, _TypeUse] = {}
        #: {worker id: its type}
        self._workers: dict[str, str] = {}
        self._leases: dict[str, _LeaseUse] = {}
        self.rounds = 0
        self.solves = 0
        self.failed_solves = 0
        self.last_solve_failure = ""
        self.starts = 0
        self.renewals = 0
        #: Leases that ended without the job being done: it had to give its workers up.
        self.preemptions = 0
        self.started_at: float | None = None
        self.ended_at = 0.0
        self._takers: dict[type[Event], Callable[..., None]] = {
            WorkerRegistered: self._worker,
            JobSubmitted: self._submitted,
            JobCompleted: self._completed,
            JobRejected: self._dropped,
            JobCancelled: self._dropped,
            JobFailed: self._dropped,
            RoundScheduled: self._round,
            ProgressReported: self._progress,
            TaskStopped: self._stopped,
            AllocationComputed: self._solved,
            AllocationFailed: self._unsolved,
        }

    @property
    def done(self) -> bool:
        """Whether every measured job has come to its end."""
        return self._measured is not None and not self._open

    def take(self, record: Record) -> None:
        """Fold one record."""
        taker = self._takers.get(type(record.event))
        if taker is not None:
            taker(record.event, record.at)

    def _worker(self, event: WorkerRegistered, at: float) -> None:
        if event.profiles_only:
            return
        before = self._workers.get(event.worker_id)
        if before is not None:
            self._types[before].workers -= 1
        self._workers[event.worker_id] = event.worker_type
        use = self._types.setdefault(event.worker_type, _TypeUse())
        use.workers += 1
        use.usd_per_h = event.usd_per_h or 0.0

    def _submitted(self, event: JobSubmitted, at: float) -> None:
        job = event.job
        self.jobs[job.job_id] = JobLine(job.job_id, job.job_type, job.scale_factor, at)
        if self.started_at is None:
            self.started_at = at

    def _completed(self, event: JobCompleted, at: float) -> None:
        job = self.jobs[event.job_id]
        job.completion_s = self.ended_at = at
        job.outcome = "completed"
        self._open.discard(event.job_id)

    def _dropped(self, event: JobRejected | JobCancelled | JobFailed, at: float) -> None:
        if event.job_id in self.jobs:
            outcome = {JobRejected: "rejected", JobCancelled: "cancelled", JobFailed: "failed"}
            self.jobs[event.job_id].outcome = outcome[type(event)]
            self.jobs[event.job_id].reason = getattr(event, "reason", "")
        self._open.discard(event.job_id)

    def _round(self, event: RoundScheduled, at: float) -> None:
        self.rounds += 1
        self.renewals += len(event.renewed)
        self.starts += len(event.granted)
        self.preemptions += len(event.ended)
        for lease_id in event.ended:
            if lease_id in self._leases:
                self._leases[lease_id].ended = True
        for lease in event.granted:
            job_ids = {task.job_id for task in lease.tasks}
            self._leases[lease.lease_id] = _LeaseUse(
                lease.worker_type, len(lease.worker_ids), job_ids
            )
            for job_id in job_ids:
                job = self.jobs[job_id]
                if job.first_start_s is None:
                    job.first_start_s = event.starts_at_s
                    job.outcome = "running"

    def _progress(self, event: ProgressReported, at: float) -> None:
        for row in event.rows:
            self._use(row)
        for row in event.rows:
            lease = self._leases.get(row.lease_id)
            if lease is not None:
                lease.counted_s = 0.0
                if lease.ended:
                    del self._leases[row.lease_id]

    def _stopped(self, event: TaskStopped, at: float) -> None:
        self._use(event.task)
        lease = self._leases.get(event.task.lease_id)
        if lease is not None:
            lease.running.discard(event.task.job_id)
            if not lease.running:
                del self._leases[event.task.lease_id]

    def _use(self, row: TaskProgress) -> None:
        job = self.jobs.get(row.job_id)
        lease = self._leases.get(row.lease_id)
        if job is None or lease is None:
            return
        job.run_s += row.run_s
        job.load_s += row.load_s
        job.save_s += row.save_s
        more_s = max(0.0, row.run_s - lease.counted_s)
        lease.counted_s += more_s
        self._types[lease.worker_type].busy_s += more_s * lease.workers

    def _solved(self, event: AllocationComputed, at: float) -> None:
        self.solves += 1

    def _unsolved(self, event: AllocationFailed, at: float) -> None:
        self.failed_solves += 1
        self.last_solve_failure = event.reason

    def figures(self) -> Figures:
        """The figures over the measured jobs; times of jobs that are not done do not count."""
        ids = self.jobs if self._measured is None else self._measured
        lines = [self.jobs[job_id] for job_id in ids if job_id in self.jobs]
        jcts = np.array([line.jct_s for line in lines if line.jct_s is not None])
        elapsed_s = self.ended_at - (self.started_at or 0.0)
        outcomes: dict[str, int] = {}
        for line in lines:
            outcomes[line.outcome] = outcomes.get(line.outcome, 0) + 1
        return Figures(
            average_jct_s=float(jcts.mean()) if len(jcts) else None,
            median_jct_s=float(np.median(jcts)) if len(jcts) else None,
            p99_jct_s=float(np.percentile(jcts, 99)) if len(jcts) else None,
            makespan_s=elapsed_s if len(jcts) else None,
            utilisation=_ratio(
                sum(use.busy_s for use in self._types.values()),
                elapsed_s * sum(use.workers for use in self._types.values()),
            ),
            utilisation_by_type={
                worker_type: _ratio(use.busy_s, elapsed_s * use.workers)
                for worker_type, use in sorted(self._types.items())
            },
            cost_usd=sum(use.busy_s / 3600 * use.usd_per_h for use in self._types.values()),
            rounds=self.rounds,
            solves=self.solves,
            failed_solves=self.failed_solves,
            last_solve_failure=self.last_solve_failure,
            starts=self.starts,
            renewals=self.renewals,
            preemptions=self.preemptions,
            jobs=len(jcts),
            outcomes=outcomes,
            reasons=dict(Counter(job.reason for job in self.jobs.values() if job.reason)),
            time_spent_s=_time_spent([line for line in lines if line.completion_s is not None]),
            run_s=sum(line.run_s for line in lines),
            load_s=sum(line.load_s for line in lines),
            save_s=sum(line.save_s for line in lines),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a schedule comes to; times in seconds, None where no job is done."""

    average_jct_s: float | None
    median_jct_s: float | None
    p99_jct_s: float | None
    #: First arrival to last completion.
    makespan_s: float | None
    #: Worker-seconds held by jobs over worker-seconds there were, first arrival to last completion.
    utilisation: float
    utilisation_by_type: dict[str, float]
    cost_usd: float
    rounds: int
    solves: int
    failed_solves: int
    #: In the solver's own words; empty if none failed.
    last_solve_failure: str
    #: Leases granted anew, renewed, and ended with their job undone.
    starts: int
    renewals: int
    preemptions: int
    #: Measured jobs that are complete, and all measured jobs by outcome.
    jobs: int
    outcomes: dict[str, int]
    #: {why jobs were rejected or failed: how many}, of all jobs, measured or not.
    reasons: dict[str, int]
    #: {waiting, running, loading, saving: seconds} of the complete jobs; together, their JCTs.
    time_spent_s: dict[str, float]
    #: Seconds jobs held workers, summed, and of these, loading and saving checkpoints.
    run_s: float
    load_s: float
    save_s: float


def _time_spent(complete: Sequence[JobLine]) -> dict[str, float]:
    loading, saving = (sum(getattr(j, name) for j in complete) for name in ("load_s", "save_s"))
    held = sum(line.run_s for line in complete)
    jct = sum(line.jct_s or 0.0 for line in complete)
    return {
        "waiting": jct - held,
        "running": held - loading - saving,
        "loading": loading,
        "saving": saving,
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0

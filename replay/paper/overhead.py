"""What moving jobs costs them, of any log: starts, renewals, seconds spent on checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from schemas.domain import TaskProgress
from schemas.events import JobSubmitted, ProgressReported, RoundScheduled, TaskStopped
from schemas.record import Record


@dataclass(slots=True)
class Use:
    """Of one group of jobs."""

    #: Leases granted, and rounds over which they were renewed.
    starts: int = 0
    renewals: int = 0
    #: Seconds on workers, and of these, loading and saving checkpoints.
    run_s: float = 0.0
    checkpoint_s: float = 0.0

    @property
    def overhead(self) -> float:
        """Of the time on workers, the part that went to checkpoints."""
        return self.checkpoint_s / self.run_s if self.run_s else 0.0

    @property
    def checkpoint_s_a_start(self) -> float:
        """Seconds to load and to save, a lease."""
        return self.checkpoint_s / self.starts if self.starts else 0.0

    @property
    def overhead_without_renewals(self) -> float:
        """The same if every round began with a new lease."""
        rounds = self.starts + self.renewals
        return self.checkpoint_s_a_start * rounds / self.run_s if self.run_s else 0.0


class Overheads:
    """Folds the records of a log."""

    def __init__(self) -> None:
        #: {job type: its jobs' use}
        self.use: dict[str, Use] = {}
        self._job_type: dict[str, str] = {}
        self._jobs_of: dict[str, tuple[str, ...]] = {}

    def take(self, record: Record) -> None:
        """Fold one record."""
        event = record.event
        if isinstance(event, JobSubmitted):
            self._job_type[event.job.job_id] = event.job.job_type
            self.use.setdefault(event.job.job_type, Use())
        elif isinstance(event, RoundScheduled):
            for lease in event.granted:
                self._jobs_of[lease.lease_id] = tuple(task.job_id for task in lease.tasks)
                for job_id in self._jobs_of[lease.lease_id]:
                    self._of(job_id).starts += 1
            for lease_id in event.renewed:
                for job_id in self._jobs_of.get(lease_id, ()):
                    self._of(job_id).renewals += 1
        elif isinstance(event, ProgressReported):
            for row in event.rows:
                self._ran(row)
        elif isinstance(event, TaskStopped):
            self._ran(event.task)

    def by(self, name_of: Callable[[str], str]) -> dict[str, Use]:
        """{name: use of the jobs whose types have that name}, those that ran, in name order."""
        found: dict[str, Use] = {}
        for job_type, use in sorted(self.use.items()):
            if not use.starts:
                continue
            whole = found.setdefault(name_of(job_type), Use())
            whole.starts += use.starts
            whole.renewals += use.renewals
            whole.run_s += use.run_s
            whole.checkpoint_s += use.checkpoint_s
        return found

    def starts_per_round(self, name_of: Callable[[str], str]) -> dict[str, float]:
        """{name: of the rounds its jobs had workers in, the share that began with a new lease}."""
        return {
            name: use.starts / (use.starts + use.renewals) for name, use in self.by(name_of).items()
        }

    def _of(self, job_id: str) -> Use:
        return self.use[self._job_type[job_id]]

    def _ran(self, row: TaskProgress) -> None:
        if row.job_id in self._job_type:
            use = self._of(row.job_id)
            use.run_s += row.run_s
            use.checkpoint_s += row.load_s + row.save_s

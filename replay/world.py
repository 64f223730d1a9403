"""The world outside the cores, as a log shows it: a fold.

Who came and asked, and when (*outside* records); which accelerators there are; how fast tasks ran,
and how long their checkpoints took. With it a simulated cluster can stand in for the one that
wrote the log: of a simulation's log it is that very cluster, as far as the log can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from replay.cluster import Failure
from replay.driver import SIMULATED
from replay.speeds import Speeds
from schemas.domain import JobSpec, TaskProgress
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    AnyEvent,
    ClusterConfigured,
    Event,
    JobSubmitted,
    LeaderElected,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    WorkerDisappeared,
    WorkerRegistered,
)
from schemas.record import Record
from schemas.subjects import WORKER, role

#: Decimals of measured checkpoint seconds, which then come back as they were typed.
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Outside:
    """A record that answers no other: somebody asked for something, or something broke."""

    at: float
    seq: int
    actor: str
    event: AnyEvent


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    @property
    def value(self) -> float:
        return round(self.total / self.count, _DECIMALS) if self.count else 0.0


class World:
    """Folds records; see the attributes."""

    now: float
    last_seq: int
    config: ClusterConfigured
    outside: list[Outside]
    #: {worker id: its last registration}, {worker id: its first, as it came}
    workers: dict[str, WorkerRegistered]
    first_seen: dict[str, Outside]
    #: {service: the record of its newest start}
    starts: dict[str, Record]
    jobs: dict[str, JobSpec]
    #: The newest, and the newest failure since.
    allocation: AllocationComputed | None
    failure: AllocationFailed | None
    #: {job id: its failures, the first first}, {job id: seconds that it has held workers}
    failures: dict[str, list[Failure]]
    _held_s: dict[str, float]
    #: Leases granted and not heard of yet, and those that end with the round that runs.
    _unheard: set[str]
    _ending: set[str]
    _load: _Mean
    _save: _Mean

    def __init__(self) -> None:
        self.now, self.last_seq = 0.0, 0
        self.config = ClusterConfigured()
        self.outside, self.workers, self.first_seen = [], {}, {}
        self.starts, self.jobs = {}, {}
        #: A fold of its own.
        self.speeds = Speeds()
        self.allocation, self.failure = None, None
        self.failures, self._held_s = {}, {}
        self._unheard, self._ending = set(), set()
        self._load, self._save = _Mean(), _Mean()
        self._takes: dict[type[Event], Callable[..., None]] = {
            ClusterConfigured: self._configure,
            JobSubmitted: self._submit,
            AllocationComputed: self._allocate,
            AllocationFailed: self._fail,
            WorkerRegistered: self._register,
            WorkerDisappeared: self._disappear,
            RoundScheduled: self._plan,
            ProgressReported: self._book_round,
            TaskStopped: self._book_stop,
        }

    def take(self, record: Record) -> None:
        """Take in the next record."""
        self.last_seq, self.now = record.seq, max(self.now, record.at)
        event = record.event
        if isinstance(event, LeaderElected):
            self.starts[record.actor] = record
            return
        came = Outside(record.at, record.seq, record.actor, event)
        if isinstance(event, WorkerRegistered) and event.worker_id not in self.first_seen:
            self.first_seen[event.worker_id] = came
        elif not record.cause or isinstance(event, WorkerRegistered | WorkerDisappeared):
            # What is there later on, and what no more, a service has found out by itself.
            self.outside.append(came)
        take = self._takes.get(type(event))
        if take is not None:
            take(event)
        self.speeds.take(event)

    @property
    def is_simulated(self) -> bool:
        """Whether a simulation has written it."""
        events = [start.event for start in self.starts.values()]
        return any(isinstance(e, LeaderElected) and e.replica == SIMULATED for e in events)

    @property
    def worker_services(self) -> list[str]:
        """Names of the worker services that have started, or that speak for a worker."""
        started = (name for name in self.starts if role(name) == WORKER)
        return sorted({*started, *(worker.reporter for worker in self.workers.values())})

    @property
    def registered(self) -> dict[str, int]:
        """{worker type: workers there are to run jobs, whether or not they can be leased now}."""
        counts: dict[str, int] = {}
        for _, worker in sorted(self.workers.items()):
            if not worker.profiles_only:
                counts[worker.worker_type] = counts.get(worker.worker_type, 0) + 1
        return dict(sorted(counts.items()))

    @property
    def load_s(self) -> float:
        """Seconds until a task is under way from its checkpoint, on average."""
        return self._load.value

    @property
    def save_s(self) -> float:
        """Seconds to save a checkpoint where a lease ends, on average; as to load, until known."""
        return self._save.value if self._save.count else self.load_s

    def _configure(self, event: ClusterConfigured) -> None:
        self.config = event

    def _submit(self, event: JobSubmitted) -> None:
        self.jobs.setdefault(event.job.job_id, event.job)

    def _allocate(self, event: AllocationComputed) -> None:
        self.allocation, self.failure = event, None

    def _fail(self, event: AllocationFailed) -> None:
        self.failure = event

    def _register(self, event: WorkerRegistered) -> None:
        self.workers[event.worker_id] = event

    def _disappear(self, event: WorkerDisappeared) -> None:
        self.workers.pop(event.worker_id, None)

    def _plan(self, event: RoundScheduled) -> None:
        self._unheard.update(lease.lease_id for lease in event.granted)
        self._ending = set(event.ended)

    def _book_round(self, event: ProgressReported) -> None:
        for row in event.rows:
            self._book(row)
            self._held_s[row.job_id] = self._held_s.get(row.job_id, 0.0) + row.run_s
            if row.lease_id in self._ending:
                self._save.add(row.save_s)

    def _book_stop(self, event: TaskStopped) -> None:
        row = event.task
        held_s = self._held_s[row.job_id] = self._held_s.get(row.job_id, 0.0) + row.run_s
        if event.reason == "completed":
            self._book(row)
        elif event.reason in ("failed", "lost"):
            failure = Failure(held_s, event.reason, event.exit_code, event.detail)
            self.failures.setdefault(row.job_id, []).append(failure)

    def _book(self, row: TaskProgress) -> None:
        """The first that is heard of a lease says how long its checkpoint took to load."""
        if row.lease_id in self._unheard:
            self._unheard.discard(row.lease_id)
            self._load.add(row.load_s)

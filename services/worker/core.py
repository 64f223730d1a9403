"""The worker service's core: which of its leases run, and which come to an end.

It owns no process and reads no device. A round that concerns its workers becomes one ``RunRound``
effect, however many leases it has; what the executor finds out comes back as events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import ClassVar

import msgspec

from schemas.decisions import Decision, Effect, Run
from schemas.domain import Lease
from schemas.events import (
    AnyEvent,
    ClusterConfigured,
    Event,
    LeaderElected,
    LeasesChanged,
    ProgressReported,
    RoundScheduled,
    StopStepProposed,
    TasksStarted,
    TaskStopped,
    ThroughputMeasured,
    WorkerDisappeared,
    WorkerRegistered,
)


class DetectWorkers(msgspec.Struct, frozen=True):
    """Find the accelerators; report each that is new, has changed, or is no longer there."""

    ends_with: ClassVar[tuple[type[Event], ...]] = (WorkerRegistered, WorkerDisappeared)
    #: Others may follow the one that ends it: what a crash cuts off, the next start detects anew.
    reports: ClassVar[tuple[type[Event], ...]] = (WorkerRegistered, WorkerDisappeared)
    #: Nor need it have an end: where nothing is new, it reports nothing.
    of_one_start: ClassVar[bool] = True
    reporter: str
    known: tuple[WorkerRegistered, ...]


class RunRound(msgspec.Struct, frozen=True, kw_only=True):
    """Run the leases of one round.

    Results: ``TasksStarted`` once the granted are up, ``TaskStopped`` for each that ends by
    itself, and last, at the round's end, one ``ProgressReported``. A lease that no later round
    renews needs no word: at its end the task is checkpointed and stopped; where other services
    run ranks of it too, after ``StopStepProposed``.
    """

    ends_with: ClassVar[tuple[type[Event], ...]] = (ProgressReported,)
    #: What may come before the end.
    reports: ClassVar[tuple[type[Event], ...]] = (TasksStarted, TaskStopped, StopStepProposed)
    reporter: str
    round_id: int
    starts_at_s: float
    ends_at_s: float
    #: Set where a round ends with its last task: what each fits its whole steps into.
    whole_steps_in_s: float | None
    granted: tuple[Lease, ...]
    renewed: tuple[Lease, ...]


class RunProfile(msgspec.Struct, frozen=True):
    """Measure what a copy of a job makes, alone or beside a reference, for a little while."""

    ends_with: ClassVar[tuple[type[Event], ...]] = (ThroughputMeasured,)
    reporter: str
    lease: Lease
    starts_at_s: float
    ends_at_s: float


class StopTask(msgspec.Struct, frozen=True):
    """Stop one job of a lease at once, without waiting for a checkpoint."""

    ends_with: ClassVar[tuple[type[Event], ...]] = (TaskStopped,)
    reporter: str
    lease_id: str
    job_id: str
    reason: str


class WorkerCore:
    """Folds the mechanism's plans into effects on this service's own workers.

    Its state is what is declared here.
    """

    effects: ClassVar[tuple[type[Effect], ...]] = (DetectWorkers, RunRound, RunProfile, StopTask)

    _whole_steps_in_s: float | None
    #: {worker id: its last registration}
    _workers: dict[str, WorkerRegistered]
    #: {lease id: lease} of this service's live leases, current round and next.
    _leases: dict[str, Lease]

    def __init__(self, name: str) -> None:
        self._name = name
        self._whole_steps_in_s = None
        self._workers = {}
        self._leases = {}
        self._handlers: dict[type[Event], Callable[..., Sequence[Decision]]] = {
            ClusterConfigured: self._configure,
            LeaderElected: self._start,
            WorkerRegistered: self._register,
            WorkerDisappeared: self._forget,
            RoundScheduled: self._run_round,
            LeasesChanged: self._change,
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
        last_task = event.round_end == "last_task"
        self._whole_steps_in_s = event.round_duration_s if last_task else None
        return ()

    def _start(self, event: LeaderElected) -> Sequence[Decision]:
        known = tuple(self._workers[worker_id] for worker_id in sorted(self._workers))
        return (Run(DetectWorkers(self._name, known)),)

    def _register(self, event: WorkerRegistered) -> Sequence[Decision]:
        if event.reporter == self._name:
            self._workers[event.worker_id] = event
        return ()

    def _forget(self, event: WorkerDisappeared) -> Sequence[Decision]:
        """Should it be back at the next start, it is to be reported anew."""
        if event.reporter == self._name:
            self._workers.pop(event.worker_id, None)
        return ()

    def _run_round(self, event: RoundScheduled) -> Sequence[Decision]:
        granted = tuple(lease for lease in event.granted if self._name in lease.reporters)
        renewed = tuple(self._leases[i] for i in event.renewed if i in self._leases)
        self._leases = {lease.lease_id: lease for lease in renewed + granted}
        if not (granted or renewed):
            return ()
        effect = RunRound(
            reporter=self._name,
            round_id=event.round_id,
            starts_at_s=event.starts_at_s,
            ends_at_s=event.ends_at_s,
            whole_steps_in_s=self._whole_steps_in_s,
            granted=granted,
            renewed=renewed,
        )
        return (Run(effect),)

    def _change(self, event: LeasesChanged) -> Sequence[Decision]:
        """Profiles are run, by the service that holds rank 0; leases revoked are stopped."""
        profiles = tuple(
            Run(RunProfile(self._name, lease, event.starts_at_s, event.ends_at_s))
            for lease in event.granted
            if lease.profile and lease.reporters[0] == self._name
        )
        revoked = [self._leases.pop(i) for i in event.revoked if i in self._leases]
        return profiles + tuple(
            Run(StopTask(self._name, lease.lease_id, task.job_id, event.reason))
            for lease in revoked
            for task in lease.tasks
        )

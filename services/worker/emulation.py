"""Emulated tasks inside the worker service: sums instead of processes, at the table's speeds.

For tests of scale: a thousand workers in one process make the log traffic of a thousand. A task
has no state but its lease's beginning: how far it is follows from the log and log time, so that
a restarted service finds it where it would have been. Its checkpoint is its report in the log.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from schemas.domain import Lease, TaskSpec
from schemas.events import WorkerRegistered
from services.worker.hands import Counts, Ending, Profile, Task
from services.worker.view import LogView

_NAP_S = 2.0


class EmulatedHands:
    """Starts emulated tasks.

    Parameters
    ----------
    workers : the accelerators that are imagined
    view : fold of the log: speeds, and how far jobs are
    now : log time, s
    load_s, save_s : seconds to load and to save a checkpoint
    """

    def __init__(
        self,
        workers: Sequence[WorkerRegistered],
        view: LogView,
        now: Callable[[], float],
        *,
        load_s: float,
        save_s: float,
    ) -> None:
        self._workers = tuple(workers)
        self._view = view
        self.now = now
        self.load_s = load_s
        self.save_s = save_s
        #: {lease id: its tasks that run}
        self._leases: dict[str, list[EmulatedTask]] = {}

    def detect(self) -> Sequence[WorkerRegistered]:
        """See ``Hands``."""
        return self._workers

    async def measure(self, lease: Lease, starts_at_s: float, ends_at_s: float) -> Profile:
        """See ``Hands``: what the table says."""
        speeds = self._view.known_rates(lease.tasks, lease.worker_type)
        if speeds is None:
            return Profile("failed", detail="no table says what it makes, and nothing runs here")
        outcome = "measured" if any(speeds) else "does_not_fit"
        return Profile(outcome, tuple(speeds), ends_at_s - starts_at_s)

    async def end_strays(self, known: Callable[[str, str], bool]) -> None:
        """See ``Hands``: what was arithmetic is gone with the process that did it."""

    def start(
        self,
        lease: Lease,
        spec: TaskSpec,
        starts_at_s: float,
        ends_at_s: float,
        *,
        fresh: bool,
        after: Counts,
    ) -> Task:
        """See ``Hands``."""
        resumed_at_s = self._view.resumed_at_s(lease.lease_id)
        loads = fresh or resumed_at_s > starts_at_s
        starts_at_s = max(starts_at_s, resumed_at_s)
        ready_s = starts_at_s + (self.load_s if loads else 0.0)
        task = EmulatedTask(self, lease, spec, after, (starts_at_s, ready_s, ends_at_s))
        tasks = self._leases.setdefault(lease.lease_id, [])
        tasks.append(task)
        self._set_rates(tasks, starts_at_s)
        return task

    def left(self, task: EmulatedTask, at_s: float) -> None:
        """A task runs no more: who shared its workers has them alone."""
        tasks = self._leases[task.lease.lease_id]
        tasks.remove(task)
        if tasks:
            self._set_rates(tasks, at_s)
        else:
            del self._leases[task.lease.lease_id]

    def _set_rates(self, tasks: list[EmulatedTask], at_s: float) -> None:
        rates = self._view.rates([task.spec for task in tasks], tasks[0].lease.worker_type)
        for task, rate in zip(tasks, rates, strict=True):
            task.set_rate(rate, at_s)


class EmulatedTask:
    """See ``Task``; ``times``: when its round starts, it is loaded, its lease ends, s."""

    def __init__(
        self,
        hands: EmulatedHands,
        lease: Lease,
        spec: TaskSpec,
        after: Counts,
        times: tuple[float, float, float],
    ) -> None:
        self.lease = lease
        self.spec = spec
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._hands = hands
        starts_at_s, self._ready_s, self._ends_at_s = times
        self._load_s = self._ready_s - starts_at_s
        self._save_s = 0.0
        self._saved = after.saved_steps
        #: Steps at ``_since_s``, and steps/s from there.
        self._steps, self._since_s, self._rate = after.steps, starts_at_s, 0.0
        self._alarm: asyncio.TimerHandle | None = None

    def counts(self, now: float) -> Counts:
        """See ``Task``."""
        return Counts(self._steps_at(now), self._saved, self._load_s, self._save_s)

    def renew(self, ends_at_s: float) -> None:
        """See ``Task``."""
        self._ends_at_s = ends_at_s
        if not self.ending.done():
            self._foresee()

    def stop_lead_s(self) -> float:
        """See ``Task``: sums are done at once, and as of the lease's end."""
        return 0.0

    async def stop(self, propose: Callable[[int], None] | None = None) -> None:
        """See ``Task``: whoever holds the first rank has all of them."""
        if self.ending.done():
            return
        if self._finish_s() <= self._ends_at_s:
            self._end("completed", self._finish_s(), self._finish_s())
        else:
            self._save_s = self._hands.save_s
            self._end("stopped", self._ends_at_s - self._save_s, self._ends_at_s)
            self._saved = self._steps

    def stop_at(self, iteration: int) -> None:
        """See ``Task``: it never asks."""

    async def kill(self) -> None:
        """See ``Task``."""
        now = self._hands.now()
        if not self.ending.done():
            self._end("stopped", now, now)

    def set_rate(self, rate: float, at_s: float) -> None:
        """From ``at_s`` on it makes ``rate`` steps/s."""
        self._steps, self._since_s = self._steps_at(at_s), max(self._since_s, at_s)
        self._rate = rate
        self._foresee()

    def _steps_at(self, at_s: float) -> float:
        run_s = max(0.0, at_s - max(self._since_s, self._ready_s))
        return min(self.spec.total_steps, self._steps + self._rate * run_s)

    def _finish_s(self) -> float:
        left = self.spec.total_steps - self._steps
        if self._rate <= 0 and left > 0:
            return math.inf
        return max(self._since_s, self._ready_s) + (left / self._rate if left > 0 else 0.0)

    def _foresee(self) -> None:
        """Be complete when it is time, if that is before the lease's end."""
        if self._alarm is not None:
            self._alarm.cancel()
        # Not further ahead than log time can be trusted, and never while others are being told.
        wait_s = min(max(self._finish_s() - self._hands.now(), 0.0), _NAP_S)
        self._alarm = asyncio.get_running_loop().call_later(wait_s, self._look)

    def _look(self) -> None:
        if self.ending.done():
            return
        finish_s = self._finish_s()
        if finish_s <= min(self._hands.now(), self._ends_at_s):
            self._end("completed", finish_s, finish_s)
        elif self._hands.now() < self._ends_at_s:
            self._foresee()

    def _end(self, reason: str, counted_s: float, at_s: float) -> None:
        if reason == "completed":
            self._steps = self._saved = self.spec.total_steps
            self._since_s = at_s
        else:
            self._steps, self._since_s = self._steps_at(counted_s), counted_s
        self._rate = 0.0
        if self._alarm is not None:
            self._alarm.cancel()
        self.ending.set_result(Ending(reason, at_s))
        self._hands.left(self, at_s)

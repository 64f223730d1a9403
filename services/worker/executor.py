"""Carries out a worker service's effects live: rounds of leases, in log time.

The live counterpart of ``replay/cluster.py``. How a task runs is another's matter (``hands.py``);
when it starts, goes on, comes to its end and what is reported of it is here.

Rules
-----
1. A task starts when its round does, its workers are free, and the log says that the job's earlier
   lease is over (or has been silent for all of its graces): no job runs twice, no worker for two.
2. What no later plan renews saves and leaves at the lease's end, told or not.
3. The same effect carried out again, by a process that knows nothing of the first, reports the
   same under the same numbers: tasks that run are taken over, others start again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from schemas.domain import Lease, TaskProgress, TaskSpec
from schemas.events import (
    AnyEvent,
    ProgressReported,
    StopStepProposed,
    TasksStarted,
    TaskStopped,
    ThroughputMeasured,
    WorkerDisappeared,
)
from services.worker.core import DetectWorkers, RunProfile, RunRound, StopTask
from services.worker.hands import Counts, Hands, Profile, Task
from services.worker.view import LogView

Report = Callable[[int, AnyEvent], None]

#: ``n`` of a round's last report; what those of late starts and of proposals to stop begin at.
_LAST, _LATE, _PROPOSED = 1 << 30, 1 << 20, 1 << 21
#: Starts within so many seconds are one report.
_GATHER_S = 0.02
#: Log time may jump: no sleep is longer than this.
_NAP_S = 0.5
#: Of the time between plan and boundary: before that, no task is asked to stop, as it is not known
#: yet which leases go on.
_LEAD_MOST = 0.5
#: Of a round: a task that has left its lease early is started again, if so much is left.
_WORTH_STARTING = 0.1
#: Beyond the graces of another service: its clock, and the way of its report.
_CLOCK_BOUND_S = 1.0

#: Stands for all tasks of a profile, which come and go together.
_ALL_COPIES = ""

TaskKey = tuple[str, str]


@dataclass
class _Running:
    """A task that was started, in the round it now runs in."""

    lease: Lease
    spec: TaskSpec
    task: Task
    round: _Round
    #: Its counts when the round began.
    before: Counts = field(default_factory=Counts)
    #: Whether it was told to stop, as its lease ends.
    stopping: bool = False


class _Round:
    """One round under way."""

    def __init__(self, effect: RunRound, report: Report) -> None:
        self.effect = effect
        self.report = report
        self.leases = effect.granted + effect.renewed
        self.granted = frozenset(lease.lease_id for lease in effect.granted)
        keys = [(lease.lease_id, spec.job_id) for lease in self.leases for spec in lease.tasks]
        #: A task's place: the number its end is reported under, whoever reports it.
        self.numbers = {key: n for n, key in enumerate(keys, 1)}
        #: Rows of the round's report, of tasks that have come to its end.
        self.rows: dict[TaskKey, TaskProgress] = {}
        self.over = asyncio.Event()
        self._up: list[str] = []
        self._first = True

    def started(self, lease_id: str) -> None:
        """Report starts, those close together at once."""
        if not self._up:
            asyncio.get_running_loop().call_later(_GATHER_S, self.tell_starts)
        self._up.append(lease_id)

    def tell_starts(self) -> None:
        """Report the starts that are not reported yet."""
        if not self._up:
            return
        up, self._up = tuple(dict.fromkeys(self._up)), []
        place = next(n for key, n in self.numbers.items() if key[0] == up[0])
        n = 0 if self._first else _LATE + place
        self._first = False
        self.report(n, TasksStarted(reporter=self.effect.reporter, lease_ids=up))


class WorkerExecutor:
    """Executor of one worker service.

    Parameters
    ----------
    name : the service's, as reporter
    hands : what starts tasks
    view : fold of the log; ``observe`` feeds it
    now : log time, s
    graces_s : the most that a task of another service outlives its lease
    """

    def __init__(
        self,
        name: str,
        hands: Hands,
        view: LogView,
        now: Callable[[], float],
        *,
        graces_s: float,
    ) -> None:
        self._name = name
        self._hands = hands
        self._view = view
        self._now = now
        self._patience_s = graces_s + _CLOCK_BOUND_S
        self._changed = asyncio.Event()
        #: {lease id: (last round known to hold it, when that ends)}
        self._held: dict[str, tuple[int, float]] = {}
        self._running: dict[TaskKey, _Running] = {}
        #: Profiles that are out.
        self._profiled: set[str] = set()
        #: {worker id: tasks on it, each until nothing of it runs any more}
        self._occupied: dict[str, set[TaskKey]] = {}
        #: {lease id: its wait for empty workers}
        self._starting: dict[str, asyncio.Task[None]] = {}
        #: Over, by order or by themselves: no round that was planned before may run them.
        self._forbidden: set[TaskKey] = set()
        #: Where tasks that are over were last; the log may not have it yet.
        self._told: dict[TaskKey, TaskProgress] = {}
        #: Tasks that wait to be told at which iteration all of their ranks stop.
        self._meeting: set[TaskKey] = set()
        self._newest: _Round | None = None
        self._closing = False

    def observed(self) -> None:
        """The view has changed."""
        self._changed.set()
        self._meet()

    def close(self) -> None:
        """Start nothing any more."""
        self._closing = True

    async def carry_out(self, effect: Any, report: Report) -> None:
        """See ``services.runtime.term.Executor``."""
        if isinstance(effect, RunRound):
            await self._run_round(effect, report)
        elif isinstance(effect, StopTask):
            await self._stop_task(effect, report)
        elif isinstance(effect, DetectWorkers):
            await self._detect(effect, report)
        elif isinstance(effect, RunProfile):
            await self._profile(effect, report)
        else:
            raise TypeError(f"a worker service has no effect {type(effect).__name__}")

    async def _detect(self, effect: DetectWorkers, report: Report) -> None:
        known = set(effect.known)
        found = self._hands.detect()
        there = {worker.worker_id for worker in found}
        news: list[AnyEvent] = [worker for worker in found if worker not in known]
        news += [
            WorkerDisappeared(worker_id=worker.worker_id, reporter=self._name)
            for worker in effect.known
            if worker.worker_id not in there
        ]
        for n, event in enumerate(news):
            report(n, event)
        await self._hands.end_strays(self._may_run)

    async def _profile(self, effect: RunProfile, report: Report) -> None:
        lease = effect.lease
        self._profiled.add(lease.lease_id)
        try:
            found = await self._measure(effect)
        finally:
            self._profiled.discard(lease.lease_id)
            self._vacate(lease, _ALL_COPIES)
        job, *others = lease.tasks
        speeds = (*found.speeds, 0.0, 0.0)
        event = ThroughputMeasured(
            reporter=self._name,
            lease_id=lease.lease_id,
            job_id=job.job_id,
            worker_type=lease.worker_type,
            beside=others[0].job_type if others else "",
            steps_per_s=speeds[0],
            other_steps_per_s=speeds[1],
            seconds=found.seconds,
            outcome=found.outcome,
            detail=found.detail,
        )
        report(0, event)

    async def _measure(self, effect: RunProfile) -> Profile:
        lease = effect.lease
        await self._until(effect.starts_at_s)
        try:
            async with asyncio.timeout(max(0.0, effect.ends_at_s - self._now())):
                await self._until_free(lease)
        except TimeoutError:
            return Profile("failed", detail="its workers were not free before it was to end")
        self._occupy(lease, _ALL_COPIES)
        found = await self._hands.measure(lease, effect.starts_at_s, effect.ends_at_s)
        if found.outcome == "measured":
            await self._until(effect.ends_at_s)
        return found

    # --- rounds ----------------------------------------------------------------------------------

    async def _run_round(self, effect: RunRound, report: Report) -> None:
        current = _Round(effect, report)
        before, self._newest = self._newest, current
        for lease in current.leases:
            self._held[lease.lease_id] = (effect.round_id, effect.ends_at_s)
            for spec in lease.tasks:
                running = self._running.get((lease.lease_id, spec.job_id))
                if running is not None:
                    running.task.renew(effect.ends_at_s)
        await self._until(effect.starts_at_s)
        async with asyncio.TaskGroup() as group:
            for lease in current.leases:
                group.create_task(self._run_lease(lease, current))
        if before is not None:
            await before.over.wait()
        self._report_round(current)

    async def _run_lease(self, lease: Lease, current: _Round) -> None:
        """See a lease through this round."""
        effect = current.effect
        fresh = lease.lease_id in current.granted
        if fresh:
            self._starting[lease.lease_id] = asyncio.create_task(self._until_free(lease))
        # A round later, a lease may still wait for its workers.
        if lease.lease_id in self._starting:
            await self._starting[lease.lease_id]
            self._starting.pop(lease.lease_id, None)
        for spec in lease.tasks:
            self._begin(lease, spec, current, fresh=fresh)
        lead_s = max((r.task.stop_lead_s() for r in self._of(lease)), default=0.0)
        lead_s = min(lead_s, _LEAD_MOST * self._view.plan_lead_s)
        await self._until(effect.ends_at_s - lead_s)
        if self._ends(lease, current):
            ending = self._of(lease)
            async with asyncio.TaskGroup() as group:
                for running in ending:
                    running.stopping = True
                    group.create_task(running.task.stop(self._proposing(running, current)))
            for running in ending:
                self._vacate(lease, running.spec.job_id)
        await self._until(effect.ends_at_s)

    def _begin(self, lease: Lease, spec: TaskSpec, current: _Round, *, fresh: bool) -> None:
        key = (lease.lease_id, spec.job_id)
        running = self._running.get(key)
        if running is not None:
            self._close_row(running)
            running.round = current
            running.before = running.task.counts(current.effect.starts_at_s)
            running.stopping = False
            if running.task.ending.done():
                # After whoever waits for that end has been told of it.
                asyncio.get_running_loop().call_soon(self._report_end, key)
            return
        if self._closing or key in self._forbidden or self._view.is_over(*key):
            return
        starts_at_s = current.effect.starts_at_s
        # The round may be over while the lease goes on.
        _, ends_at_s = self._held.get(lease.lease_id, (0, current.effect.ends_at_s))
        last = self._last_row(key)
        after = Counts(last.steps, last.checkpointed_steps)
        task = self._hands.start(lease, spec, starts_at_s, ends_at_s, fresh=fresh, after=after)
        self._running[key] = _Running(lease, spec, task, current)
        self._occupy(lease, spec.job_id)
        task.ending.add_done_callback(lambda _: self._report_end(key))
        if fresh:
            current.started(lease.lease_id)

    def _proposing(self, running: _Running, current: _Round) -> Callable[[int], None] | None:
        """How a task whose ranks are on several services says where it could stop."""
        if len(running.lease.reporters) == 1:
            return None
        lease_id, job_id = key = (running.lease.lease_id, running.spec.job_id)

        def propose(iteration: int) -> None:
            self._meeting.add(key)
            proposed = StopStepProposed(
                reporter=self._name,
                round_id=current.effect.round_id,
                lease_id=lease_id,
                job_id=job_id,
                iteration=iteration,
            )
            current.report(_PROPOSED + current.numbers[key], proposed)
            self._meet()

        return propose

    def _meet(self) -> None:
        """Pass on where gangs are to stop, once all of their services have agreed."""
        for key in tuple(self._meeting):
            running, iteration = self._running.get(key), self._view.stop_step(*key)
            if running is None or iteration is not None:
                self._meeting.discard(key)
            if running is not None and iteration is not None:
                running.task.stop_at(iteration)

    def _report_end(self, key: TaskKey) -> None:
        """Tell of a task that has ended by itself, in the round that it ended in."""
        running = self._running.get(key)
        if running is None or running.round.over.is_set() or not running.task.ending.done():
            return
        ending = running.task.ending.result()
        current = running.round
        if ending.reason == "stopped":
            left_s = current.effect.ends_at_s - self._now()
            length_s = current.effect.ends_at_s - current.effect.starts_at_s
            if not running.stopping and left_s > _WORTH_STARTING * length_s:
                # It thought its lease over, having not heard of us for a while.
                self._told[key] = self._row(running, ending.at_s)
                del self._running[key]
                self._begin(running.lease, running.spec, current, fresh=False)
            return
        del self._running[key]
        self._forbidden.add(key)
        self._vacate(running.lease, running.spec.job_id)
        row = self._told[key] = self._row(running, ending.at_s)
        event = TaskStopped(
            reporter=self._name,
            task=row,
            reason=ending.reason,
            exit_code=ending.exit_code,
            detail=ending.detail,
        )
        # Steps are one service's to tell; that a rank has failed, everyone's.
        if running.lease.reporters[0] == self._name or ending.reason == "failed":
            current.report(current.numbers[running.lease.lease_id, running.spec.job_id], event)

    def _report_round(self, current: _Round) -> None:
        """The last word of a round: where each of its tasks is, or came to its lease's end."""
        effect = current.effect
        for key in current.numbers:
            running = self._running.get(key)
            if running is None or running.round is not current:
                continue
            ending = running.task.ending
            if ending.done() and ending.result().reason != "stopped":
                self._report_end(key)
                continue
            self._close_row(running)
            if self._ends(running.lease, current):
                del self._running[key]
        for lease in current.leases:
            if self._ends(lease, current):
                self._held.pop(lease.lease_id, None)
                for spec in lease.tasks:
                    self._forbidden.discard((lease.lease_id, spec.job_id))
        # By the end of the next round, what was told in this one is in the log.
        told = {key: row for key, row in self._told.items() if key in current.numbers}
        self._told = told | current.rows
        current.tell_starts()
        rows = tuple(current.rows.values())
        event = ProgressReported(reporter=self._name, round_id=effect.round_id, rows=rows)
        current.report(_LAST, event)
        current.over.set()

    def _close_row(self, running: _Running) -> None:
        """Note where a task is at the end of its round, if this service counts its steps."""
        current = running.round
        if running.lease.reporters[0] != self._name:
            return
        key = (running.lease.lease_id, running.spec.job_id)
        at_s = current.effect.ends_at_s
        if running.stopping and running.task.ending.done():
            at_s = running.task.ending.result().at_s
        current.rows.setdefault(key, self._row(running, at_s))

    def _row(self, running: _Running, at_s: float) -> TaskProgress:
        counts, before = running.task.counts(at_s), running.before
        lease_id, job_id = running.lease.lease_id, running.spec.job_id
        if running.lease.reporters[0] != self._name:
            # The seconds of the lease are told by the service of its first rank.
            return TaskProgress(lease_id, job_id, counts.steps, counts.saved_steps, 0.0)
        return TaskProgress(
            lease_id,
            job_id,
            counts.steps,
            counts.saved_steps,
            max(0.0, at_s - running.round.effect.starts_at_s),
            max(0.0, counts.load_s - before.load_s),
            max(0.0, counts.save_s - before.save_s),
        )

    # --- revocation ------------------------------------------------------------------------------

    async def _stop_task(self, effect: StopTask, report: Report) -> None:
        key = (effect.lease_id, effect.job_id)
        if effect.lease_id in self._held:
            self._forbidden.add(key)
        running = self._running.pop(key, None)
        if running is None:
            row = self._last_row(key)
        else:
            await running.task.kill()
            self._vacate(running.lease, effect.job_id)
            row = self._row(running, running.task.ending.result().at_s)
        report(0, TaskStopped(reporter=self._name, task=row, reason="cancelled"))

    def _last_row(self, key: TaskKey) -> TaskProgress:
        """Where a task was that is over, by the log or by what is on its way there."""
        lease_id, job_id = key
        saved = self._view.saved.get(job_id, 0.0)
        in_log = TaskProgress(lease_id, job_id, max(saved, self._view.steps(*key)), saved, 0.0)
        last = self._told.get(key, in_log)
        return TaskProgress(lease_id, job_id, last.steps, last.checkpointed_steps, 0.0)

    # --- waiting ---------------------------------------------------------------------------------

    async def _until(self, at_s: float) -> None:
        """Wait for log time."""
        while (wait_s := at_s - self._now()) > 0:  # noqa: ASYNC110 - time is all that is awaited
            await asyncio.sleep(min(wait_s, _NAP_S))

    async def _until_free(self, lease: Lease) -> None:
        """Wait until the workers are empty, and the jobs nowhere else."""
        # A profile's are copies: the job itself may run meanwhile.
        copied = lease.profile
        earlier = [s.resume_from for s in lease.tasks if s.resume_from and not copied]
        while True:
            self._changed.clear()
            occupied = any(self._occupied.get(worker_id) for worker_id in lease.worker_ids)
            held_until = [self._view.held_until(lease_id) for lease_id in earlier]
            over_at_s = self._now() - self._patience_s
            if not occupied and all(at_s is None or at_s < over_at_s for at_s in held_until):
                return
            try:
                async with asyncio.timeout(_NAP_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    # --- small things ----------------------------------------------------------------------------

    def _may_run(self, lease_id: str, job_id: str) -> bool:
        held = lease_id in self._held and (lease_id, job_id) not in self._forbidden
        return held or lease_id in self._profiled

    def _of(self, lease: Lease) -> list[_Running]:
        keys = ((lease.lease_id, spec.job_id) for spec in lease.tasks)
        return [self._running[key] for key in keys if key in self._running]

    def _ends(self, lease: Lease, current: _Round) -> bool:
        round_id, _ = self._held.get(lease.lease_id, (current.effect.round_id, 0.0))
        return round_id <= current.effect.round_id

    def _occupy(self, lease: Lease, job_id: str) -> None:
        for worker_id in lease.worker_ids:
            self._occupied.setdefault(worker_id, set()).add((lease.lease_id, job_id))

    def _vacate(self, lease: Lease, job_id: str) -> None:
        for worker_id in lease.worker_ids:
            self._occupied.get(worker_id, set()).discard((lease.lease_id, job_id))
        self._changed.set()

"""The simulated cluster: carries out a worker service's effects against a throughput table.

It stands where processes and accelerators stand live. The table is the truth it runs on; what the
cores believe reaches them through events alone. A job's newest checkpoint is kept here, as it
would be on the cluster's shared storage.
"""

from __future__ import annotations

import functools
import math
import random
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from replay.driver import Outcome, Report
from schemas.decisions import Effect
from schemas.domain import UNCONSOLIDATED, Lease, TaskProgress, TaskSpec
from schemas.events import (
    AnyEvent,
    ProgressReported,
    TasksStarted,
    TaskStopped,
    ThroughputMeasured,
    WorkerRegistered,
)
from schemas.servers import Servers
from services.worker.core import DetectWorkers, RunProfile, RunRound, StopTask

#: ``n`` of a round's last report: after every other at the same instant.
_LAST = 1 << 30

#: steps/s of each task of a lease, given the tasks on its workers and the worker type.
Rates = Callable[[Sequence[TaskSpec], str], Sequence[float]]


def _of_first_rank(effect: RunRound) -> RunRound:
    """The round as the service sees it that counts steps: of a gang's services, the first."""
    granted, renewed = (
        tuple(lease for lease in leases if lease.reporters[0] == effect.reporter)
        for leases in (effect.granted, effect.renewed)
    )
    return msgspec.structs.replace(effect, granted=granted, renewed=renewed)


class _Round:
    """One round under way: what it has reported, so that it can report the same again."""

    def __init__(self, report: Report, last_n: int) -> None:
        self._report = report
        self._reported: list[tuple[float, int, Outcome]] = []
        self._next_n = last_n

    def next_n(self) -> int:
        self._next_n += 1
        return self._next_n

    def report(self, at: float, n: int, outcome: Outcome) -> None:
        if callable(outcome):
            outcome = functools.cache(outcome)
        self._reported.append((at, n, outcome))
        self._report(at, n, outcome)

    def report_again(self, report: Report) -> None:
        self._report = report
        for at, n, outcome in tuple(self._reported):
            report(at, n, outcome)


@dataclass(frozen=True, slots=True)
class Running:
    """Tasks of one lease that run already when a cluster is taken over."""

    granted_at_s: float
    #: {job id: whole-job steps} of the jobs that ran at ``since_s``.
    since_s: float
    steps: Mapping[str, float]
    #: (when, job id) of those that have ended since.
    ended: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that ends by itself and undone, once its job has held workers for so long."""

    after_s: float
    reason: str
    exit_code: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A cluster in the midst of its work, as a log shows it; see ``replay/underway.py``."""

    #: {job id: steps in its newest checkpoint}, {job id: seconds that it has held workers}
    saved: Mapping[str, float] = field(default_factory=dict)
    held_s: Mapping[str, float] = field(default_factory=dict)
    #: (lease id, job id) complete or stopped by order.
    over: Collection[tuple[str, str]] = ()
    #: {lease id: its tasks}
    running: Mapping[str, Running] = field(default_factory=dict)
    #: Results reported so far have lower numbers.
    last_n: int = 0


@dataclass(slots=True)
class _Task:
    """One lease's work: its jobs' progress, integrated up to ``since_s``."""

    lease: Lease
    since_s: float
    #: Until then the checkpoint is being loaded.
    ready_s: float
    #: {job id: whole-job steps} of jobs still to be run.
    steps: dict[str, float]
    specs: dict[str, TaskSpec]
    #: The round it runs in, and where to report what happens in it.
    effect: RunRound
    round: _Round
    rates: dict[str, float] = field(default_factory=dict)
    #: Raised by every change of rates: finishes foreseen before it are void.
    version: int = 0

    def advance(self, now: float) -> None:
        run_s = max(0.0, now - max(self.since_s, self.ready_s))
        for job_id in self.steps:
            self.steps[job_id] += run_s * self.rates[job_id]
        self.since_s = max(self.since_s, now)

    def set_rates(self, rates: Callable[[Lease, Sequence[TaskSpec]], Sequence[float]]) -> None:
        specs = [self.specs[job_id] for job_id in self.steps]
        speeds = rates(self.lease, specs) if specs else ()
        self.rates = dict(zip(self.steps, speeds, strict=True))
        self.version += 1

    def finish_s(self, job_id: str) -> float:
        """When the job will be complete at the present rates; inf if never."""
        remaining = self.specs[job_id].total_steps - self.steps[job_id]
        rate = self.rates[job_id]
        if rate <= 0:
            return float("inf")
        return max(self.since_s, self.ready_s) + max(0.0, remaining) / rate


class Cluster:
    """Executor of the effects of worker services that share their storage.

    Parameters
    ----------
    workers : the accelerators they have
    rates : what runs how fast, alone and together, on a type or in its unconsolidated way
    load_s, save_s : seconds to load and to save a checkpoint, charged where a lease starts and
        where it ends without renewal
    noise : each task runs this far off its rate under each lease (standard deviation of the
        logarithm), as ``seed`` has it
    taken_over : what it did before, if it goes on from somewhere
    to_come : ids of workers that are not there to be detected yet
    failures : {job id: its failures, the first first}; rounds of whole steps have none
    """

    def __init__(
        self,
        workers: Sequence[WorkerRegistered],
        rates: Rates,
        *,
        load_s: float = 0.0,
        save_s: float = 0.0,
        noise: float = 0.0,
        seed: int = 0,
        taken_over: TakenOver | None = None,
        to_come: Collection[str] = (),
        failures: Mapping[str, Sequence[Failure]] = MappingProxyType({}),
    ) -> None:
        before = taken_over or TakenOver()
        self._noise = noise
        self._seed = seed
        self._workers = tuple(w for w in workers if w.worker_id not in to_come)
        self._servers = Servers.of(workers)
        self._rates = rates
        self._load_s = load_s
        self._save_s = save_s
        self._tasks: dict[str, _Task] = {}
        #: {job id: steps in its newest checkpoint}
        self._saved = dict(before.saved)
        self._held_s = dict(before.held_s)
        self._failures = {job_id: deque(of_job) for job_id, of_job in failures.items()}
        #: {lease id: last round known to hold it}
        self._held_to_round: dict[str, int] = {}
        #: (lease id, job id) complete or stopped by order: no round planned before may run them.
        self._over = set(before.over)
        #: Leases to be gone on with when their round is carried out again.
        self._running_before = dict(before.running)
        self._last_n = before.last_n
        self._is_taken_over = taken_over is not None
        #: What was reported of the ones stopped by order.
        self._stopped: dict[tuple[str, str], TaskStopped] = {}
        #: Effects under way: {(reporter, round): how to report its results again}
        self._rounds: dict[tuple[str, int], _Round] = {}

    def carry_out(self, effect: Effect, now: float, report: Report) -> None:
        """See ``replay.driver.Executor``."""
        if isinstance(effect, RunRound):
            key = (effect.reporter, effect.round_id)
            running = self._rounds.get(key)
            if running is not None:
                running.report_again(report)
                return
            self._rounds[key] = current = _Round(report, self._last_n)
            self._rounds.pop((effect.reporter, effect.round_id - 3), None)
            effect = _of_first_rank(effect)
            for lease in effect.granted + effect.renewed:
                self._held_to_round[lease.lease_id] = effect.round_id
            begin = self._begin if effect.whole_steps_in_s is None else self._run_whole_steps
            began = functools.partial(begin, effect, current)
            before = (effect.reporter, effect.round_id - 1)
            if self._is_taken_over and effect.starts_at_s < now and before not in self._rounds:
                # What is to be stopped in it must run by then.
                current.report(now, 0, functools.partial(lambda event: event, began()))
            else:
                current.report(effect.starts_at_s, 0, began)
        elif isinstance(effect, DetectWorkers):
            known = set(effect.known)
            own = (w for w in self._workers if w.reporter == effect.reporter)
            for n, worker in enumerate(w for w in own if w not in known):
                report(now, n, worker)
        elif isinstance(effect, StopTask):
            report(now, 0, self._stop(effect, now))
        elif isinstance(effect, RunProfile):
            report(effect.ends_at_s, 0, self._profile(effect))
        else:
            raise TypeError(f"a worker service has no effect {type(effect).__name__}")

    def _profile(self, effect: RunProfile) -> AnyEvent:
        """What a copy of a job makes, and the reference beside it; nothing of it is kept."""
        lease = effect.lease
        job, *others = lease.tasks
        # A profile tells what the type can do, or its looser way, whatever workers were idle.
        way = lease.worker_type + UNCONSOLIDATED * lease.unconsolidated
        speeds = self._speeds(lease, lease.tasks, way)
        return ThroughputMeasured(
            reporter=effect.reporter,
            lease_id=lease.lease_id,
            job_id=job.job_id,
            worker_type=lease.worker_type,
            beside=others[0].job_type if others else "",
            steps_per_s=speeds[0],
            other_steps_per_s=speeds[1] if others else 0.0,
            seconds=effect.ends_at_s - effect.starts_at_s,
            outcome="measured" if any(speeds) else "does_not_fit",
        )

    def _placed_speeds(self, lease: Lease, specs: Sequence[TaskSpec]) -> Sequence[float]:
        """Steps/s of tasks of a lease that run together on the workers it has."""
        return self._speeds(lease, specs, self._servers.way(lease))

    def _speeds(self, lease: Lease, specs: Sequence[TaskSpec], worker_type: str) -> Sequence[float]:
        speeds = self._rates(specs, worker_type)
        if not self._noise:
            return speeds
        chances = (random.Random(f"{self._seed}/{lease.lease_id}/{s.job_id}") for s in specs)
        off = [math.exp(chance.gauss(0.0, self._noise)) for chance in chances]
        return [speed * factor for speed, factor in zip(speeds, off, strict=True)]

    # --- rounds on the grid: tasks run on, and finish in mid-step if need be ---------------------

    def _begin(self, effect: RunRound, current: _Round) -> AnyEvent | None:
        started = []
        for lease in effect.granted + effect.renewed:
            task = self._tasks.get(lease.lease_id)
            if task is None:
                is_fresh = lease.lease_id not in self._running_before
                task = self._start(lease, effect, current)
                if task is None:
                    continue
                if is_fresh:
                    started.append(lease.lease_id)
            task.effect, task.round = effect, current
            self._foresee(task)
        current.report(effect.ends_at_s, _LAST, functools.partial(self._end, effect))
        return TasksStarted(reporter=effect.reporter, lease_ids=tuple(started)) if started else None

    def _start(self, lease: Lease, effect: RunRound, current: _Round) -> _Task | None:
        """Load the newest checkpoints; a job that is complete already has nothing else to do."""
        running = self._running_before.pop(lease.lease_id, None)
        if running is not None:
            return self._take_over(lease, running, effect, current)
        specs = {
            spec.job_id: spec
            for spec in lease.tasks
            if (lease.lease_id, spec.job_id) not in self._over
        }
        if not specs:
            return None
        steps = {job_id: self._saved.get(job_id, 0.0) for job_id in specs}
        now = effect.starts_at_s
        task = _Task(lease, now, now + self._load_s, steps, specs, effect, current)
        task.set_rates(self._placed_speeds)
        self._tasks[lease.lease_id] = task
        return task

    def _take_over(
        self, lease: Lease, running: Running, effect: RunRound, current: _Round
    ) -> _Task | None:
        """Go on with tasks from where they were known to be."""
        specs = {spec.job_id: spec for spec in lease.tasks}
        ready_s = running.granted_at_s + self._load_s
        steps = dict(running.steps)
        task = _Task(lease, running.since_s, ready_s, steps, specs, effect, current)
        task.set_rates(self._placed_speeds)
        for ended_s, job_id in running.ended:
            task.advance(ended_s)
            task.steps.pop(job_id, None)
            task.set_rates(self._placed_speeds)
        if not task.steps:
            return None
        self._tasks[lease.lease_id] = task
        return task

    def _foresee(self, task: _Task) -> None:
        """Report each job that will be complete, or fail, within the round, when it will."""
        for job_id in task.steps:
            ends_s, ends = task.finish_s(job_id), self._finish
            failures = self._failures.get(job_id)
            if failures:
                left_s = failures[0].after_s - self._held_s.get(job_id, 0.0)
                fails_s = max(task.since_s, task.effect.starts_at_s + left_s)
                if fails_s < ends_s:
                    ends_s, ends = fails_s, self._fail
            if ends_s <= task.effect.ends_at_s:
                end = functools.partial(ends, task, job_id, task.version, ends_s)
                task.round.report(ends_s, task.round.next_n(), end)

    def _finish(self, task: _Task, job_id: str, version: int, now: float) -> AnyEvent | None:
        lease_id = task.lease.lease_id
        if self._tasks.get(lease_id) is not task or task.version != version:
            return None
        total = task.specs[job_id].total_steps
        self._saved[job_id] = total
        self._leave(task, job_id, now)
        run_s = now - task.effect.starts_at_s
        load_s = max(0.0, task.ready_s - task.effect.starts_at_s)
        row = TaskProgress(lease_id, job_id, total, total, run_s, load_s)
        return TaskStopped(reporter=task.effect.reporter, task=row, reason="completed")

    def _fail(self, task: _Task, job_id: str, version: int, now: float) -> AnyEvent | None:
        lease_id = task.lease.lease_id
        if self._tasks.get(lease_id) is not task or task.version != version:
            return None
        failure = self._failures[job_id].popleft()
        steps = self._leave(task, job_id, now)
        run_s = now - task.effect.starts_at_s
        self._held_s[job_id] = self._held_s.get(job_id, 0.0) + run_s
        load_s = min(run_s, max(0.0, task.ready_s - task.effect.starts_at_s))
        saved = self._saved.get(job_id, 0.0)
        return TaskStopped(
            reporter=task.effect.reporter,
            task=TaskProgress(lease_id, job_id, steps, saved, run_s, load_s),
            reason=failure.reason,
            exit_code=failure.exit_code,
            detail=failure.detail,
        )

    def _leave(self, task: _Task, job_id: str, now: float) -> float:
        """A job runs no more under the lease; who shared its workers goes on alone. Its steps."""
        task.advance(now)
        steps = task.steps.pop(job_id)
        self._over.add((task.lease.lease_id, job_id))
        if task.steps:
            task.set_rates(self._placed_speeds)
            self._foresee(task)
        else:
            self._forget(task.lease.lease_id)
        return steps

    def _end(self, effect: RunRound) -> AnyEvent:
        """The round's last word; whoever is not known to go on has saved and stopped by now."""
        now = effect.ends_at_s
        round_s = now - effect.starts_at_s
        rows = []
        for lease in effect.granted + effect.renewed:
            task = self._tasks.get(lease.lease_id)
            if task is None:
                continue
            ends = self._held_to_round[lease.lease_id] <= effect.round_id
            save_s = min(self._save_s, round_s) if ends else 0.0
            task.advance(now - save_s)
            load_s = min(round_s, max(0.0, task.ready_s - effect.starts_at_s))
            for job_id, steps in task.steps.items():
                if ends:
                    self._saved[job_id] = steps
                self._held_s[job_id] = self._held_s.get(job_id, 0.0) + round_s
                saved = self._saved.get(job_id, 0.0)
                row = TaskProgress(lease.lease_id, job_id, steps, saved, round_s, load_s, save_s)
                rows.append(row)
            if ends:
                self._forget(lease.lease_id)
        return ProgressReported(
            reporter=effect.reporter, round_id=effect.round_id, rows=tuple(rows)
        )

    def _forget(self, lease_id: str) -> None:
        self._tasks.pop(lease_id, None)
        self._held_to_round.pop(lease_id, None)

    # --- rounds that end with their last task: whole steps, as the paper's simulator counts ------

    def _run_whole_steps(self, effect: RunRound, current: _Round) -> AnyEvent | None:
        """Each task runs the steps that fit a round; the round ends when the last has done so."""
        rows: list[TaskProgress] = []
        last_s = effect.starts_at_s
        for lease in effect.granted + effect.renewed:
            finish_s, tasks = self._whole_steps(lease, effect)
            last_s = max(last_s, finish_s)
            for row, complete in tasks:
                if complete:
                    stopped = TaskStopped(reporter=effect.reporter, task=row, reason="completed")
                    current.report(finish_s, current.next_n(), stopped)
                else:
                    rows.append(row)
        ended = ProgressReported(
            reporter=effect.reporter, round_id=effect.round_id, rows=tuple(rows)
        )
        current.report(last_s, _LAST, ended)
        started = tuple(lease.lease_id for lease in effect.granted)
        return TasksStarted(reporter=effect.reporter, lease_ids=started) if started else None

    def _whole_steps(
        self, lease: Lease, effect: RunRound
    ) -> tuple[float, list[tuple[TaskProgress, bool]]]:
        """Run one lease's tasks; two that share workers hold them until the later is done."""
        assert effect.whole_steps_in_s is not None
        # The paper's simulator knows no servers.
        speeds = self._speeds(lease, lease.tasks, lease.worker_type)
        results: list[tuple[str, float, bool]] = []
        finish_s = effect.starts_at_s
        for spec, speed in zip(lease.tasks, speeds, strict=True):
            if (lease.lease_id, spec.job_id) in self._over:
                continue
            saved = self._saved.get(spec.job_id, 0.0)
            remaining = max(0.0, spec.total_steps - saved)
            steps = min(float(max(1, int(speed * effect.whole_steps_in_s))), remaining)
            took_s = steps / speed if speed > 0 else effect.whole_steps_in_s
            complete = speed > 0 and steps == remaining
            done = spec.total_steps if complete else saved + (steps if speed > 0 else 0.0)
            self._saved[spec.job_id] = done
            if complete:
                self._over.add((lease.lease_id, spec.job_id))
            results.append((spec.job_id, done, complete))
            finish_s = max(finish_s, effect.starts_at_s + took_s)
        # Not the sum of steps / speed: time received is read off the clock, to the last bit.
        run_s = finish_s - effect.starts_at_s
        return finish_s, [
            (TaskProgress(lease.lease_id, job_id, done, done, run_s), complete)
            for job_id, done, complete in results
        ]

    # --- revocation ------------------------------------------------------------------------------

    def _stop(self, effect: StopTask, now: float) -> AnyEvent:
        key = (effect.lease_id, effect.job_id)
        if key in self._stopped:
            return self._stopped[key]
        self._over.add(key)
        task = self._tasks.get(effect.lease_id)
        run_s = 0.0
        saved = steps = self._saved.get(effect.job_id, 0.0)
        if task is not None and effect.job_id in task.steps:
            steps = self._leave(task, effect.job_id, now)
            run_s = max(0.0, now - task.effect.starts_at_s)
            self._held_s[effect.job_id] = self._held_s.get(effect.job_id, 0.0) + run_s
        row = TaskProgress(effect.lease_id, effect.job_id, steps, saved, run_s)
        stopped = TaskStopped(reporter=effect.reporter, task=row, reason="cancelled")
        self._stopped[key] = stopped
        return stopped

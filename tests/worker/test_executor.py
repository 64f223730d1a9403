"""Rounds carried out live, against a clock of their own and tasks as sums: exact, and at once.

The loop's time is virtual: it jumps to whatever is due next, so that a round of six minutes takes
no time, and every figure is known to the last bit.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from schemas.domain import Lease, PairThroughput, TaskProgress, TaskSpec, Throughput, ThroughputRow
from schemas.events import (
    AnyEvent,
    ProgressReported,
    RoundScheduled,
    TasksStarted,
    TaskStopped,
    ThroughputTableImported,
    WorkerDisappeared,
    WorkerRegistered,
)
from schemas.record import Record
from services.worker.core import DetectWorkers, RunRound, StopTask
from services.worker.emulation import EmulatedHands
from services.worker.executor import WorkerExecutor
from services.worker.hands import Task
from services.worker.view import LogView

NAME = "worker.a"
TABLE = ThroughputTableImported(
    source="test",
    rows=(
        ThroughputRow(
            job_type="x",
            scale_factor=1,
            alone=(Throughput("v100", 2.0),),
            beside=(PairThroughput("v100", "x", 1.0, 1.0),),
        ),
    ),
)


class _NoWait(selectors.SelectSelector):
    """Never waits: nothing comes from outside."""

    def select(self, timeout: float | None = None) -> Any:
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is whatever its next timer needs."""

    def __init__(self) -> None:
        super().__init__(_NoWait())
        self._virtual_s = 0.0

    def time(self) -> float:
        """Seconds that have virtually passed."""
        return self._virtual_s

    def _run_once(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined] # not in stubs
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)._scheduled = False  # type: ignore[attr-defined] # as above
        if not self._ready and scheduled:  # type: ignore[attr-defined] # as above
            self._virtual_s = max(self._virtual_s, scheduled[0].when())
        super()._run_once()  # type: ignore[misc] # not in stubs


class Bench:
    """An executor, and the log that it reports to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, load_s: float, save_s: float) -> None:
        self.loop = loop
        self.view = LogView(NAME)
        workers = tuple(
            WorkerRegistered(worker_id=f"w{i}", worker_type="v100", server_id="s", reporter=NAME)
            for i in range(2)
        )
        hands = EmulatedHands(workers, self.view, loop.time, load_s=load_s, save_s=save_s)
        self.executor = WorkerExecutor(NAME, hands, self.view, loop.time, graces_s=1.0)
        self.reports: list[tuple[float, int, AnyEvent]] = []
        self.leases: dict[str, Lease] = {}
        #: Seconds until a report is back as a record.
        self.way_s = 0.0
        self._seq = 0
        self.observe(TABLE)

    def observe(self, event: AnyEvent, actor: str = "mechanism") -> None:
        """A record of the log."""
        self._seq += 1
        record = Record(seq=self._seq, at=self.loop.time(), actor=actor, digest="", event=event)
        self.view.take(record)
        self.executor.observed()

    def run(self, plan: RoundScheduled) -> Coroutine[Any, Any, None]:
        """Carry out a plan; reports come back as records."""
        return self.executor.carry_out(self.effect(plan), self.report)

    def effect(self, plan: RoundScheduled) -> RunRound:
        """What the core makes of a plan."""
        leases = {lease.lease_id: lease for lease in plan.granted} | self.leases
        effect = RunRound(
            reporter=NAME,
            round_id=plan.round_id,
            starts_at_s=plan.starts_at_s,
            ends_at_s=plan.ends_at_s,
            whole_steps_in_s=None,
            granted=plan.granted,
            renewed=tuple(leases[i] for i in plan.renewed),
        )
        self.leases = leases
        self.observe(plan)
        return effect

    def report(self, n: int, event: AnyEvent) -> None:
        """A result of an effect."""
        self.reports.append((self.loop.time(), n, event))
        if self.way_s:
            self.loop.call_later(self.way_s, self.observe, event, NAME)
        else:
            self.observe(event, NAME)

    def events(self, kind: type[Any]) -> list[Any]:
        """Results of a kind."""
        return [event for _, _, event in self.reports if isinstance(event, kind)]


def lease(name: str, *jobs: tuple[str, float], worker: str = "w0", resume: str = "") -> Lease:
    """A lease of jobs, (id, total steps), on a worker."""
    return Lease(
        lease_id=name,
        tasks=tuple(
            TaskSpec(
                job_id=job, job_type="x", scale_factor=1, total_steps=steps, resume_from=resume
            )
            for job, steps in jobs
        ),
        worker_type="v100",
        worker_ids=(worker,),
        reporters=(NAME,),
    )


def plan(round_id: int, *granted: Lease, renewed: tuple[str, ...] = ()) -> RoundScheduled:
    """Round ``round_id`` of 100 s."""
    return RoundScheduled(
        round_id=round_id,
        starts_at_s=100.0 * round_id,
        ends_at_s=100.0 * (round_id + 1),
        granted=granted,
        renewed=renewed,
    )


def on_bench(
    work: Callable[[Bench], Coroutine[Any, Any, None]], load_s: float = 0.0, save_s: float = 0.0
) -> Bench:
    """Let something happen on a bench, to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        bench = Bench(runner.get_loop(), load_s=load_s, save_s=save_s)
        runner.run(work(bench))
    return bench


def rows(bench: Bench) -> list[tuple[TaskProgress, ...]]:
    """Rows of each round's report."""
    return [event.rows for event in bench.events(ProgressReported)]


def test_a_lease_that_is_not_renewed_loads_trains_and_saves_within_its_round() -> None:
    """10 s of loading and 5 s of saving are no training; what is trained is saved."""
    bench = on_bench(lambda b: b.run(plan(1, lease("r1-0", ("j", 1e6)))), 10.0, 5.0)
    assert bench.events(TasksStarted) == [TasksStarted(reporter=NAME, lease_ids=("r1-0",))]
    assert rows(bench) == [(TaskProgress("r1-0", "j", 170.0, 170.0, 100.0, 10.0, 5.0),)]


def test_a_completion_is_reported_when_it_happens() -> None:
    """50 steps at 2 steps/s after 10 s of loading: complete at 135 s, and no row at the end."""
    bench = on_bench(lambda b: b.run(plan(1, lease("r1-0", ("j", 50.0)))), 10.0)
    (stopped,) = bench.events(TaskStopped)
    assert stopped.reason == "completed"
    assert stopped.task == TaskProgress("r1-0", "j", 50.0, 50.0, 35.0, 10.0)
    assert rows(bench) == [()]
    assert [at for at, _, event in bench.reports if event is stopped] == [135.0]


def test_a_renewed_lease_goes_on_without_a_checkpoint() -> None:
    """Two rounds of one lease: rows add up, nothing is saved between, the load is charged once."""

    async def work(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.run(plan(1, lease("r1-0", ("j", 1e6)))))
            await asyncio.sleep(195.0)
            group.create_task(bench.run(plan(2, renewed=("r1-0",))))

    bench = on_bench(work, 10.0, 5.0)
    assert rows(bench) == [
        (TaskProgress("r1-0", "j", 180.0, 0.0, 100.0, 10.0, 0.0),),
        (TaskProgress("r1-0", "j", 370.0, 370.0, 100.0, 0.0, 5.0),),
    ]


def test_who_shared_a_worker_has_it_alone_afterwards() -> None:
    """At 1 step/s beside a job of 40 steps, then at 2 steps/s: 40 + 2 * 60 steps."""
    bench = on_bench(lambda b: b.run(plan(1, lease("r1-0", ("i", 40.0), ("j", 1e6)))))
    (stopped,) = bench.events(TaskStopped)
    assert (stopped.task.job_id, stopped.task.run_s) == ("i", 40.0)
    assert rows(bench) == [(TaskProgress("r1-0", "j", 160.0, 160.0, 100.0),)]


def test_a_job_goes_on_from_what_its_earlier_lease_has_saved() -> None:
    """It starts once that lease's end is in the log, on whatever worker."""

    async def work(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.run(plan(1, lease("r1-0", ("j", 1e6)))))
            await asyncio.sleep(195.0)
            moved = lease("r2-0", ("j", 1e6), worker="w1", resume="r1-0")
            group.create_task(bench.run(plan(2, moved)))

    bench = on_bench(work)
    assert rows(bench)[1] == (TaskProgress("r2-0", "j", 400.0, 400.0, 100.0),)


def test_a_lease_renewed_too_late_starts_again_from_what_it_saved() -> None:
    """The plan comes when the lease is over and reported: 200 steps are saved, 160 are added."""

    async def work(bench: Bench) -> None:
        await bench.run(plan(1, lease("r1-0", ("j", 1e6))))
        await asyncio.sleep(20.0)
        await bench.run(plan(2, renewed=("r1-0",)))

    bench = on_bench(work)
    assert [row.checkpointed_steps for report in rows(bench) for row in report] == [200.0, 360.0]


def test_a_lease_whose_workers_are_late_by_more_than_a_round_starts_once() -> None:
    """Renewed while it waits for another service, it goes on waiting; both rounds are reported."""

    async def work(bench: Bench) -> None:
        away = msgspec.structs.replace(lease("r0-0", ("j", 1e6)), reporters=("worker.z",))
        bench.observe(msgspec.structs.replace(plan(0, away), ends_at_s=230.0))
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.run(plan(1, lease("r1-0", ("j", 1e6), resume="r0-0"))))
            await asyncio.sleep(195.0)
            group.create_task(bench.run(plan(2, renewed=("r1-0",))))

    bench = on_bench(work)
    ((started_at_s, _),) = [(at, e) for at, _, e in bench.reports if isinstance(e, TasksStarted)]
    assert started_at_s > 230.0
    assert [event.round_id for event in bench.events(ProgressReported)] == [1, 2]


def test_a_stopped_job_does_not_wait_and_is_not_started_again() -> None:
    """Half a round trained, nothing saved; the round's report does not mention it."""

    async def work(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.run(plan(1, lease("r1-0", ("j", 1e6)))))
            await asyncio.sleep(150.0)
            stop = StopTask(NAME, "r1-0", "j", "the job was cancelled")
            group.create_task(bench.executor.carry_out(stop, bench.report))

    bench = on_bench(work)
    (stopped,) = bench.events(TaskStopped)
    assert (stopped.reason, stopped.task.steps) == ("cancelled", 100.0)
    assert stopped.task.checkpointed_steps == 0.0
    assert rows(bench) == [()]


@pytest.mark.parametrize("way_s", [0.0, 5.0, 30.0])
def test_a_task_that_starts_again_goes_on_from_what_is_on_its_way_to_the_log(way_s: float) -> None:
    """Renewed as its lease ends, or too late: 200 steps are saved, and never taken back."""

    async def work(bench: Bench) -> None:
        bench.way_s = way_s
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.run(plan(1, lease("r1-0", ("j", 1e6)))))
            await asyncio.sleep(201.0)
            group.create_task(bench.run(plan(2, renewed=("r1-0",))))

    bench = on_bench(work)
    first, second = (row for report in rows(bench) for row in report)
    assert (first.steps, first.checkpointed_steps) == (200.0, 200.0)
    assert second.steps > 300.0


def test_a_task_that_ends_after_the_plan_that_renews_it_is_not_started_again() -> None:
    """The log does not have its end yet when the next round begins."""

    async def work(bench: Bench) -> None:
        bench.way_s = 10.0
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.run(plan(1, lease("r1-0", ("j", 197.0)))))
            await asyncio.sleep(195.0)
            group.create_task(bench.run(plan(2, renewed=("r1-0",))))

    bench = on_bench(work)
    (stopped,) = bench.events(TaskStopped)
    assert (stopped.reason, stopped.task.run_s) == ("completed", 98.5)
    assert rows(bench) == [(), ()]


@pytest.mark.parametrize(("total", "stopped_at_s"), [(50.0, 130.0), (1e6, 203.0)])
def test_a_stop_that_crosses_the_task_s_own_end_repeats_its_figures(
    total: float, stopped_at_s: float
) -> None:
    """Complete, or saved at its lease's end, and that not in the log yet: no step is taken back."""

    async def work(bench: Bench) -> None:
        bench.way_s = 10.0
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.run(plan(1, lease("r1-0", ("j", total)))))
            await asyncio.sleep(stopped_at_s)
            stop = StopTask(NAME, "r1-0", "j", "worker w0 is lost")
            await bench.executor.carry_out(stop, bench.report)

    bench = on_bench(work)
    told = [event.task for event in bench.events(TaskStopped)]
    told += [row for report in rows(bench) for row in report]
    assert len(told) == 2
    assert {(row.steps, row.checkpointed_steps) for row in told} == {(min(total, 200.0),) * 2}
    assert sum(row.run_s for row in told) == min(total / 2.0, 100.0)


@pytest.mark.parametrize("killed_at_s", [101.0, 150.0, 199.0, 250.0])
def test_an_effect_carried_out_again_reports_the_same(killed_at_s: float) -> None:
    """A service that dies within a round, and starts anew from the log, tells the same story."""
    job = lease("r1-0", ("i", 40.0), ("j", 1e6))
    whole = on_bench(lambda b: b.run(plan(1, job)))

    async def work(bench: Bench) -> None:
        effect = bench.effect(plan(1, job))
        alive = True

        def report_while_alive(n: int, event: AnyEvent) -> None:
            if alive:
                bench.report(n, event)

        first = asyncio.ensure_future(bench.executor.carry_out(effect, report_while_alive))
        await asyncio.wait((first,), timeout=killed_at_s)
        alive = False
        first.cancel()
        logged = {n for _, n, _ in bench.reports}

        def report_what_is_new(n: int, event: AnyEvent) -> None:
            if n not in logged:
                bench.report(n, event)

        await on_same_log(bench).carry_out(effect, report_what_is_new)

    bench = on_bench(work)
    assert {n for _, n, _ in bench.reports} == {n for _, n, _ in whole.reports}
    completed = [event for event in bench.events(TaskStopped) if event.task.job_id == "i"]
    assert completed == whole.events(TaskStopped)


class OldHands(EmulatedHands):
    """What they do takes a while, as with processes; some are left by a dead service."""

    #: Seconds from a task's killing to its end.
    kill_s = 20.0
    strays: frozenset[tuple[str, str]] = frozenset()

    def start(self, *task: Any, **options: Any) -> Task:
        """See ``Hands``."""
        started = super().start(*task, **options)
        kill = started.kill

        async def slowly() -> None:
            await asyncio.sleep(self.kill_s)
            await kill()

        started.kill = slowly  # type: ignore[method-assign] # as if it heeded no signal
        return started

    async def end_strays(self, known: Callable[[str, str], bool]) -> None:
        """See ``Hands``."""
        self.strays = frozenset(key for key in self.strays if known(*key))


def test_workers_are_given_on_once_nothing_runs_on_them() -> None:
    """Two that are being killed while their lease comes to its end, as the next is granted."""

    async def work(bench: Bench) -> None:
        executor = on_same_log(bench, OldHands)
        async with asyncio.TaskGroup() as group:

            def carry_out(effect: RunRound | StopTask) -> None:
                group.create_task(executor.carry_out(effect, bench.report))

            carry_out(bench.effect(plan(1, lease("r1-0", ("i", 1e6), ("j", 1e6)))))
            await asyncio.sleep(190.0)
            carry_out(StopTask(NAME, "r1-0", "i", "the job was cancelled"))
            await asyncio.sleep(5.0)
            carry_out(StopTask(NAME, "r1-0", "j", "the job was cancelled"))
            carry_out(bench.effect(plan(2, lease("r2-0", ("k", 1e6)))))

    bench = on_bench(work)
    starts = [at for at, _, event in bench.reports if isinstance(event, TasksStarted)]
    assert starts[1] == pytest.approx(195.0 + OldHands.kill_s, abs=0.1)


def test_what_was_to_be_stopped_as_the_service_died_is_ended_by_the_next() -> None:
    """Its lease is still out; its partner goes on, and what no lease is known of does not."""

    async def work(bench: Bench) -> None:
        executor = on_same_log(bench, OldHands)
        hands = executor._hands
        assert isinstance(hands, OldHands)
        hands.strays = frozenset({("r1-0", "i"), ("r1-0", "j"), ("r0-0", "k")})
        round_1 = bench.effect(plan(1, lease("r1-0", ("i", 1e6), ("j", 1e6))))
        await asyncio.sleep(150.0)
        stop = StopTask(NAME, "r1-0", "i", "the job was cancelled")
        effects = (round_1, stop, DetectWorkers(NAME, ()))
        await asyncio.gather(*(executor.carry_out(each, bench.report) for each in effects))
        assert hands.strays == {("r1-0", "j")}

    on_bench(work)


def on_same_log(bench: Bench, kind: type[EmulatedHands] = EmulatedHands) -> WorkerExecutor:
    """What the next start of the service carries its effects out with."""
    now = bench.loop.time
    hands = kind((), bench.view, now, load_s=0.0, save_s=0.0)
    return WorkerExecutor(NAME, hands, bench.view, now, graces_s=1.0)


def test_workers_that_are_known_are_not_reported_again() -> None:
    """Only what is new or has changed."""

    async def work(bench: Bench) -> None:
        await bench.executor.carry_out(DetectWorkers(NAME, ()), bench.report)
        known_workers = (bench.events(WorkerRegistered)[0],)
        await bench.executor.carry_out(DetectWorkers(NAME, known_workers), bench.report)

    bench = on_bench(work)
    assert [event.worker_id for event in bench.events(WorkerRegistered)] == ["w0", "w1", "w1"]


def test_a_worker_that_is_known_and_not_there_has_disappeared() -> None:
    """What was taken out while the service was away is said at its next start."""
    gone = WorkerRegistered(worker_id="w2", worker_type="v100", server_id="s", reporter=NAME)
    bench = on_bench(lambda b: b.executor.carry_out(DetectWorkers(NAME, (gone,)), b.report))
    assert bench.events(WorkerDisappeared) == [WorkerDisappeared(worker_id="w2", reporter=NAME)]
    assert [n for _, n, _ in bench.reports] == [0, 1, 2]

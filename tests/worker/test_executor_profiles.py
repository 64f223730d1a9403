"""Profiles carried out live, in virtual time: when they begin, what they wait for and say."""

from __future__ import annotations

import asyncio

import msgspec

from schemas.domain import Lease, TaskSpec
from schemas.events import ThroughputMeasured
from services.worker.core import RunProfile
from tests.worker.test_executor import NAME, Bench, lease, on_bench, plan


def profiled(
    name: str,
    starts_at_s: float,
    *,
    job: str = "a",
    job_type: str = "x",
    worker: str = "w0",
    beside: str = "",
    resume: str = "",
) -> RunProfile:
    """A profile of 30 s."""
    found = lease(name, (job, 10.0), worker=worker, resume=resume)
    (task,) = found.tasks
    tasks = [msgspec.structs.replace(task, job_type=job_type)]
    if beside:
        tasks.append(TaskSpec(job_id="", job_type=beside, scale_factor=1, total_steps=0.0))
    as_profile: Lease = msgspec.structs.replace(found, tasks=tuple(tasks), profile=True)
    return RunProfile(NAME, as_profile, starts_at_s, starts_at_s + 30.0)


def said(bench: Bench) -> list[tuple[float, ThroughputMeasured]]:
    """Results, and when they were told."""
    return [(at_s, e) for at_s, _, e in bench.reports if isinstance(e, ThroughputMeasured)]


async def carry_out(bench: Bench, *effects: RunProfile) -> None:
    """Carry out profiles, at once."""
    await asyncio.gather(*(bench.executor.carry_out(effect, bench.report) for effect in effects))


def test_a_profile_is_told_at_its_end_alone_and_beside_another() -> None:
    """Of a copy without end: it makes more steps than the job has."""

    async def work(bench: Bench) -> None:
        alone = profiled("p0", 5.0)
        beside = profiled("p1", 5.0, worker="w1", beside="x")
        await carry_out(bench, alone, beside)

    (at_s, alone), (other_at_s, beside) = said(on_bench(work))
    assert at_s == other_at_s == 35.0
    assert (alone.outcome, alone.steps_per_s, alone.beside) == ("measured", 2.0, "")
    assert (beside.steps_per_s, beside.other_steps_per_s, beside.beside) == (1.0, 1.0, "x")
    assert alone.seconds == 30.0


def test_a_profile_waits_until_its_worker_is_empty_but_not_beyond_its_end() -> None:
    """A task that is slow to leave may make it fail: then it says so; the next is as if new."""

    async def work(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.run(plan(1, lease("r1", ("b", 1e6)))))
            group.create_task(carry_out(bench, profiled("p0", 150.0), profiled("p1", 180.0)))

    (at_s, failed), (next_at_s, measured) = said(on_bench(work))
    assert (at_s, failed.outcome, failed.steps_per_s) == (180.0, "failed", 0.0)
    assert "not free" in failed.detail
    assert (next_at_s, measured.outcome) == (210.0, "measured")


def test_a_job_is_profiled_while_it_runs() -> None:
    """It is a copy that is measured: the job's own lease is nothing to wait for."""

    async def work(bench: Bench) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bench.run(plan(1, lease("r1", ("a", 1e6)))))
            group.create_task(carry_out(bench, profiled("p0", 110.0, worker="w1", resume="r1")))

    ((at_s, measured),) = said(on_bench(work))
    assert (at_s, measured.outcome) == (140.0, "measured")


def test_what_no_table_knows_cannot_be_imagined() -> None:
    """It is told at once, and not as a speed of 0."""

    async def work(bench: Bench) -> None:
        await carry_out(bench, profiled("p0", 5.0, job_type="y"))

    ((at_s, failed),) = said(on_bench(work))
    assert (at_s, failed.outcome) == (5.0, "failed")
    assert "no table" in failed.detail


def test_a_profile_carried_out_again_after_its_end_says_the_same_at_once() -> None:
    """Its service was killed meanwhile, and the mechanism still waits for the word."""

    async def work(bench: Bench) -> None:
        await carry_out(bench, profiled("p0", 5.0))
        await asyncio.sleep(100.0)
        await carry_out(bench, profiled("p0", 5.0))

    (_, once), (at_s, again) = said(on_bench(work))
    assert at_s == 135.0
    assert again == once

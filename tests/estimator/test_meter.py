"""Throughputs read off the reports of real leases."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from schemas.domain import UNCONSOLIDATED, Lease, TaskProgress, TaskSpec
from schemas.events import ProgressReported, RoundScheduled, TaskStopped, WorkerRegistered
from services.estimator.meter import Meter, PairReading, Reading

REPORTER = "worker.a"


def lease(lease_id: str, *job_ids: str) -> Lease:
    """A lease of these jobs on one v100."""
    tasks = (TaskSpec(job_id=j, job_type="m", scale_factor=1, total_steps=1e9) for j in job_ids)
    return Lease(
        lease_id=lease_id,
        tasks=tuple(tasks),
        worker_type="v100",
        worker_ids=("w",),
        reporters=(REPORTER,),
    )


def planned(
    round_id: int, granted: Iterable[Lease] = (), renewed: Iterable[str] = ()
) -> RoundScheduled:
    """A round's plan."""
    return RoundScheduled(
        round_id=round_id,
        starts_at_s=0.0,
        ends_at_s=100.0,
        granted=tuple(granted),
        renewed=tuple(renewed),
    )


def report(meter: Meter, round_id: int, *rows: TaskProgress) -> list[Reading | PairReading]:
    """What a round's report says."""
    return list(meter.read(ProgressReported(reporter=REPORTER, round_id=round_id, rows=rows)))


def made(
    lease_id: str, job_id: str, steps: float, run_s: float = 100.0, **s: float
) -> TaskProgress:
    """One task in one round; everything is checkpointed."""
    return TaskProgress(lease_id, job_id, steps, steps, run_s, **s)


def test_loading_and_saving_are_no_training() -> None:
    """100 s of which 20 went into a checkpoint: the steps are divided by 80."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "a")]))
    row = made("l", "a", 160.0, load_s=15.0, save_s=5.0)
    assert report(meter, 1, row) == [Reading("a", "v100", 2.0)]


def test_a_renewed_lease_goes_on_counting() -> None:
    """Steps are absolute; the round's own are the difference."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "a")]))
    report(meter, 1, made("l", "a", 100.0))
    meter.plan(planned(2, renewed=["l"]))
    assert report(meter, 2, made("l", "a", 400.0)) == [Reading("a", "v100", 3.0)]


def test_the_next_lease_goes_on_from_the_checkpoint() -> None:
    """Steps lost with a worker are not counted twice, nor taken off."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "a")]))
    report(meter, 1, TaskProgress("l", "a", 100.0, 60.0, 100.0))
    meter.plan(planned(2, [lease("m", "a")]))
    assert report(meter, 2, made("m", "a", 260.0)) == [Reading("a", "v100", 2.0)]


def stopped(meter: Meter, row: TaskProgress, reason: str) -> list[Reading | PairReading]:
    """What a task that has ended says."""
    return list(meter.read(TaskStopped(reporter=REPORTER, task=row, reason=reason)))


def test_a_completion_in_mid_round_is_a_measurement() -> None:
    """Over the seconds that it ran."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "a")]))
    assert stopped(meter, made("l", "a", 50.0, run_s=25.0), "completed") == [
        Reading("a", "v100", 2.0)
    ]


@pytest.mark.parametrize("reason", ["failed", "lost", "cancelled"])
def test_a_task_that_came_to_grief_is_none(reason: str) -> None:
    """Nobody knows for how much of its time it still trained."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "a")]))
    assert stopped(meter, made("l", "a", 50.0, run_s=25.0), reason) == []


def test_what_says_nothing_is_not_read() -> None:
    """No steps; no time to train in; the same report again; an unknown lease."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "c"), lease("m", "d")]))
    rows = (made("l", "c", 0.0), made("m", "d", 10.0, load_s=100.0), made("x", "e", 10.0))
    assert report(meter, 1, *rows) == []
    meter.plan(planned(2, renewed=["l"]))
    again = made("l", "c", 100.0)
    assert len(report(meter, 2, again)) == 1
    assert report(meter, 2, again) == []


def test_two_that_share_workers_are_read_together() -> None:
    """Each over the seconds that it trained; that neither made a step is told as well."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "a", "b"), lease("m", "c", "d")]))
    rows = (
        made("l", "a", 100.0),
        made("m", "d", 0.0),
        made("l", "b", 160.0, load_s=20.0),
        made("m", "c", 0.0),
    )
    assert report(meter, 1, *rows) == [
        PairReading(("a", "b"), "v100", (1.0, 2.0), 80.0),
        PairReading(("d", "c"), "v100", (0.0, 0.0), 100.0),
    ]


def test_what_one_makes_after_the_other_has_left_is_of_both_ways() -> None:
    """Neither the pair's speed nor its own, until the next report; from then on its own."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "a", "b")]))
    assert stopped(meter, made("l", "a", 50.0, run_s=50.0), "completed") == []
    assert report(meter, 1, made("l", "b", 150.0)) == []
    meter.plan(planned(2, renewed=["l"]))
    assert report(meter, 2, made("l", "b", 350.0)) == [Reading("b", "v100", 2.0)]


def test_a_pair_of_which_one_has_not_begun_says_nothing() -> None:
    """The other's row is missing, or has no second of training in it."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "a", "b"), lease("m", "c", "d")]))
    rows = (made("l", "a", 100.0), made("m", "c", 100.0), made("m", "d", 0.0, load_s=100.0))
    assert report(meter, 1, *rows) == []


@pytest.mark.parametrize(
    ("servers", "way"),
    [
        (("s", "s", "t", "t"), "v100"),
        (("s", "t", "s", "t"), "v100" + UNCONSOLIDATED),
        # No two of these are on one server: nothing better is to be had.
        (("s", "t", "u", "v"), "v100"),
    ],
)
def test_a_gang_on_more_servers_than_need_be_is_of_the_looser_way(
    servers: tuple[str, ...], way: str
) -> None:
    """What it makes says nothing of the type as a consolidated gang holds it."""
    meter = Meter()
    for number, server in enumerate(servers):
        meter.register(
            WorkerRegistered(
                worker_id=f"w{number}", worker_type="v100", server_id=server, reporter=REPORTER
            )
        )
    gang = lease("l", "a")
    gang = msgspec.structs.replace(gang, worker_ids=("w0", "w1"))
    meter.plan(planned(1, [gang]))
    assert report(meter, 1, made("l", "a", 100.0)) == [Reading("a", way, 1.0)]


def test_the_last_report_may_come_after_the_plan_that_ends_the_lease() -> None:
    """The plan is made before the round is over; later ones forget the lease."""
    meter = Meter()
    meter.plan(planned(1, [lease("l", "a")]))
    meter.plan(planned(2))
    assert report(meter, 1, made("l", "a", 100.0)) == [Reading("a", "v100", 1.0)]
    meter.plan(planned(3))
    assert report(meter, 1, made("l", "a", 200.0)) == []

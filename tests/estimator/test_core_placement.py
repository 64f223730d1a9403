"""Gangs far apart, and what they say of their classes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from schemas.domain import (
    UNCONSOLIDATED,
    JobSpec,
    Lease,
    TaskProgress,
    TaskSpec,
    Throughput,
    ThroughputRow,
)
from schemas.events import (
    AnyEvent,
    ClusterConfigured,
    JobSubmitted,
    ProgressReported,
    RoundScheduled,
    ThroughputTableImported,
    WorkerRegistered,
)
from tests.estimator.play import REPORTER, Play, estimates, rates

SPREAD = "v100" + UNCONSOLIDATED
WORKERS = tuple(
    WorkerRegistered(
        worker_id=f"w{i}", worker_type="v100", server_id=f"s{i // 2}", reporter=REPORTER
    )
    for i in range(4)
)
TOGETHER, APART = ("w0", "w1"), ("w0", "w2")


def playing(workers: Sequence[WorkerRegistered] = WORKERS, **alone: float) -> Play:
    """A class m of two workers, and jobs of it."""
    cells = tuple(Throughput(*cell) for cell in sorted(alone.items()))
    row = ThroughputRow(job_type="m", scale_factor=2, alone=cells)
    return Play(
        ClusterConfigured(estimator="learned"),
        *workers,
        ThroughputTableImported(source="test", rows=(row,)),
        *(submitted(job_id) for job_id in "abc"),
    )


def submitted(job_id: str) -> JobSubmitted:
    """A job of two workers."""
    spec = JobSpec(job_id=job_id, job_type="m", scale_factor=2, total_steps=1e9)
    return JobSubmitted(job=spec)


def run_round(
    play: Play, number: int, worker_ids: tuple[str, ...], rate: float, job_id: str = "a"
) -> list[AnyEvent]:
    """The job has these workers for 100 s, and starts from nothing."""
    lease = Lease(
        lease_id=f"r{number}",
        tasks=(TaskSpec(job_id=job_id, job_type="m", scale_factor=2, total_steps=1e9),),
        worker_type="v100",
        worker_ids=worker_ids,
        reporters=(REPORTER,),
    )
    plan = RoundScheduled(round_id=number, starts_at_s=0.0, ends_at_s=100.0, granted=(lease,))
    row = TaskProgress(lease.lease_id, job_id, 100.0 * rate, 0.0, 100.0)
    return play.tell(plan, ProgressReported(reporter=REPORTER, round_id=number, rows=(row,)))


def test_a_gang_nobody_knows_is_profiled_in_both_ways() -> None:
    """If it can lie in both here, and references were measured so; each is what it was found."""
    play = playing(v100=8.0, v100_unconsolidated=4.0)
    spec = JobSpec(job_id="new", job_type="?", scale_factor=2, total_steps=1e9)
    play.tell(JobSubmitted(job=spec))
    request = play.asked("new")
    assert [cell.worker_type for cell in request.cells] == ["v100", SPREAD]
    found = {"v100": 16.0, SPREAD: 12.0}
    learned = estimates(play.profile(request, lambda cell: (found[cell.worker_type], 0.0)))[0]
    assert learned.row.job_type == "m"
    assert rates(learned) == pytest.approx(found, rel=0.011)


def test_where_gangs_lie_in_one_way_only_there_is_one_to_profile() -> None:
    """No reference was measured in the other; or all workers are on one server."""
    for play in (playing(v100=8.0), playing(WORKERS[:2], v100=8.0, v100_unconsolidated=4.0)):
        spec = JobSpec(job_id="new", job_type="?", scale_factor=2, total_steps=1e9)
        play.tell(JobSubmitted(job=spec))
        assert [cell.worker_type for cell in play.asked("new").cells] == ["v100"]


def test_each_way_is_corrected_by_leases_of_its_own() -> None:
    """The other way stands as it was."""
    play = playing(v100=8.0, v100_unconsolidated=6.0)
    (apart,) = estimates(run_round(play, 1, APART, 4.0))
    assert rates(apart) == {"v100": 8.0, SPREAD: 4.0}
    (together,) = estimates(run_round(play, 2, TOGETHER, 9.0))
    assert rates(together) == {"v100": 9.0, SPREAD: 4.0}


def test_a_way_that_no_table_knows_is_known_once_it_differs() -> None:
    """Until then it is as the type is."""
    play = playing(v100=8.0)
    assert run_round(play, 1, APART, 8.1) == []
    play = playing(v100=8.0)
    (apart,) = estimates(run_round(play, 1, APART, 6.0))
    assert rates(apart) == {"v100": 8.0, SPREAD: 6.0}


def test_a_gang_that_suffers_more_than_its_class_has_an_estimate_of_its_own() -> None:
    """Of both ways, in proportion to the one that was measured."""
    play = playing(v100=8.0)
    for number, job_id in enumerate("bc", 1):
        run_round(play, number, APART, 8.0, job_id)
    (own,) = estimates(run_round(play, 3, APART, 4.0))
    assert own.job_id == "a"
    assert rates(own) == pytest.approx({"v100": 4.0, SPREAD: 4.0}, rel=0.02)

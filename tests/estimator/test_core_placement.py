"""Gangs far apart, and what they say of their classes."""

from __future__ import annotations

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


def playing(**alone: float) -> Play:
    """A class m of two workers, and a job of it."""
    cells = tuple(Throughput(*cell) for cell in sorted(alone.items()))
    row = ThroughputRow(job_type="m", scale_factor=2, alone=cells)
    return Play(
        ClusterConfigured(estimator="learned"),
        *WORKERS,
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

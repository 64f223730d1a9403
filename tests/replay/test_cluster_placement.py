"""The simulated cluster tells a gang on few servers from one on many."""

from __future__ import annotations

import pytest

from replay.cluster import Cluster
from replay.driver import Outcome
from replay.simulate import WORKER, build_workers, table_rates
from schemas.domain import Lease, TaskSpec, Throughput, ThroughputRow
from schemas.events import AnyEvent, ProgressReported, TaskStopped, ThroughputMeasured
from services.estimator.tables import ThroughputTable
from services.worker.core import RunProfile, RunRound

ROUND_S, SPEED, SPREAD = 100.0, 4.0, 1.0
#: Steps/s of a gang of two; what is not known of "plain" is as consolidated.
TABLE = ThroughputTable.from_rows(
    [
        ThroughputRow(
            job_type="sensitive",
            scale_factor=2,
            alone=(Throughput("v100", SPEED), Throughput("v100_unconsolidated", SPREAD)),
        ),
        ThroughputRow(job_type="plain", scale_factor=2, alone=(Throughput("v100", SPEED),)),
    ],
    "two gangs",
)
#: Two servers of two.
WORKERS = build_workers({"v100": 4}, {"v100": 2}, {})


def lease(job_type: str, *workers: int, profile: bool = False) -> Lease:
    """A gang of two on these workers."""
    task = TaskSpec(job_id="a", job_type=job_type, scale_factor=2, total_steps=1e6)
    return Lease(
        lease_id="l",
        tasks=(task,),
        worker_type="v100",
        worker_ids=tuple(f"v100-{i}" for i in workers),
        reporters=(WORKER,),
        profile=profile,
    )


def reported(effect: RunRound | RunProfile) -> list[AnyEvent]:
    """All that comes of an effect."""
    events: list[AnyEvent] = []
    waiting: list[tuple[float, int, Outcome]] = []
    cluster = Cluster(WORKERS, table_rates(TABLE))
    cluster.carry_out(effect, 0.0, lambda at, n, outcome: waiting.append((at, n, outcome)))
    while waiting:
        waiting.sort(key=lambda each: each[:2])
        _, _, outcome = waiting.pop(0)
        event = outcome() if callable(outcome) else outcome
        if event is not None:
            events.append(event)
    return events


def steps(each: Lease, *, whole: bool = False) -> float:
    """Steps made in a round."""
    effect = RunRound(
        reporter=WORKER,
        round_id=1,
        starts_at_s=0.0,
        ends_at_s=ROUND_S,
        whole_steps_in_s=ROUND_S if whole else None,
        granted=(each,),
        renewed=(),
    )
    (last,) = (e for e in reported(effect) if isinstance(e, ProgressReported))
    assert not any(isinstance(e, TaskStopped) for e in reported(effect))
    return last.rows[0].steps


@pytest.mark.parametrize(
    ("job_type", "workers", "speed"),
    [
        ("sensitive", (0, 1), SPEED),
        ("sensitive", (2, 3), SPEED),
        ("sensitive", (1, 2), SPREAD),
        ("plain", (1, 2), SPEED),
    ],
)
def test_a_gang_on_more_servers_than_need_be_is_slower(
    job_type: str, workers: tuple[int, int], speed: float
) -> None:
    """One server could hold it; on two it runs at the unconsolidated speed, where one is known."""
    assert steps(lease(job_type, *workers)) == speed * ROUND_S


def test_rounds_of_whole_steps_know_no_servers() -> None:
    """Where rounds end with their last task, as in the paper's simulator, placement is ignored."""
    assert steps(lease("sensitive", 1, 2), whole=True) == SPEED * ROUND_S


def test_a_profile_tells_what_the_type_can_do() -> None:
    """It is taken on whatever workers are idle, and read as the type's own speed."""
    effect = RunProfile(
        reporter=WORKER,
        lease=lease("sensitive", 1, 2, profile=True),
        starts_at_s=0.0,
        ends_at_s=ROUND_S,
    )
    (measured,) = reported(effect)
    assert isinstance(measured, ThroughputMeasured)
    assert measured.steps_per_s == SPEED

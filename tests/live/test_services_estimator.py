"""The estimator among live services: what it says is put right by what workers show."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

from schemas.events import (
    JobCancelled,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    ThroughputEstimated,
)
from schemas.record import Record
from tests.live.cluster import CLASS, TABLE, running_cluster

pytestmark = pytest.mark.live

ROUNDS = 5


def rates(estimate: ThroughputEstimated) -> dict[str, float]:
    """{worker type: isolated steps/s}."""
    return {cell.worker_type: cell.steps_per_s for cell in estimate.row.alone}


def is_right(record: Record, worker_type: str, truth: float) -> bool:
    """Whether it is an estimate of the class that is within 5 % of the truth."""
    event = record.event
    if not isinstance(event, ThroughputEstimated) or event.job_id or event.row.scale_factor > 1:
        return False
    rate = rates(event).get(worker_type, 0.0)
    return rate > 0 and abs(math.log(rate / truth)) <= math.log(1.05)


def rounds_on(records: list[Record], worker_type: str) -> int:
    """Rounds that were reported with a task on the type."""
    leases = {
        lease.lease_id
        for record in records
        if isinstance(record.event, RoundScheduled)
        for lease in record.event.granted
        if lease.worker_type == worker_type
    }
    reports = (r.event for r in records if isinstance(r.event, ProgressReported))
    return sum(any(row.lease_id in leases for row in report.rows) for report in reports)


@pytest.mark.parametrize("pace", [0.5, 2.0])
def test_a_table_wrong_by_two_is_put_right_within_five_rounds(tmp_path: Path, pace: float) -> None:
    """On one type; the log says after how many rounds, whatever the machine does meanwhile."""
    (small, *_) = TABLE
    (truth,) = (c.steps_per_s * pace for c in small.alone if c.worker_type == "v100")

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1,k80=1", GAVEL_WORKER_PACE=f"v100={pace}")
            await cluster.configure(round_s=1.0, estimator="learned")
            for number in range(2):
                await cluster.submit(f"job-{number}", steps=1e6)
            await cluster.until(
                lambda records: any(is_right(record, "v100", truth) for record in records)
            )
            place = next(i for i, r in enumerate(cluster.records) if is_right(r, "v100", truth))
            assert 1 <= rounds_on(cluster.records[:place], "v100") <= ROUNDS
            other = cluster.records[place].event
            assert isinstance(other, ThroughputEstimated)
            assert other.row.job_type == CLASS
            assert rates(other)["k80"] == pytest.approx(rates_of_table()["k80"], rel=0.05)
            for number in range(2):
                await cluster.cancel(f"job-{number}")
            await cluster.until_count(JobCancelled, 2)
            await cluster.until_count(TaskStopped, 2)
            await cluster.check_log()

    asyncio.run(run())


def rates_of_table() -> dict[str, float]:
    """What the table says of the class on one worker, right about the k80."""
    return {cell.worker_type: cell.steps_per_s for cell in TABLE[0].alone}

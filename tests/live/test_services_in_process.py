"""The services as processes, tasks as sums inside the worker service: the log traffic is real."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schemas.events import JobCompleted, ProgressReported, RoundScheduled
from tests.live.cluster import running_cluster

pytestmark = pytest.mark.live


def test_jobs_are_trained_to_their_last_step(tmp_path: Path) -> None:
    """Jobs that share too few workers over several rounds complete, each at its total steps."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1,k80=1")
            await cluster.configure(round_s=1.0)
            for number in range(3):
                await cluster.submit(f"job-{number}", steps=150.0)
            await cluster.until_count(JobCompleted, 3)
            await cluster.check_log()
            assert len(cluster.events(RoundScheduled)) >= 2
            assert cluster.events(ProgressReported)

    asyncio.run(run())

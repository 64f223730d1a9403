"""The services as processes, tasks as sums inside the worker service: the log traffic is real."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from replay.verify import verify_log
from schemas.domain import TaskProgress
from schemas.events import (
    JobCompleted,
    JobRequeued,
    ProgressReported,
    RoundScheduled,
    TasksStarted,
    TaskStopped,
)
from tests.live.cluster import running_cluster
from tests.live.shells import Outsider, export

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


def test_a_report_of_a_job_that_its_writer_never_had_is_nothing(tmp_path: Path) -> None:
    """A strange worker service says that a lease's job has failed: it completes; verify tells."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1")
            await cluster.configure(round_s=1.0)
            await cluster.submit("job", steps=150.0)
            await cluster.until_count(TasksStarted, 1)
            (lease_id,) = cluster.events(TasksStarted)[0].lease_ids
            await Outsider(cluster.log, "worker.strange").append(
                TaskStopped(
                    reporter="worker.strange",
                    task=TaskProgress(lease_id, "job", 0.0, 0.0, 0.0),
                    reason="failed",
                )
            )
            await cluster.until_count(JobCompleted, 1)
            assert not cluster.events(JobRequeued)
            report = verify_log(export(cluster.records, tmp_path / "log.jsonl"))
            assert "(worker.strange)" in str(report.divergence)

    asyncio.run(run())

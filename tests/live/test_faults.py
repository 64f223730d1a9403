"""What a live cluster survives: each fault with a real server, real services, real processes.

Those of the controllers, the server and the log; a worker's are in ``test_faults_worker.py``.
After each, by the log alone: it verifies, no job is lost or ends twice, steps are counted once, no
accelerator is leased twice at once (``Cluster.check_log``).
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from schemas.events import (
    JobAdmitted,
    JobCompleted,
    LeaderElected,
    ProgressReported,
    RoundScheduled,
    TasksStarted,
    WorkerRegistered,
)
from services.runtime.embedded import EmbeddedServer
from services.worker.system import tasks_under
from tests.live.cluster import CONTROLLERS, PATIENCE_S, Cluster, running_cluster

pytestmark = pytest.mark.live

EMULATED = {"GAVEL_WORKER_TASKS": "emulated"}


def test_every_service_killed_in_turn(tmp_path: Path) -> None:
    """Each service dies without a word as a job starts, and is started again; all complete."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=2")
            await cluster.configure(round_s=1.0)
            for number, name in enumerate((*CONTROLLERS, "worker-a"), 1):
                await cluster.submit(f"job-{number}", steps=400.0)
                await cluster.until_count(TasksStarted, number)
                starts = len(cluster.events(LeaderElected))
                cluster.kill(name)
                cluster.restart(name)
                await cluster.until_count(LeaderElected, starts + 1)
            await cluster.until_count(JobCompleted, 4)
            await cluster.check_log()

    asyncio.run(run())


def test_the_server_killed_in_mid_round(tmp_path: Path) -> None:
    """The server dies and comes back with its store; nothing acknowledged is lost, work goes on."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1")
            await cluster.configure(round_s=1.0)
            for number in range(2):
                await cluster.submit(f"job-{number}", steps=300.0)
            await cluster.until_count(TasksStarted, 1)
            before = list(cluster.records)
            server = cluster.server
            assert isinstance(server, EmbeddedServer)
            os.kill(server.pid, signal.SIGKILL)
            server.stop()
            server.start()
            await cluster.until_count(JobCompleted, 2)
            await cluster.check_log()
            assert cluster.records[: len(before)] == before
            # Nobody was superseded: the same starts lead throughout.
            assert len(cluster.events(LeaderElected)) == len(CONTROLLERS) + 1

    asyncio.run(run())


def test_the_scheduler_away_for_longer_than_a_lease(tmp_path: Path) -> None:
    """Told nothing, tasks save and leave at the lease's end; they go on from there later."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1", **EMULATED)
            await cluster.configure(round_s=1.0)
            await cluster.submit("job", steps=600.0)
            await cluster.until(lambda _: any(r.steps for p in rows(cluster) for r in p.rows))
            for name in CONTROLLERS:
                cluster.kill(name)
            await cluster.until_read()
            granted = [plan.round_id for plan in cluster.events(RoundScheduled)]
            await cluster.until(lambda _: reported(cluster) >= granted[-1])
            assert not tasks_under(tmp_path)
            saved = rows(cluster)[-1].rows[0].checkpointed_steps
            assert saved > 0
            for name in CONTROLLERS:
                cluster.restart(name)
            await cluster.until_count(JobCompleted, 1)
            await cluster.check_log()
            after = [p.rows[0].steps for p in rows(cluster) if p.round_id > granted[-1] and p.rows]
            assert all(steps >= saved for steps in after)

    asyncio.run(run())


def test_jobs_in_the_log_before_any_worker_registers(tmp_path: Path) -> None:
    """They are admitted, and wait; the first round comes with the first worker."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            await cluster.configure(round_s=1.0)
            for number in range(3):
                await cluster.submit(f"job-{number}", steps=50.0)
            await cluster.until_count(JobAdmitted, 3)
            cluster.start_workers("v100=2")
            await cluster.until_count(JobCompleted, 3)
            await cluster.check_log()
            kinds = [type(record.event) for record in cluster.records]
            assert kinds.index(WorkerRegistered) < kinds.index(RoundScheduled)

    asyncio.run(run())


def rows(cluster: Cluster) -> list[ProgressReported]:
    """Reports of rounds, with what they say of tasks."""
    return [report for report in cluster.events(ProgressReported) if report.rows]


def reported(cluster: Cluster) -> int:
    """The last round reported."""
    return max((report.round_id for report in cluster.events(ProgressReported)), default=0)


def test_a_full_log(tmp_path: Path) -> None:
    """Services wait for room, and go on where they stood once the operator gives some."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1")
            await cluster.configure(round_s=1.0)
            await cluster.submit("job", steps=500.0)
            await cluster.until_count(TasksStarted, 1)
            usage = await cluster.log.usage()
            await cluster.log.resize(usage.held_bytes + 2000)
            await cluster.until_said("mechanism", "log full")
            await cluster.log.resize(usage.max_bytes)
            await cluster.until_count(JobCompleted, 1)
            await cluster.check_log()

    asyncio.run(run())


def test_a_second_worker_service_of_a_name_is_refused(tmp_path: Path) -> None:
    """It ends at once and names the other; the first goes on."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1")
            await cluster.until_count(LeaderElected, len(CONTROLLERS) + 1)
            first = cluster.services["worker-a"]
            cluster.restart("worker-a")
            second = cluster.services["worker-a"]
            assert await asyncio.to_thread(second.wait, PATIENCE_S) == 1
            await cluster.until_said("worker-a", "worker.a runs already")
            cluster.services["worker-a"] = first
            await cluster.configure(round_s=1.0)
            await cluster.submit("job", steps=50.0)
            await cluster.until_count(JobCompleted, 1)
            await cluster.check_log()

    asyncio.run(run())


def test_all_restarted_with_a_thousand_finished_jobs(tmp_path: Path) -> None:
    """Nothing that is finished starts again, and what is new runs."""
    count = 1000

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=500")
            await cluster.configure(round_s=1.0)
            submits = (cluster.submit(f"job-{number}", steps=10.0) for number in range(count))
            await asyncio.gather(*submits)
            await cluster.until_count(JobCompleted, count)
            for name in (*CONTROLLERS, "worker-a"):
                cluster.kill(name)
            for name in (*CONTROLLERS, "worker-a"):
                cluster.restart(name)
            await cluster.submit("last", steps=10.0)
            await cluster.until_count(JobCompleted, count + 1)
            await cluster.check_log()
            completed = [event.job_id for event in cluster.events(JobCompleted)]
            assert len(set(completed)) == count + 1

    asyncio.run(run())

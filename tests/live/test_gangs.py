"""Gangs over hosts: PyTorch's data-parallel training, each rank on a host of its own."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shlex
import sys
from pathlib import Path

import pytest

from schemas.domain import TaskProgress
from schemas.events import (
    DrainRequested,
    JobCancelled,
    JobCompleted,
    JobFailed,
    ProgressReported,
    RoundScheduled,
    StopStepAgreed,
    StopStepProposed,
    TaskStopped,
    WorkerRegistered,
)
from services.worker.system import tasks_under
from tests.live.cluster import ROOT, Cluster, running_cluster

pytestmark = pytest.mark.live

HOSTS = ("worker-a", "worker-b", "worker-c")
COMMAND = shlex.join([sys.executable, str(ROOT / "deploy" / "examples" / "torch_ddp.py")])
#: A loaded machine takes its time; so many seconds until a rank that saves is stopped by force.
PATIENT = {"GAVEL_WORKER_CHECKPOINT_GRACE_S": "60", "GAVEL_WORKER_ADDRESS": "127.0.0.1"}
PATIENCE_S = 90.0


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_ranks_on_two_hosts_stop_at_one_step_and_go_on_from_it(tmp_path: Path) -> None:
    """A host is drained: both ranks save at the agreed step, and train on from it elsewhere."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            for host in HOSTS:
                cluster.start_workers("v100=1", host, GAVEL_WORKER_TASKS="emulated", **PATIENT)
            await cluster.until_count(WorkerRegistered, len(HOSTS))
            await cluster.configure(round_s=3.0, plan_lead_s=1.0)
            endless = {"EPOCHS": "1000000"}
            await cluster.submit("ddp", 1e9, scale_factor=2, command=COMMAND, environment=endless)
            await cluster.until(lambda _: trains(cluster, "r1-0"), PATIENCE_S)
            first = cluster.events(RoundScheduled)[0].granted[0]
            assert len(first.reporters) == 2
            await cluster.order(DrainRequested(worker_id=first.worker_ids[0]))
            await cluster.until_count(StopStepAgreed, 1, PATIENCE_S)
            (agreed,) = cluster.events(StopStepAgreed)
            proposed = {p.reporter: p.iteration for p in cluster.events(StopStepProposed)}
            assert set(proposed) == set(first.reporters)
            assert agreed.iteration == max(proposed.values())
            second = f"r{agreed.round_id + 1}-0"
            await cluster.until(lambda _: trains(cluster, second), PATIENCE_S)
            check_steps(cluster, agreed, second, tmp_path / "checkpoints" / "ddp")
            await cluster.cancel("ddp")
            await cluster.until_count(JobCancelled, 1)
            await cluster.until_count(TaskStopped, 2)
            await cluster.check_log()
            assert not tasks_under(tmp_path)

    asyncio.run(run())


def test_a_rank_that_fails_ends_those_on_other_hosts(tmp_path: Path) -> None:
    """Which would wait for it for ever; the job fails for the reason that the one rank had."""
    code = "import os, signal; os.environ['RANK'] == '1' and exit(3); signal.pause()"
    command = shlex.join([sys.executable, "-c", code])

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            for host in HOSTS[:2]:
                cluster.start_workers("v100=1", host, GAVEL_WORKER_TASKS="emulated", **PATIENT)
            await cluster.until_count(WorkerRegistered, 2)
            await cluster.configure(round_s=60.0)
            await cluster.submit("j", 1e6, scale_factor=2, command=command, max_attempts=1)
            await cluster.until_count(JobFailed, 1)
            (failed,) = cluster.events(JobFailed)
            assert "exit code 3" in failed.reason
            # One has failed; both are told to stop, long before the round ends.
            await cluster.until_count(TaskStopped, 3)
            assert not tasks_under(tmp_path)
            await cluster.check_log()

    asyncio.run(run())


@pytest.mark.slow
def test_a_gang_that_cannot_agree_goes_on_from_its_last_common_checkpoint(tmp_path: Path) -> None:
    """The service of one host is killed as the lease ends: the other waits no longer than it may.

    No step is agreed, no checkpoint of all ranks is made; the job starts over, and completes.
    """
    hasty = {**PATIENT, "GAVEL_WORKER_CHECKPOINT_GRACE_S": "4", "GAVEL_WORKER_TASKS": "emulated"}

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            for host in HOSTS:
                cluster.start_workers("v100=1", host, **hasty)
            await cluster.until_count(WorkerRegistered, len(HOSTS))
            await cluster.configure(round_s=2.0)
            await cluster.submit("j", 1400.0, scale_factor=2)
            await cluster.until(lambda _: trains(cluster, "r1-0"))
            first = cluster.events(RoundScheduled)[0].granted[0]
            await cluster.order(DrainRequested(worker_id=first.worker_ids[0]))
            await cluster.until(
                lambda _: any("r1-0" in plan.ended for plan in cluster.events(RoundScheduled))
            )
            other = f"worker-{first.reporters[1].partition('.')[2]}"
            cluster.kill(other)
            cluster.restart(other)
            await cluster.until_count(JobCompleted, 1)
            await cluster.check_log()

    asyncio.run(run())


def rows(cluster: Cluster, lease_id: str) -> list[TaskProgress]:
    """Reports of a lease, one a round."""
    reports = cluster.events(ProgressReported)
    return [row for report in reports for row in report.rows if row.lease_id == lease_id]


def trains(cluster: Cluster, lease_id: str) -> bool:
    """Whether steps were trained under the lease that are not saved yet."""
    return any(row.steps > row.checkpointed_steps for row in rows(cluster, lease_id))


def check_steps(cluster: Cluster, agreed: StopStepAgreed, second: str, folder: Path) -> None:
    """The first lease ends, and the second begins, at the agreed step, on disk and in the log."""
    steps = 2.0 * agreed.iteration
    last = rows(cluster, agreed.lease_id)[-1]
    assert (last.steps, last.checkpointed_steps) == (steps, steps)
    parts = sorted(folder.glob(f"lease-{agreed.lease_id}/*/rank-*/checkpoint.json"))
    assert [json.loads(part.read_text())["iteration"] for part in parts] == [agreed.iteration] * 2
    went_on = rows(cluster, second)
    assert {row.checkpointed_steps for row in went_on} == {steps}
    assert any(row.load_s > 0 for row in went_on)

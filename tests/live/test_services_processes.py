"""The services as processes, tasks as processes of their own, checkpoints on disk."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

import pytest

from schemas.events import JobCompleted, JobFailed, RoundScheduled, TaskStopped
from services.worker.processes import tasks_under
from tests.live.cluster import Cluster, running_cluster

pytestmark = pytest.mark.live

EMULATED = {"GAVEL_WORKER_TASKS": "emulated"}


def command(code: str) -> str:
    """A job's command line that runs Python code."""
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def left_running(cluster: Cluster) -> object:
    """Processes of tasks that are still there."""
    return tasks_under(cluster.folder / "worker-a")


def test_paced_processes_share_a_worker_and_complete(tmp_path: Path) -> None:
    """Two jobs that take turns on one accelerator are paused, resumed from disk, and complete."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1", **EMULATED)
            await cluster.configure(round_s=1.0)
            for number in range(2):
                await cluster.submit(f"job-{number}", steps=450.0)
            await cluster.until_count(JobCompleted, 2)
            await cluster.check_log()
            resumed = [
                task.resume_from
                for plan in cluster.events(RoundScheduled)
                for lease in plan.granted
                for task in lease.tasks
            ]
            assert any(resumed)
            assert not left_running(cluster)

    asyncio.run(run())


def test_jobs_that_cannot_run_fail_for_good_and_harm_nobody(tmp_path: Path) -> None:
    """Each is tried as often as it may be; the reason has exit code, last line, or command."""
    bad = {
        "crashes": (command("raise SystemExit(3)"), "exit code 3"),
        "ends": (command("print('nothing to do')"), "nothing to do"),
        # Shell text in it is no shell text.
        "absent": ("no-such-program; touch /tmp/x", "no-such-program"),
        "unquoted": ("python 'train.py", "No closing quotation"),
        "outside": ("", "checkpoint_dir '../elsewhere' is not below"),
    }

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=6", **EMULATED)
            await cluster.configure(round_s=1.0)
            for job_id, (text, _) in bad.items():
                folder = "../elsewhere" if job_id == "outside" else ""
                fields = {"command": text, "max_attempts": 2, "checkpoint_dir": folder}
                await cluster.submit(job_id, steps=10.0, **fields)
            await cluster.submit("good", steps=200.0)
            await cluster.until_count(JobFailed, len(bad))
            await cluster.until_count(JobCompleted, 1)
            for failed in cluster.events(JobFailed):
                assert failed.attempts == 2
                assert bad[failed.job_id][1] in failed.reason
            await cluster.check_log()

    asyncio.run(run())


def test_what_ignores_sigterm_and_forks_is_gone_after_its_lease(tmp_path: Path) -> None:
    """A process that ignores SIGTERM, and its child in another session, do not outlive a lease."""
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
        " start_new_session=True)\n"
        "time.sleep(600)"
    )

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            grace = {"GAVEL_WORKER_TERMINATE_GRACE_S": "0.2"}
            cluster.start_workers("v100=1", **EMULATED, **grace)
            await cluster.configure(round_s=1.0)
            await cluster.submit("stubborn", steps=1e6, command=command(code))
            await cluster.until_count(RoundScheduled, 1)
            await cluster.cancel("stubborn")
            await cluster.until_count(TaskStopped, 1)
            await cluster.check_log()
            assert not left_running(cluster)

    asyncio.run(run())

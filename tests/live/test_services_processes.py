"""The services as processes, tasks as processes of their own, checkpoints on disk."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

import pytest

from schemas.domain import JobSpec
from schemas.events import (
    JobCompleted,
    JobFailed,
    JobRejected,
    JobRequeued,
    JobSubmitted,
    RoundScheduled,
    TaskStopped,
)
from services.worker.system import tasks_under
from services.worker.task_log import MOST_BYTES
from tests.live.cluster import CLASS, Cluster, running_cluster
from tests.live.shells import Outsider

pytestmark = pytest.mark.live

EMULATED = {"GAVEL_WORKER_TASKS": "emulated"}


def command(code: str) -> str:
    """A job's command line that runs Python code."""
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


def trains(each: str, *, first: str = "", save: str = "Path(path).touch()") -> str:
    """A job's command line that trains, with something done first, at each step, to save."""
    return command(
        "from pathlib import Path\n"
        "from gavel_iterator import GavelIterator\n"
        f"{first or 'pass'}\n"
        f"def save(path): {save}\n"
        "for _ in GavelIterator([1] * 100, load=lambda path: None, save=save):\n"
        f"    {each or 'pass'}\n"
    )


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


#: What they run, and what the reason of their failure has.
BAD_JOBS = {
    "crashes": (command("raise SystemExit(3)"), "exit code 3"),
    "ends": (command("print('nothing to do')"), "nothing to do"),
    # Shell text in it is no shell text.
    "absent": ("no-such-program; touch /tmp/x", "no-such-program"),
    "unquoted": ("python 'train.py", "No closing quotation"),
    "outside": ("", "checkpoint_dir '../elsewhere' is not below"),
    "leaves": (trains("break"), "left early (after 0 of 10"),
    "fills": (trains("", save="Path('/dev/full').write_text('x')"), "No space left on device"),
    "wrecks": (
        command(
            "import os, shutil\n"
            "folder = os.path.dirname(os.environ['GAVEL_CHECKPOINT_DIR'])\n"
            "shutil.rmtree(folder)\n"
            "open(folder, 'w').close()\n"
        ),
        "checkpoint_dir 'sub/folder'",
    ),
    "lies": (
        command(
            "import os, socket\n"
            "wire = socket.socket(socket.AF_UNIX)\n"
            "wire.connect(os.environ['GAVEL_SOCKET'])\n"
            'wire.sendall(b\'{"type":"done","iteration":10}\\n\' + b\'x\' * 100_000)\n'
        ),
        "it ended before its 10 steps were done",
    ),
}

#: Where they would have their checkpoints.
FOLDERS = {"outside": "../elsewhere", "wrecks": "sub/folder"}
#: They complete all the same.
ODD_JOBS = {
    "talks": trains("", first="for _ in range(1_000_000): print('x' * 99)"),
    "stumbles": trains(
        "", first="mark = Path('stumbled'); mark.exists() or mark.touch() or exit(9)"
    ),
    "good": "",
}


def test_bad_jobs_fail_for_good_odd_ones_complete_and_harm_nobody(tmp_path: Path) -> None:
    """Each is tried as often as it may be; the reason has exit code, last line, or command."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers(f"v100={len(BAD_JOBS) + len(ODD_JOBS)}", **EMULATED)
            await cluster.configure(round_s=1.0)
            for job_id, (text, _) in BAD_JOBS.items():
                folder = FOLDERS.get(job_id, "")
                fields = {"command": text, "max_attempts": 2, "checkpoint_dir": folder}
                await cluster.submit(job_id, steps=10.0, workdir=str(tmp_path), **fields)
            for job_id, text in ODD_JOBS.items():
                await cluster.submit(job_id, steps=10.0, workdir=str(tmp_path), command=text)
            await submit_odd_names(cluster)
            await cluster.until_count(JobFailed, len(BAD_JOBS))
            await cluster.until_count(JobCompleted, len(ODD_JOBS))
            for failed in cluster.events(JobFailed):
                assert failed.attempts == 2
                assert BAD_JOBS[failed.job_id][1] in failed.reason
            requeued = [r.job_id for r in cluster.events(JobRequeued) if r.job_id not in BAD_JOBS]
            assert requeued == ["stumbles"]
            await cluster.check_log()
        (task,) = (tmp_path / "worker-a" / "jobs" / "talks").iterdir()
        assert sum(path.stat().st_size for path in task.iterdir()) <= 2 * MOST_BYTES

    asyncio.run(run())


async def submit_odd_names(cluster: Cluster) -> None:
    """A job of a name that cannot stand in a path or a subject is refused, by a reason with it."""
    names = (
        "a b",
        "a.b",
        "*",
        ">",
        "../up",
        "line\nline",
        "\N{LATIN SMALL LETTER U WITH DIAERESIS}",
        "",
    )
    client = Outsider(cluster.log, "client.odd")
    for name in names:
        await client.append(JobSubmitted(job=JobSpec(job_id=name, job_type=CLASS, total_steps=1.0)))
    await cluster.until_count(JobRejected, len(names))
    for name, rejected in zip(names, cluster.events(JobRejected), strict=True):
        assert rejected.reason.startswith(f"job_id {name!r} is not")


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

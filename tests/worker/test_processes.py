"""Tasks as processes: what a dead service has left is taken over."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import structlog

from schemas.domain import Lease, TaskSpec
from schemas.events import WorkerRegistered
from services.worker.devices import Accelerators
from services.worker.hands import Counts
from services.worker.launch import FOLDER_VARIABLE, Settings
from services.worker.processes import ProcessHands
from services.worker.view import LogView

NAME = "worker.a"
PATIENCE_S = 60.0
GANG = Lease(
    lease_id="r1-0",
    tasks=(TaskSpec(job_id="a", job_type="x", scale_factor=2, total_steps=10.0),),
    worker_type="v100",
    worker_ids=("w0", "w1"),
    reporters=(NAME,),
)


def left_over(folder: Path, rank: int, code: str) -> subprocess.Popen[bytes]:
    """A rank as a dead service has left it."""
    environment = {FOLDER_VARIABLE: str(folder), "GAVEL_RANK": str(rank)}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def hands_in(folder: Path) -> ProcessHands:
    """Of a service that has two accelerators."""
    workers = {
        f"w{i}": (
            WorkerRegistered(worker_id=f"w{i}", worker_type="v100", server_id="s", reporter=NAME),
            str(i),
        )
        for i in range(2)
    }
    settings = Settings(
        folder=folder / "worker",
        checkpoint_root=folder / "checkpoints",
        secrets={},
        checkpoint_grace_s=PATIENCE_S,
        terminate_grace_s=PATIENCE_S,
        progress_interval_s=1.0,
        emulated=False,
    )
    now = asyncio.get_running_loop().time
    accelerators = Accelerators(lambda: workers)
    return ProcessHands(accelerators, settings, LogView(NAME), now, structlog.get_logger())


def test_of_two_ranks_that_were_left_the_second_may_end_after_the_first(tmp_path: Path) -> None:
    """One ends before it is watched; the other is not killed for it, but has its time."""

    async def run() -> None:
        hands = hands_in(tmp_path)
        folder = hands._tools.launcher.folder("r1-0", "a")
        waiting = "print(flush=True); import time; time.sleep(600)"
        ranks = [left_over(folder, rank, waiting) for rank in range(2)]
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"\n"
        await hands.open()
        ranks[0].kill()
        ranks[0].wait(PATIENCE_S)
        ends_at_s = asyncio.get_running_loop().time() + 10 * PATIENCE_S
        task = hands.start(GANG, GANG.tasks[0], 0.0, ends_at_s, fresh=False, after=Counts())
        assert task._concluding is None
        assert task._pids == {1: ranks[1].pid}
        # It is of no use for long without the other.
        async with asyncio.timeout(PATIENCE_S):
            assert (await task.ending).reason == "failed"
        await hands.close(leave_tasks=True)
        for process in ranks:
            process.communicate()

    asyncio.run(run())


def test_no_checkpoint_has_more_steps_than_its_job(tmp_path: Path) -> None:
    """A training process may write what it likes: it comes no further for it."""

    async def run() -> None:
        hands = hands_in(tmp_path)
        await hands.open()
        saved = tmp_path / "checkpoints" / "a" / "lease-r1-0" / "1" / "rank-0"
        saved.mkdir(parents=True)
        (saved / "checkpoint.json").write_text('{"world_size":1,"steps":1e300,"complete":false}')
        over_s = asyncio.get_running_loop().time()
        task = hands.start(GANG, GANG.tasks[0], 0.0, over_s, fresh=False, after=Counts())
        assert (await task.ending).reason == "stopped"
        assert task.counts(over_s).saved_steps == GANG.tasks[0].total_steps
        await hands.close(leave_tasks=True)

    asyncio.run(run())

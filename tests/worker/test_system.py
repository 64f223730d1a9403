"""Processes of tasks are found by the folder in their environment, whoever started them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from services.worker.launch import FOLDER_VARIABLE
from services.worker.system import NO_RANK, end_all, gone, tasks_under


def start(folder: Path, rank: str) -> subprocess.Popen[bytes]:
    """A process of a task that runs until it is ended; it does by now."""
    environment = {FOLDER_VARIABLE: str(folder), "GAVEL_RANK": rank}
    code = "import time; print(flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout as said:
        said.readline()
    return process


def test_processes_of_a_task_are_found_and_ended(tmp_path: Path) -> None:
    """Also one that calls itself a rank that is none; those of another task are left alone."""
    one, other = tmp_path / "a" / "r1-0", tmp_path / "a" / "r1-01"
    ranks = {start(one, rank): number for rank, number in (("0", 0), ("x", NO_RANK), ("", NO_RANK))}
    stranger = start(other, "7")
    assert tasks_under(tmp_path / "a") == {
        one: {process.pid: number for process, number in ranks.items()},
        other: {stranger.pid: 7},
    }
    assert tasks_under(tmp_path / "b") == {}

    async def end() -> None:
        for pid in end_all(one):
            await gone(pid)

    asyncio.run(end())
    assert [process.wait() for process in ranks] == [-9, -9, -9]
    assert tasks_under(tmp_path) == {other: {stranger.pid: 7}}
    stranger.kill()
    stranger.wait()


def test_who_has_gone_is_not_waited_for() -> None:
    """A process that is not there, and one that is not waited for by its parent yet."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    asyncio.run(gone(process.pid))
    process.wait()
    asyncio.run(gone(process.pid))

"""Processes of tasks, by the kernel's word: found, ended, waited for."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from services.worker.launch import FOLDER_VARIABLE

NO_RANK = -1


def tasks_under(folder: Path) -> dict[Path, dict[int, int]]:
    """{task's folder: {pid: rank or ``NO_RANK``}} of all processes of tasks under a folder."""
    found: dict[Path, dict[int, int]] = {}
    prefix = os.fsencode(folder.absolute())
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes().split(b"\0")
        except OSError:
            # Gone meanwhile, or somebody else's.
            continue
        parted = (pair.partition(b"=") for pair in environment)
        values = {name: value for name, _, value in parted}
        named = values.get(FOLDER_VARIABLE.encode(), b"")
        if named == prefix or named.startswith(prefix + b"/"):
            # What it has forked may have any environment.
            rank = values.get(b"GAVEL_RANK", b"")
            of_task = found.setdefault(Path(os.fsdecode(named)), {})
            of_task[int(entry.name)] = int(rank) if rank.isdigit() else NO_RANK
    return found


def exit_code(pid: int) -> int | None:
    """How an ended process ended; None if it is not our child."""
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status)


def kill_group(pid: int, number: int) -> None:
    """Signal a process and those it has forked, if they are there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def end_all(folder: Path) -> Collection[int]:
    """End every process of a task, in whatever session it is; which there were."""
    found = tasks_under(folder).get(folder, {})
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return found


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def leads_session(pid: int) -> bool:
    """Whether it is no fork of another process of its task."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False

"""A worker service reduced to its lease socket, for tests: real socket, real processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from schemas.domain import TaskSpec
from services.worker.lease_socket import LeaseSocket, Report, task_environment
from services.worker.ranks import Message

ROOT = Path(__file__).resolve().parent.parent.parent
SDK = ROOT / "services" / "worker" / "sdk" / "src"
EXAMPLES = ROOT / "deploy" / "examples"

_MessageT = TypeVar("_MessageT", bound=Message)


class Lines:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        """See ``Logger``."""
        self.lines.append((event, fields))


class Host:
    """An open lease socket and all that was reported on it."""

    def __init__(self, socket_path: Path, progress_interval_s: float = 0.05) -> None:
        self.lines = Lines()
        self.reports: list[Report] = []
        self.socket = LeaseSocket(socket_path, self._reported, self.lines)
        self._progress_interval_s = progress_interval_s
        self._news = asyncio.Event()

    def _reported(self, report: Report) -> None:
        self.reports.append(report)
        self._news.set()

    async def until(self, met: Callable[[], bool], timeout_s: float = 100.0) -> None:
        """Wait until reports have made it true."""
        async with asyncio.timeout(timeout_s):
            while not met():
                self._news.clear()
                await self._news.wait()

    async def heard(
        self, kind: type[_MessageT], *, rank: int | None = 0, where: str = "", times: int = 1
    ) -> _MessageT:
        """Wait for the n-th message of a kind from a rank (under one lease), and give it."""
        await self.until(lambda: len(self.said(kind, rank=rank, where=where)) >= times)
        return self.said(kind, rank=rank, where=where)[times - 1]

    def said(
        self, kind: type[_MessageT], *, rank: int | None = 0, where: str = ""
    ) -> list[_MessageT]:
        """Messages of a kind from a rank, under one lease or all."""
        return [
            report.message
            for report in self.reports
            if isinstance(report.message, kind)
            and report.rank == rank
            and where in ("", report.lease_id)
        ]

    async def start(
        self,
        lease_id: str,
        task: TaskSpec,
        command: Sequence[str],
        *,
        rank: int = 0,
        environment: dict[str, str] | None = None,
    ) -> asyncio.subprocess.Process:
        """Start one rank of an expected task as a process."""
        variables = task_environment(
            self.socket.path, lease_id, task, rank, self._progress_interval_s
        )
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            env=plain_environment() | variables | (environment or {}),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


@asynccontextmanager
async def hosting(folder: Path) -> AsyncIterator[Host]:
    """A host whose socket lies in a folder."""
    host = Host(folder / "s")
    await host.socket.open()
    try:
        yield host
    finally:
        await host.socket.close()


def task(folder: Path, *, steps: float, ranks: int = 1, resume_from: str = "") -> TaskSpec:
    """A task of job ``j`` whose checkpoints lie in ``folder``."""
    return TaskSpec(
        job_id="j",
        job_type="m",
        scale_factor=ranks,
        total_steps=steps,
        resume_from=resume_from,
        checkpoint_dir=str(folder),
    )


def plain_environment() -> dict[str, str]:
    """What any process needs, the SDK, and nothing of a scheduler."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | {"PYTHONPATH": str(SDK), "PYTHONUNBUFFERED": "1"}


async def ended(
    process: asyncio.subprocess.Process, timeout_s: float = 100.0
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a process that ends by itself."""
    async with asyncio.timeout(timeout_s):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), (err or b"").decode()

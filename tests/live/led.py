"""Jobs that a test leads step by step, and processes whose end it waits for: nothing takes a time.

What a fault interrupts is then always the same, however slow the machine.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.worker.system import gone

SCRIPT = Path(__file__).with_name("led_job.py")


class Words:
    """Lines that a job writes into a pipe, for a test that waits for them."""

    def __init__(self, pipe: Path) -> None:
        os.mkfifo(pipe)
        self.pipe = pipe
        self.heard: list[str] = []
        self._descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._rest = ""
        self._news = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._descriptor, self._hear)

    async def until(self, word: str, times: int = 1, patience_s: float = 60.0) -> None:
        """Wait for the n-th line that is this word."""
        async with asyncio.timeout(patience_s):
            while self.heard.count(word) < times:
                self._news.clear()
                await self._news.wait()

    def close(self) -> None:
        """Hear no more."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _hear(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._descriptor, 1 << 16).decode()).split("\n")
        self.heard += lines
        self._news.set()


class Leader:
    """The test's ends of a job's pipes."""

    def __init__(self, folder: Path) -> None:
        steps = folder / "steps"
        os.mkfifo(steps)
        # For both ends, so that neither opening it nor writing to it waits for the job.
        self._descriptor = os.open(steps, os.O_RDWR | os.O_NONBLOCK)
        self._words = Words(folder / "words")
        pipes = (str(steps), str(self._words.pipe))
        self.command = shlex.join((sys.executable, str(SCRIPT), *pipes))

    def let(self, steps: int) -> None:
        """Let it train so many more steps."""
        assert os.write(self._descriptor, b"." * steps) == steps, "the pipe has room"

    async def trained(self, steps: int) -> None:
        """Wait until it has been at so many steps."""
        await self._words.until("step", steps)

    def close(self) -> None:
        """Let go of the pipes."""
        self._words.close()
        os.close(self._descriptor)


@contextmanager
def led(folder: Path) -> Iterator[Leader]:
    """A job that is led."""
    leader = Leader(folder)
    try:
        yield leader
    finally:
        leader.close()


async def until_ended(pid: int, patience_s: float = 60.0) -> None:
    """Wait until a process, whoever's child it is, has ended."""
    async with asyncio.timeout(patience_s):
        await gone(pid)

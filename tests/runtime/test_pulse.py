"""What a process says of its loop and its memory."""

from __future__ import annotations

import asyncio
import time

from services.runtime.pulse import Pulse, memory_bytes


def _work(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_who_blocks_the_loop_is_counted() -> None:
    """Work that lets nobody else run, for as long as it does; not work in small pieces."""

    async def main() -> None:
        pulse = Pulse()
        beating = asyncio.create_task(pulse.beat())
        for _ in range(100):
            _work(0.002)
            await asyncio.sleep(0)
        in_pieces = pulse.blocked_s
        _work(0.2)
        await asyncio.sleep(0.05)  # some beats
        assert in_pieces < 0.1
        assert 0.18 < pulse.blocked_s < 0.25
        beating.cancel()

    asyncio.run(main())


def test_what_others_take_is_not_counted() -> None:
    """A process that is held up, and has not worked itself, has blocked nobody."""

    async def main() -> None:
        pulse = Pulse()
        beating = asyncio.create_task(pulse.beat())
        await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251 - the loop stands still, and works nothing
        await asyncio.sleep(0.05)
        assert pulse.blocked_s < 0.1
        beating.cancel()

    asyncio.run(main())


def test_memory_is_what_the_process_holds() -> None:
    """More by what it takes."""
    before = memory_bytes()
    taken = bytes(64 << 20).replace(b"\0", b"x")
    assert memory_bytes() - before > 0.9 * len(taken)

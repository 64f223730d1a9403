"""Accelerators are looked at again and again; which go and which come back is said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from schemas.events import AnyEvent, WorkerDisappeared, WorkerLost, WorkerRegistered, WorkerReturned
from schemas.record import Record
from services.worker.devices import Accelerators, DevicesError
from services.worker.roll_call import RollCall
from services.worker.view import LogView

NAME = "worker.a"
WORKERS = tuple(
    WorkerRegistered(worker_id=f"w{i}", worker_type="v100", server_id="s", reporter=NAME)
    for i in range(4)
)
PATIENCE_S = 60.0


def gone(worker_id: str) -> WorkerDisappeared:
    """It is no longer there."""
    return WorkerDisappeared(worker_id=worker_id, reporter=NAME)


def back(worker_id: str) -> WorkerReturned:
    """It is there again."""
    return WorkerReturned(worker_id=worker_id, reporter=NAME)


class Server:
    """Accelerators to be taken out and put in, and a log with nobody else on it."""

    def __init__(self) -> None:
        self.there: Sequence[WorkerRegistered] | None = WORKERS[:3]
        self.reported: asyncio.Queue[AnyEvent] = asyncio.Queue()
        self.warned = asyncio.Event()
        self.appends = True
        self._view = LogView(NAME)
        self._seq = 0
        self.roll_call = RollCall(NAME, Accelerators(self.find), self._view, self)
        for worker in WORKERS[:3]:
            self.observe(worker)

    def find(self) -> dict[str, tuple[WorkerRegistered, str]]:
        """What is there now."""
        if self.there is None:
            raise DevicesError("no driver")
        return {worker.worker_id: (worker, "") for worker in self.there}

    def warning(self, event: str, **fields: Any) -> None:
        """See ``Logger``."""
        self.warned.set()

    def report(self, event: AnyEvent) -> bool:
        """See ``RollCall.run``; what is reported is in the log at once, if ever."""
        self.reported.put_nowait(event)
        if self.appends:
            self.observe(event)
        return True

    def observe(self, event: AnyEvent) -> None:
        """A record of the log."""
        self._seq += 1
        self._view.take(Record(seq=self._seq, at=0.0, actor="x", digest="", event=event))
        self.roll_call.observed()

    async def told(self) -> AnyEvent:
        """The next report."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reported.get()


def test_who_goes_is_said_once_and_who_is_back_too() -> None:
    """A lost one is not back before it is there; a new one is registered; blind, all is as was."""

    async def run() -> None:
        server = Server()
        calling = asyncio.create_task(server.roll_call.run(server.report))
        server.there = WORKERS[:1]
        assert [await server.told(), await server.told()] == [gone("w1"), gone("w2")]
        for worker_id in ("w0", "w1", "w2"):
            # The first for another reason: it is there, and says so at once.
            server.observe(WorkerLost(worker_id=worker_id, since_s=0.0))
        assert await server.told() == back("w0")
        server.there = None
        async with asyncio.timeout(PATIENCE_S):
            await server.warned.wait()
        server.there = (WORKERS[0], *WORKERS[2:])
        assert [await server.told(), await server.told()] == [WORKERS[3], back("w2")]
        assert server.reported.empty()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run(run())


def test_one_that_is_missed_again_as_it_comes_back_is_said_to_be_back_again() -> None:
    """Cut off from the log, a service reads of its return and of the next loss at one go."""

    async def run() -> None:
        server = Server()
        calling = asyncio.create_task(server.roll_call.run(server.report))
        for _ in range(3):
            # Nobody else has a turn between the records.
            server.observe(back("w0"))
            server.observe(WorkerLost(worker_id="w0", since_s=0.0))
            assert await server.told() == back("w0")
        server.appends = False
        server.observe(WorkerLost(worker_id="w0", since_s=0.0))
        assert await server.told() == back("w0")
        server.observe(back("w0"))
        server.observe(WorkerLost(worker_id="w0", since_s=0.0))
        assert await server.told() == back("w0")
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run(run())

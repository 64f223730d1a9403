"""A wire between client and server that a test can hold up and cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Wire:
    """What passes between one server and its clients."""

    def __init__(self) -> None:
        self.url = ""
        self._answers_pass = asyncio.Event()
        self._answers_pass.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    def hold_answers(self) -> None:
        """What clients send arrives; what the server says does not, for now."""
        self._answers_pass.clear()

    def let_pass(self) -> None:
        """What was held up arrives, late."""
        self._answers_pass.set()

    def cut(self) -> None:
        """End all connections, with what was held up; new ones pass freely."""
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._answers_pass.set()

    async def end(self) -> None:
        """Cut it, and see everything that passed things on come to its end."""
        tasks = tuple(self._tasks)
        self.cut()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def serve(self, host: str, port: int, client: tuple[object, ...]) -> None:
        """Connect one client."""
        from_client, to_client = client
        assert isinstance(from_client, asyncio.StreamReader)
        assert isinstance(to_client, asyncio.StreamWriter)
        from_server, to_server = await asyncio.open_connection(host, port)
        self._writers |= {to_client, to_server}
        for work in (
            self._pass(from_client, to_server, None),
            self._pass(from_server, to_client, self._answers_pass),
        ):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: asyncio.Event | None,
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if gate is not None:
                    await gate.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()


@asynccontextmanager
async def wire_to(url: str) -> AsyncIterator[Wire]:
    """A wire to the server at a URL."""
    host, port = url.removeprefix("nats://").rsplit(":", 1)
    wire = Wire()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await wire.serve(host, int(port), (reader, writer))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    wire.url = f"nats://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield wire
    finally:
        listener.close()
        await wire.end()

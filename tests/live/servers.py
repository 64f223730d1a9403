"""What tests of the live log share: a real server, and a real log behind the synchronous port."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from schemas.record import Draft, Record
from services.runtime.embedded import EmbeddedServer, find_binary
from services.runtime.jetstream import JetStreamLog
from services.runtime.log import LogClosedError
from tests.live.led import until_ended

T = TypeVar("T")

#: Small, so that many logs fit on one server.
MAX_BYTES = 64 << 20

_clusters = itertools.count(1)


@cache
def shared_server() -> EmbeddedServer:
    """One server for all tests of a process that do it no harm."""
    folder = Path(tempfile.mkdtemp(prefix="gavel-nats-"))
    server = EmbeddedServer(folder)
    server.start()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.stop)
    return server


def new_cluster() -> str:
    """A name that no other test of the process uses."""
    return f"test-{next(_clusters)}"


@asynccontextmanager
async def connected(
    cluster: str,
    server: EmbeddedServer | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    **options: Any,
) -> AsyncIterator[JetStreamLog]:
    """A log, closed in the end."""
    url = (server or shared_server()).url
    log = await JetStreamLog.connect(url, cluster, max_bytes=max_bytes, **options)
    try:
        yield log
    finally:
        await log.close()


class Tally:
    """What has happened, for who waits until so much has."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._news = asyncio.Event()

    def add(self, what: Any) -> None:
        """It has happened."""
        self.found.append(what)
        self._news.set()

    async def reached(self, number: int) -> None:
        """Wait until so much has."""
        while len(self.found) < number:
            self._news.clear()
            await self._news.wait()


class NatsServer:
    """A server as its options have it, on a free port; up once it says so."""

    def __init__(self, *options: str | Path, environment: Mapping[str, str] = {}) -> None:
        self.url = self.monitor_url = ""
        command = (find_binary(), *options, "-a", "127.0.0.1", "-p", "-1")
        self._command = [str(each) for each in command]
        self._environment = os.environ | environment
        self._process: subprocess.Popen[str] | None = None
        self._reading: threading.Thread | None = None

    def start(self) -> None:
        """Start it; what it says until it is ready has its addresses."""
        self._process = subprocess.Popen(
            self._command, stderr=subprocess.PIPE, env=self._environment, text=True
        )
        assert self._process.stderr is not None
        said: list[str] = []
        for line in self._process.stderr:
            said.append(line)
            if "Server is ready" in line:
                break
        else:
            self.stop()
            pytest.fail("".join(said))
        # Whatever else it says, a full pipe would hold it up.
        self._reading = threading.Thread(target=self._process.stderr.read)
        self._reading.start()
        text = "".join(said)
        (port,) = re.findall(r"Listening for client connections on \S+:(\d+)", text)
        scheme = "tls" if "TLS required for client connections" in text else "nats"
        self.url = f"{scheme}://127.0.0.1:{port}"
        for address in re.findall(r"Starting http monitor on (\S+)", text):
            self.monitor_url = f"http://{address}"

    def stop(self) -> None:
        """Stop it."""
        assert self._process is not None
        assert self._process.stderr is not None
        self._process.terminate()
        self._process.wait()
        if self._reading is not None:
            self._reading.join()
        self._process.stderr.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


async def kill(server: EmbeddedServer) -> None:
    """End the server without a chance to finish anything."""
    os.kill(server.pid, signal.SIGKILL)
    await until_ended(server.pid)
    assert not server.running


class BlockingLog:
    """A live log behind the synchronous port, for the contract; stamps are the server's."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._cluster = new_cluster()
        self._log = self._run(self._connect())
        self._closed = False

    @property
    def last_seq(self) -> int:
        """See ``Log``."""
        return self._run(self._log.last_seq())

    def append(self, draft: Draft, at: float) -> Record | None:
        """See ``Log``; ``at`` is the server's."""
        if self._closed:
            raise LogClosedError("closed")
        seq = self._run(self._log.append(draft))
        return next(self._records(seq - 1)) if seq is not None else None

    def read(self, after: int = 0) -> Iterator[Record]:
        """See ``Log``."""
        return self._records(after)

    def close(self) -> None:
        """See ``Log``; to be read later, it is connected to anew."""
        if not self._closed:
            self._run(self._log.close())
            self._closed = True

    def __del__(self) -> None:
        self._loop.close()

    def _records(self, after: int) -> Iterator[Record]:
        return iter(self._run(self._collect(after)))

    async def _collect(self, after: int) -> list[Record]:
        log = await self._connect() if self._closed else self._log
        records = [record async for record in log.read(after)]
        if self._closed:
            await log.close()
        return records

    async def _connect(self) -> JetStreamLog:
        return await JetStreamLog.connect(
            shared_server().url, self._cluster, max_bytes=MAX_BYTES, patience_s=10.0
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

"""Health over HTTP, and lines for the operator."""

from __future__ import annotations

import asyncio
import io
import json

import msgspec
import pytest

from services.runtime import logs
from services.runtime.health import serve_health


class Told(msgspec.Struct):
    """What a process says of itself here."""

    lag_records: int


async def ask(port: int, text: bytes) -> tuple[int, dict[str, object]]:
    """Status and content of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    head, body = (await reader.read()).split(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), json.loads(body)


def get(path: str) -> bytes:
    """A request."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def test_health_says_what_is() -> None:
    """Alive at once, ready when it is, and in detail on request; anything else is refused."""

    async def main() -> None:
        ready = False
        lag = 7

        async def status() -> Told:
            if lag < 0:
                raise RuntimeError("cannot know")
            return Told(lag_records=lag)

        async with serve_health(lambda: ready, status) as port:
            assert await ask(port, get("/live")) == (200, {"live": True})
            assert await ask(port, get("/ready")) == (503, {"ready": False})
            ready = True
            assert await ask(port, get("/ready?now")) == (200, {"ready": True})
            assert await ask(port, get("/status")) == (200, {"lag_records": 7})
            lag = -1
            assert await ask(port, get("/status")) == (503, {"error": "cannot know"})
            assert (await ask(port, get("/etc/passwd")))[0] == 404
            assert (await ask(port, b"POST /live HTTP/1.1\r\n\r\n"))[0] == 405

    asyncio.run(main())


def test_health_survives_a_caller_that_says_nothing() -> None:
    """Who connects and goes away leaves no trace; the next is answered."""

    async def main() -> None:
        async with serve_health(lambda: True, _unasked) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET")
            writer.close()
            await writer.wait_closed()
            assert await ask(port, get("/live")) == (200, {"live": True})

    asyncio.run(main())


async def _unasked() -> Told:
    raise AssertionError("nobody asks")


@pytest.mark.parametrize("level", ["info", "warning"])
def test_lines_are_json_where_nobody_reads_along(level: str) -> None:
    """One object a line, with service, record and job; less than the level is not written."""
    output = io.StringIO()
    logs.configure(level=level, output=output)
    lines = logs.logger("mechanism", replica="a")
    lines.info("round", seq=3, cause=2)
    lines.warning("late", job="job-1")
    written = [json.loads(line) for line in output.getvalue().splitlines()]
    kept = [{"level": "info", "event": "round", "seq": 3, "cause": 2}] if level == "info" else []
    kept += [{"level": "warning", "event": "late", "job": "job-1"}]
    assert [line.pop("timestamp")[-1] for line in written] == ["Z"] * len(kept)
    assert written == [line | {"service": "mechanism", "replica": "a"} for line in kept]

"""What a process answers when its health is asked: JSON over HTTP, on loopback only.

``/live``
    200 as long as the process answers at all.
``/ready``
    200 once its log is folded, so that it leads or could; 503 before.
``/status``
    Who it is, how far behind the log it is, what is still to be done, and how full the log is.

There is no authentication, and hence no other address than loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

_REQUEST_TIMEOUT_S = 5.0
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@asynccontextmanager
async def serve_health(
    ready: Callable[[], bool],
    status: Callable[[], Awaitable[msgspec.Struct]],
    *,
    port: int = 0,
) -> AsyncGenerator[int, None]:
    """Answer while the context lasts; gives the port.

    Parameters
    ----------
    ready : whether to say so
    status : what to say, in detail
    port : to listen at; 0 for any free one

    Raises
    ------
    OSError
        The port is taken.
    """

    async def answer(path: str) -> tuple[int, bytes]:
        if path == "/live":
            return 200, b'{"live":true}'
        if path == "/ready":
            return (200, b'{"ready":true}') if ready() else (503, b'{"ready":false}')
        if path == "/status":
            try:
                async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                    return 200, msgspec.json.encode(await status())
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what to say
                return 503, msgspec.json.encode({"error": str(error) or type(error).__name__})
        return 404, b'{"error":"ask for /live, /ready or /status"}'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(2 * _REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                method, _, rest = head.decode("latin-1").partition(" ")
                path = rest.split(" ", 1)[0].partition("?")[0]
                code, body = await answer(path) if method == "GET" else (405, b"{}")
                writer.write(
                    f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                )
                writer.write(body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked has gone, or never asked
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()

"""Asks a service of this machine how it is (``services/runtime/health.py``)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

_PATIENCE_S = 2.0


async def ask(port: int, path: str) -> dict[str, Any] | None:
    """What it answers; None if it does not, or says no."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    found: dict[str, Any] | None = json.loads(body) if b" 200 " in head else None
    return found

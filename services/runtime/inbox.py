"""Asks over NATS and waits for the answer, in a way that can be cancelled.

The client library's own request swallows a cancellation that meets the answer; a service that is
to stop would then go on. Here is one inbox of ours, and one future for each question.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import nats.errors
from nats.aio.client import Client


class Inbox:
    """Where answers to our questions arrive."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._subject = ""
        self._tokens = itertools.count(1)
        self._answers: dict[str, asyncio.Future[Any]] = {}

    async def ask(
        self,
        subject: str,
        data: bytes = b"",
        *,
        timeout_s: float,
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """Publish, and wait for the one answer.

        Raises
        ------
        TimeoutError
            None has come.
        nats.errors.NoRespondersError
            Nobody listens there.
        nats.errors.Error
            It could not be sent.
        """
        if not self._subject:
            await self._open()
        token = str(next(self._tokens))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[token] = future
        try:
            async with asyncio.timeout(timeout_s):
                reply = f"{self._subject}.{token}"
                await self._client.publish(subject, data, reply=reply, headers=headers)
                message = await future
        finally:
            del self._answers[token]
        if (message.headers or {}).get("Status") == "503":
            raise nats.errors.NoRespondersError
        content: bytes = message.data
        return content

    async def _open(self) -> None:
        self._subject = self._client.new_inbox()
        await self._client.subscribe(
            f"{self._subject}.*", cb=self._take, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def _take(self, message: Any) -> None:
        future = self._answers.get(message.subject.rsplit(".", 1)[1])
        if future is not None and not future.done():
            future.set_result(message)

"""Who is there: a leader answers when asked, nothing is stored.

This is about liveness only. Who *may* append is decided by the fence on the log; that nobody
answers is merely the occasion to try. A process that dies is missed at once, since the server
knows that nobody listens any more; one that hangs, when it has not answered for a while.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Protocol

import nats.errors
from nats.aio.client import Client

from services.runtime.inbox import Inbox
from services.runtime.log import LogError


class UncertainError(LogError):
    """Cut off ourselves: who is there cannot be said."""


class Presence(Protocol):
    """Asked and answered between processes of one cluster."""

    def answering(self, actor: str, replica: str) -> AbstractAsyncContextManager[None]:
        """Context in which this replica answers for the actor."""
        ...

    async def leader(self, actor: str) -> str | None:
        """The replica that answers for the actor; None if none does.

        Raises
        ------
        UncertainError
            We are cut off.
        """
        ...


class NatsPresence:
    """Presence by request and reply over the log's own connection."""

    def __init__(self, client: Client, cluster: str, *, timeout_s: float = 1.0) -> None:
        self._client = client
        self._inbox = Inbox(client)
        self._prefix = f"gavel.{cluster}.live"
        self._timeout_s = timeout_s

    @asynccontextmanager
    async def answering(self, actor: str, replica: str) -> AsyncGenerator[None, None]:
        """See ``Presence``."""

        async def answer(message: Any) -> None:
            with suppress(nats.errors.Error):
                await message.respond(json.dumps({"replica": replica}).encode())

        subscription = await self._client.subscribe(f"{self._prefix}.{actor}", cb=answer)
        try:
            yield
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def leader(self, actor: str) -> str | None:
        """See ``Presence``."""
        try:
            answer = await self._inbox.ask(f"{self._prefix}.{actor}", timeout_s=self._timeout_s)
            return str(json.loads(answer)["replica"])
        except (TimeoutError, nats.errors.NoRespondersError):
            if self._client.is_connected:
                return None
            raise UncertainError("the connection is lost") from None
        except (ValueError, KeyError, TypeError):
            return None
        except nats.errors.Error as error:
            raise UncertainError(str(error)) from None

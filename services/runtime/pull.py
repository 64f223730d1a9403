"""Reads a stream in order without losing a message: a pull consumer with credit of our own.

The client library's own readers drop messages at a limit, or forget where they were when the
server restarts. Here the reader asks for as many messages as it has room for, counts them, and on
any doubt (a gap in the consumer's count, a status, silence) makes a new consumer that begins with
the last message it had.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self

import nats.errors
from nats.aio.client import Client

from services.runtime.inbox import Inbox
from services.runtime.log import LogClosedError, LogError

#: Most messages on their way to a reader.
_WINDOW = 2000
_HEARTBEAT_S = 2.0
#: A connection that was lost and is back is noticed after so long.
_LOOK_EVERY_S = 0.2
_PULL_EXPIRES_S = 10.0
#: A consumer without a reader goes after this.
_FORGOTTEN_AFTER_S = 5.0
_REQUEST_TIMEOUT_S = 3.0
#: While a stream is without a leader its requests are lost: what is asked again anyway is asked
#: again soon, or a leader that is back is not noticed.
SHORT_TIMEOUT_S = 1.0
_RETRY_S = 0.1
_NS = 1_000_000_000

#: What can be waited out: a server that restarts, a stream between two leaders.
_PASSING = (
    TimeoutError,
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.OutboundBufferLimitError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.ConnectionClosedError,  # seen, and said, at the next try
)


class ApiError(LogError):
    """The server refuses a request."""

    def __init__(self, what: str, error: dict[str, Any]) -> None:
        super().__init__(f"{what}: {error.get('description')} ({error.get('err_code')})")
        self.err_code = int(error.get("err_code", 0))
        self.code = int(error.get("code", 0))


class DamagedStreamError(LogError):
    """The stream no longer holds what was read from it."""


class Stored(NamedTuple):
    """A message as the stream holds it."""

    subject: str
    data: bytes
    seq: int
    at: float
    #: Monotonic time of receipt, if it was stored while we were waiting for it.
    live_at: float | None
    #: Whether somebody made the server store it through a reply subject.
    forged: bool


async def request(
    inbox: Inbox,
    what: str,
    body: dict[str, Any] | None = None,
    *,
    timeout_s: float = _REQUEST_TIMEOUT_S,
) -> dict[str, Any]:
    """One request to the server's JetStream interface.

    Raises
    ------
    ApiError
        The server refuses.
    TimeoutError, nats.errors.Error
        There is no answer.
    """
    payload = json.dumps(body).encode() if body is not None else b""
    answer = await inbox.ask(f"$JS.API.{what}", payload, timeout_s=timeout_s)
    content: dict[str, Any] = json.loads(answer)
    if "error" in content:
        raise ApiError(what, content["error"])
    return content


async def pull(
    client: Client,
    inbox: Inbox,
    stream: str,
    subject: str,
    after: int,
    *,
    until: int | None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Stored, None]:
    """Messages of a stream in order, from ``after`` on, that one included.

    Whenever the reader begins anew, the last message is given once more: whoever reads can see
    that the stream still is the one it was.

    Parameters
    ----------
    client, inbox : a connection, and where its answers arrive
    stream, subject : what to read; the subject may have wildcards
    after : sequence to begin with
    until : stop there, or before if no message is left; None: never
    clock : stamps the receipt of live messages

    Raises
    ------
    DamagedStreamError
        The stream ends before ``after``.
    LogClosedError
        The connection is closed.
    """
    while True:
        if client.is_closed:
            raise LogClosedError("the connection to the log is closed")
        try:
            await _check_reaches(inbox, stream, after)
            async with _Consumer(client, inbox, stream, subject, max(after, 1), clock) as consumer:
                if until is not None and consumer.caught_up:
                    return
                while (stored := await consumer.next()) is not None:
                    after = stored.seq
                    yield stored
                    if until is not None and (after >= until or consumer.caught_up):
                        return
        except (*_PASSING, ApiError):
            await asyncio.sleep(_RETRY_S)


async def _check_reaches(inbox: Inbox, stream: str, after: int) -> None:
    info = await request(inbox, f"STREAM.INFO.{stream}", timeout_s=SHORT_TIMEOUT_S)
    last = info["state"]["last_seq"]
    if last < after:
        raise DamagedStreamError(
            f"stream {stream} ends with record {last}, but {after} was read from it before: "
            "its end was lost; restore it from an export"
        )


class _Consumer:
    """One consumer on the server, as an async context manager."""

    def __init__(
        self,
        client: Client,
        answers: Inbox,
        stream: str,
        subject: str,
        start: int,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._answers = answers
        self._stream = stream
        self._subject = subject
        self._start = start
        self._clock = clock
        self._inbox = client.new_inbox()
        self._name = self._inbox.rsplit(".", 1)[1]
        self._arrived: deque[tuple[Any, float]] = deque()
        self._arrival = asyncio.Event()
        self._subscription: Any = None
        self._reconnects = client.stats["reconnects"]
        self._credit = 0
        self._taken = 0
        #: Whether nothing older than this consumer is left to read.
        self.caught_up = False

    async def __aenter__(self) -> Self:
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )
        try:
            made = await request(
                self._answers,
                f"CONSUMER.CREATE.{self._stream}.{self._name}.{self._subject}",
                {
                    "stream_name": self._stream,
                    "config": {
                        "name": self._name,
                        "filter_subject": self._subject,
                        "deliver_policy": "by_start_sequence",
                        "opt_start_seq": self._start,
                        "ack_policy": "none",
                        "max_deliver": 1,
                        "mem_storage": True,
                        "num_replicas": 1,
                        "inactive_threshold": int(_FORGOTTEN_AFTER_S * _NS),
                    },
                },
            )
        except BaseException:
            await self.__aexit__()
            raise
        self.caught_up = made["num_pending"] == 0
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(nats.errors.Error):
            await self._subscription.unsubscribe()

    async def next(self) -> Stored | None:
        """The next message; None if another consumer is needed."""
        while True:
            if self._credit <= _WINDOW // 2:
                await self._ask()
            if not self._arrived and not await self._something_arrives():
                return None
            message, received = self._arrived.popleft()
            if message.reply.startswith("$JS.ACK."):
                return self._take(message, received)
            if not self._goes_on(message.headers or {}):
                return None

    async def _something_arrives(self) -> bool:
        """Wait; False if nothing comes, or the connection has been another in the meantime."""
        silent_s = 0.0
        while silent_s < 2.5 * _HEARTBEAT_S:
            if self._client.is_closed or self._client.stats["reconnects"] != self._reconnects:
                return False
            self._arrival.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._arrival.wait()
                return True
            silent_s += _LOOK_EVERY_S
        return False

    async def _receive(self, message: Any) -> None:
        self._arrived.append((message, self._clock()))
        self._arrival.set()

    async def _ask(self) -> None:
        wanted = _WINDOW - self._credit
        body = {
            "batch": wanted,
            "expires": int(_PULL_EXPIRES_S * _NS),
            "idle_heartbeat": int(_HEARTBEAT_S * _NS),
        }
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}",
            json.dumps(body).encode(),
            reply=self._inbox,
        )
        self._credit += wanted

    def _take(self, message: Any, received: float) -> Stored | None:
        # ... stream sequence, consumer sequence, stamp, pending; two more names and a token
        # around them where there are domains.
        tokens = message.reply.split(".")
        first = 5 if len(tokens) == 9 else 7
        seq, count, stamp, pending = map(int, tokens[first : first + 4])
        self._taken += 1
        self._credit -= 1
        if count != self._taken:
            return None
        live_at = received if self.caught_up else None
        self.caught_up = self.caught_up or pending == 0
        headers = message.headers or {}
        forged = "Nats-Stream" in headers or "Nats-Subject" in headers
        return Stored(message.subject, message.data, seq, stamp / _NS, live_at, forged)

    def _goes_on(self, headers: dict[str, str]) -> bool:
        """Take note of a status; False if the consumer is of no use any more."""
        status = headers.get("Status")
        if status in ("404", "408"):
            # A request has run out, with so much of it unused.
            self._credit -= int(headers.get("Nats-Pending-Messages", 0))
            return True
        return status == "100"

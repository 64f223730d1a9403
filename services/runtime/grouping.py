"""Messages that wait together are stored together: in one atomic batch.

A server that syncs each write takes as many messages a second as its disk can sync; a batch costs
some ten syncs, however large. So what comes while others are on their way waits, and goes together:
as a batch if there is enough, else one behind the other. Alone, a message waits for nobody.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client

from services.runtime.inbox import Inbox
from services.runtime.live_log import LogFullError, RecordTooLargeError
from services.runtime.pull import ApiError

#: Of a batch; the server takes up to 1,000 messages.
_MOST_MESSAGES = 256
_MOST_BYTES = 4 << 20
#: A batch costs a server that syncs each write what some ten messages cost, however many it has.
LEAST_BATCH = 10
#: Of a message beside its own: the first line, those of a batch, and the last.
_OTHER_HEADERS_BYTES = 128

_CONFLICT = (10071, 10164)
_FULL = (10023, 10047, 10077)
_TOO_LARGE = 10054
#: Not now: the stream has no leader, or an append of the same id is under way.
_PASSING = (10158, 10163, 10201)
_UNAVAILABLE = 503

#: What the server says to one message: its sequence, or an error.
Answer = dict[str, Any]


def is_conflict(what: str, error: dict[str, Any]) -> bool:
    """Whether the server refuses a message for another that is stored; or else just for now.

    Raises
    ------
    LogFullError, RecordTooLargeError, ApiError
        It will refuse it again.
    """
    refusal = ApiError(what, error)
    if refusal.err_code in _FULL:
        raise LogFullError(f"{refusal}: give the log's stream more room, gavel log resize")
    if refusal.err_code == _TOO_LARGE:
        raise RecordTooLargeError(str(refusal))
    passing = refusal.err_code in (*_CONFLICT, *_PASSING) or refusal.code == _UNAVAILABLE
    if not passing:
        raise refusal
    return refusal.err_code in _CONFLICT


class Message(NamedTuple):
    """What is to be stored."""

    subject: str
    body: bytes
    headers: dict[str, str]

    @property
    def size(self) -> int:
        """Bytes that the server counts, at most: those of headers, and of a batch's, included."""
        lines = [f"{key}: {value}\r\n" for key, value in self.headers.items()]
        return len(self.body) + len("".join(lines)) + _OTHER_HEADERS_BYTES


class _Unit(NamedTuple):
    """Messages that are stored next to each other, or none of them."""

    messages: Sequence[Message]
    answers: asyncio.Future[list[Answer]]


class Grouping:
    """Stores messages in a stream that allows atomic batches.

    Parameters
    ----------
    client, inbox : a connection, and where its answers arrive
    timeout_s : how long to wait for an answer
    """

    def __init__(self, client: Client, inbox: Inbox, timeout_s: float) -> None:
        self._client = client
        self._inbox = inbox
        self._timeout_s = timeout_s
        self._waiting: deque[_Unit] = deque()
        self._on_their_way: list[_Unit] = []
        self._sending: asyncio.Task[None] | None = None

    async def send(self, messages: Sequence[Message]) -> list[Answer]:
        """Store all of the messages, in order, or none: the server's answer to each.

        Raises
        ------
        TimeoutError, nats.errors.Error
            There is no answer: they may be stored or not.
        """
        unit = _Unit(messages, asyncio.get_running_loop().create_future())
        self._waiting.append(unit)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_waiting())
        return await unit.answers

    async def close(self) -> None:
        """Let go of what is on its way; whoever waits for it is told that we are cut off."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for unit in (*self._on_their_way, *self._waiting):
            if not unit.answers.done():
                unit.answers.set_exception(nats.errors.ConnectionClosedError())
        self._waiting.clear()

    async def _send_waiting(self) -> None:
        while self._waiting:
            self._on_their_way = self._next_batch()
            await self._deliver(self._on_their_way)

    def _next_batch(self) -> list[_Unit]:
        """Of those that wait, the first one, and as many more as fit."""
        units: list[_Unit] = []
        count = size = 0
        while self._waiting:
            messages = self._waiting[0].messages
            count += len(messages)
            size += sum(message.size for message in messages)
            if units and (count > _MOST_MESSAGES or size > _MOST_BYTES):
                break
            unit = self._waiting.popleft()
            if not unit.answers.done():  # nobody waits for it any more
                units.append(unit)
        return units

    async def _deliver(self, units: Sequence[_Unit]) -> None:
        together = sum(len(unit.messages) for unit in units) >= LEAST_BATCH
        # What is refused may be any of them.
        if not (together and await self._deliver_together(units)):
            await asyncio.gather(*(self._deliver_together([unit]) for unit in units))

    async def _deliver_together(self, units: Sequence[_Unit]) -> bool:
        """Store and answer; False, unanswered, if several are refused."""
        messages = [message for unit in units for message in unit.messages]
        try:
            answer = await self._store(messages)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are told
            for unit in units:
                if not unit.answers.done():
                    unit.answers.set_exception(error)
            return True
        refused = "error" in answer
        if refused and len(units) > 1:
            return False
        seq = 0 if refused else answer["seq"] - len(messages)
        for unit in units:
            answers = []
            for _ in unit.messages:
                seq += 1
                answers.append(answer if refused else answer | {"seq": seq})
            if not unit.answers.done():
                unit.answers.set_result(answers)
        return True

    async def _store(self, messages: Sequence[Message]) -> Answer:
        """One message as it is; several as a batch, to which the server answers once."""
        *others, last = messages
        batch = {"Nats-Batch-Id": secrets.token_hex(8)} if others else {}
        for number, (subject, body, headers) in enumerate(others, 1):
            of_batch = batch | {"Nats-Batch-Sequence": str(number)}
            await self._client.publish(subject, body, headers=headers | of_batch)
        if others:
            batch |= {"Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"}
        content = await self._inbox.ask(
            last.subject, last.body, timeout_s=self._timeout_s, headers=last.headers | batch
        )
        return _answer(content)


def _answer(content: bytes) -> Answer:
    """What was answered; whoever else listens there, and answers otherwise, has said nothing."""
    with suppress(ValueError):
        answer = json.loads(content)
        if isinstance(answer, dict) and (
            isinstance(answer.get("error"), dict) or isinstance(answer.get("seq"), int)
        ):
            return answer
    raise nats.errors.Error(f"an answer that no stream gives: {content[:100]!r}")

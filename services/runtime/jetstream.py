"""The live log: one JetStream stream, any number of writers and readers on any number of hosts.

``stream.py`` says how a record lies there, ``pull.py`` reads; this module connects, checks the
stream, and appends.

An append is tried until it is answered, each time under the same id, so it is stored once however
often it is sent; those that wait for each other go together (``grouping.py``). The server refuses
one whose writer has been superseded: it compares the sequence of the writer's start with that of
the newest start on the log. On such a refusal, where the server knows the id, and before one is
sent again, the log is searched for the record: an answer may have been lost on its way.

The server knows the ids of the last ten minutes. Services need no more: they fold the log before
they append. Clients have no fold, and so must not take an id up again later: a name of their own
for each process, or an index by chance, sees to that.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import nats.errors

from schemas.events import LeaderElected
from schemas.record import Draft, Record
from schemas.subjects import SERVICES, role
from services.runtime import connection, stream
from services.runtime.connection import LogClient, NoSuchClusterError, UnfitServerError
from services.runtime.embedded import EmbeddedServerError, check_version, sync_warnings
from services.runtime.file_log import UnreadableRecordError
from services.runtime.grouping import LEAST_BATCH, Answer, Grouping, Message, is_conflict
from services.runtime.inbox import Inbox
from services.runtime.live_log import (
    Delivery,
    LogUnavailableError,
    RecordTooLargeError,
    Usage,
)
from services.runtime.log import LogClosedError, StaleEpochError
from services.runtime.pull import (
    SHORT_TIMEOUT_S,
    ApiError,
    DamagedStreamError,
    Stored,
    pull,
    request,
)

_NOT_NOW = 503
_RETRY_S = 0.1


class JetStreamLog:
    """A log in a stream of a NATS server; made by ``connect``."""

    def __init__(
        self,
        cluster: str,
        *,
        try_timeout_s: float,
        patience_s: float,
        on_trouble: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self.cluster = cluster
        self.name = stream.stream_name(cluster)
        self.client = LogClient()
        self.inbox = Inbox(self.client)
        #: What an operator should know of the server.
        self.warnings: tuple[str, ...] = ()
        self._patience_s = patience_s
        self._on_trouble = on_trouble
        self._clock = clock
        self._trouble = ""
        self._turned_away = False
        self._cut_off = False
        self._closed_because = ""
        #: {service: its starts, as far as known}
        self._fences: dict[str, stream.Starts] = {}
        self._grouping = Grouping(self.client, self.inbox, try_timeout_s)

    @classmethod
    async def connect(
        cls,
        servers: str | Sequence[str],
        cluster: str,
        *,
        name: str = "gavel",
        credentials: Mapping[str, Any] | None = None,
        max_bytes: int = stream.DEFAULT_MAX_BYTES,
        replicas: int = 1,
        make: bool = True,
        monitor_url: str = "",
        connect_timeout_s: float = 10.0,
        try_timeout_s: float = 2.0,
        patience_s: float = math.inf,
        on_trouble: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> JetStreamLog:
        """Connect, check server and stream, and make the stream if there is none and it may be.

        Parameters
        ----------
        servers : URLs of one cluster
        cluster : name of the cluster whose log it is; a server can hold several
        name : who connects: begins the inbox, and is shown by the server's monitoring
        credentials : what the client library takes (``user``, ``nkeys_seed``, ``tls`` ...)
        max_bytes, replicas : of the stream, if it is made
        make : whether it is made; only who begins a cluster does so
        monitor_url : of one server's monitoring, if that is to be asked whether it syncs each write
        connect_timeout_s : how long to try; once connected, it reconnects for ever
        try_timeout_s : how long to wait for one answer
        patience_s : how long an append is tried
        on_trouble : told of lost and regained connections
        clock : monotonic; stamps the receipt of records

        Raises
        ------
        BadUrlError
            What is named is no server.
        LogUnavailableError
            No server answers there, or it lets nobody in.
        UnfitServerError
            It is too old, or has no JetStream.
        UnfitStreamError
            The stream there is not fit to hold the log.
        NoSuchClusterError
            There is no stream, and it is not to be made.
        """
        urls = [servers] if isinstance(servers, str) else list(servers)
        connection.check_urls(urls)
        log = cls(
            cluster,
            try_timeout_s=try_timeout_s,
            patience_s=patience_s,
            on_trouble=on_trouble,
            clock=clock,
        )
        try:
            await log._open(urls, name, credentials or {}, connect_timeout_s)
            await log._ensure_stream(max_bytes, replicas, make=make)
            if monitor_url:
                log.warnings = await asyncio.to_thread(sync_warnings, monitor_url)
        except BaseException:
            await log.close()
            raise
        return log

    # --- reading ---------------------------------------------------------------------------------

    async def last_seq(self) -> int:
        """See ``Log``."""
        return (await self.usage()).last_seq

    async def usage(self) -> Usage:
        """How full the log is; at its limit it takes no more records.

        Raises
        ------
        LogUnavailableError
            No answer.
        """
        info = await self._info()
        state = info["state"]
        return Usage(state["last_seq"], state["bytes"], info["config"]["max_bytes"])

    async def resize(self, max_bytes: int) -> None:
        """Let the log grow to so many bytes; who waits for room goes on by itself.

        Raises
        ------
        LogError
            The server refuses: it has no such room, or the log is larger already.
        """
        asked = {**(await self._info())["config"], "max_bytes": max_bytes}
        await request(self.inbox, f"STREAM.UPDATE.{self.name}", asked)

    async def read(self, after: int = 0) -> AsyncGenerator[Record, None]:
        """See ``Log``."""
        until = await self.last_seq()
        if until > after:
            async with aclosing(self._deliver(after, "", until)) as deliveries:
                async for delivery in deliveries:
                    yield delivery.record

    def follow(self, after: int = 0, digest: str = "") -> AsyncGenerator[Delivery, None]:
        """See ``LiveLog``.

        Raises
        ------
        DamagedStreamError
            The stream is not what it was.
        NewerSchemaError
            A record must not be read by this release.
        LogClosedError
            The connection is closed.
        """
        return self._deliver(after, digest, None)

    async def _deliver(
        self, after: int, digest: str, until: int | None
    ) -> AsyncGenerator[Delivery, None]:
        """All records behind ``after``, each once, with none missing."""
        subject = f"{stream.prefix(self.cluster)}.>"
        messages = pull(
            self.client, self.inbox, self.name, subject, after, until=until, clock=self._clock
        )
        async with aclosing(messages):
            async for stored in messages:
                record = self._record(stored)
                if record.seq <= after:
                    if digest not in ("", record.digest):
                        raise DamagedStreamError(
                            f"record {record.seq} of {self.name} has digest {record.digest}, but "
                            f"had {digest} when it was read before: restore it from an export"
                        )
                    continue
                if record.seq != after + 1:
                    raise DamagedStreamError(
                        f"stream {self.name} has no record {after + 1}, the next is {record.seq}: "
                        "restore it from an export"
                    )
                after, digest = record.seq, record.digest
                yield Delivery(record, stored.live_at)

    async def _of_subject(self, subject: str, after: int = 0) -> AsyncGenerator[Record, None]:
        until = await self.last_seq()
        if until <= after:
            return
        messages = pull(self.client, self.inbox, self.name, subject, after + 1, until=until)
        async with aclosing(messages):
            async for stored in messages:
                if stored.seq > after:
                    after = stored.seq
                    yield self._record(stored)

    def _record(self, stored: Stored) -> Record:
        _, data, seq, at, _, forged = stored
        record = None if forged else stream.from_bytes(self.cluster, stored.subject, data, seq, at)
        return record or stream.stand_in(seq, at)

    # --- appending -------------------------------------------------------------------------------

    async def append(self, draft: Draft) -> int | None:
        """See ``LiveLog``."""
        return await self._append(draft, sent=False)

    async def _append(self, draft: Draft, *, sent: bool) -> int | None:
        """``sent``: whether it was sent before, and may be stored, for all that was answered."""
        deadline = time.monotonic() + self._patience_s
        wait_s = 0.02
        while True:
            try:
                found = await self._find(draft) if sent else None
                if found is not None and found.digest == draft.digest:
                    return found.seq
                if seq := await self._known(draft):
                    return seq if sent else None
                (answer,) = await self._send([self._message(draft)])
            except (_UnansweredError, LogUnavailableError) as error:
                sent = True
                if time.monotonic() + wait_s > deadline:
                    raise LogUnavailableError(
                        f"the log did not answer for {self._patience_s} s ({error}); whether it "
                        "has the record is not known: append the same record again"
                    ) from None
            else:
                # A refusal has a sequence too, 0.
                if "error" not in answer:
                    return await self._accepted(draft, answer, sent=sent)
                what = f"append of {type(draft.event).__name__} of {draft.actor}"
                if is_conflict(what, answer["error"]):
                    # There is a newer start, or the one we know of is our own, its answer lost.
                    self._fences.pop(draft.actor, None)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, 1.0)

    async def append_all(self, drafts: Sequence[Draft]) -> None:
        """See ``LiveLog``."""
        together = len(drafts) >= LEAST_BATCH
        if not (together and await self._append_at_once(drafts)):
            for draft in drafts:
                await self._append(draft, sent=together)

    async def _append_at_once(self, drafts: Sequence[Draft]) -> bool:
        """Append new records next to each other; False if they must be gone through one by one."""
        for draft in drafts:
            if isinstance(draft.event, LeaderElected) or await self._known(draft):
                return False
        try:
            answers = await self._send([self._message(draft) for draft in drafts])
        except (_UnansweredError, RecordTooLargeError, UnreadableRecordError):
            return False
        return not any("error" in answer for answer in answers)

    async def _accepted(self, draft: Draft, answer: dict[str, Any], *, sent: bool) -> int | None:
        seq = int(answer["seq"])
        if answer.get("duplicate"):
            await self._check_same(draft, seq)
            return seq if sent else None
        # A record of the new term may have met the old fence meanwhile, and had it read anew.
        if isinstance(draft.event, LeaderElected) and draft.actor in self._fences:
            self._fences[draft.actor].add(draft, seq)
        return seq

    def _message(self, draft: Draft) -> Message:
        subject = stream.subject(self.cluster, draft.actor, draft.event)
        start = self._fences[draft.actor].last_seq if role(draft.actor) in SERVICES else None
        headers = stream.headers(self.cluster, draft, start)
        message = Message(subject, stream.to_bytes(draft), headers)
        if message.size > self.client.max_payload:
            # Refused here: it would make the server close the connection.
            raise RecordTooLargeError(
                f"{type(draft.event).__name__} of {draft.actor} is {message.size} bytes, and the "
                f"server takes {self.client.max_payload}: make it smaller, or raise max_payload"
            )
        return message

    async def _fence(self, actor: str) -> stream.Starts:
        """What is known of a writer's starts, read from the log if need be."""
        fence = self._fences.get(actor)
        if fence is None:
            fence = stream.Starts()
            if role(actor) in SERVICES:
                async for record in self._of_subject(stream.fence(self.cluster, actor)):
                    fence.add(record, record.seq)
            self._fences[actor] = fence
        return fence

    async def _known(self, draft: Draft) -> int | None:
        """Sequence of the draft's record, if it must be in the log, its writer's starts say.

        Raises
        ------
        StaleEpochError
            The writer is superseded, and the record not in the log.
        """
        read_before = draft.actor in self._fences
        fence = await self._fence(draft.actor)
        try:
            if fence.gate.is_new(draft):
                return None
        except StaleEpochError:
            if read_before:
                # There may have been starts since.
                del self._fences[draft.actor]
                return await self._known(draft)
            found = await self._find(draft)
            if found is not None and found.digest == draft.digest:
                return found.seq
            raise
        found = await self._find(draft)
        return found.seq if found is not None else None

    async def _find(self, draft: Draft) -> Record | None:
        """The record of the draft's id, if the log has it: it stands behind its cause."""
        subject = f"{stream.owned_by(self.cluster, draft.actor)}.>"
        async for record in self._of_subject(subject, after=draft.cause):
            if record.record_id == draft.record_id:
                return record
        return None

    async def _check_same(self, draft: Draft, seq: int) -> None:
        """The server says that it has the id: whether with the same content, it does not say.

        Raises
        ------
        IdConflictError, StaleEpochError
            See ``Log.append``.
        """
        self._fences.pop(draft.actor, None)
        gate = (await self._fence(draft.actor)).gate
        subject = f"{stream.owned_by(self.cluster, draft.actor)}.>"
        async for record in self._of_subject(subject, after=seq - 1):
            gate.add(record)
            gate.is_new(draft)
            return

    async def _send(self, messages: Sequence[Message]) -> list[Answer]:
        """Publish once, all or none; the server's answer to each."""
        try:
            if not self._closed_because:
                return await self._grouping.send(messages)
        except nats.errors.ConnectionClosedError:
            pass
        except (TimeoutError, nats.errors.Error) as error:
            raise _UnansweredError(self._trouble or repr(error)) from None
        raise LogClosedError(f"the log is closed: {self._closed_because}")

    # --- connection ------------------------------------------------------------------------------

    async def _open(
        self, urls: Sequence[str], name: str, credentials: Mapping[str, Any], timeout_s: float
    ) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self.client.connect(
                    servers=list(urls),
                    name=name,
                    inbox_prefix=f"_INBOX_{name.replace('.', '_')}",
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_closed,
                    **connection.OPTIONS,
                    **credentials,
                )
        except (TimeoutError, OSError, nats.errors.Error) as error:
            trouble = self._trouble or str(error) or "no answer"
            raise LogUnavailableError(
                f"no log at {connection.shown(urls)}: {trouble}; {connection.advice(trouble)}"
            ) from None
        try:
            check_version(
                f"nats-server {self.client.connected_server_version}", connection.shown(urls)
            )
        except EmbeddedServerError as error:
            raise UnfitServerError(str(error)) from None

    async def _ensure_stream(self, max_bytes: int, replicas: int, *, make: bool) -> None:
        try:
            await connection.ensure_stream(self.inbox, self.cluster, max_bytes, replicas, make=make)
        except (TimeoutError, nats.errors.Error) as error:
            if not make and self._forbidden:
                raise NoSuchClusterError(self.cluster) from None
            trouble = self._trouble or repr(error)
            raise LogUnavailableError(f"the NATS server does not answer: {trouble}") from None
        except ApiError as error:
            if error.code == _NOT_NOW:
                raise LogUnavailableError(f"the NATS cluster has no leader: {error}") from None
            raise

    async def _info(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return await request(
                    self.inbox, f"STREAM.INFO.{self.name}", timeout_s=SHORT_TIMEOUT_S
                )
            except nats.errors.ConnectionClosedError:
                raise LogClosedError(f"the log is closed: {self._closed_because}") from None
            except (ApiError, TimeoutError, nats.errors.Error) as error:
                if time.monotonic() > deadline:
                    raise LogUnavailableError(f"the log does not answer: {error!r}") from None
            await asyncio.sleep(_RETRY_S)

    async def _on_error(self, error: Exception) -> None:
        # A server that refuses also hangs up, and may be seen to do only that at the next try.
        if not (self._turned_away and isinstance(error, OSError)):
            self._trouble = str(error) or type(error).__name__
            self._turned_away = "authorization" in self._trouble.lower()
        if self._forbidden:
            # What needs the permission waits for ever, and must not in silence.
            self._on_trouble(self._trouble)

    @property
    def _forbidden(self) -> bool:
        return "permissions violation" in self._trouble.lower()

    async def _on_disconnected(self) -> None:
        # Closing on purpose is no trouble, and a failed try to reconnect no new one.
        if not (self._closed_because or self._cut_off):
            self._cut_off = True
            self._on_trouble(f"connection to the log lost: {self._trouble or 'by the server'}")

    async def _on_reconnected(self) -> None:
        self._trouble, self._turned_away, self._cut_off = "", False, False
        self._on_trouble("connection to the log is back")

    async def _on_closed(self) -> None:
        self._closed_because = self._closed_because or self._trouble or "by the server"

    async def close(self) -> None:
        """See ``LiveLog``."""
        self._closed_because = self._closed_because or "by ourselves"
        await self._grouping.close()
        # Not drained, which can hang: nothing is in flight that matters.
        try:
            await self.client.close()
        except asyncio.CancelledError:
            # With the server gone, the library passes on what it has done to its own reader.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise


class _UnansweredError(Exception):
    """No answer to one try; the record may or may not be stored."""

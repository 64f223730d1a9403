"""Appends that wait for each other go together, and none fares otherwise than it would alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.msg import Msg

from schemas.domain import JobSpec
from schemas.events import JobSubmitted, TimerFired
from schemas.record import Draft
from services.runtime import stream
from services.runtime.actor import Writer
from services.runtime.embedded import EmbeddedServer
from services.runtime.file_log import UnreadableRecordError
from services.runtime.grouping import _MOST_MESSAGES, LEAST_BATCH, Grouping, Message
from services.runtime.inbox import Inbox
from services.runtime.jetstream import JetStreamLog
from services.runtime.live_log import RecordTooLargeError
from services.runtime.log import IdConflictError, LogClosedError, LogError, StaleEpochError
from tests.live.proxy import wire_to
from tests.live.servers import MAX_BYTES, Tally, connected, kill, new_cluster, shared_server
from tests.runtime.test_jetstream import cancel, elected, everything, fired, run

pytestmark = pytest.mark.live


class CountingInbox(Inbox):
    """Knows how often something was asked."""

    asked = 0

    async def ask(self, *parts: Any, **named: Any) -> bytes:
        """See ``Inbox``."""
        self.asked += 1
        return await super().ask(*parts, **named)


def chained(count: int, epoch: int = 1) -> list[Draft]:
    """Drafts of the policy service, each chained to the one before."""
    writer = Writer("policy", epoch, elected(epoch).digest)
    drafts = []
    for index in range(count):
        drafts.append(writer.draft(1, index, 0, fired(epoch, 1).event))
        writer.digest = drafts[-1].digest
    return drafts


def test_what_waits_goes_together_and_each_is_told_its_place() -> None:
    """A thousand messages at once take a few answers; alone, one goes at once."""

    async def main() -> None:
        async with connected(new_cluster()) as log:
            inbox = CountingInbox(log.client)
            grouping = Grouping(log.client, inbox, 5.0)
            subject = f"gavel.{log.cluster}.ev.x"

            async def send(number: int) -> int:
                message = Message(subject, b"%d" % number, {"Nats-Msg-Id": f"{number}"})
                (answer,) = await grouping.send([message])
                return int(answer["seq"])

            assert await send(0) == 1
            assert inbox.asked == 1
            seqs = await asyncio.gather(*(send(number) for number in range(1, 1001)))
            assert seqs == list(range(2, 1002))
            # The first goes alone; the others are as many batches as they fill, and a rest.
            assert inbox.asked <= 2 + 1000 // _MOST_MESSAGES + LEAST_BATCH

    run(main())


def test_one_that_is_refused_is_refused_alone() -> None:
    """A stale leader's, another content under a known id, one too large, one stored before."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as log, connected(cluster) as other:
            await log.append(elected(1))
            await log.append(fired(1, 1))
            await log.append(cancel("client.a", 0))
            await other.append(elected(2, "b"))
            large = JobSubmitted(job=JobSpec(job_id="j", job_type="x" * log.client.max_payload))
            special = [
                fired(1, cause=2),
                cancel("client.a", 0, "another"),
                Writer("client.b", 0).draft(0, 0, 0, large),
                cancel("client.a", 0),
            ]
            plain = [cancel(f"client.c{number}", 0) for number in range(100)]
            drafts = plain[:50] + special + plain[50:]
            outcomes = await asyncio.gather(*map(log.append, drafts), return_exceptions=True)
            of = dict(zip((id(draft) for draft in drafts), outcomes, strict=True))
            assert isinstance(of[id(special[0])], StaleEpochError)
            assert isinstance(of[id(special[1])], IdConflictError)
            assert isinstance(of[id(special[2])], RecordTooLargeError)
            assert of[id(special[3])] is None
            records = {record.record_id: record.seq for record in await everything(other)}
            assert [of[id(draft)] for draft in plain] == [records[d.record_id] for d in plain]

    run(main())


def test_one_writer_s_records_stand_in_their_order(tmp_path: Path) -> None:
    """Whatever is sent again while the server is killed, the log has each once, in order."""

    async def main(server: EmbeddedServer) -> None:
        drafts = chained(400)
        appended = Tally()

        async def write() -> None:
            for first in range(0, len(drafts), 20):
                await log.append_all(drafts[first : first + 20])
                appended.add(first)

        async with connected(new_cluster(), server, try_timeout_s=0.5) as log:
            await log.append(elected(1))
            writing = asyncio.create_task(write())
            for enough in (3, 9, 15):
                await appended.reached(enough)
                await kill(server)
                server.start()
            await writing
            # And once more: they are there already.
            await log.append_all(drafts)
            records = await everything(log)
        assert [record.digest for record in records[1:]] == [draft.digest for draft in drafts]

    with EmbeddedServer(tmp_path) as server:
        run(main(server))


@pytest.mark.parametrize("count", [1, 30])
def test_an_answer_lost_for_longer_than_the_server_knows_ids_is_no_second_record(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off while it appends, a service finds its records once it is back, however late."""
    monkeypatch.setattr(stream, "DUPLICATE_WINDOW_S", 1)

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as other, wire_to(shared_server().url) as wire:
            log = await JetStreamLog.connect(
                wire.url, cluster, max_bytes=MAX_BYTES, try_timeout_s=0.2
            )
            await log.append(elected(1))
            drafts = chained(count)
            wire.hold_answers()
            appending = asyncio.create_task(log.append_all(drafts))
            async for record, _ in other.follow():
                if record.seq == 1 + count:
                    break
            probe = Message(f"gavel.{cluster}.ev.x", b"", {"Nats-Msg-Id": "a later one"})
            grouping = Grouping(other.client, other.inbox, 5.0)
            await grouping.send([probe])
            while "duplicate" in (await grouping.send([probe]))[0]:
                pass
            wire.cut()
            await appending
            await log.close()
            stored = [record.digest for record in await everything(other)]
            assert stored.count(drafts[0].digest) == 1
            assert [digest for digest in stored[1:] if digest] == [d.digest for d in drafts]

    run(main())


def test_of_a_superseded_leader_s_records_none_is_stored() -> None:
    """They are refused as one, and as what they are."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as old, connected(cluster) as new:
            await old.append(elected(1))
            await new.append(elected(2, "b"))
            with pytest.raises(StaleEpochError):
                await old.append_all(chained(30))
            assert len(await everything(new)) == 2

    run(main())


def test_those_before_one_that_cannot_be_stored_are_stored() -> None:
    """However many come at once: what is decided first does not wait for what follows."""

    async def main(spoilt: Callable[[JetStreamLog], TimerFired], refused: type[LogError]) -> None:
        async with connected(new_cluster()) as log:
            await log.append(elected(1))
            drafts = chained(30)
            writer = Writer("policy", 1, drafts[19].digest)
            drafts[20] = writer.draft(1, 20, 0, spoilt(log))
            with pytest.raises(refused):
                await log.append_all(drafts)
            stored = [record.digest for record in await everything(log)]
            assert stored[1:] == [draft.digest for draft in drafts[:20]]

    run(
        main(
            lambda log: TimerFired(timer="x" * log.client.max_payload, due_s=1.0),
            RecordTooLargeError,
        )
    )
    run(main(lambda _: TimerFired(timer="x", due_s=float("nan")), UnreadableRecordError))


@pytest.mark.parametrize(
    "said", [b"", b"[]", b"7", b'{"seq":"1"}', b'{"error":"no"}', b'{"error":{"code":503}}']
)
def test_whatever_is_answered_nobody_waits_for_ever(said: bytes) -> None:
    """What no stream says is no answer; a refusal needs no place in the log."""

    async def main() -> None:
        async with connected(new_cluster()) as log:

            async def answer(message: Msg) -> None:
                await message.respond(said)

            await log.client.subscribe("elsewhere", cb=answer)
            await log.client.flush()
            grouping = Grouping(log.client, Inbox(log.client), 5.0)
            sent = grouping.send([Message("elsewhere", b"1", {})])
            if said.endswith(b"503}}"):
                (told,) = await sent
                assert told["error"] == {"code": 503}
            else:
                with pytest.raises(nats.errors.Error, match="no stream gives"):
                    await sent

    run(main())


def test_a_start_among_others_is_a_start() -> None:
    """What must be known before the next can be sent goes by itself."""

    async def main() -> None:
        async with connected(new_cluster()) as log:
            await log.append_all([elected(1), *chained(30)])
            assert len(await everything(log)) == 31
            with pytest.raises(StaleEpochError):
                await log.append_all([elected(1, "b"), *chained(30)])

    run(main())


def test_closing_lets_nobody_wait(tmp_path: Path) -> None:
    """Appends on their way, to a server that is not there, end with the reason."""

    async def main(server: EmbeddedServer) -> None:
        async with connected(new_cluster(), server, try_timeout_s=30.0) as log:
            server.stop()
            appends = [asyncio.create_task(log.append(cancel("client.a", i))) for i in range(10)]
            await asyncio.sleep(0)
            await log.close()
            outcomes = await asyncio.gather(*appends, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {LogClosedError}

    with EmbeddedServer(tmp_path) as server:
        run(main(server))


def test_who_is_cancelled_is_forgotten() -> None:
    """The others of its batch are stored; it may be, too."""

    async def main() -> None:
        async with connected(new_cluster()) as log:
            appends = [asyncio.create_task(log.append(cancel("client.a", i))) for i in range(50)]
            await asyncio.sleep(0)
            for append in appends[::2]:
                append.cancel()
            outcomes = await asyncio.gather(*appends, return_exceptions=True)
            indices = {record.index for record in await everything(log)}
            assert indices >= set(range(1, 50, 2))
            assert all(isinstance(outcome, int) for outcome in outcomes[1::2])

    run(main())

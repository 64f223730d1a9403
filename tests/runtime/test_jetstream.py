"""The live log against a real server, with what a network and an operator do to it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from schemas.domain import JobSpec
from schemas.events import (
    AnyEvent,
    CancelRequested,
    JobSubmitted,
    LeaderElected,
    TimerFired,
    UnknownEvent,
)
from schemas.record import Draft, Record
from services.runtime import stream
from services.runtime.actor import Writer
from services.runtime.embedded import EmbeddedServer
from services.runtime.jetstream import JetStreamLog
from services.runtime.live_log import LogFullError, LogUnavailableError, RecordTooLargeError
from services.runtime.log import LogClosedError, StaleEpochError
from services.runtime.pull import DamagedStreamError, request
from tests.live.proxy import wire_to
from tests.live.servers import MAX_BYTES, Tally, connected, kill, new_cluster, shared_server

pytestmark = pytest.mark.live


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's work; nothing here takes long."""

    async def within() -> None:
        async with asyncio.timeout(60.0):
            await work

    asyncio.run(within())


def cancel(actor: str, index: int, job_id: str = "j") -> Draft:
    """A client's draft."""
    return Writer(actor, 0).draft(0, index, 0, CancelRequested(job_id=job_id))


def elected(epoch: int, replica: str = "a") -> Draft:
    """A start of the policy service."""
    event = LeaderElected(epoch=epoch, replica=replica, behaviour=1)
    return Writer("policy", epoch).draft(0, epoch, 0, event)


def fired(epoch: int, cause: int, event: AnyEvent | None = None) -> Draft:
    """A record of the policy service."""
    event = event or TimerFired(timer="t", due_s=1.0)
    return Writer("policy", epoch).draft(cause, 0, 0, event)


async def everything(log: JetStreamLog) -> list[Record]:
    """The records of a log."""
    return [record async for record in log.read()]


# --- appending -----------------------------------------------------------------------------------


def test_killing_the_server_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """With eight writers at work and three kills, what was acknowledged is there, each id once."""

    async def main(server: EmbeddedServer) -> None:
        accepted = Tally()
        stop = asyncio.Event()

        async def write(log: JetStreamLog, actor: str) -> None:
            index = 0
            while not stop.is_set():
                draft = cancel(actor, index)
                seq = await log.append(draft)
                assert seq is not None
                accepted.add((draft.record_id, seq))
                index += 1

        async with connected(new_cluster(), server, try_timeout_s=0.5) as log:
            writers = [asyncio.create_task(write(log, f"client.c{i}")) for i in range(8)]
            for _ in range(3):
                await accepted.reached(len(accepted.found) + 100)
                await kill(server)
                server.start()
            stop.set()
            await asyncio.gather(*writers)
            records = await everything(log)
        ids = [record.record_id for record in records]
        assert len(ids) == len(set(ids))
        assert {record.record_id: record.seq for record in records} == dict(accepted.found)

    with EmbeddedServer(tmp_path) as server:
        run(main(server))


def test_a_superseded_start_is_fenced_by_the_server() -> None:
    """A leader that knows of no other is refused once there is one; its successor is not."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as old, connected(cluster) as new:
            assert await old.append(elected(1)) == 1
            assert await old.append(fired(1, cause=1)) == 2
            assert await new.append(elected(2, "b")) == 3
            with pytest.raises(StaleEpochError, match="epoch 1, but the newest epoch of policy is"):
                await old.append(fired(1, cause=2))
            assert await new.append(fired(2, cause=3)) == 4
            assert [record.epoch for record in await everything(old)] == [1, 1, 2, 2]

    run(main())


def test_of_two_starts_at_once_one_leads() -> None:
    """However many replicas take the same epoch, the log has one of them."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as first, connected(cluster) as second:
            for epoch in range(1, 20):
                outcomes = await asyncio.gather(
                    first.append(elected(epoch, "a")),
                    second.append(elected(epoch, "b")),
                    return_exceptions=True,
                )
                kinds = sorted(type(outcome).__name__ for outcome in outcomes)
                assert kinds == ["StaleEpochError", "int"]
            assert [record.epoch for record in await everything(first)] == list(range(1, 20))

    run(main())


@pytest.mark.parametrize("kind", ["client", "leader", "election"])
def test_a_lost_answer_is_no_second_record(kind: str) -> None:
    """The append is tried again, and told its place; the record stands there once."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as other, wire_to(shared_server().url) as wire:
            log = await JetStreamLog.connect(
                wire.url, cluster, max_bytes=MAX_BYTES, try_timeout_s=0.2
            )
            await log.append(elected(1))
            drafts = {
                "client": cancel("client.a", 0),
                "leader": fired(1, 1),
                "election": elected(2),
            }
            draft = drafts[kind]
            wire.hold_answers()
            appending = asyncio.create_task(log.append(draft))
            async for record, _ in other.follow():
                if record.seq == 2:
                    break
            wire.cut()
            assert await appending == 2
            assert await log.append(draft) is None
            assert [record.record_id for record in await everything(other)][1:] == [draft.record_id]
            await log.close()

    run(main())


def test_a_term_begins_before_its_election_is_answered() -> None:
    """A start may be read before the answer to it comes: what is then appended is stored too."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as other, wire_to(shared_server().url) as wire:
            log = await JetStreamLog.connect(wire.url, cluster, max_bytes=MAX_BYTES)
            await log.append(elected(1))
            wire.hold_answers()
            electing = asyncio.create_task(log.append(elected(2)))
            async for record, _ in other.follow():
                if record.seq == 2:
                    break
            beginning = asyncio.create_task(log.append(fired(2, 2)))
            await asyncio.sleep(0)  # it has found the fence that it knows to be too old
            wire.let_pass()
            assert await electing == 2
            assert await beginning == 3
            await log.close()

    run(main())


def test_a_cancelled_append_lets_go_at_once() -> None:
    """Cancellation is not swallowed, wherever in the append it strikes; the log goes on."""

    async def main() -> None:
        async with connected(new_cluster()) as log:

            async def write(name: int) -> None:
                for index in itertools.count():
                    await log.append(cancel(f"client.c{name}", index))

            for turn in range(50):
                task = asyncio.create_task(write(turn))
                for _ in range(turn):
                    await asyncio.sleep(0)
                task.cancel()
                done, _ = await asyncio.wait([task], timeout=30.0)
                assert done
            assert await log.append(cancel("client.after", 0)) is not None

    run(main())


def test_an_oversize_record_is_refused_and_the_connection_stays() -> None:
    """The error has its size and the limit; the next record is taken."""

    async def main() -> None:
        async with connected(new_cluster()) as log:
            large = JobSubmitted(job=JobSpec(job_id="j", job_type="x" * log.client.max_payload))
            with pytest.raises(RecordTooLargeError, match=rf"takes {log.client.max_payload}"):
                await log.append(Writer("client.a", 0).draft(0, 0, 0, large))
            assert await log.append(cancel("client.a", 0)) == 1

    run(main())


def test_a_full_log_says_so_and_goes_on_once_it_has_room() -> None:
    """Nothing is dropped to make room; the operator's larger limit takes effect at once."""

    async def main() -> None:
        async with connected(new_cluster(), max_bytes=1 << 12) as log:
            stored = 0

            async def fill() -> None:
                nonlocal stored
                for index in range(1000):
                    await log.append(cancel("client.a", index))
                    stored += 1

            with pytest.raises(LogFullError, match="more room"):
                await fill()
            usage = await log.usage()
            assert usage.last_seq == stored
            assert usage.held_bytes <= usage.max_bytes == 1 << 12
            assert 0.9 < usage.fullness <= 1.0
            larger = stream.settings(log.cluster, 1 << 20, 1)
            await request(log.inbox, f"STREAM.UPDATE.{log.name}", larger)
            assert await log.append(cancel("client.a", stored)) == stored + 1

    run(main())


def test_without_patience_an_append_says_that_it_does_not_know(tmp_path: Path) -> None:
    """With the server gone, the error says to append the same again; then it is stored once."""

    async def main(server: EmbeddedServer) -> None:
        told = Tally()
        cluster = new_cluster()
        hasty: dict[str, Any] = {"try_timeout_s": 0.1, "patience_s": 0.3, "on_trouble": told.add}
        async with (
            connected(cluster, server) as log,
            connected(cluster, server, **hasty) as without_patience,
        ):
            await log.append(cancel("client.a", 0))
            await kill(server)
            with pytest.raises(LogUnavailableError, match="append the same record again"):
                await without_patience.append(cancel("client.a", 1))
            server.start()
            await told.reached(2)
            # How soon a busy machine has stored it is no matter here: by one that waits.
            await log.append(cancel("client.a", 1))
            assert [record.index for record in await everything(log)] == [0, 1]
        assert [line.split(":")[0] for line in told.found] == [
            "connection to the log lost",
            "connection to the log is back",
        ]

    with EmbeddedServer(tmp_path) as server:
        run(main(server))


# --- reading -------------------------------------------------------------------------------------


def test_a_reader_survives_restarts_of_the_server(tmp_path: Path) -> None:
    """Two kills amid reading: every record comes once, in order, and with its stamp."""

    async def main(server: EmbeddedServer) -> None:
        count = 1000
        async with connected(new_cluster(), server, try_timeout_s=0.5) as log:

            async def write() -> None:
                for index in range(count):
                    await log.append(cancel("client.a", index))

            seqs = Tally()

            async def read() -> None:
                async for record, _ in log.follow():
                    seqs.add(record.seq)
                    if len(seqs.found) == count:
                        break

            reading, writing = asyncio.create_task(read()), asyncio.create_task(write())
            for enough in (count // 3, 2 * count // 3):
                await seqs.reached(enough)
                await kill(server)
                server.start()
            await writing
            await reading
            assert seqs.found == list(range(1, count + 1))

    with EmbeddedServer(tmp_path) as server:
        run(main(server))


def test_history_and_present_come_in_one_stream_and_are_told_apart() -> None:
    """What was there before is no sample of the server's clock; what comes afterwards is."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as log, connected(cluster) as reader:
            for index in range(5):
                await log.append(cancel("client.a", index))
            live = []
            async for record, live_at in reader.follow(after=2):
                live.append((record.seq, live_at is not None))
                if record.seq >= 5:
                    await log.append(cancel("client.a", record.seq))
                if record.seq == 8:
                    break
            expected = [(seq, seq > 5) for seq in range(3, 9)]
            assert live == expected

    run(main())


def test_another_record_at_the_checkpoint_is_refused() -> None:
    """Who goes on where it left off finds its own record there, or an error that says so."""

    async def main() -> None:
        async with connected(new_cluster()) as log:
            for index in range(3):
                await log.append(cancel("client.a", index))
            records = await everything(log)
            async for record, _ in log.follow(2, records[1].digest):
                assert record == records[2]
                break
            with pytest.raises(DamagedStreamError, match=r"record 2 of .* had 0123"):
                await anext(log.follow(2, "0123"))
            with pytest.raises(DamagedStreamError, match="ends with record 3, but 9 was read"):
                await anext(log.follow(9))

    run(main())


def test_what_is_no_record_keeps_its_place() -> None:
    """Garbage, another's name, or a message stored through a reply: skipped by every fold."""

    async def main() -> None:
        async with connected(new_cluster()) as log:
            good = cancel("client.a", 0)
            subject = stream.subject(log.cluster, good.actor, good.event)
            await log.client.publish(subject, b"garbage")
            await log.client.publish(
                stream.subject(log.cluster, "client.b", good.event), stream.to_bytes(good)
            )
            await log.client.publish(subject, stream.to_bytes(good), headers={"Nats-Stream": "X"})
            await log.append(good)
            events = [record.event for record in await everything(log)]
            malformed = UnknownEvent(unknown_kind="malformed")
            assert events == [malformed, malformed, malformed, good.event]

    run(main())


def test_a_closed_log_refuses_by_name() -> None:
    """Appends and reads say that it is closed, and by whom."""

    async def main() -> None:
        async with connected(new_cluster()) as log:
            await log.close()
            with pytest.raises(LogClosedError, match="by ourselves"):
                await log.append(cancel("client.a", 0))
            with pytest.raises(LogClosedError):
                await everything(log)

    run(main())

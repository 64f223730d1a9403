"""The mechanism's watch over worker services: who does not answer is reported, on the log."""

from __future__ import annotations

import asyncio

import pytest

from schemas.events import LeaderElected, WorkerRegistered, WorkerUnreachable
from schemas.record import Record
from services.mechanism.__main__ import Watch
from services.runtime import logs
from services.runtime.actor import BEHAVIOUR, Actor, Writer
from services.runtime.clock import LogClock
from services.runtime.config import MechanismSettings, Settings
from services.runtime.jetstream import JetStreamLog
from services.runtime.presence import NatsPresence
from services.runtime.service import NoEffects, Process
from services.runtime.shell import Shell
from tests.live.servers import connected, new_cluster
from tests.live.shells import core_of, running, until
from tests.mechanism.events import REPORTER, worker

pytestmark = pytest.mark.live


async def start(log: JetStreamLog, actor: str, then: WorkerRegistered | None = None) -> None:
    """Another process starts as this service; it says one thing more, and answers nobody."""
    fresh = Actor(actor, core_of(actor))
    for record in [record async for record in log.read()]:
        fresh.fold(record)
    elected = fresh.elect("elsewhere", BEHAVIOUR)
    await log.append(elected)
    if then is not None:
        await log.append(Writer(actor, elected.epoch, elected.digest).draft(0, 0, 0, then))


def starts(records: list[Record]) -> list[int]:
    """Epochs of the mechanism's starts."""
    elected = [r for r in records if isinstance(r.event, LeaderElected)]
    return [record.epoch for record in elected if record.actor == "mechanism"]


def test_what_a_superseded_start_has_said_is_said_again() -> None:
    """The log refused it: a worker known to be missing to one process alone is known to none."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as log, connected(cluster) as other:
            settings = Settings(mechanism=MechanismSettings(unreachable_after_s=0.01))
            presence = NatsPresence(log.client, cluster)
            process = Process(settings, log, presence, LogClock(), logs.logger("mechanism"))
            watch = Watch(process)

            def observe(record: Record) -> None:
                watch.observe(record)
                if starts([record]) == [2]:
                    watch.miss(REPORTER, record.at, shell)

            shell = Shell(
                Actor("mechanism", core_of("mechanism")),
                log,
                NoEffects(),
                presence,
                replica="a",
                behaviour=BEHAVIOUR,
                clock=process.clock,
                logger=process.logger,
                observe=observe,
            )
            async with running(shell):
                await until(other, lambda records: starts(records) == [1])
                await start(other, REPORTER, worker("w"))
                await start(other, "mechanism")
                await until(other, lambda records: starts(records) == [1, 2, 3])
                watching = asyncio.create_task(watch.run(shell))
                records = await until(
                    other, lambda found: isinstance(found[-1].event, WorkerUnreachable)
                )
                watching.cancel()
            assert (records[-1].actor, records[-1].epoch) == ("mechanism", 3)

    async def within() -> None:
        async with asyncio.timeout(100.0):
            await main()

    asyncio.run(within())

"""Shells for tests: around real cores, over a real log; as a process of its own when run.

``python -m tests.live.shells URL CLUSTER ACTOR REPLICA`` is one replica of a service, to be killed.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from replay.cluster import Cluster
from replay.driver import Outcome
from replay.simulate import cores
from schemas.decisions import Effect
from schemas.events import AnyEvent
from schemas.record import Draft, Record
from schemas.subjects import role
from services.policy.core import Solve
from services.policy.solve import carry_out
from services.runtime import logs
from services.runtime.actor import BEHAVIOUR, Actor, Core, Writer
from services.runtime.clock import LogClock
from services.runtime.file_log import FileLog
from services.runtime.jetstream import JetStreamLog
from services.runtime.presence import NatsPresence
from services.runtime.shell import Shell
from services.runtime.term import Executor, Report
from services.worker.core import WorkerCore
from tests.live.servers import MAX_BYTES

ROOT = Path(__file__).resolve().parents[2]


class Solver:
    """Carries out solves in a thread."""

    async def carry_out(self, effect: Effect, report: Report) -> None:
        """See ``Executor``."""
        assert isinstance(effect, Solve)
        report(0, await asyncio.to_thread(carry_out, effect))


class LiveCluster:
    """The simulated cluster as a worker's hands: its reports come when log time has come."""

    def __init__(self, cluster: Cluster, clock: LogClock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def carry_out(self, effect: Effect, report: Report) -> None:
        """See ``Executor``; ends with the last report."""
        async with asyncio.TaskGroup() as group:

            async def wait(at: float, n: int, outcome: Outcome) -> None:
                await asyncio.sleep(at - self._clock.now())
                event = outcome() if callable(outcome) else outcome
                if event is not None:
                    report(n, event)

            def report_later(at: float, n: int, outcome: Outcome) -> None:
                group.create_task(wait(at, n, outcome))

            self._cluster.carry_out(effect, self._clock.now(), report_later)


class Lines:
    """A logger whose lines are waited for."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._news = asyncio.Event()

    def info(self, event: str, **_: object) -> None:
        """See structlog."""
        self.said.append(event)
        self._news.set()

    warning = info

    async def until(self, event: str) -> None:
        """Wait until it has been said."""
        while event not in self.said:
            self._news.clear()
            await self._news.wait()


def core_of(actor: str) -> Core:
    """The production core of an actor."""
    return WorkerCore(actor) if role(actor) == "worker" else cores()[actor]()


def shell_over(
    log: JetStreamLog,
    actor: str,
    *,
    core: Core | None = None,
    executor: Executor | None = None,
    replica: str = "a",
    monotonic: Callable[[], float] = time.monotonic,
    clock: LogClock | None = None,
    stands_by: bool = True,
    logger: Any = None,
) -> Shell:
    """A shell over a log."""
    return Shell(
        Actor(actor, core or core_of(actor)),
        log,
        executor or Solver(),
        NatsPresence(log.client, log.cluster),
        replica=replica,
        behaviour=BEHAVIOUR,
        clock=clock or LogClock(monotonic),
        logger=logger or logs.logger(actor),
        stands_by=stands_by,
    )


@asynccontextmanager
async def running(*shells: Shell) -> AsyncIterator[None]:
    """Run shells in the background, and stop them in the end; what one fails with is raised."""
    tasks = [asyncio.create_task(shell.run()) for shell in shells]
    try:
        yield
    finally:
        for shell in shells:
            shell.stop()
        await asyncio.gather(*tasks)


async def caught_up(shell: Shell) -> None:
    """Wait until a shell has read all that there is."""
    while (await shell.status()).lag_records:
        pass


class Outsider:
    """A client or the operator: appends one event after the other."""

    def __init__(self, log: JetStreamLog, actor: str) -> None:
        self._log = log
        self._writer = Writer(actor, 0)
        self._count = 0

    async def append(self, event: AnyEvent) -> int:
        """Append, and have it in the log."""
        draft = self._writer.draft(0, self._count, 0, event)
        seq = await self._log.append(draft)
        assert seq is not None, "written once"
        self._writer.digest = draft.digest
        self._count += 1
        return seq


async def until(log: JetStreamLog, enough: Callable[[list[Record]], bool]) -> list[Record]:
    """Follow the log from its beginning until its records are enough."""
    records: list[Record] = []
    async for record, _ in log.follow():
        records.append(record)
        if enough(records):
            break
    return records


def export(records: list[Record], path: Path) -> Path:
    """The records in a log file."""
    file = FileLog(path)
    for record in records:
        actor, cause, index, n = record.record_id
        draft = Draft(actor, record.epoch, cause, index, n, record.event, record.digest)
        file.append(draft, record.at)
    file.close()
    return path


async def _main(url: str, cluster: str, actor: str, replica: str) -> None:
    log = await JetStreamLog.connect(url, cluster, max_bytes=MAX_BYTES)
    shell = shell_over(log, actor, replica=replica)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, shell.stop)
    try:
        await shell.run()
    finally:
        await log.close()


if __name__ == "__main__":
    logs.configure(json=True)
    asyncio.run(_main(*sys.argv[1:]))

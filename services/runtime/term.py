"""One leadership of a service: its decisions are carried out, until a later start supersedes it.

A decision becomes a record (``Emit``), a timer in log time (``Wake``) or a task of the executor
(``Run``). Records are appended in order, those decided first going first: what a later one says may
rest on an earlier one. Those that wait while others are appended go together.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from schemas.decisions import Decision, Effect, Emit, Wake
from schemas.events import AnyEvent, TimerFired
from schemas.record import Draft
from services.runtime.actor import Actor, Writer
from services.runtime.clock import LogClock
from services.runtime.live_log import LiveLog, LogFullError

_FULL_RETRY_S = 1.0
#: Records appended together.
_MOST_AT_ONCE = 64

#: ``report(n, event)``: the ``n``-th result of the effect.
Report = Callable[[int, AnyEvent], None]


class Executor(Protocol):
    """Carries out effects; asked again for the same one, it reports the same results."""

    async def carry_out(self, effect: Effect, report: Report) -> None:
        """See the effect through; cancelled when the term ends before."""
        ...


class Term:
    """One leadership.

    Parameters
    ----------
    actor : folded up to its own start
    log : where the records go
    executor : who carries out the effects
    clock : log time
    logger : told what an operator should know
    """

    def __init__(
        self,
        actor: Actor,
        log: LiveLog,
        executor: Executor,
        clock: LogClock,
        logger: FilteringBoundLogger,
    ) -> None:
        self._actor = actor
        self._log = log
        self._executor = executor
        self._clock = clock
        self._logger = logger
        self._writer = Writer(actor.name, actor.epoch, actor.digest)
        #: (cause, index, n, tie, event), the least first
        self._outbox: list[tuple[int, int, int, int, AnyEvent]] = []
        #: (due, cause, index, timer), the earliest first
        self._timers: list[tuple[float, int, int, str]] = []
        #: (cause, index, effect), to be started in this order
        self._effects: list[tuple[int, int, Effect]] = []
        self._ties = itertools.count()
        self._last_report = 0
        self._writing = False
        self._to_write = asyncio.Event()
        self._to_start = asyncio.Event()
        self._rearm = asyncio.Event()
        self._moved = asyncio.Event()

    @property
    def quiet(self) -> bool:
        """Whether every event decided so far is in the log, and nothing on its way there."""
        if self._writing or self._outbox:
            return False
        return not any(isinstance(decision, Emit) for decision in self._actor.open.values())

    async def until_quiet(self) -> None:
        """Wait until the term is quiet; without waiting, if it is."""
        while not self.quiet:
            self._moved.clear()
            await self._moved.wait()

    def take_all(self, cause: int, decisions: Sequence[Decision]) -> None:
        """Carry out what folding record ``cause`` led to."""
        for index, decision in enumerate(decisions):
            self.take(cause, index, decision)
        self._moved.set()

    def take(self, cause: int, index: int, decision: Decision) -> None:
        """Carry out one decision."""
        if isinstance(decision, Emit):
            self._push(cause, index, 0, decision.event)
        elif isinstance(decision, Wake):
            heapq.heappush(self._timers, (decision.at_s, cause, index, decision.timer))
            self._rearm.set()
        else:
            self._effects.append((cause, index, decision.effect))
            self._to_start.set()

    def report(self, event: AnyEvent) -> None:
        """Append what the process itself has noticed, no core having asked."""
        self._last_report = max(self._last_report, self._actor.last_seq) + 1
        self._push(0, 0, self._last_report, event)

    def rearm(self) -> None:
        """Log time has jumped: look at the timers anew."""
        self._rearm.set()

    async def run(self) -> None:
        """Carry out until cancelled.

        Raises
        ------
        StaleEpochError
            A later start leads.
        Exception
            What the log or the executor failed with.
        """
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write())
                group.create_task(self._ring())
                group.create_task(self._start(group))
        except BaseExceptionGroup as failed:
            # The first is the cause; the others were cancelled for it.
            raise failed.exceptions[0] from failed

    async def _start(self, group: asyncio.TaskGroup) -> None:
        # A task of the group itself: once the group ends, nothing more is started.
        while True:
            await self._to_start.wait()
            self._to_start.clear()
            for cause, index, effect in self._effects:
                report = partial(self._push, cause, index)
                group.create_task(self._executor.carry_out(effect, report))
            self._effects.clear()

    def _push(self, cause: int, index: int, n: int, event: AnyEvent) -> None:
        heapq.heappush(self._outbox, (cause, index, n, next(self._ties), event))
        self._to_write.set()

    async def _write(self) -> None:
        while True:
            self._writing = False
            self._moved.set()
            await self._to_write.wait()
            if not self._outbox:
                self._to_write.clear()
                continue
            self._writing = True
            drafts = self._next_drafts()
            try:
                await self._log.append_all(drafts)
            except LogFullError:
                # Those before the one that does not fit are stored.
                for draft in drafts:
                    await self._append_once_there_is_room(draft)

    async def _append_once_there_is_room(self, draft: Draft) -> None:
        while True:
            try:
                await self._log.append(draft)
            except LogFullError as error:
                self._logger.warning("log full", detail=str(error), cause=draft.cause)
                await asyncio.sleep(_FULL_RETRY_S)
            else:
                return

    def _next_drafts(self) -> list[Draft]:
        """What is to be written next, in order, each chained to the one before."""
        drafts: list[Draft] = []
        while self._outbox and len(drafts) < _MOST_AT_ONCE:
            cause, index, n, _, event = heapq.heappop(self._outbox)
            if cause and self._actor.has_result(cause, index, n):
                continue
            draft = self._writer.draft(cause, index, n, event)
            self._writer.digest = draft.digest
            drafts.append(draft)
        return drafts

    async def _ring(self) -> None:
        timers = self._timers
        while True:
            wait_s = max(0.0, timers[0][0] - self._clock.now()) if timers else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._rearm.wait()
            self._rearm.clear()
            while timers and timers[0][0] <= self._clock.now():
                due_s, cause, index, timer = heapq.heappop(timers)
                self._push(cause, index, 0, TimerFired(timer=timer, due_s=due_s))

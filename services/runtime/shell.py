"""Runs one actor over a live log: restore, lead, hand over.

The live counterpart of ``replay/driver.py``. It decides nothing: it folds every record of the log
into the actor and, while its process leads, has the decisions carried out (``term.py``).

1. Restore: begin with the newest snapshot that fits, and fold the rest of the log.
2. If another replica leads, stand by: go on folding, and ask now and then whether it is there.
3. Otherwise elect: append a start, fenced. Only when it has come back through the log, and with it
   everything before, carry out what is open, in the order in which it was decided.
4. When a later start appears, or an append is refused for one, stand by again.
5. Asked to stop, wait until all that was decided is in the log, and append so: whoever takes over
   need not decide it again.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from structlog.typing import FilteringBoundLogger

from schemas.decisions import Emit
from schemas.events import AnyEvent, LeaderElected
from schemas.record import Draft, Record
from services.runtime.actor import Actor, Writer
from services.runtime.clock import LogClock
from services.runtime.live_log import LiveLog
from services.runtime.log import LogError, StaleEpochError
from services.runtime.presence import Presence, UncertainError
from services.runtime.pulse import Pulse, memory_bytes
from services.runtime.snapshot import Snapshots, UnfitSnapshotError
from services.runtime.term import Executor, Term

_ASK_EVERY_S = 0.5
#: A leader that has not answered for so long is given up.
_SILENCE_S = 3.0
_NEARLY_FULL = 0.8
_LOOK_FOR_ROOM_EVERY_S = 60.0
_SETTLE_PATIENCE_S = 5.0
#: Others of the process get their turn after so long.
_SLICE_S = 0.01


class AlreadyRunningError(LogError):
    """Another process is this service, and there can be one only."""


class ShellStatus(msgspec.Struct, frozen=True):
    """What a shell says of itself."""

    actor: str
    replica: str
    #: ``restoring``, ``standby`` or ``leading``.
    state: str
    epoch: int
    last_seq: int
    #: Sequence of the snapshot it began with; 0: it has folded the whole log.
    restored_from: int
    #: Records in the log that are not folded yet.
    lag_records: int
    #: Fraction of the log's room that is used.
    log_fullness: float
    #: Decisions not in the log yet: events, timers, effects.
    open_decisions: int
    #: Records not believed.
    skipped: int
    #: Longest that the loop has kept its other work waiting.
    loop_blocked_ms: float
    #: Memory that the process holds.
    memory_mib: float


class Shell:
    """Runs one actor.

    Parameters
    ----------
    actor : its core, and nothing folded yet
    log : the live log
    executor : who carries out its effects
    presence : how replicas know of each other
    replica : name of this process among its like; made unique
    behaviour : version of the decisions the code makes
    clock : log time; share it with an executor that needs it
    logger : bound to the service
    stands_by : whether to wait while another replica leads, or else to refuse to run
    observe : shown every record, once the actor has folded it and before it is acted on
    snapshots : of the actor and of what ``observe`` folds; None: each start folds the whole log
    """

    def __init__(
        self,
        actor: Actor,
        log: LiveLog,
        executor: Executor,
        presence: Presence,
        *,
        replica: str,
        behaviour: int,
        clock: LogClock,
        logger: FilteringBoundLogger,
        stands_by: bool = True,
        observe: Callable[[Record], None] = lambda _: None,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.actor = actor
        # Two processes of one name would otherwise make the same start, and both think it theirs.
        self.replica = f"{replica}-{secrets.token_hex(4)}"
        self._log = log
        self._executor = executor
        self._presence = presence
        self._behaviour = behaviour
        self._clock = clock
        self._logger = logger
        self._stands_by = stands_by
        self._observe = observe
        self._snapshots = snapshots
        self._saving: asyncio.Task[None] | None = None
        #: Record of the snapshot begun with.
        self._start: Record | None = None
        self._pulse = Pulse()
        self._stop = asyncio.Event()
        self._folded = asyncio.Event()
        self._restored = False
        #: When the leader last answered. Who starts need not wait: if nobody answers, nobody leads.
        self._heard_at = -math.inf
        self._candidate: Draft | None = None
        self._term: Term | None = None
        self._term_task: asyncio.Task[None] | None = None

    @property
    def leading(self) -> bool:
        """Whether this process carries out the actor's decisions."""
        return self._term is not None

    @property
    def ready(self) -> bool:
        """Whether the log is folded, so that this process leads or could."""
        return self._restored

    async def status(self) -> ShellStatus:
        """See ``ShellStatus``."""
        usage = await self._log.usage()
        state = "leading" if self.leading else "standby" if self._restored else "restoring"
        return ShellStatus(
            actor=self.actor.name,
            replica=self.replica,
            state=state,
            epoch=self.actor.epoch,
            last_seq=self.actor.last_seq,
            restored_from=self._start.seq if self._start else 0,
            lag_records=max(0, usage.last_seq - self.actor.last_seq),
            log_fullness=usage.fullness,
            open_decisions=len(self.actor.open),
            skipped=self.actor.skipped,
            loop_blocked_ms=round(1e3 * self._pulse.blocked_s, 1),
            memory_mib=round(memory_bytes() / (1 << 20), 1),
        )

    def report(self, event: AnyEvent) -> bool:
        """Append what this process has noticed itself; False if it does not lead."""
        if self._term is not None:
            self._term.report(event)
        return self._term is not None

    def stop(self) -> None:
        """Have ``run`` come to a clean end."""
        self._stop.set()

    async def run(self) -> None:
        """Run until stopped.

        Raises
        ------
        AlreadyRunningError
            Another process is this service, and this one does not stand by.
        LogError
            The log refused what it must not, or its connection is closed.
        NewerSchemaError
            A record must not be read by this release.
        """
        tasks = [asyncio.create_task(work) for work in self._work()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._term is not None:
                await self._settle(self._term)
        finally:
            tasks += [task for task in (self._term_task, self._saving) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _work(self) -> tuple[Coroutine[Any, Any, Any], ...]:
        works = self._follow(), self._stand(), self._watch_room(), self._pulse.beat()
        return (*works, self._stop.wait())

    # --- folding ---------------------------------------------------------------------------------

    async def _follow(self) -> None:
        await self._begin_with_snapshot()
        digest = self._start.digest if self._start else ""
        turn_ends = time.monotonic() + _SLICE_S
        async with aclosing(self._log.follow(self.actor.last_seq, digest)) as deliveries:
            async for record, live_at in deliveries:
                if live_at is not None:
                    jumped = self._clock.observe(record.at, live_at)
                    if jumped and self._term is not None:
                        self._term.rearm()
                self._fold(record)
                if time.monotonic() > turn_ends:
                    await asyncio.sleep(0)
                    turn_ends = time.monotonic() + _SLICE_S

    def _fold(self, record: Record) -> None:
        epoch = self.actor.epoch
        decisions = self.actor.fold(record)
        self._observe(record)
        if self.actor.epoch != epoch:
            if self._candidate is not None and record.digest == self._candidate.digest:
                self._begin(record)
            else:
                self._end("another replica leads")
            if isinstance(record.event, LeaderElected) and record.event.settled:
                # Not a start but a clean end: nobody leads now.
                self._heard_at = -math.inf
        elif self._term is not None:
            self._term.take_all(record.seq, decisions)
        self._folded.set()
        self._save(record)

    # --- snapshots -------------------------------------------------------------------------------

    async def _begin_with_snapshot(self) -> None:
        snapshots = self._snapshots
        if snapshots is None:
            return
        for seq in snapshots.seqs():
            record = await self._record_at(seq)
            try:
                snapshots.restore(snapshots.read(seq), record)
            except UnfitSnapshotError as error:
                self._logger.warning("snapshot ignored", seq=seq, detail=str(error))
            else:
                self._start = record
                self._folded.set()
                return

    async def _record_at(self, seq: int) -> Record | None:
        async with aclosing(self._log.read(seq - 1)) as records:
            return await anext(records, None)

    def _save(self, record: Record) -> None:
        """Keep a snapshot now and then: taken here, between two records, and written elsewhere."""
        snapshots = self._snapshots
        if snapshots is None or not snapshots.due(record.seq):
            return
        if self._saving is None or self._saving.done():
            try:
                content = snapshots.take(record)
            except UnfitSnapshotError as error:
                self._logger.warning("snapshot not taken", seq=record.seq, detail=str(error))
                return
            self._saving = asyncio.create_task(self._write(snapshots, content, record.seq))

    async def _write(self, snapshots: Snapshots, content: bytes, seq: int) -> None:
        try:
            await asyncio.to_thread(snapshots.write, content)
        except OSError as error:
            self._logger.warning("snapshot not written", seq=seq, detail=str(error))
        else:
            self._logger.info("snapshot", seq=seq, bytes=len(content))

    async def _watch_room(self) -> None:
        """Warn while there is time: a full log takes nothing more, and forgets nothing."""
        while True:
            usage = await self._log.usage()
            if usage.fullness > _NEARLY_FULL:
                self._logger.warning("log nearly full", full=round(usage.fullness, 3))
            await asyncio.sleep(_LOOK_FOR_ROOM_EVERY_S)

    # --- leading ---------------------------------------------------------------------------------

    async def _stand(self) -> None:
        """Elect whenever nobody leads."""
        await self._catch_up()
        self._restored = True
        begun = self._start.seq if self._start else 0
        self._logger.info("restored", seq=self.actor.last_seq, from_snapshot=begun)
        while True:
            if self._term_task is not None:
                await self._await_end(self._term_task)
                self._heard_at = time.monotonic()
            try:
                leader = await self._presence.leader(self.actor.name)
            except UncertainError:
                self._heard_at = time.monotonic()
            else:
                self._check_alone(leader)
                if leader is not None:
                    self._heard_at = time.monotonic()
                elif time.monotonic() - self._heard_at > _SILENCE_S and await self._elect():
                    continue
            await asyncio.sleep(_ASK_EVERY_S)

    async def _catch_up(self) -> None:
        await self._until_folded(await self._log.last_seq())

    async def _until_folded(self, seq: int) -> None:
        while self.actor.last_seq < seq:
            self._folded.clear()
            await self._folded.wait()

    async def _elect(self) -> bool:
        """Try to become the leader; True once the term has begun."""
        await self._catch_up()
        if self._stop.is_set():
            return False
        candidate = self.actor.elect(self.replica, self._behaviour)
        self._candidate = candidate
        try:
            seq = await self._log.append(candidate)
        except StaleEpochError:
            return False
        if seq is not None:
            await self._until_folded(seq)
        return self._term is not None

    def _begin(self, start: Record) -> None:
        if not self._clock.is_set:
            self._clock.observe(start.at)
        term = Term(self.actor, self._log, self._executor, self._clock, self._logger)
        for (cause, index), decision in sorted(self.actor.open.items(), key=lambda item: item[0]):
            term.take(cause, index, decision)
        self._term = term
        self._term_task = asyncio.create_task(self._hold(term))
        self._logger.info("leading", seq=self.actor.last_seq, epoch=self.actor.epoch)

    async def _hold(self, term: Term) -> None:
        async with self._presence.answering(self.actor.name, self.replica):
            await term.run()

    def _end(self, why: str) -> None:
        if self._term is not None:
            assert self._term_task is not None, "a term has its task"
            self._term = None
            self._term_task.cancel()
            self._logger.warning("standing by", seq=self.actor.last_seq, detail=why)

    async def _await_end(self, task: asyncio.Task[None]) -> None:
        """Wait until the term is over, by order or because an append was refused."""
        await asyncio.wait([task])
        if not task.cancelled():
            try:
                task.result()
            except StaleEpochError as error:
                self._end(str(error))
        self._term = self._term_task = None
        if not self._stands_by:
            raise AlreadyRunningError(f"another process has taken over as {self.actor.name}")

    def _check_alone(self, leader: str | None) -> None:
        if leader is not None and not self._stands_by:
            raise AlreadyRunningError(
                f"{self.actor.name} runs already, as {leader}: stop it, or give this one "
                "another name"
            )

    async def _settle(self, term: Term) -> None:
        """Append that all decided events are in the log, and which timers and effects are not."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_PATIENCE_S):
                await term.until_quiet()
        if not term.quiet or self._term is not term or self._term_task is None:
            self._logger.warning("stopped with decisions on their way", seq=self.actor.last_seq)
            return
        self._term = None
        self._term_task.cancel()
        actor = self.actor
        assert not any(isinstance(decision, Emit) for decision in actor.open.values()), "quiet"
        event = LeaderElected(
            epoch=actor.epoch + 1,
            replica=self.replica,
            behaviour=self._behaviour,
            settled=actor.last_seq,
            still_open=tuple(sorted(actor.open)),
        )
        draft = Writer(actor.name, event.epoch, actor.digest).draft(0, event.epoch, 0, event)
        try:
            async with asyncio.timeout(_SETTLE_PATIENCE_S):
                await self._log.append(draft)
        except StaleEpochError:
            self._logger.info("stopped: another replica leads already", seq=actor.last_seq)
        except TimeoutError:
            self._logger.warning("stopped, not settled: the log is away", seq=actor.last_seq)
        else:
            self._logger.info("settled", seq=actor.last_seq)

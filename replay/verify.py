"""Verifies a log from both sides: the cores make every record again, and none but these.

Rules
-----
1. Every record is handed to the production cores. What a core decides must stand in the log under
   its id, the same; what a service has in the log its core must have decided, or asked an effect
   for. What came from outside (clients, the operator, the results of effects) is a fact: any kind
   that its writer may report is believed, as all who fold the log believe it.
2. Sequences have no gap, a simulation's ``at`` never goes back, epochs rise by one, ids are used
   once, and the digests of each writer chain. In a file, the lines chain too, and a seal closes
   them.
3. A service appends in order. So a decision is missing as soon as a later one of the same service
   is in the log; what is undecided at the end is ``pending``, as in any log cut off there.
4. Records written under another behaviour version are folded, not decided again.

A history that could have happened cannot be told from one that has: an outside fact that was
changed *with* its writer's digests and *without* consequence in any core, or records cut off the
end of a log together with their seal, need a copy kept elsewhere.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from replay.driver import SIMULATED
from replay.simulate import WORKER, cores
from schemas.decisions import Decision, Effect, Emit, Run, Wake
from schemas.events import (
    AnyEvent,
    Event,
    LeaderElected,
    TimerFired,
    UnknownEvent,
    WorkerDisappeared,
    WorkerRegistered,
    WorkerReturned,
    WorkerUnreachable,
)
from schemas.record import Record, RecordId, digest_of
from schemas.subjects import may_write, role
from services.runtime.actor import BEHAVIOUR, Actor, Core, OpenKey, is_service
from services.runtime.file_log import DamagedLogError, Ending, read_log
from services.worker.core import WorkerCore

#: What a service's shell itself sees and reports, no core having asked.
_OF_SHELLS = (WorkerUnreachable, WorkerDisappeared, WorkerRegistered, WorkerReturned)
#: In a simulation nothing is on its way for longer than this, seconds.
_IN_FLIGHT_S = 10.0
#: Records between two calls of ``progress``.
_PROGRESS_EVERY = 10_000
#: Longest rendering of an event inside a message.
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a log and what the cores make of it part."""

    #: The record at which it shows; one past the last where the log ends too early.
    seq: int
    actor: str
    expected: str
    found: str

    def __str__(self) -> str:
        """One line, for people."""
        return f"record {self.seq} ({self.actor}): expected {self.expected}; found {self.found}"


@dataclass(frozen=True, slots=True)
class Pending:
    """A decision that is not in the log, at whose end it may still have been on its way."""

    actor: str
    cause: int
    index: int
    #: Kind of event.
    kind: str
    #: Log time at which it was decided, s.
    since_s: float


@dataclass(slots=True)
class ActorCount:
    """One writer's part of a log."""

    records: int = 0
    #: Of these, the ones its core decided again and alike (an ``Emit`` or a timer).
    decided: int = 0
    #: Of these, written under another behaviour version: folded only.
    folded: int = 0


@dataclass(slots=True)
class VerifyReport:
    """What verification comes to."""

    records: int = 0
    divergence: Divergence | None = None
    #: {actor: its part}
    actors: dict[str, ActorCount] = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)
    #: What is legal but worth knowing: not sealed, pending, skipped, folded.
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether log and cores agree throughout."""
        return self.divergence is None


def verify_log(
    path: Path | str,
    progress: Callable[[int], None] | None = None,
    on_result: Callable[[Record, Effect], None] | None = None,
) -> VerifyReport:
    """Verify a log file.

    Parameters
    ----------
    path : the file
    progress : told now and then how many records are done
    on_result : shown each result of an effect, with the effect as the core has asked for it

    Raises
    ------
    NewerSchemaError
        A record must not be read by this release.
    OSError
        The file cannot be read.
    """
    endings: list[Ending] = []
    verifier = _Verifier(lambda: read_log(path, check=False), on_result)
    report = verifier.report
    try:
        verifier.run(read_log(path, on_end=endings.append), progress)
    except DamagedLogError as error:
        expected = "the file's own chain of lines to hold"
        report.divergence = Divergence(report.records + 1, "file", expected, str(error))
        return report
    if report.divergence is None:
        if endings[0].torn:
            report.warnings.append("the last line is unfinished and was left out")
        elif not endings[0].sealed:
            report.warnings.append("not sealed: its writer is still at work, or was killed")
        verifier.end(complete=endings[0].sealed)
    return report


def verify(
    records: Sequence[Record],
    *,
    complete: bool = False,
    progress: Callable[[int], None] | None = None,
    on_result: Callable[[Record, Effect], None] | None = None,
) -> VerifyReport:
    """Verify records, the first of a log to the last at hand.

    ``complete`` says that the log is at its end; then a simulation must have left nothing behind.
    """
    verifier = _Verifier(lambda: iter(records), on_result)
    verifier.run(iter(records), progress)
    if verifier.report.divergence is None:
        verifier.end(complete=complete)
    return verifier.report


class _DivergedError(Exception):
    """Ends the run at the first divergence."""

    def __init__(self, record: Record, expected: str, found: str) -> None:
        super().__init__(expected)
        self.divergence = Divergence(record.seq, record.actor, expected, found)


class _Service:
    """An actor under verification."""

    def __init__(self, name: str, core: Core) -> None:
        self.actor = Actor(name, core)
        #: Events decided and when, in order; those already in the log leave at the next look.
        self.emits: deque[tuple[OpenKey, float]] = deque()
        #: {effect under way: numbers of its results so far}
        self.results: dict[OpenKey, set[int]] = {}
        #: Effects that have ended and may still report.
        self.ended: dict[OpenKey, Decision] = {}
        #: Whether its records are to be decided again.
        self.current = True
        #: Whether its last start was that of a simulation.
        self.simulated = False

    def fold(self, record: Record) -> None:
        """Take in a record of the log; remember in what order events are due."""
        for index, decision in enumerate(self.actor.fold(record)):
            if isinstance(decision, Emit):
                self.emits.append(((record.seq, index), record.at))

    def first_open_emit(self) -> OpenKey | None:
        """The decided event that the service must append before any later one."""
        while self.emits and self.emits[0][0] not in self.actor.open:
            self.emits.popleft()
        return self.emits[0][0] if self.emits else None


class _Verifier:
    """Folds a log once, comparing."""

    def __init__(
        self,
        reread: Callable[[], Iterator[Record]],
        on_result: Callable[[Record, Effect], None] | None,
    ) -> None:
        self.report = VerifyReport()
        self._reread = reread
        self._on_result = on_result
        self._services: dict[str, _Service] = {}
        #: {writer: digest of its newest record}
        self._digests: dict[str, str] = {}
        #: Ids of outside records; those of services are guarded by what is open.
        self._outside: set[RecordId] = set()
        self._last_at = 0.0
        self._skipped = 0

    def run(self, records: Iterator[Record], progress: Callable[[int], None] | None) -> None:
        """Take records until one diverges."""
        try:
            for record in records:
                self._take(record)
                if progress is not None and record.seq % _PROGRESS_EVERY == 0:
                    progress(record.seq)
        except _DivergedError as error:
            self.report.divergence = error.divergence

    def _take(self, record: Record) -> None:
        self._check_place(record)
        report = self.report
        count = report.actors.get(record.actor)
        if count is None:
            count = report.actors[record.actor] = ActorCount()
            if is_service(record.actor):
                self._services[record.actor] = self._join(record)
        service = self._services.get(record.actor)
        if not may_write(record.actor, record.event):
            self._skipped += 1
        elif service is None:
            if record.record_id in self._outside or record.epoch:
                raise _DivergedError(record, "an id of its own and no epoch", _id(record))
            self._outside.add(record.record_id)
        elif isinstance(record.event, LeaderElected):
            self._check_election(record, record.event, service)
        elif record.epoch != service.actor.epoch:
            raise _DivergedError(
                record, f"epoch {service.actor.epoch}, its newest", f"epoch {record.epoch}"
            )
        elif service.current:
            count.decided += self._check_decided(record, service)
        else:
            count.folded += 1
        count.records += 1
        report.records += 1
        for each in self._services.values():
            each.fold(record)

    def _join(self, record: Record) -> _Service:
        """A service writes for the first time: it has folded all that was there before."""
        name = record.actor
        core = WorkerCore(name) if role(name) == role(WORKER) else cores()[role(name)]()
        service = _Service(name, core)
        for earlier in islice(self._reread(), record.seq - 1):
            service.fold(earlier)
        return service

    # --- the single record -----------------------------------------------------------------------

    def _check_place(self, record: Record) -> None:
        if record.seq != self.report.records + 1:
            expected = f"sequence {self.report.records + 1}"
            raise _DivergedError(record, expected, f"sequence {record.seq}")
        if record.at < self._last_at:
            self._stepped_back(record)
        self._last_at = record.at
        if isinstance(record.event, UnknownEvent):
            # What it says is not known here, and so neither is its digest.
            self._digests[record.actor] = record.digest
            return
        digest = digest_of(self._digests.get(record.actor, ""), record)
        if digest != record.digest:
            expected = f"digest {digest} over {_id(record)} and the writer's records before it"
            found = f"digest {record.digest}: it was altered, or one before it altered or dropped"
            raise _DivergedError(record, expected, found)
        self._digests[record.actor] = digest

    def _stepped_back(self, record: Record) -> None:
        """Virtual time never goes back; the clock of a live log's server may be set back."""
        if any(service.simulated for service in self._services.values()):
            expected = f"a stamp of {self._last_at} s, the one before, or later"
            raise _DivergedError(record, expected, f"{record.at} s")
        self.report.warnings.append(
            f"the log's clock was set back by {self._last_at - record.at:g} s before record "
            f"{record.seq}"
        )

    def _check_election(self, record: Record, event: LeaderElected, service: _Service) -> None:
        epoch = service.actor.epoch + 1
        name = record.actor
        if (record.record_id, record.epoch, event.epoch) != ((name, 0, epoch, 0), epoch, epoch):
            expected = f"a start of epoch {epoch} under the id {name}:0:{epoch}:0"
            found = f"{_id(record)}, epoch {event.epoch} in a record of epoch {record.epoch}"
            raise _DivergedError(record, expected, found)
        service.current = event.behaviour == BEHAVIOUR
        service.simulated = event.replica == SIMULATED

    def _check_decided(self, record: Record, service: _Service) -> bool:
        """Whether the core decided the very record; False for an outside fact it may report."""
        key = (record.cause, record.index)
        decision = service.actor.open.get(key) or service.ended.get(key)
        if decision is None:
            if isinstance(record.event, _OF_SHELLS) and record.cause == 0:
                return False
            raise _DivergedError(record, self._due(service), f"{_id(record)}, never decided")
        first = service.first_open_emit()
        if first is not None and first < key:
            found = f"{_id(record)}, decided later"
            raise _DivergedError(record, self._due(service), found)
        if isinstance(decision, Run):
            self._check_result(record, decision, service)
            return False
        event = _event_of(decision)
        if record.event != event or record.n:
            expected = f"{record.actor}:{key[0]}:{key[1]}:0 {_shown(event)}"
            raise _DivergedError(record, expected, f"{_id(record)} {_shown(record.event)}")
        return True

    def _check_result(self, record: Record, decision: Run, service: _Service) -> None:
        effect, event = decision.effect, record.event
        key = (record.cause, record.index)
        reports: tuple[type[Event], ...] = getattr(effect, "reports", ())
        kinds = (*reports, *effect.ends_with)
        if not isinstance(event, kinds):
            names = ", ".join(kind.__name__ for kind in kinds)
            expected = f"a result of {type(effect).__name__}: {names}"
            raise _DivergedError(record, expected, _shown(event))
        seen = service.results.setdefault(key, set())
        if record.n in seen:
            expected = f"a result of {type(effect).__name__} not reported before"
            raise _DivergedError(record, expected, f"{_id(record)} once more")
        seen.add(record.n)
        if self._on_result is not None:
            self._on_result(record, effect)
        if not isinstance(event, effect.ends_with):
            return
        if isinstance(event, reports):
            service.ended[key] = decision
        else:
            del service.results[key]

    def _due(self, service: _Service) -> str:
        """What the service was to write first, for messages."""
        key = service.first_open_emit()
        if key is None:
            return "only what its core decides"
        event = _event_of(service.actor.open[key])
        return f"{service.actor.name}:{key[0]}:{key[1]}:0 {_shown(event)}"

    # --- the end ---------------------------------------------------------------------------------

    def end(self, *, complete: bool) -> None:
        """Report what the log leaves open."""
        report = self.report
        for name, service in sorted(self._services.items()):
            folded = report.actors[name].folded
            if folded:
                text = f"{folded} records of {name} are of another behaviour than {BEHAVIOUR}"
                report.warnings.append(f"{text}: folded, not decided again")
            if service.current:
                self._leave_open(name, service, complete=complete)
        if report.pending:
            oldest = min(report.pending, key=lambda each: each.cause)
            report.warnings.append(
                f"{len(report.pending)} decisions were on their way when the log ends, the first "
                f"a {oldest.kind} of {oldest.actor}, decided on record {oldest.cause}"
            )
        if self._skipped:
            text = f"{self._skipped} records are of kinds that their writers may not write"
            report.warnings.append(f"{text}: skipped by all who fold the log")

    def _leave_open(self, name: str, service: _Service, *, complete: bool) -> None:
        """List events still to be written; in a finished simulation none can be long due."""
        late_s = self._last_at - _IN_FLIGHT_S if complete and service.simulated else -math.inf
        due = [(key, at) for key, at in service.emits if key in service.actor.open]
        late = [(at, key) for key, at in due if at < late_s]
        late += [
            (decision.at_s, key)
            for key, decision in service.actor.open.items()
            if isinstance(decision, Wake) and decision.at_s < late_s
        ]
        if late and self.report.divergence is None:
            at, key = min(late)
            expected = f"{name}:{key[0]}:{key[1]}:0 {_shown(_event_of(service.actor.open[key]))}"
            found = f"the log to end at {self._last_at} s, without what was due at {at} s"
            self.report.divergence = Divergence(self.report.records + 1, name, expected, found)
        for (cause, index), at in due:
            kind = type(_event_of(service.actor.open[cause, index])).__name__
            self.report.pending.append(Pending(name, cause, index, kind, at))


def _event_of(decision: Decision) -> AnyEvent:
    """The event that a decision alone brings about."""
    assert not isinstance(decision, Run), "an effect's results are facts, not decisions"
    if isinstance(decision, Emit):
        return decision.event
    return TimerFired(timer=decision.timer, due_s=decision.at_s)


def _id(record: Record) -> str:
    return ":".join(map(str, record.record_id))


def _shown(event: AnyEvent) -> str:
    text = repr(event)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."

"""A core and its log: the fold that the live shell, the simulator and the verifier share.

An actor's state is a fold of the log, and so is what it still has to do. Handling record ``r``
opens one entry ``(r.seq, index)`` per decision; its own record (for an effect, the one that ends
it) closes the entry. After a crash, whatever is open is carried out, nothing else: simpler rules,
such as "everything after my last own record", lose decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, Protocol

from schemas.decisions import Decision, Effect, Run
from schemas.events import AnyEvent, Event, LeaderElected, TimerFired
from schemas.record import Draft, Record, digest_of
from schemas.subjects import SERVICES, may_write, role

#: Behaviour version written into ``LeaderElected``: raised when cores decide otherwise than before.
BEHAVIOUR = 1

#: (seq of the record handled, position among the decisions it led to).
OpenKey = tuple[int, int]


class Core(Protocol):
    """A service's whole behaviour: no clock, no waiting, no outside; only ``handle`` changes it.

    Its state is what its class declares, see ``snapshot.py``.
    """

    #: Kinds of effect it asks for.
    effects: ClassVar[tuple[type[Effect], ...]]

    @property
    def handles(self) -> Collection[type[Event]]:
        """Kinds of event it takes in; others need not be shown to it."""
        ...

    def handle(self, event: AnyEvent, now: float) -> Sequence[Decision]:
        """Take one event in; say what is to be done about it."""
        ...


class Actor:
    """A core together with what its log says of it."""

    def __init__(self, name: str, core: Core) -> None:
        self.name = name
        self.core = core
        #: Kinds of other writers' records that matter here; nobody else's timers do.
        self._interest = (frozenset(core.handles) | {LeaderElected}) - {TimerFired}
        #: Log time: never goes back, though a server's clock may.
        self.now = 0.0
        self.last_seq = 0
        #: Decisions not yet in the log, in the order in which they were made.
        self.open: dict[OpenKey, Decision] = {}
        #: {open effect: the ``n`` of each of its results in the log}
        self.results: dict[OpenKey, set[int]] = {}
        #: Digest of the newest record this actor itself has in the log.
        self.digest = ""
        #: {service actor: its newest epoch}
        self.epochs: dict[str, int] = {}
        #: Records not believed: of a stale epoch, or from a writer who may not write the kind.
        self.skipped = 0

    @property
    def epoch(self) -> int:
        """This actor's newest epoch on the log; 0 before its first start."""
        return self.epochs.get(self.name, 0)

    def fold(self, record: Record) -> Sequence[Decision]:
        """Take in the next record; returns (and opens) the decisions it leads to.

        The ``index`` of each decision is its position in the returned sequence.
        """
        assert record.seq > self.last_seq, "records are folded in order, each once"
        self.last_seq = record.seq
        self.now = max(self.now, record.at)
        event = record.event
        own = record.actor == self.name
        if not own and type(event) not in self._interest:
            return ()
        if not self._believes(record):
            self.skipped += 1
            return ()
        if own:
            self._close(record)
            self.digest = record.digest
        if isinstance(event, TimerFired):
            self.now = max(self.now, event.due_s)
        elif isinstance(event, LeaderElected):
            if not own:
                return ()
            self._settle(event)
            self._drop_repeated()
        decisions = self.core.handle(event, self.now)
        for index, decision in enumerate(decisions):
            self.open[record.seq, index] = decision
        return decisions

    def has_result(self, cause: int, index: int, n: int) -> bool:
        """Whether the log has this result of an open effect.

        An effect carried out again after a crash reports from its beginning; what the log has
        already is not to be appended anew.
        """
        return n in self.results.get((cause, index), ())

    def elect(self, replica: str, behaviour: int) -> Draft:
        """The record that makes this start the leading one; append it before anything else."""
        event = LeaderElected(epoch=self.epoch + 1, replica=replica, behaviour=behaviour)
        return Writer(self.name, event.epoch, self.digest).draft(0, event.epoch, 0, event)

    def _believes(self, record: Record) -> bool:
        if not may_write(record.actor, record.event):
            return False
        if isinstance(record.event, LeaderElected):
            if not record.epoch == record.event.epoch == self.epochs.get(record.actor, 0) + 1:
                return False
            self.epochs[record.actor] = record.epoch
        return record.epoch == self.epochs.get(record.actor, 0)

    def _close(self, record: Record) -> None:
        key = (record.cause, record.index)
        decision = self.open.get(key)
        if isinstance(decision, Run) and not isinstance(record.event, decision.effect.ends_with):
            self.results.setdefault(key, set()).add(record.n)
            return
        self.open.pop(key, None)
        self.results.pop(key, None)

    def _drop_repeated(self) -> None:
        """Effects that each start asks for anew are not carried out for earlier starts too."""
        for key, decision in list(self.open.items()):
            if isinstance(decision, Run) and getattr(decision.effect, "of_one_start", False):
                del self.open[key]
                self.results.pop(key, None)

    def _settle(self, elected: LeaderElected) -> None:
        still_open = set(elected.still_open)
        for key in [k for k in self.open if k[0] <= elected.settled and k not in still_open]:
            del self.open[key]
            self.results.pop(key, None)


class Writer:
    """Drafts the records of one start of one actor, chaining their digests."""

    def __init__(self, actor: str, epoch: int, digest: str = "") -> None:
        self.actor = actor
        self.epoch = epoch
        self.digest = digest
        self.accepted_count = 0

    def draft(self, cause: int, index: int, n: int, event: AnyEvent) -> Draft:
        """The next record; ``accepted`` moves the chain on once the log has it."""
        draft = Draft(self.actor, self.epoch, cause, index, n, event, "")
        return Draft(self.actor, self.epoch, cause, index, n, event, digest_of(self.digest, draft))

    def accepted(self, record: Record) -> None:
        """The log has taken ``record``: the next draft chains to it."""
        self.digest = record.digest
        self.accepted_count += 1


def is_service(actor: str) -> bool:
    """Whether the actor is one that is started, fenced by epochs and may set timers."""
    return role(actor) in SERVICES

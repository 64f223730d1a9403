"""The four cores over one log and a virtual clock: simulation, in one thread, without asyncio.

Rules
-----
1. The driver decides nothing. It pops the earliest entry of one queue, appends it, hands the
   record to every actor and queues what they decide. All behaviour is the cores' own.
2. Entries are ordered by (time, cause, actor rank, index, n): by when, then by what they answer,
   then by who answers. Nothing else, such as insertion order or a hash, can change a run.
3. What lies outside the cores (solvers, processes) is an executor: it is given an effect and
   reports events at virtual times. The cluster's executor is ``cluster.py``.
4. With ``lag_seed`` every append and every delivery takes a random while, as over a network;
   each writer's appends, and each reader's deliveries, stay in order, as on the real log.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from schemas.decisions import Decision, Effect, Emit, Wake
from schemas.events import AnyEvent, TimerFired
from schemas.record import Record
from schemas.subjects import SERVICES, role
from services.runtime.actor import BEHAVIOUR, Actor, Core, Writer
from services.runtime.log import Log

#: The replica that starts in a simulation go by, in ``LeaderElected``.
SIMULATED = "simulated"

#: The life of entries that no restart undoes.
_OUTSIDE = -1

#: An event, or a function asked for one when its time has come (None: nothing to report after all).
Outcome = AnyEvent | Callable[[], AnyEvent | None]

#: ``report(at, n, outcome)``: the ``n``-th result of the effect, at virtual time ``at``.
Report = Callable[[float, int, Outcome], None]


class Executor(Protocol):
    """Carries out effects; asked twice for the same one, it reports the same results."""

    def carry_out(self, effect: Effect, now: float, report: Report) -> None:
        """Start the effect; ``report`` may be called now or from within a reported function."""
        ...


class Driver:
    """Runs actors over a log.

    Parameters
    ----------
    log : where records go
    cores : {actor name: function that makes its core}
    executors : {actor name: who carries out its effects}
    observers : called with every record, after it has been appended
    lag_seed : delay appends and deliveries at random, from this seed
    now : virtual time at the start, s
    folded : {actor name: the actor, as it has folded the log up to some record}; it is taken over
    """

    def __init__(
        self,
        log: Log,
        cores: Mapping[str, Callable[[], Core]],
        executors: Mapping[str, Executor],
        *,
        observers: Iterable[Callable[[Record], None]] = (),
        lag_seed: int | None = None,
        now: float = 0.0,
        folded: Mapping[str, Actor] = MappingProxyType({}),
    ) -> None:
        self.log = log
        self.now = now
        self._cores = cores
        self._executors = executors
        self._observers = tuple(observers)
        self._names = sorted(cores, key=lambda name: (SERVICES.index(role(name)), name))
        self._rank = {name: rank for rank, name in enumerate(self._names)}
        self._queue: list[tuple[Any, ...]] = []
        self._pushed = 0
        self._writers: dict[str, Writer] = {}
        #: Entries of an actor's earlier lives are dropped when popped.
        self._life = dict.fromkeys(self._names, 0)
        self._lag = None if lag_seed is None else _Lag(random.Random(lag_seed))
        self.actors: dict[str, Actor] = {}
        for name in self._names:
            self.actors[name] = folded.get(name) or Actor(name, cores[name]())
        for name in self._names:
            self._start(name)

    def submit(self, at: float, actor: str, event: AnyEvent) -> None:
        """Let something outside the cores append ``event`` at virtual time ``at``, or now if later.

        ``actor`` is a client or the operator, or a service of which not the core but the shell
        has something to report: a worker that is unreachable, or back.
        """
        self._push(max(at, self.now), 0, -1, 0, 0, actor, event, life=_OUTSIDE)

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Go on until nothing is left to happen, or ``until()`` holds after a record."""
        queue = self._queue
        while queue:
            entry: tuple[Any, ...] = heapq.heappop(queue)
            at, cause, _, index, n, _, actor, life, payload = entry
            if life != _OUTSIDE and life != self._life[actor]:
                continue
            self.now = at
            if self._lag is None:
                event = _event(payload)
                if event is None or not self._append(actor, cause, index, n, event):
                    continue
            elif not self._lagged(actor, cause, index, n, payload, life):
                continue
            if until is not None and until():
                return

    def restart(self, name: str, snapshot: Actor | None = None) -> None:
        """Kill an actor and start it anew: all that it had in memory and in flight is gone.

        ``snapshot`` is the actor as it had folded the log up to some record; it is taken over.
        """
        self._life[name] += 1
        self.actors[name] = snapshot or Actor(name, self._cores[name]())
        self._start(name)

    def _start(self, name: str) -> None:
        """Elect, fold up to the election, and only then carry out what is open."""
        actor = self.actors[name]
        for unread in self.log.read(after=actor.last_seq):
            actor.fold(unread)
        draft = actor.elect(replica=SIMULATED, behaviour=BEHAVIOUR)
        record = self.log.append(draft, self.now)
        assert record is not None, "an epoch is elected once"
        self._writers[name] = Writer(name, actor.epoch + 1, record.digest)
        if self._lag is not None:
            self._lag.forget(name)
        decisions = actor.fold(record)
        opened_here = {(record.seq, index) for index in range(len(decisions))}
        for (cause, index), decision in sorted(actor.open.items(), key=lambda item: item[0]):
            if (cause, index) not in opened_here:
                self._carry_out(name, cause, index, decision)
        for index, decision in enumerate(decisions):
            self._carry_out(name, record.seq, index, decision)
        self._deliver(record, but=name)

    def _append(self, actor: str, cause: int, index: int, n: int, event: AnyEvent) -> bool:
        writer = self._writers.get(actor)
        if writer is None:
            writer = self._writers[actor] = Writer(actor, 0)
        if actor not in self._rank:
            index = writer.accepted_count
        elif cause == 0:
            n = self.log.last_seq + 1
        elif self.actors[actor].has_result(cause, index, n):
            return False
        record = self.log.append(writer.draft(cause, index, n, event), self.now)
        if record is None:
            return False
        writer.accepted(record)
        self._deliver(record)
        return True

    def _deliver(self, record: Record, but: str = "") -> None:
        for observer in self._observers:
            observer(record)
        for name in self._names:
            actor = self.actors.get(name)
            if actor is None or name == but or actor.last_seq >= record.seq:
                continue
            if self._lag is None:
                for index, decision in enumerate(actor.fold(record)):
                    self._carry_out(name, record.seq, index, decision)
            else:
                at = self._lag.delivery(name, self.now)
                self._push(at, record.seq, self._rank[name], -1, 0, name, record)

    def _carry_out(self, name: str, cause: int, index: int, decision: Decision) -> None:
        rank = self._rank[name]
        if isinstance(decision, Emit):
            self._push(self.now, cause, rank, index, 0, name, decision.event)
        elif isinstance(decision, Wake):
            event = TimerFired(timer=decision.timer, due_s=decision.at_s)
            self._push(max(decision.at_s, self.now), cause, rank, index, 0, name, event)
        else:

            def report(at: float, n: int, outcome: Outcome) -> None:
                self._push(max(at, self.now), cause, rank, index, n, name, outcome)

            self._executors[name].carry_out(decision.effect, self.now, report)

    def _push(
        self,
        at: float,
        cause: int,
        rank: int,
        index: int,
        n: int,
        actor: str,
        payload: object,
        life: int | None = None,
    ) -> None:
        self._pushed += 1
        of_life = self._life[actor] if life is None else life
        entry = (at, cause, rank, index, n, self._pushed, actor, of_life, payload)
        heapq.heappush(self._queue, entry)

    def _lagged(self, actor: str, cause: int, index: int, n: int, payload: Any, life: int) -> bool:
        """One entry under lag: a delivery, an append that has arrived, or one setting out."""
        assert self._lag is not None
        if isinstance(payload, Record):
            reader = self.actors[actor]
            if payload.seq > reader.last_seq:
                for i, decision in enumerate(reader.fold(payload)):
                    self._carry_out(actor, payload.seq, i, decision)
            return False
        if isinstance(payload, _InFlight):
            return self._append(actor, cause, index, n, payload.event)
        event = _event(payload)
        if event is not None:
            at = self._lag.append(actor, self.now)
            rank = self._rank.get(actor, -1)
            self._push(at, cause, rank, index, n, actor, _InFlight(event), life)
        return False


def _event(outcome: Outcome) -> AnyEvent | None:
    return outcome() if callable(outcome) else outcome


class _InFlight:
    """An event on its way to the log."""

    def __init__(self, event: AnyEvent) -> None:
        self.event = event


class _Lag:
    """Random delays of up to two seconds, mostly short, that keep each queue in order."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._free_at: dict[tuple[str, str], float] = {}

    def append(self, actor: str, now: float) -> float:
        return self._after("append", actor, now)

    def delivery(self, actor: str, now: float) -> float:
        return self._after("delivery", actor, now)

    def forget(self, actor: str) -> None:
        self._free_at.pop(("append", actor), None)
        self._free_at.pop(("delivery", actor), None)

    def _after(self, queue: str, actor: str, now: float) -> float:
        delay = self._rng.choice((0.0, 0.01, 0.1, 2.0)) * self._rng.random()
        # Strictly later than the one before it: entries of equal times are ordered by cause.
        free_at = math.nextafter(self._free_at.get((queue, actor), -math.inf), math.inf)
        at = max(now + delay, free_at)
        self._free_at[queue, actor] = at
        return at

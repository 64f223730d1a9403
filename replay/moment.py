"""A log folded up to some record, and what becomes of it from there.

``Cores`` folds what the services know. ``Moment`` folds also what the cluster is in the midst of,
and how the world outside has behaved. ``Onward`` puts copies of the cores into the driver, and
under them a simulated cluster that continues where the log's stood: tasks that run have their
progress, plans that are made are kept, timers that are set go off, what was asked for and is not
done is done. One moment can go on many times, under one change or another; it stays as it is.

From an empty moment all is decided anew, on what comes from outside alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

from replay.cluster import Cluster, Failure, Rates
from replay.driver import Driver, Executor
from replay.received import Received
from replay.simulate import WORKER as SIMULATED_WORKER
from replay.simulate import EstimatorExecutor, NoEffects, PolicyExecutor, Solver, cores
from replay.speeds import Speeds
from replay.underway import UnderWay
from replay.world import Outside, World
from schemas.decisions import Decision
from schemas.events import JobSubmitted, WorkerRegistered
from schemas.record import Draft, Record
from schemas.subjects import WORKER, role
from services.policy.solve import carry_out
from services.runtime.actor import Actor, Core, is_service
from services.runtime.log import Gate, place
from services.worker.core import WorkerCore

#: Reads a log from its first record on.
Read = Callable[[], Iterator[Record]]


class Cores:
    """What services know after some record of a log, and the time that jobs have received.

    Parameters
    ----------
    read : reads the log anew, for services that start late in it
    only : the services that are wanted; None: all that have written by then
    """

    def __init__(self, read: Read, only: Collection[str] | None = None) -> None:
        self.now, self.last_seq = 0.0, 0
        self.actors = {
            name: Actor(name, make())
            for name, make in cores().items()
            if role(name) != WORKER and (only is None or name in only)
        }
        self.received = Received()
        #: Those that there are, wanted or not.
        self.services = {name for name in cores() if role(name) != WORKER}
        self._read = read
        self._only = only

    def take(self, record: Record) -> dict[str, Sequence[Decision]]:
        """Fold the next record; {service: what it decides on it}, those left out that do nothing.

        The position of a decision in its sequence is its ``index``.
        """
        name = record.actor
        if name not in self.services and is_service(name):
            self._start(record)
        decided = {}
        for each, actor in self.actors.items():
            decisions = actor.fold(record)
            if decisions:
                decided[each] = decisions
        self.received.take(record)
        self.now, self.last_seq = max(self.now, record.at), record.seq
        return decided

    def join(self, name: str) -> Actor | None:
        """One more worker service, which has folded nothing yet; None if it is not wanted."""
        if name in self.actors or (self._only is not None and name not in self._only):
            return None
        self.actors[name] = Actor(name, WorkerCore(name))
        return self.actors[name]

    def _start(self, record: Record) -> None:
        """A worker service writes for the first time: it has folded all that was there before."""
        self.services.add(record.actor)
        actor = self.join(record.actor)
        if actor is not None:
            for earlier in islice(self._read(), record.seq - 1):
                actor.fold(earlier)


class Moment(Cores):
    """A log up to some record; see the module.

    Parameters
    ----------
    read : see ``Cores``
    """

    def __init__(self, read: Read = lambda: iter(())) -> None:
        super().__init__(read)
        self.world = World()
        self.under_way = UnderWay()

    def take(self, record: Record) -> dict[str, Sequence[Decision]]:
        """Fold the next record; see ``Cores``."""
        decided = super().take(record)
        self.world.take(record)
        self.under_way.take(record)
        return decided

    @property
    def beside(self) -> tuple[World, Speeds, UnderWay]:
        """The folds beside the cores, to be kept with them."""
        return (self.world, self.world.speeds, self.under_way)


class Onward:
    """A moment, going on: a driver in which nothing has happened yet.

    Parameters
    ----------
    moment : from where; it is left as it is
    rates : how fast tasks run
    load_s, save_s : checkpoint seconds
    outside : what is still to come from outside, in order
    workers : accelerators that are there besides those that have registered
    failures : {job id: its failures still to come}
    solver : what answers solves
    observers : called with every record that comes of it
    """

    def __init__(
        self,
        moment: Moment,
        rates: Rates,
        *,
        load_s: float,
        save_s: float,
        outside: Sequence[Outside] = (),
        workers: Sequence[WorkerRegistered] = (),
        failures: Mapping[str, Sequence[Failure]] = MappingProxyType({}),
        solver: Solver = carry_out,
        observers: Iterable[Callable[[Record], None]] = (),
    ) -> None:
        world = moment.world
        to_come = [each.event for each in outside if isinstance(each.event, WorkerRegistered)]
        there = {w.worker_id: w for w in (*world.workers.values(), *workers)}
        everyone = {w.worker_id: w for w in to_come} | there
        services = {*world.worker_services, *(w.reporter for w in everyone.values())}
        self.policy_executor = PolicyExecutor(solver)
        cluster = Cluster(
            tuple(everyone.values()),
            rates,
            load_s=load_s,
            save_s=save_s,
            taken_over=moment.under_way.taken_over(),
            to_come=everyone.keys() - there.keys(),
            failures=failures,
        )
        executors: dict[str, Executor] = {
            "estimator": EstimatorExecutor(),
            "policy": self.policy_executor,
            "mechanism": NoEffects(),
            **dict.fromkeys(sorted(services or {SIMULATED_WORKER}), cluster),
        }
        starts_at_s = min((each.at for each in outside), default=0.0)
        self.driver = Driver(
            _Tail(world),
            {name: _core_of(name) for name in executors},
            executors,
            observers=observers,
            now=world.now if world.last_seq else starts_at_s,
            folded={name: copy.deepcopy(actor) for name, actor in moment.actors.items()},
        )
        is_job = [isinstance(each.event, JobSubmitted) for each in outside]
        first_job = is_job.index(True) if True in is_job else len(outside)
        if not world.jobs:
            # What there is and how it is run is known before the first job, as in any simulation.
            self._submit(outside[:first_job])
            self.driver.run()
            outside = outside[first_job:]
        self._submit(outside)

    def _submit(self, outside: Sequence[Outside]) -> None:
        for each in outside:
            self.driver.submit(each.at, each.actor, each.event)


class _Tail:
    """The log behind the moment; what comes is told to observers, and not kept."""

    def __init__(self, world: World) -> None:
        self.last_seq = world.last_seq
        self._gate = Gate()
        for start in world.starts.values():
            self._gate.add(start)

    def append(self, draft: Draft, at: float) -> Record | None:
        """See ``Log``."""
        if not self._gate.is_new(draft):
            return None
        self._gate.add(draft)
        self.last_seq += 1
        return place(draft, self.last_seq, at)

    def read(self, after: int = 0) -> Iterator[Record]:
        """See ``Log``: whoever starts has folded all there is."""
        return iter(())

    def close(self) -> None:
        """See ``Log``."""


def _core_of(name: str) -> Callable[[], Core]:
    return (lambda: WorkerCore(name)) if role(name) == WORKER else cores()[name]

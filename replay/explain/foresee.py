"""What will become of a job, by simulating on from a moment: nothing more comes from outside.

The next plan is decided as it will be, and asked how it was come to; then the cluster goes on until
the job starts, or ends. One change at a time shows what would make that sooner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from replay.moment import Moment, Onward
from replay.whatif.change import Change, inputs
from replay.world import Outside
from schemas.domain import Lease
from schemas.events import JobEnded, RoundScheduled
from schemas.record import Record
from services.mechanism.core import MechanismCore
from services.mechanism.planning import Ranking

#: With fewer jobs a record costs no less.
_FEW = 25


@dataclass(slots=True)
class Future:
    """What was seen of a job's future."""

    job_id: str
    #: How the next plan was come to; None if there is none.
    ranking: Ranking | None = None
    plan: RoundScheduled | None = None
    #: The job's next lease.
    lease: Lease | None = None
    starts_s: float | None = None
    ending: JobEnded | None = None
    ends_s: float | None = None
    #: Where the simulation stopped, s; and whether because nothing is left to happen.
    seen_to_s: float = 0.0
    is_over: bool = False
    records: int = 0

    @property
    def looked_at(self) -> int:
        """What it took to see so much, about in proportion to processor time."""
        jobs = 0 if self.ranking is None else len(self.ranking.claims.jobs)
        return self.records * max(_FEW, jobs)

    def ranked(self, ranking: Ranking) -> None:
        """Take in how a plan was come to."""
        if self.ranking is None:
            # The priorities' books go on being written.
            keys = tuple(key.copy() for key in ranking.keys)
            self.ranking = replace(ranking, keys=keys, priority=ranking.priority.copy())

    def take(self, record: Record) -> None:
        """Take in the next record."""
        self.records += 1
        self.seen_to_s = record.at
        event = record.event
        if isinstance(event, RoundScheduled):
            self.plan = self.plan or event
            if self.starts_s is None:
                self._look_for_lease(event)
        elif isinstance(event, JobEnded) and event.job_id == self.job_id:
            self.ending, self.ends_s = event, record.at

    def _look_for_lease(self, plan: RoundScheduled) -> None:
        for lease in plan.granted:
            if any(task.job_id == self.job_id for task in lease.tasks):
                self.lease, self.starts_s = lease, plan.starts_at_s


def future(
    moment: Moment,
    job_id: str,
    *,
    to_the_end: bool,
    at_most: int,
    change: Change | None = None,
    said: Sequence[Outside] = (),
) -> Future:
    """Simulate on until a job starts, or ends.

    Parameters
    ----------
    moment : from where
    job_id : the job
    to_the_end : go on until it has ended; else, until it has a lease
    at_most : how far to look: records, times the jobs that are there (or ``_FEW``, if fewer)
    change : what is changed first
    said : what else is said at once
    """
    world = moment.world
    seen = Future(job_id, seen_to_s=world.now)
    given = inputs(change or Change(), moment, world)
    onward = Onward(
        moment,
        world.speeds.rates(given.table),
        load_s=world.load_s,
        save_s=world.save_s,
        outside=[*given.outside, *said],
        workers=given.workers,
        observers=(seen.take,),
    )
    core = onward.driver.actors["mechanism"].core
    assert isinstance(core, MechanismCore), "the mechanism's"
    core.on_ranking = seen.ranked

    def enough() -> bool:
        if seen.ends_s is not None or seen.looked_at >= at_most:
            return True
        return not to_the_end and seen.starts_s is not None

    onward.driver.run(until=enough)
    seen.is_over = not enough()
    return seen


class Help(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and what it would bring a job."""

    change: str
    #: ``start`` or ``end``: what would come earlier.
    of: str
    #: When that would be, log time, s; None: not within what was simulated.
    at_s: float | None
    #: By so much, s; None: one of the two was not seen.
    earlier_s: float | None


def what_helps(
    moment: Moment,
    before: Future,
    worker_types: Iterable[str],
    number: int,
    *,
    of: str,
    at_most: int,
) -> list[Help]:
    """For each type, what so many more workers of it would bring.

    Parameters
    ----------
    moment : from where
    before : the job's future without them
    worker_types : types to try
    number : workers more
    of : see ``Help``
    at_most : how far to look for each
    """
    found = []
    for worker_type in worker_types:
        after = future(
            moment,
            before.job_id,
            to_the_end=of == "end",
            at_most=at_most,
            change=Change(cluster={worker_type: number}),
        )
        was, at_s = (
            (before.starts_s, after.starts_s) if of == "start" else (before.ends_s, after.ends_s)
        )
        words = f"{'one' if number == 1 else number} more {worker_type}"
        earlier_s = None if was is None or at_s is None else was - at_s
        found.append(Help(change=words, of=of, at_s=at_s, earlier_s=earlier_s))
    return found

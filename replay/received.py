"""The time that combinations have received on each worker type since the newest allocation: a fold.

It is the paper's t (§5), of which f, the fraction received, and the priority X/f are made. The
mechanism keeps it only where it ranks by it (``priority = reset``); here it is there for any log.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.domain import UNCONSOLIDATED, Combination, Lease, TaskProgress
from schemas.events import (
    AllocationComputed,
    Event,
    LeasesChanged,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
)
from schemas.record import Record


class Received:
    """Folds records; see the attributes."""

    #: When the newest allocation came, s of log time.
    since_s: float
    #: {combination: {worker type: seconds}}, what has been reported since then.
    seconds: dict[Combination, dict[str, float]]
    #: {lease that is out, or whose last report is on its way: (whose, worker type or way)}
    _out: dict[str, tuple[Combination, str]]
    #: Of these, the ones that the newest plan has ended, or that were revoked since.
    _ending: list[str]

    def __init__(self) -> None:
        self.since_s, self.seconds, self._out, self._ending = 0.0, {}, {}, []
        self._takes: dict[type[Event], Callable[..., None]] = {
            AllocationComputed: self._restart,
            RoundScheduled: self._plan,
            LeasesChanged: self._revoke,
            ProgressReported: self._book_round,
            TaskStopped: self._book_stop,
        }

    def take(self, record: Record) -> None:
        """Take in the next record."""
        take = self._takes.get(type(record.event))
        if take is not None:
            take(record.event, record.at)

    def fractions(self) -> dict[Combination, dict[str, float]]:
        """f: of the time all have received on a type, each combination's part."""
        totals: dict[str, float] = {}
        for of_types in self.seconds.values():
            for way, seconds in of_types.items():
                totals[way] = totals.get(way, 0.0) + seconds
        return {
            combination: {way: t / totals[way] for way, t in of_types.items() if totals[way] > 0}
            for combination, of_types in self.seconds.items()
        }

    def _restart(self, _event: AllocationComputed, at: float) -> None:
        self.since_s, self.seconds = at, {}

    def _plan(self, event: RoundScheduled, _at: float) -> None:
        # Who was ended by the plan before this one has reported by now, or will not.
        for lease_id in self._ending:
            self._out.pop(lease_id, None)
        self._ending = list(event.ended)
        for lease in event.granted:
            self._out[lease.lease_id] = _combination(lease), _way(lease)

    def _revoke(self, event: LeasesChanged, _at: float) -> None:
        self._ending += event.revoked

    def _book_round(self, event: ProgressReported, _at: float) -> None:
        for row in event.rows:
            self._book(row)

    def _book_stop(self, event: TaskStopped, _at: float) -> None:
        self._book(event.task)

    def _book(self, row: TaskProgress) -> None:
        out = self._out.get(row.lease_id)
        # Of two jobs that share workers, one says how long they were held.
        if out is not None and row.job_id == out[0][0]:
            combination, way = out
            of_types = self.seconds.setdefault(combination, {})
            of_types[way] = of_types.get(way, 0.0) + row.run_s


def _combination(lease: Lease) -> Combination:
    return tuple(task.job_id for task in lease.tasks)


def _way(lease: Lease) -> str:
    return lease.worker_type + UNCONSOLIDATED * lease.unconsolidated

"""Profiles: short leases beside the rounds, to measure a job that nobody knows (§6).

What is measured is a copy of the job, so the job itself may run meanwhile. Workers registered for
profiles only are used at any time; those of the cluster while a round leaves them idle, and no
longer than the round. First asked, first served, as far as there are workers of the type. A gang
is measured consolidated, unless the workers kept for profiles lie too far apart for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from schemas.decisions import Decision, Emit, Wake
from schemas.domain import UNCONSOLIDATED, Lease, ProfileCell, TaskSpec
from schemas.events import LeasesChanged, ProfileRequested, RoundScheduled
from schemas.servers import Servers
from services.mechanism.jobs import Jobs
from services.mechanism.leases import Leases
from services.mechanism.placement import Workers, place
from services.mechanism.planning import task_of

#: Seconds past its end after which a profile is taken never to return.
PATIENCE_S = 60.0


@dataclass(slots=True)
class Profiles:
    """Profiles asked for, and those that are out."""

    #: (job id, what to measure, seconds), in the order they were asked for
    _waiting: list[tuple[str, ProfileCell, float]] = field(default_factory=list)
    #: {lease id: (lease, when it ends)}
    _running: dict[str, tuple[Lease, float]] = field(default_factory=dict)
    #: The newest plan; what it leaves idle may be profiled on until it ends.
    _round: RoundScheduled | None = None
    #: Workers it leases, also those whose jobs have ended since: theirs may be clearing up.
    _busy: frozenset[str] = frozenset()
    _granted: int = 0

    def request(self, event: ProfileRequested) -> None:
        """Put a job's profiles in the queue."""
        self._waiting += [(event.job_id, cell, event.seconds) for cell in event.cells]

    def round_planned(self, plan: RoundScheduled, leases: Leases) -> None:
        """A round is planned, and its leases are on the books."""
        self._round = plan
        held = leases.in_round(plan.round_id).values()
        self._busy = frozenset(worker for each in held for worker in each.lease.worker_ids)

    def hold(self, worker_id: str) -> bool:
        """Whether a profile is out on the worker."""
        return any(worker_id in lease.worker_ids for lease, _ in self._running.values())

    def returned(self, lease_id: str) -> None:
        """A profile is over; its workers are free."""
        self._running.pop(lease_id, None)

    def expire(self, now: float) -> Iterator[Decision]:
        """Give up the profiles that should have returned long ago."""
        over = [i for i, (_, ends_at_s) in self._running.items() if ends_at_s + PATIENCE_S <= now]
        return self._give_up(over, f"no word of the profile {PATIENCE_S:g} s after its end")

    def lost(self, worker_id: str) -> Iterator[Decision]:
        """A worker is lost: profiles on it find nothing."""
        over = [i for i, (lease, _) in self._running.items() if worker_id in lease.worker_ids]
        return self._give_up(over, f"worker {worker_id} is lost")

    def _give_up(self, over: Sequence[str], reason: str) -> Iterator[Decision]:
        for lease_id in over:
            del self._running[lease_id]
        if over:
            yield Emit(LeasesChanged(round_id=self._number, revoked=tuple(over), reason=reason))

    def grant(self, jobs: Jobs, workers: Workers, now: float) -> list[Decision]:
        """Lease free workers to the profiles that wait, as far as they go."""
        if not self._waiting:
            return []
        self._waiting = [each for each in self._waiting if each[0] in jobs.active]
        busy = self._busy.union(*(lease.worker_ids for lease, _ in self._running.values()))
        own: dict[str, list[str]] = {}
        idle: dict[str, list[str]] = {}
        for worker_id, worker in workers.registered.items():
            if worker_id not in busy and workers.leasable(worker_id):
                free = own if worker.profiles_only else idle
                free.setdefault(worker.worker_type, []).append(worker_id)
        starts_at_s = max(now, self._round.starts_at_s) if self._round else now
        until_s = self._round.ends_at_s if self._round else now
        decisions = self._lease(jobs, workers, own, now, float("inf"))
        return decisions + self._lease(jobs, workers, idle, starts_at_s, until_s)

    @property
    def _number(self) -> int:
        return self._round.round_id if self._round else 0

    def _lease(
        self,
        jobs: Jobs,
        workers: Workers,
        free: dict[str, list[str]],
        starts_at_s: float,
        until_s: float,
    ) -> list[Decision]:
        granted: dict[float, list[Lease]] = {}
        waiting: list[tuple[str, ProfileCell, float]] = []
        for position, (job_id, cell, seconds) in enumerate(self._waiting):
            if not any(free.values()):
                waiting += self._waiting[position:]
                break
            job = jobs.active[job_id]
            worker_type = cell.worker_type.removesuffix(UNCONSOLIDATED)
            apart = worker_type != cell.worker_type
            there = free.get(worker_type, [])
            size = job.spec.scale_factor
            ends_at_s = starts_at_s + seconds
            choose = _far_apart if apart else _close_together
            worker_ids = choose(there, size, workers)
            if not worker_ids or ends_at_s > until_s:
                waiting.append((job_id, cell, seconds))
                continue
            free[worker_type] = [w for w in there if w not in worker_ids]
            tasks = [task_of(job)]
            if cell.beside:
                tasks.append(
                    TaskSpec(job_id="", job_type=cell.beside, scale_factor=size, total_steps=0.0)
                )
            lease = Lease(
                lease_id=f"p{self._granted}",
                tasks=tuple(tasks),
                worker_type=worker_type,
                worker_ids=worker_ids,
                unconsolidated=apart,
                reporters=workers.reporters(worker_ids),
                profile=True,
            )
            self._granted += 1
            self._running[lease.lease_id] = (lease, ends_at_s)
            granted.setdefault(ends_at_s, []).append(lease)
        self._waiting = waiting
        return [
            decision
            for ends_at_s, leases in granted.items()
            for decision in self._announce(leases, starts_at_s, ends_at_s)
        ]

    def _announce(
        self, leases: list[Lease], starts_at_s: float, ends_at_s: float
    ) -> tuple[Decision, ...]:
        changed = LeasesChanged(
            round_id=self._number,
            revoked=(),
            reason="profile",
            granted=tuple(leases),
            starts_at_s=starts_at_s,
            ends_at_s=ends_at_s,
        )
        timer = f"profile/{leases[0].lease_id}"
        return Emit(changed), Wake(timer, ends_at_s + PATIENCE_S)


def _close_together(there: list[str], size: int, workers: Workers) -> tuple[str, ...]:
    """So many of these workers of one type, on as few servers as may be; none if that will not do.

    A gang on more servers than need be would be measured slower than the type can run it. Workers
    kept for profiles are taken as they stand.
    """
    if size == 1 or len(there) < size:
        return tuple(there[:size]) if len(there) >= size else ()
    (chosen,) = place([(size, None)], _by_server(there, workers))
    first = workers.registered[chosen[0]]
    consolidated = Servers.of(workers.registered.values()).is_consolidated(
        first.worker_type, chosen
    )
    return chosen if first.profiles_only or consolidated else ()


def _far_apart(there: list[str], size: int, workers: Workers) -> tuple[str, ...]:
    """So many of these workers of one type, on more servers than need be; none if they cannot."""
    by_server = _by_server(there, workers).values()
    in_turn = [w for turn in zip_longest(*by_server) for w in turn if w is not None]
    chosen = tuple(in_turn[:size])
    if len(chosen) < size:
        return ()
    worker_type = workers.registered[chosen[0]].worker_type
    servers = Servers.of(workers.registered.values())
    return () if servers.is_consolidated(worker_type, chosen) else chosen


def _by_server(worker_ids: list[str], workers: Workers) -> dict[str, list[str]]:
    by_server: dict[str, list[str]] = {}
    for worker_id in worker_ids:
        by_server.setdefault(workers.registered[worker_id].server_id, []).append(worker_id)
    return by_server

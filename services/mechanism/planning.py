"""One round's plan: claims, ranking, Algorithm 1, placement, leases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from schemas.domain import UNCONSOLIDATED, Combination, Lease, TaskSpec
from schemas.events import AllocationComputed, ClusterConfigured, RoundScheduled
from services.mechanism.claims import Claims, Floats, Ints
from services.mechanism.consolidation import Request, Room, place_as_priced
from services.mechanism.jobs import Job, Jobs, Kind
from services.mechanism.leases import Held
from services.mechanism.placement import Workers, place
from services.mechanism.priorities import CreditPriorities, ResetPriorities
from services.mechanism.selection import Choice, select


@dataclass(frozen=True, slots=True)
class Standing:
    """How things stand when a round is planned."""

    config: ClusterConfigured
    jobs: Jobs
    workers: Workers
    #: Leases of the round before that may be renewed.
    held: Mapping[Combination, Held]
    round_id: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """How a plan was come to, for those who ask why."""

    claims: Claims
    #: (combinations, worker types) what leases carry as their priority.
    priority: Floats
    #: What pairs were sorted by, descending; see ``select``.
    keys: tuple[Floats, ...]
    #: Pairs that were served, in that order.
    choices: Sequence[Choice]
    #: (pools,) workers that could be leased.
    capacity: Sequence[int]
    #: Columns whose gangs must be consolidated, and for one of which there was no room.
    crowded: frozenset[int]


@dataclass(slots=True)
class Planner:
    """Keeps the claims and the priorities' books from plan to plan."""

    _priorities: CreditPriorities | ResetPriorities
    _claims: Claims | None = None
    #: {job id: {worker type: share}} alone, of all jobs the newest allocation knows of.
    _alone: dict[str, dict[str, float]] = field(default_factory=dict)
    #: Its pairs, with what all of them have.
    _pairs: list[tuple[list[Combination], dict[str, float]]] = field(default_factory=list)
    #: When the newest allocation came, until the books have been moved to it.
    _solved_at: float | None = None
    #: Whether it tells consolidated workers from others.
    _names_ways: bool = False
    #: Something the claims are made of has changed.
    stale: bool = True

    def start_books(self, priorities: CreditPriorities | ResetPriorities, now: float) -> None:
        """Rank by other priorities from here on; the allocation stays in force."""
        self._priorities = priorities
        self._claims = None
        if self._alone:
            self._solved_at = now

    def allocate(self, event: AllocationComputed, now: float) -> None:
        """A new X; the books move to it with the next plan."""
        self._pairs, self._alone = [], {}
        for row in event.rows:
            pairs = [c for c in row.combinations if len(c) > 1]
            for job_id in chain.from_iterable(pairs):
                self._alone.setdefault(job_id, {})
            if len(pairs) < len(row.combinations):
                alone = (c[0] for c in row.combinations if len(c) == 1)
                self._alone.update(dict.fromkeys(alone, row.shares))
            if pairs:
                self._pairs.append((pairs, row.shares))
        names = {name for row in event.rows for name in row.shares}
        self._names_ways = any(name.endswith(UNCONSOLIDATED) for name in names)
        self._solved_at = now
        self.stale = True

    def received(self, uses: Iterable[tuple[Held, float]]) -> None:
        """Leases have held their workers for so many seconds."""
        claims = self._claims
        if claims is None:
            return
        column = {worker_type: j for j, worker_type in enumerate(claims.worker_types)}
        known = [
            (claims.row[held.combination], column[_way(held.lease)], seconds)
            for held, seconds in uses
            if held.combination in claims.row and _way(held.lease) in column
        ]
        if known:
            rows, columns, seconds = zip(*known, strict=True)
            self._priorities.received(rows, columns, seconds)

    def plan(self, standing: Standing, starts_at_s: float) -> tuple[RoundScheduled, Ranking]:
        """Plan the round that starts at ``starts_at_s``; and tell how."""
        claims = self._current_claims(standing, starts_at_s)
        config = standing.config
        running = np.zeros(claims.share.shape)
        for combination, held in standing.held.items():
            row = claims.row.get(combination)
            if row is not None and _way(held.lease) in claims.worker_types:
                running[row, claims.worker_types.index(_way(held.lease))] = 1.0
        priority, keys = self._priorities.rank(claims, running)
        capacity = standing.workers.capacity(claims.pools)
        rooms = _rooms(claims, standing.workers)
        choices = select(
            claims,
            capacity,
            keys,
            type_order=_type_order(config, claims.worker_types, standing.round_id),
            fill=config.fill,
            rooms=rooms,
        )
        crowded = frozenset(column for column, room in rooms.items() if room.refused)
        ranking = Ranking(claims, priority, keys, choices, tuple(capacity), crowded)
        rows, columns = [row for row, _ in choices], [column for _, column in choices]
        for column, room in rooms.items():
            if room.refused:
                # What is left there is of no use to those who are owed it.
                pool = int(claims.pool[column])
                used = np.bincount(claims.pool[columns], claims.scale_factor[rows], pool + 1)
                capacity[pool] = int(used[pool])
        self._priorities.granted(rows, columns, config.round_duration_s, capacity)
        return _leases(standing, claims, choices, rooms, priority, starts_at_s), ranking

    def _current_claims(self, standing: Standing, now: float) -> Claims:
        if self._claims is None or self.stale:
            self._claims = self._build(standing, now)
            solved = self._solved_at is not None
            at = self._solved_at if self._solved_at is not None else now
            self._priorities.install(self._claims, at, solved=solved)
            self._solved_at = None
            self.stale = False
        return self._claims

    def _build(self, standing: Standing, now: float) -> Claims:
        jobs, workers = standing.jobs, standing.workers
        types = workers.types()
        if ":placement" in standing.config.policy or self._names_ways:
            types = tuple(way for t in types for way in (t, t + UNCONSOLIDATED))
        counts = workers.capacity([t.removesuffix(UNCONSOLIDATED) for t in types])
        active = {
            job_id: job for job_id, job in jobs.active.items() if jobs.speeds(job) is not None
        }
        alone, shares = [], []
        for job_id, job in active.items():
            if job_id in self._alone:
                of_job = self._alone[job_id]
                shares.append([of_job.get(t, 0.0) for t in types])
            elif standing.config.new_jobs == "equal_share":
                shares.append(_equal_share(job, jobs, types, counts, len(active)))
            else:
                continue
            alone.append(job_id)
        number = {job_id: n for n, job_id in enumerate(active)}
        pairs, pair_shares = self._active_pairs(number, types)
        combinations = [(job_id,) for job_id in alone] + pairs
        first = np.array([number[c[0]] for c in combinations], dtype=np.int64)
        last = np.array([number[c[-1]] for c in combinations], dtype=np.int64)
        arrival = np.array([job.arrival for job in active.values()], dtype=np.int64)
        scale_factor = np.array([job.spec.scale_factor for job in active.values()], dtype=np.int64)
        share = np.concatenate([np.array(shares).reshape(-1, len(types)), pair_shares])
        # Of equals, jobs alone come first; of pairs the one whose earlier job came first.
        order = np.minimum(arrival[first], arrival[last]) + np.where(
            first == last, 0, jobs.admitted
        )
        return Claims.build(
            types,
            combinations,
            share,
            _runnable(list(active.values()), first, last, jobs, types, share, now),
            scale_factor[first],
            order,
        )

    def _active_pairs(
        self, number: Mapping[str, int], types: tuple[str, ...]
    ) -> tuple[list[Combination], Floats]:
        """Pairs of the newest allocation whose jobs both are there; (pairs, worker types) X."""
        pairs: list[Combination] = []
        sizes = []
        for of_row, _ in self._pairs:
            there = [c for c in of_row if c[0] in number and c[1] in number]
            pairs += there
            sizes.append(len(there))
        shares = [[of_row.get(t, 0.0) for t in types] for _, of_row in self._pairs]
        return pairs, np.repeat(np.array(shares).reshape(-1, len(types)), sizes, axis=0)


def _runnable(
    active: Sequence[Job],
    first: Ints,
    last: Ints,
    jobs: Jobs,
    types: tuple[str, ...],
    share: Floats,
    now: float,
) -> NDArray[np.bool_]:
    """(combinations, worker types) where both jobs, by number, can run; asked once per kind.

    Of the two ways to hold a type, only the one that X gives or, if it gives none, the better.
    """
    kinds: dict[Kind, int] = {}
    kind = np.array([kinds.setdefault(jobs.kind(job), len(kinds)) for job in active], dtype=int)
    nobody = len(kinds)
    other = np.where(first == last, nobody, kind[last])
    _, examples, which = np.unique(
        kind[first] * (nobody + 1) + other, return_index=True, return_inverse=True
    )
    can_run = np.zeros((len(examples), len(types)), dtype=bool)
    would_run = np.zeros((len(examples), len(types)), dtype=bool)
    others = _other_ways(types)
    for n, (one, two) in enumerate(zip(first[examples], last[examples], strict=True)):
        members = [active[number] for number in dict.fromkeys((int(one), int(two)))]
        can_run[n], would_run[n] = _ways(members, jobs, types, others)
    # After a failure a job waits, but is owed what it was owed.
    waits = np.array([job.not_before_s > now for job in active], dtype=bool)
    priced = share > 0
    runnable: NDArray[np.bool_] = can_run[which] & priced
    runnable |= would_run[which] & ~priced[:, others]
    runnable &= ~(waits[first] | waits[last])[:, None]
    return runnable


def _other_ways(types: Sequence[str]) -> list[int]:
    """(columns,) the other way to hold the type; where there is but one, itself."""
    ways = [
        t.removesuffix(UNCONSOLIDATED) if t.endswith(UNCONSOLIDATED) else t + UNCONSOLIDATED
        for t in types
    ]
    return [types.index(way) if way in types else j for j, way in enumerate(ways)]


def _ways(
    members: Sequence[Job], jobs: Jobs, types: Sequence[str], others: Sequence[int]
) -> tuple[list[bool], list[bool]]:
    """(columns,) where the jobs can run; and of two ways the faster only, consolidated if equal.

    Jobs that share their workers are consolidated, unless they can run in the other way alone.
    """
    can_run = [jobs.run_on(members, t) for t in types]
    speeds = [jobs.speed(members[0], t) if len(members) == 1 else 0.0 for t in types]
    better = [
        speeds[j] > speeds[other] or (speeds[j] == speeds[other] and j <= other)
        for j, other in enumerate(others)
    ]
    of_two = [can_run[j] and (better[j] or not can_run[other]) for j, other in enumerate(others)]
    return can_run, of_two


def _equal_share(
    job: Job, jobs: Jobs, types: tuple[str, ...], counts: list[int], num_jobs: int
) -> list[float]:
    """X^equal: the 1/n share of each type the job can use, at most all of its time (§3.1)."""
    scale_factor = job.spec.scale_factor
    _, can_run = _ways([job], jobs, types, _other_ways(types))
    share = [
        count / (num_jobs * scale_factor) if count >= scale_factor and can else 0.0
        for count, can in zip(counts, can_run, strict=True)
    ]
    return [x / max(1.0, sum(share)) for x in share]


def _type_order(
    config: ClusterConfigured, types: tuple[str, ...], round_id: int
) -> list[int] | None:
    if config.selection == "global":
        return None
    orders = config.type_orders
    named = orders[(round_id - 1) % len(orders)] if orders else ()
    first = [way for t in named for way in (t, t + UNCONSOLIDATED) if way in types]
    return [types.index(t) for t in first + [t for t in types if t not in first]]


def _leases(
    standing: Standing,
    claims: Claims,
    choices: list[Choice],
    rooms: Mapping[int, Room],
    priority: Floats,
    starts_at_s: float,
) -> RoundScheduled:
    """Place what was chosen; renew where job and workers stay the same, grant the rest."""
    granted: list[Lease] = []
    renewed: list[str] = []
    renewed_priorities: list[float] = []
    ranks = np.round(priority, 6).tolist()
    pool_of = claims.pool.tolist()
    for pool, worker_type in enumerate(claims.pools):
        here = [(row, column) for row, column in choices if pool_of[column] == pool]
        held = [
            _held_on(
                standing, claims.combinations[row], claims.worker_types[column], rooms.get(column)
            )
            for row, column in here
        ]
        placed = _placed(standing, claims, here, held, rooms, worker_type)
        for (row, column), before, worker_ids in zip(here, held, placed, strict=True):
            rank = ranks[row][column]
            # Whoever has left a lease it shared comes back with a new one.
            whole = before is not None and len(before.running) == len(before.combination)
            if before is not None and whole and before.lease.worker_ids == worker_ids:
                renewed.append(before.lease.lease_id)
                renewed_priorities.append(rank)
                continue
            granted.append(
                Lease(
                    lease_id=f"r{standing.round_id}-{len(granted)}",
                    tasks=tuple(
                        task_of(standing.jobs.active[job_id]) for job_id in claims.combinations[row]
                    ),
                    worker_type=worker_type,
                    worker_ids=worker_ids,
                    reporters=standing.workers.reporters(worker_ids),
                    priority=rank,
                    unconsolidated=claims.worker_types[column] != worker_type,
                )
            )
    kept = set(renewed)
    return RoundScheduled(
        round_id=standing.round_id,
        starts_at_s=starts_at_s,
        ends_at_s=starts_at_s + standing.config.round_duration_s,
        granted=tuple(granted),
        renewed=tuple(renewed),
        renewed_priorities=tuple(renewed_priorities),
        ended=tuple(
            held.lease.lease_id
            for held in standing.held.values()
            if held.lease.lease_id not in kept
        ),
    )


def _placed(
    standing: Standing,
    claims: Claims,
    choices: list[Choice],
    held: list[Held | None],
    rooms: Mapping[int, Room],
    worker_type: str,
) -> list[tuple[str, ...]]:
    """Workers for each row; when all keep what they hold, nothing needs to be looked for."""
    keeping = [before.lease.worker_ids for before in held if before is not None]
    if len(keeping) == len(choices) and standing.workers.all_usable:
        return keeping
    requests = [
        Request(
            int(claims.scale_factor[row]),
            None if before is None else before.lease.worker_ids,
            column in rooms and claims.scale_factor[row] > 1,
        )
        for (row, column), before in zip(choices, held, strict=True)
    ]
    servers = standing.workers.servers(worker_type)
    for column, room in rooms.items():
        if claims.worker_types[column] == worker_type:
            return place_as_priced(requests, servers, room)
    return place([(request.workers, request.held) for request in requests], servers)


def _way(lease: Lease) -> str:
    """The column that the lease was granted for."""
    return lease.worker_type + UNCONSOLIDATED * lease.unconsolidated


def _rooms(claims: Claims, workers: Workers) -> dict[int, Room]:
    """{column whose gangs must be consolidated: the room for them}."""
    return {
        column: Room([len(ids) for ids in workers.servers(t).values()])
        for column, t in enumerate(claims.worker_types)
        if t + UNCONSOLIDATED in claims.worker_types
    }


def _held_on(
    standing: Standing, combination: Combination, way: str, room: Room | None
) -> Held | None:
    """What the combination holds in this way, of workers as many servers as it should be on."""
    held = standing.held.get(combination)
    if held is None or _way(held.lease) != way:
        return None
    ids = held.lease.worker_ids
    if room is not None and standing.workers.span(ids) != room.span(len(ids)):
        return None
    return held


def task_of(job: Job) -> TaskSpec:
    """What a worker must know to run the job on from where it is."""
    spec = job.spec
    assert spec.total_steps is not None, "admission refuses jobs without steps"
    return TaskSpec(
        job_id=spec.job_id,
        job_type=spec.job_type,
        scale_factor=spec.scale_factor,
        total_steps=spec.total_steps,
        resume_from=job.last_lease,
        command=spec.command,
        workdir=spec.workdir,
        environment=spec.environment,
        checkpoint_dir=spec.checkpoint_dir,
    )

"""In what order combinations are to be served: two rules behind one seam.

``ResetPriorities`` is the paper's: X/f, with f restarted at each allocation (§5). It starves jobs
of small share when allocations change often, since what they were owed is forgotten.
``CreditPriorities`` remembers: entitlement accrues as X times elapsed time, a granted round is
paid for with it, and a new allocation changes the rate but not the balance. The balance of a pair
that is no more goes to its two jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from services.mechanism.claims import Claims, Floats, Ints

#: Share of a round that X/f pretends every combination has received at the start, so that f > 0.
_HEAD_START = 0.5
#: Priority per share of a combination that has received nothing, not even the head start.
_NOTHING_RECEIVED = 1e9
#: Rounds' worth of credit that going on in place outweighs: a preemption costs a checkpoint.
_RUNNING_BONUS = 2.0
#: Rounds' worth of debt at which it ends. It must outweigh the bonus by some rounds: with less,
#: who runs would be let off the rest, and go on at the cost of all who wait.
_DEEPEST_DEBT = _RUNNING_BONUS + 2.0
#: Rounds' worth of credit per doubling of the scale factor: gangs pack better first than last.
_GANG_BONUS = 1.0 / 8.0


class Priorities(Protocol):
    """Ranks combinations for a round and keeps the books between rounds."""

    def install(self, claims: Claims, now: float, *, solved: bool) -> None:
        """Move the books to new claims; ``solved``: they carry a newly computed X."""
        ...

    def rank(self, claims: Claims, running: Floats) -> tuple[Floats, tuple[Floats, ...]]:
        """Priority of each pair, and the keys (most significant first, descending) to sort by.

        ``running`` is 1 where the combination runs on the type now, else 0.
        """
        ...

    def granted(
        self,
        rows: Sequence[int],
        columns: Sequence[int],
        duration_s: float,
        capacity: Sequence[int],
    ) -> None:
        """These pairs were granted the coming round, of ``capacity`` workers of each pool."""
        ...

    def received(
        self, rows: Sequence[int], columns: Sequence[int], seconds: Sequence[float]
    ) -> None:
        """These pairs have run for so long; each is named once."""
        ...


def _nothing() -> Floats:
    return np.zeros((0, 0))


class ResetPriorities(msgspec.Struct, tag=True):
    """X/f, f the fraction of a type's time received since the last allocation (§5)."""

    _round_s: float
    _claims: Claims | None = None
    _since_s: float = 0.0
    #: (combinations, worker types) seconds received since the last allocation, head start in.
    _received_s: Floats = msgspec.field(default_factory=_nothing)
    #: (combinations, worker types) seconds owed over all allocations so far.
    _deficit_s: Floats = msgspec.field(default_factory=_nothing)

    @property
    def _head_start_s(self) -> float:
        return _HEAD_START * self._round_s

    def install(self, claims: Claims, now: float, *, solved: bool) -> None:
        """See ``Priorities``."""
        if self._claims is not None and solved:
            owed_s = self._claims.share * (now - self._since_s)
            self._deficit_s += owed_s - (self._received_s - self._head_start_s)
        fresh = np.full(claims.share.shape, self._head_start_s)
        self._deficit_s = _carry(self._claims, self._deficit_s, claims, np.zeros_like(fresh))
        if solved:
            self._received_s = fresh
            self._since_s = now
        else:
            self._received_s = _carry(self._claims, self._received_s, claims, fresh)
        self._claims = claims

    def rank(self, claims: Claims, running: Floats) -> tuple[Floats, tuple[Floats, ...]]:
        """See ``Priorities``."""
        total_s = self._received_s.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            fraction = self._received_s / total_s
            priority = np.where(
                fraction > 0, claims.share / fraction, claims.share * _NOTHING_RECEIVED
            )
        priority = np.where(claims.runnable & (claims.share > 0), priority, 0.0)
        return priority, (priority, self._deficit_s, claims.share)

    def granted(
        self,
        rows: Sequence[int],
        columns: Sequence[int],
        duration_s: float,
        capacity: Sequence[int],
    ) -> None:
        """Nothing is paid in advance: what counts is the time received."""

    def received(
        self, rows: Sequence[int], columns: Sequence[int], seconds: Sequence[float]
    ) -> None:
        """See ``Priorities``."""
        self._received_s[rows, columns] += seconds


class CreditPriorities(msgspec.Struct, tag=True):
    """Credit that solves never touch: what was owed before an allocation is owed after it."""

    _round_s: float
    _claims: Claims | None = None
    #: (combinations, worker types) seconds owed, never below ``-_DEEPEST_DEBT`` rounds.
    _credit_s: Floats = msgspec.field(default_factory=_nothing)
    #: (pools,) most workers that a combination takes which is owed time there.
    _widest: Ints = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    #: (pools,) whoever takes no more workers than this is owed all of the last round.
    _room: Ints = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    #: (pools,) worker-seconds of it that were granted to entitled pairs of the others.
    _granted_s: Floats = msgspec.field(default_factory=lambda: np.zeros(0))
    _elapsed_s: float = 0.0

    def install(self, claims: Claims, now: float, *, solved: bool) -> None:
        """See ``Priorities``."""
        self._accrue()
        fresh = np.zeros(claims.share.shape)
        credit_s = _carry(self._claims, self._credit_s, claims, fresh)
        if self._claims is not None and self._claims.worker_types == claims.worker_types:
            credit_s += _passed_on(self._claims, self._credit_s, claims)
        self._credit_s, self._claims = credit_s, claims
        takes = np.where(claims.share > 0, claims.scale_factor[:, None], 0).max(axis=0, initial=0)
        self._widest = np.zeros(len(claims.pools), dtype=np.int64)
        np.maximum.at(self._widest, claims.pool, takes)

    def rank(self, claims: Claims, running: Floats) -> tuple[Floats, tuple[Floats, ...]]:
        """See ``Priorities``."""
        self._accrue()
        rounds_owed = np.floor((self._credit_s + claims.share * self._round_s) / self._round_s)
        gang = np.log2(claims.scale_factor)[:, None] * _GANG_BONUS
        score = rounds_owed + gang + running * _RUNNING_BONUS
        return score, (score, claims.share)

    def granted(
        self,
        rows: Sequence[int],
        columns: Sequence[int],
        duration_s: float,
        capacity: Sequence[int],
    ) -> None:
        """See ``Priorities``."""
        assert self._claims is not None
        claims = self._claims
        self._credit_s[rows, columns] -= duration_s
        np.maximum(self._credit_s, -_DEEPEST_DEBT * self._round_s, out=self._credit_s)
        workers = claims.scale_factor[rows]
        pools, pool = len(claims.pools), claims.pool[columns]
        used = np.bincount(pool, workers, pools).astype(np.int64)
        self._room = _rooms(claims, self._widest, used, capacity)
        entitled = (claims.share[rows, columns] > 0) & (workers > self._room[pool])
        self._granted_s = duration_s * np.bincount(pool, workers * entitled, pools).astype(float)
        self._elapsed_s = duration_s

    def received(
        self, rows: Sequence[int], columns: Sequence[int], seconds: Sequence[float]
    ) -> None:
        """A granted round is paid for whole, however much of it was used."""

    def _accrue(self) -> None:
        """Pay out the last round at the rate X, less where a full type could not serve all of it.

        Paying more than a full type can give would let what is owed grow without end. A type that
        idles owes all: whoever was entitled to it ran elsewhere, and is to come to it in time.
        """
        if self._claims is None or self._elapsed_s == 0.0:
            return
        claims = self._claims
        due_s = claims.share * self._elapsed_s
        has_room = claims.scale_factor[:, None] <= self._room[claims.pool]
        of_columns = claims.scale_factor @ np.where(has_room, 0.0, due_s)
        demand_s = np.bincount(claims.pool, of_columns, len(claims.pools))
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where(demand_s > 0, np.minimum(1.0, self._granted_s / demand_s), 0.0)
        served = np.where(has_room, 1.0, part[claims.pool])
        self._credit_s += served * due_s
        self._elapsed_s = 0.0


def _rooms(claims: Claims, widest: Ints, used: Ints, capacity: Sequence[int]) -> Ints:
    """(pools,) workers left idle; more than anybody takes, where others could have used more.

    Of five workers, jobs of four can never use but four: the fifth is nothing that they are owed.
    """
    idle: Ints = np.asarray(capacity, dtype=np.int64) - used
    for pool in np.flatnonzero((idle > 0) & (widest > idle)).tolist():
        owed = (claims.share[:, claims.pool == pool] > 0).any(axis=1)
        if _most_used(claims.scale_factor[owed], capacity[pool]) > used[pool]:
            idle[pool] = widest[pool]
    return idle


def _most_used(sizes: Ints, capacity: int) -> int:
    """The most of so many workers that jobs of these sizes can hold at once."""
    #: Its n-th bit: whether some of the jobs hold n workers.
    held = 1
    for size, count in zip(*np.unique(sizes, return_counts=True), strict=True):
        left = int(count)
        while left:
            together = (left + 1) // 2
            held = (held | held << int(size) * together) & ((2 << capacity) - 1)
            left -= together
    return held.bit_length() - 1


def _passed_on(before: Claims, credit_s: Floats, after: Claims) -> Floats:
    """Credit of pairs that are gone, to their jobs' other combinations, as these have X.

    A job whose partner completes, or whom a solve gives another one, is owed what it was owed:
    seconds, so that another pair, which gives them to two jobs at once, gets half. They are paid
    on the same type if the job has a share there, else wherever it has one.
    """
    is_owed = np.array(credit_s.any(axis=1))
    is_owed[[k for c, k in before.row.items() if len(c) == 1 or c in after.row]] = False
    number = np.array([after.jobs.get(job_id, -1) for job_id in before.jobs], dtype=np.int64)
    owed_s = np.zeros((len(after.jobs) + 1, len(after.worker_types)))
    for job in before.members[is_owed].T:
        np.add.at(owed_s, number[job], credit_s[is_owed])
    owed_s = owed_s[:-1]
    if not owed_s.any():
        return np.zeros(after.share.shape)
    first, second = after.members.T
    pairs = first != second
    share = np.zeros(owed_s.shape)
    np.add.at(share, first, after.share)
    np.add.at(share, second[pairs], after.share[pairs])
    anywhere = share.sum(axis=1, keepdims=True)
    elsewhere_s = np.where(share > 0, 0.0, owed_s).sum(axis=1, keepdims=True)
    rate = np.divide(owed_s, share, out=np.zeros(owed_s.shape), where=share > 0)
    rate += np.divide(elsewhere_s, anywhere, out=np.zeros(anywhere.shape), where=anywhere > 0)
    mean_rate: Floats = (rate[first] + rate[second]) / 2
    return mean_rate * after.share


def _carry(before: Claims | None, values: Floats, after: Claims, fresh: Floats) -> Floats:
    """Values of combinations and types that both claims have; ``fresh`` for the others."""
    if before is None or not before.combinations:
        return fresh
    kept = [(before.row[c], k) for k, c in enumerate(after.combinations) if c in before.row]
    if not kept:
        return fresh
    rows = np.array(kept)
    types = [
        (before.worker_types.index(t), j)
        for j, t in enumerate(after.worker_types)
        if t in before.worker_types
    ]
    columns = np.array(types, dtype=np.intp).reshape(-1, 2)
    carried = fresh.copy()
    carried[np.ix_(rows[:, 1], columns[:, 1])] = values[np.ix_(rows[:, 0], columns[:, 0])]
    return carried

"""The hierarchy of entities where two jobs may share their workers (§3.1, §4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import brentq

from services.policy.classes import ClassArrays, gather
from services.policy.entities import (
    Curve,
    Member,
    Node,
    Stage,
    check,
    grow,
    lowest_work,
    members_of,
)
from services.policy.problem import Allocation, JobClass, Problem
from services.policy.sharing.levels import Prices, SharedNeeds
from services.policy.sharing.meetings import to_rows
from services.policy.sharing.pairs import Columns, gather_with_pairs
from services.policy.solver import Floats, Ints

#: Its result depends on its arguments in ways that no type checker follows.
_root: Any = brentq

#: Relative distance below which two amounts of work are one.
_SAME = 1e-9
#: Needs are met when the load exceeds 1 by no more than this.
_MET = 1 + 1e-11


@dataclass(frozen=True)
class HierarchicalSharing:
    """``hierarchical``, with effective throughput summed over all combinations.

    What counts is work, s_i thr_i / Tbar_i, as there; Tbar_i is the throughput of the equal
    allocation, where nobody shares.
    """

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        check(problem.entities)
        merged, set_aside = gather(problem)
        members, entity_of = members_of(problem, merged.merged_into)
        if not members:
            return Allocation(rows=(), set_aside=set_aside)
        pieces = _pieces(problem, members, entity_of)
        arrays, columns, _ = gather_with_pairs(pieces)
        walk = _Walk(arrays, columns, grow(problem.entities, members, entity_of))
        stage = walk.to_the_end()
        held = [job for i in np.flatnonzero(stage.held) for job in members[i].job_ids]
        return Allocation(
            rows=to_rows(pieces, arrays, columns, walk.units()),
            objective=stage.lowest,
            prices=dict(zip(problem.worker_types, stage.prices.tolist(), strict=True)),
            bottlenecked=tuple(held),
            set_aside=set_aside,
        )


def _pieces(problem: Problem, members: tuple[Member, ...], entity_of: tuple[str, ...]) -> Problem:
    """A class for each member, with weights that nobody asks for here to part unlike ones."""
    queues = {e.entity_id for e in problem.entities if e.policy == "fifo"}
    looks = [
        (entity, member.weight, *((member.arrival, member.job_ids) if entity in queues else ()))
        for member, entity in zip(members, entity_of, strict=True)
    ]
    numbers = {look: 1.0 + n for n, look in enumerate(sorted(set(looks)))}
    of_class: dict[int, list[int]] = {}
    classes: list[JobClass] = []
    for position, (member, look) in enumerate(zip(members, looks, strict=True)):
        of_class.setdefault(member.job_class, []).append(position)
        asked = problem.classes[member.job_class]
        ranks = dict(zip(asked.job_ids, asked.arrival_ranks, strict=False))
        classes.append(
            msgspec.structs.replace(
                asked,
                priority_weight=numbers[look],
                job_ids=member.job_ids,
                arrival_ranks=tuple(ranks[job] for job in member.job_ids) if ranks else (),
            )
        )
    pairs = {}
    for (c, d), (one, two) in problem.pairs.items():
        for a, b in product(of_class.get(c, ()), of_class.get(d, ())):
            pairs[min(a, b), max(a, b)] = (one, two) if a <= b else (two, one)
    return msgspec.structs.replace(problem, classes=tuple(classes), pairs=pairs)


class _Walk:
    """Walks along the curve of all work as far as the workers go, stage by stage.

    A stage ends where the load of the needs reaches 1. Whoever's need has a dual there is held;
    the others go on.
    """

    def __init__(self, arrays: ClassArrays, columns: Columns, root: Node) -> None:
        self._arrays, self._columns, self._root = arrays, columns, root
        #: (members,) row of each among the merged classes.
        self._rows: Ints = arrays.merged_into
        best = arrays.scale_factors * columns.top_speeds(len(arrays.counts))
        #: (members,) work of a job at its best.
        self._best = (best / arrays.equal_throughputs())[self._rows]
        typical = np.full(len(arrays.counts), 1.0)
        np.minimum.at(typical, self._rows, self._best.min() / self._best)
        self._program = SharedNeeds(arrays, columns, typical)
        self._work = np.zeros(len(self._rows))

    def to_the_end(self) -> Stage:
        """Fill to the end; the stage at which the lowest entity came to its own."""
        held = np.zeros(len(self._work), dtype=bool)
        amount, stages, caps = 0.0, list[Stage](), self._best
        while not held.all():
            curve = Curve(self._root, np.where(held, self._work, caps))
            amount, prices = self._raise(curve, amount)
            curve.fill(amount, self._work)
            at_cap = self._work >= caps * (1 - _SAME)
            tight = prices.tight[self._rows]
            rests = amount >= curve.total * (1 - _SAME)
            now = held | at_cap | tight | rests
            # Where numbers lie too far apart to say who is held, all stay where they are.
            held = now if (now & ~held).any() else np.ones(len(held), dtype=bool)
            caps = np.minimum(caps, np.maximum(self._work, self._best * prices.free[self._rows]))
            worth = self._prices(curve, amount, prices)
            stages.append(Stage(lowest_work(self._root, curve, amount), worth, held))
        return next(s for s in stages if s.lowest >= stages[-1].lowest * (1 - _SAME))

    def units(self) -> Floats:
        """(columns,) units that do the work with the least worker time."""
        ties = self._columns.tie_breakers(self._arrays)
        return self._program.least_worker_time(self._needs(self._work), ties)

    def _raise(self, curve: Curve, done: float) -> tuple[float, Prices]:
        """The most work that the workers can do, and the prices that prove it."""
        amount = curve.total
        prices = self._program.solve(self._needs_at(curve, amount))
        while prices.load > _MET:
            below = self._affordable(curve, prices, done, amount)
            if below >= amount * (1 - 1e-13):
                break
            amount = below
            after = self._program.solve(self._needs_at(curve, amount))
            if after.load <= _MET:
                break
            prices = after
        return amount, prices

    def _affordable(self, curve: Curve, prices: Prices, done: float, most: float) -> float:
        def excess(amount: float) -> float:
            return float(prices.needs @ self._needs_at(curve, amount)) - 1.0

        if excess(done) >= 0:
            return done
        if excess(most) <= 0:
            return most
        amount: float = _root(excess, done, most, xtol=1e-15 * most, rtol=1e-15)
        return amount

    def _needs_at(self, curve: Curve, amount: float) -> Floats:
        work = np.zeros(len(self._work))
        curve.fill(amount, work)
        return self._needs(work)

    def _needs(self, work: Floats) -> Floats:
        """(classes,) needs of their jobs, as fractions of their top speeds."""
        needs = np.zeros(len(self._arrays.counts))
        np.maximum.at(needs, self._rows, np.minimum(work / self._best, 1.0))
        return needs

    def _prices(self, curve: Curve, amount: float, prices: Prices) -> Floats:
        """(worker types,) gain of the lowest entity per further worker."""
        above = amount * (1 + 1e-8)
        rise = self._needs_at(curve, above) - self._needs_at(curve, amount)
        cost = float(prices.needs @ rise)
        gain = lowest_work(self._root, curve, above) - lowest_work(self._root, curve, amount)
        workers = np.maximum(self._arrays.num_workers, 1.0)
        worth: Floats = prices.workers / workers * (gain / cost if cost > 0 else 0.0)
        return worth

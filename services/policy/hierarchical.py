"""Hierarchical: water filling over a tree of entities, each with a policy of its own (§4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from services.policy.market import Market
from services.policy.pieces import piece_rows
from services.policy.problem import Allocation, Problem
from services.policy.solver import Floats
from services.policy.water_filling import Needs

#: Its result depends on its arguments in ways that no type checker follows.
_root: Any = brentq

#: Relative distance below which two amounts of work are one.
_SAME = 1e-9
#: Needs are met when the busiest type is overfull by no more than this.
_MET = 1 + 1e-11


@dataclass(frozen=True)
class Hierarchical:
    """Weighted max-min fairness between entities; inside each, fairness or first in, first out.

    What counts is work, s_i thr_i / Tbar_i: scale factor times effective throughput, normalised
    by that of the equal allocation. All entities rise together in proportion to their weights,
    and what an entity has is divided below it, down to the jobs: by weight (``fairness``), or to
    each in order of arrival as much as it can use (``fifo``). Who can rise no further without
    taking from others stays where it is; the rest of its entity goes on in its place. Among
    optima the one with the least worker time.

    ``objective`` is the lowest work per weight of the root's entities; ``prices`` say by how much
    one more worker would raise it. Jobs that name no entity, or one that is not configured, form
    one entity of weight 1 beside the others. Entities of weight 0 get what nobody else can use.
    """

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        check(problem.entities)
        arrays, set_aside = gather(problem)
        members, entity_of = members_of(problem, arrays.merged_into)
        if not members:
            return Allocation(rows=(), set_aside=set_aside)
        filling = _Filling(arrays, members, grow(problem.entities, members, entity_of))
        stage = filling.run()
        rows = piece_rows(
            problem,
            [(member.job_class, member.job_ids) for member in members],
            filling.shares(),
        )
        held = [job for i in np.flatnonzero(stage.held) for job in members[i].job_ids]
        return Allocation(
            rows=rows,
            objective=stage.lowest,
            prices=dict(zip(problem.worker_types, stage.prices.tolist(), strict=True)),
            bottlenecked=tuple(held),
            set_aside=set_aside,
        )


class _Filling:
    """Walks along the curve of all work as far as the workers go, stage by stage.

    A stage ends where the prices say that more work cannot be paid for. Whoever's next bit would
    cost something there is held: a positive price is the proof that no optimum gives it more.
    The others have been served on free types alone, and go on on these. Every stage prices one
    type more, so there are at most as many stages as types, whatever the number of jobs.
    """

    def __init__(self, arrays: ClassArrays, members: tuple[Member, ...], root: Node) -> None:
        self._rows = np.array([member.row for member in members])
        self._counts = np.array([len(member.job_ids) for member in members], dtype=float)
        self._root, self._arrays = root, arrays
        self._scale = arrays.scale_factors[self._rows]
        per_level = arrays.throughputs / arrays.equal_throughputs()[:, None]
        #: (members, worker types) normalised throughput of a job that is always on the type.
        self._reachable = per_level[self._rows]
        self._demands = self._scale * self._counts
        self._loads = np.divide(
            self._demands[:, None],
            arrays.num_workers,
            out=np.zeros(self._reachable.shape),
            where=self._reachable > 0,
        )
        self._work = np.zeros(len(members))

    def run(self) -> Stage:
        """Fill to the end; the stage at which the lowest entity came to its own."""
        held = np.zeros(len(self._work), dtype=bool)
        if self._everybodys_best() is not None:
            self._work = self._scale * self._reachable.max(axis=1)
            curve = Curve(self._root, self._work)
            nothing = np.zeros(len(self._arrays.num_workers))
            return Stage(lowest_work(self._root, curve, curve.total), nothing, ~held)
        worth = np.where(self._loads.any(axis=0), self._arrays.num_workers, 0.0)
        open_types, amount, stages = worth > 0, 0.0, list[Stage]()
        caps = self._scale * self._reachable.max(axis=1)
        while open_types.any():
            curve = Curve(self._root, caps)
            allowed = self._reachable * (held[:, None] | open_types)
            market = Market(allowed, self._loads)
            amount, worth = self._raise(curve, market, amount, worth / worth.sum())
            needs = self._needs(curve, amount)
            curve.fill(amount, self._work)
            if amount >= curve.total * (1 - _SAME):
                held[:] = True
                stages.append(Stage(lowest_work(self._root, curve, amount), 0.0 * worth, held))
                break
            limits = allowed.max(axis=1)
            rises = market.hull(worth).rises_at(needs + _SAME * limits)
            held = held | rises | (needs >= limits * (1 - _SAME))
            prices = self._prices(curve, market, amount, worth)
            stages.append(Stage(lowest_work(self._root, curve, amount), prices, held))
            open_types = open_types & ~(worth > 0)
            worth = np.where(open_types, self._arrays.num_workers, 0.0)
            limits = (self._reachable * open_types).max(axis=1)
            caps = np.where(held, self._work, np.maximum(self._work, self._scale * limits))
        return next(s for s in stages if s.lowest >= stages[-1].lowest * (1 - _SAME))

    def _raise(
        self, curve: Curve, market: Market, done: float, worth: Floats
    ) -> tuple[float, Floats]:
        """The most work that the workers can do, and the prices that prove it."""
        amount = curve.total
        while True:
            affordable = self._affordable(curve, market, worth, done)
            if affordable >= amount * (1 - 1e-13) and affordable < curve.total:
                return amount, worth
            amount = min(amount, affordable)
            worse = market.worst(self._needs(curve, amount), _MET)
            # The same prices again: what they miss by is the solver's rounding.
            if worse is None or np.array_equal(worse, worth):
                return amount, worth
            worth = worse

    def _affordable(self, curve: Curve, market: Market, worth: Floats, done: float) -> float:
        def missing(amount: float) -> float:
            return market.cost(worth, self._needs(curve, amount)) - 1.0

        if missing(curve.total) <= 0:
            return curve.total
        if missing(done) >= 0:
            return done
        amount: float = _root(missing, done, curve.total, xtol=1e-15 * curve.total, rtol=1e-15)
        return amount

    def _needs(self, curve: Curve, amount: float) -> Floats:
        work = np.zeros(len(self._work))
        curve.fill(amount, work)
        needs: Floats = work / self._scale
        return needs

    def _prices(self, curve: Curve, market: Market, amount: float, worth: Floats) -> Floats:
        """(worker types,) gain of the lowest entity per further worker."""
        step = amount * 1e-8
        cost = market.cost(worth, self._needs(curve, amount + step))
        cost -= market.cost(worth, self._needs(curve, amount))
        gain = lowest_work(self._root, curve, amount + step) - lowest_work(
            self._root, curve, amount
        )
        value = np.divide(
            worth, self._arrays.num_workers, out=np.zeros(len(worth)), where=worth > 0
        )
        prices: Floats = value * (gain / cost if cost > 0 else 0.0)
        return prices

    def _everybodys_best(self) -> Floats | None:
        """(members, worker types) everybody always on its best type, if that fits."""
        rows, best = np.arange(len(self._work)), self._reachable.argmax(axis=1)
        held = np.bincount(best, self._loads[rows, best], self._loads.shape[1])
        if (held > 1).any():
            return None
        shares = np.zeros(self._reachable.shape)
        shares[rows, best] = 1.0
        return shares

    def shares(self) -> Floats:
        """(members, worker types) of one job, with the least worker time."""
        if (unhindered := self._everybodys_best()) is not None:
            return unhindered
        best = self._reachable.max(axis=1)
        needs = self._work / self._scale / best
        served = needs > 1e-12
        looks = np.column_stack([self._rows, needs])[served]
        shares = np.zeros(self._reachable.shape)
        if not len(looks):
            return shares
        alike, first, group = np.unique(looks, axis=0, return_index=True, return_inverse=True)
        group, first = group.ravel(), np.flatnonzero(served)[first]
        loads = np.zeros((len(alike), self._loads.shape[1]))
        np.add.at(loads, group, self._loads[served])
        demands = np.bincount(group, self._demands[served])
        ties = self._arrays.tie_breakers()[self._rows[first]] * (1 + alike[:, 1:]) / 2
        program = Needs(self._reachable[first] / best[first, None], loads)
        program.solve(alike[:, 1])
        given = program.shares(alike[:, 1], demands.astype(float), lambda: ties)
        shares[served] = given[group]
        return shares

"""Objectives for which all jobs of a class are alike, and weights do not count: solved over pools.

With sharing or without, such an objective is the same function of how classes spend their time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.policy.classes import ClassArrays, gather, to_rows
from services.policy.pools import Pools, Ways
from services.policy.problem import Allocation, Problem
from services.policy.sharing.meetings import to_rows as shared_rows
from services.policy.sharing.pairs import gather_with_pairs
from services.policy.sharing.pools import shared_pools, weightless
from services.policy.solver import Floats


@dataclass(frozen=True, slots=True)
class Optimum:
    """The objective, None where it has no value; how it is reached; what more workers are worth.

    Attributes
    ----------
    objective : float or None
    values : (columns,)
    prices : (worker types,)
    """

    objective: float | None
    values: Floats
    prices: Floats


#: From classes, their pools and, with sharing, (columns,) tie-breakers.
FindOptimum = Callable[[ClassArrays, Pools, Floats | None], Optimum]


def solve_alone(problem: Problem, find: FindOptimum) -> Allocation:
    """Every job has its workers to itself.

    Raises
    ------
    ProblemError, SolverError
        See ``Policy``.
    """
    arrays, set_aside = gather(problem)
    if not len(arrays.counts):
        return Allocation(rows=(), set_aside=set_aside)
    ways = Ways.each_type(arrays)
    pools = Pools.of(arrays, ways)
    best = find(arrays, pools, None)
    return Allocation(
        rows=to_rows(problem, arrays, pools.fill(best.values, ways)),
        objective=best.objective,
        prices=dict(zip(problem.worker_types, best.prices.tolist(), strict=True)),
        set_aside=set_aside,
    )


def solve_shared(problem: Problem, find: FindOptimum) -> Allocation:
    """Two jobs may share their workers (§3.1).

    Raises
    ------
    ProblemError, SolverError
        See ``Policy``.
    """
    problem = weightless(problem)
    arrays, columns, set_aside = gather_with_pairs(problem)
    if not len(arrays.counts):
        return Allocation(rows=(), set_aside=set_aside)
    best = find(arrays, shared_pools(arrays, columns), columns.tie_breakers(arrays))
    return Allocation(
        rows=shared_rows(problem, arrays, columns, best.values),
        objective=best.objective,
        prices=dict(zip(problem.worker_types, best.prices.tolist(), strict=True)),
        set_aside=set_aside,
    )

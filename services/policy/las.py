"""Least attained service: weighted max-min fairness of normalised throughput (§4.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.policy.classes import ClassArrays, gather, job_ids, to_rows
from services.policy.prices import Hull
from services.policy.problem import Allocation, Problem
from services.policy.solver import Floats
from services.policy.water_filling import Filling, fill


@dataclass(frozen=True)
class Las:
    """max min over jobs of s_i thr_i / (w_i Tbar_i), then on to the lexicographic optimum.

    thr_i is the effective throughput, Tbar_i the throughput of the equal allocation, s_i the
    scale factor and w_i the priority weight: twice the weight, twice the share. Among optima the
    one with the least worker time.
    """

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        per_share = arrays.scale_factors / (arrays.weights * arrays.equal_throughputs())
        reachable = arrays.throughputs * per_share[:, None]
        filling = fill(reachable, arrays.demands, arrays.num_workers, arrays.tie_breakers)
        return _allocation(problem, arrays, filling, set_aside)


@dataclass(frozen=True)
class LasAgnostic:
    """LAS blind to types: max min of s_i x_i / w_i, x_i the job's total share.

    Every job's share is spread over the types it can use in proportion to their workers; any
    other spread would favour jobs by type, and so not be blind.
    """

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        filling = _fill_evenly(arrays)
        return _allocation(problem, arrays, filling, set_aside)


def _fill_evenly(arrays: ClassArrays) -> Filling:
    """Raise levels whose shares have a fixed spread: a type that is full holds all its users."""
    usable, workers = arrays.usable, arrays.num_workers
    spread = usable * workers
    spread = spread / spread.sum(axis=1, keepdims=True)
    best = arrays.scale_factors / arrays.weights
    #: Workers of each type that a class holds per unit of level.
    rates = arrays.demands[:, None] * spread / best[:, None]
    levels, active = np.zeros(len(best)), np.ones(len(best), dtype=bool)
    prices, bottlenecked = np.zeros(len(workers)), active
    while active.any():
        limits = np.array(
            [
                _level_when_full(rates[:, column], best, levels, active, float(count))
                for column, count in enumerate(workers)
            ]
        )
        level = min(float(limits.min()), float(best[active].max()))
        full = limits <= level * (1 + 1e-9)
        own = best <= level * (1 + 1e-9)
        held = active & (own | (usable & full).any(axis=1))
        if active.all() and not own.any():
            value = np.where(full, workers, 0.0)
            growth = np.where(full, rates.sum(axis=0), 1.0)
            prices, bottlenecked = value / value.sum() / growth, held
        elif active.all():
            bottlenecked = best <= best.min() * (1 + 1e-9)
        levels[held] = np.minimum(best[held], level)
        active = active & ~held
    return Filling(levels, spread * (levels / best)[:, None], prices, bottlenecked)


def _level_when_full(
    rates: Floats, best: Floats, levels: Floats, active: NDArray[np.bool_], workers: float
) -> float:
    hull = Hull(np.zeros((1, len(best))), best[None, :], rates[None, :])
    return hull.affordable_level(active, workers - float(hull.costs(levels).sum()))


def _allocation(
    problem: Problem, arrays: ClassArrays, filling: Filling, set_aside: dict[str, str]
) -> Allocation:
    return Allocation(
        rows=to_rows(problem, arrays, filling.shares),
        objective=float(filling.levels.min()),
        prices=dict(zip(problem.worker_types, filling.prices.tolist(), strict=True)),
        bottlenecked=job_ids(problem, arrays, filling.bottlenecked),
        set_aside=set_aside,
    )

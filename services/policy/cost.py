"""Most throughput for the money (§4.2).

A ratio of two linear functions is maximised by linear programs (Dinkelbach 1967): for a guess of
the ratio, maximise throughput less the guess times cost; if more than nothing can be had, what
is found has a better ratio. Each guess takes a finite step, and three or four are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.classes import ClassArrays
from services.policy.isolated import isolated_shares
from services.policy.leftover import hand_out_rest, normalised_throughput, worker_time
from services.policy.needs import Needs, NeedsProgram
from services.policy.pooled import Optimum, solve_alone, solve_shared
from services.policy.pools import Pools
from services.policy.problem import Allocation, PolicyError, Problem, ProblemError
from services.policy.solver import Floats

#: Relative to the largest that there could be, what is smaller than this is nothing.
_NOTHING = 1e-9


@dataclass(frozen=True)
class Cost:
    """max (sum thr_i / Tbar_i) / (sum of s_i c_j X_ij), c_j USD per worker and hour.

    Every job has at least ``floor`` times its isolated throughput; without, all money would go to
    the one job that gives most for it. Where what is free is enough for that, nothing is paid,
    and throughput is the most to be had so. Prices are what the ratio gains by a further worker.
    """

    floor: float = 0.5

    needs_progress = False

    def __post_init__(self) -> None:
        check_floor(self.floor)

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return solve_alone(problem, _Ratio(self.floor, usd_per_h(problem)))


@dataclass(frozen=True)
class CostSharing(Cost):
    """``cost`` where two jobs may share their workers, and the money for them (§3.1)."""

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return solve_shared(problem, _Ratio(self.floor, usd_per_h(problem)))


@dataclass(frozen=True, slots=True)
class _Ratio:
    """Finds the best ratio at these prices, every job at its floor or above."""

    floor: float
    usd_per_h: Floats

    def __call__(self, arrays: ClassArrays, pools: Pools, ties: Floats | None) -> Optimum:
        program = NeedsProgram(pools, Needs.constant(floors(arrays, self.floor)))
        return best_ratio(program, arrays, pools, self.usd_per_h, ties)


def best_ratio(
    program: NeedsProgram,
    arrays: ClassArrays,
    pools: Pools,
    usd_per_h: Floats,
    ties: Floats | None = None,
) -> Optimum:
    """The best ratio of what ``program`` allows, None where nothing is paid, as one allocation.

    Of all with that ratio it is the one of ``leftover.hand_out_rest``.
    """
    worth, cost = normalised_throughput(arrays, pools), worker_time(arrays, pools, usd_per_h)
    worth_scale, cost_scale = float(worth.max()), float(cost.max()) or 1.0
    worth, cost = worth / worth_scale, cost / cost_scale
    values, ratio = program.minimise(-worth), 0.0
    while (spent := float(cost @ values)) > _NOTHING:
        gained = float(worth @ values)
        if gained - ratio * spent <= 1e-12 * gained:
            break
        ratio = gained / spent
        values = program.minimise(ratio * cost - worth)
    if spent <= _NOTHING and (ratio == 0.0 or float(worth @ values) > _NOTHING):
        program.minimise(cost)
        program.keep_optima()
        rest = hand_out_rest(program, arrays, pools, ties)
        return Optimum(None, rest, np.zeros(pools.num_types))
    program.keep_optima()
    scale = worth_scale / cost_scale
    gains = program.prices() / arrays.num_workers.clip(1) / max(spent, _NOTHING)
    return Optimum(ratio * scale, hand_out_rest(program, arrays, pools, ties), gains * scale)


def check_floor(floor: float) -> None:
    """Refuse what is no part of a throughput.

    Raises
    ------
    PolicyError
        It is not between 0 and 1.
    """
    if not 0 <= floor <= 1:
        raise PolicyError(
            f"parameter floor is {floor!r}, must be between 0 and 1 times the isolated throughput"
        )


def floors(arrays: ClassArrays, floor: float) -> Floats:
    """(classes,) least speed of a job, as a fraction of its class's fastest."""
    isolated = (arrays.throughputs * isolated_shares(arrays)).sum(axis=1)
    least: Floats = floor * isolated / arrays.throughputs.max(axis=1)
    return least


def usd_per_h(problem: Problem) -> Floats:
    """(worker types,) price of a worker; 0 where none is given.

    Raises
    ------
    ProblemError
        A price is no number >= 0, or there is not one for each type.
    """
    given = np.array(problem.prices_usd_per_h or [0.0] * len(problem.worker_types), dtype=float)
    if len(given) != len(problem.worker_types) or not ((given >= 0) & np.isfinite(given)).all():
        raise ProblemError(
            f"prices_usd_per_h is {problem.prices_usd_per_h}, must be one number >= 0 for each of "
            f"{problem.worker_types}"
        )
    return given

"""Most throughput in all (§4.2), whoever has it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.classes import ClassArrays, gather, to_rows
from services.policy.leftover import hand_out_rest, normalised_throughput, throughput
from services.policy.meetings import to_rows as shared_rows
from services.policy.needs import Needs, NeedsProgram
from services.policy.pairs import gather_with_pairs
from services.policy.pools import Pools, Ways
from services.policy.problem import Allocation, PolicyError, Problem
from services.policy.sharing_pools import shared_pools, weightless
from services.policy.solver import Floats


@dataclass(frozen=True)
class MaxThroughput:
    """max sum over jobs of thr_i / Tbar_i, or with ``normalise=none`` of thr_i in steps/s.

    Tbar_i is the throughput of the equal allocation: a step/s of a large model is worth more than
    one of a small model. Jobs that gain little by any worker may get nothing. Prices are what the
    sum gains by a further worker of the type.
    """

    normalise: str = "equal"

    needs_progress = False

    def __post_init__(self) -> None:
        if self.normalise not in ("equal", "none"):
            raise PolicyError(
                f"parameter normalise is {self.normalise!r}, must be 'equal' or 'none'"
            )

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        ways = Ways.each_type(arrays)
        pools = Pools.of(arrays, ways)
        most = _maximise(arrays, pools, self.normalise)
        return Allocation(
            rows=to_rows(problem, arrays, pools.fill(most.values, ways)),
            objective=most.throughput,
            prices=dict(zip(problem.worker_types, most.prices.tolist(), strict=True)),
            set_aside=set_aside,
        )


@dataclass(frozen=True)
class MaxThroughputSharing(MaxThroughput):
    """``max-throughput`` where two jobs may share their workers (§3.1)."""

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        problem = weightless(problem)
        arrays, columns, set_aside = gather_with_pairs(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        pools, ties = shared_pools(arrays, columns), columns.tie_breakers(arrays)
        most = _maximise(arrays, pools, self.normalise, ties)
        return Allocation(
            rows=shared_rows(problem, arrays, columns, most.values),
            objective=most.throughput,
            prices=dict(zip(problem.worker_types, most.prices.tolist(), strict=True)),
            set_aside=set_aside,
        )


@dataclass(frozen=True, slots=True)
class _Most:
    """The most throughput, (columns,) how it is had, (worker types,) gain per further worker."""

    throughput: float
    values: Floats
    prices: Floats


def _maximise(
    arrays: ClassArrays, pools: Pools, normalise: str, ties: Floats | None = None
) -> _Most:
    """The most throughput; of its ways the one of ``leftover.hand_out_rest``."""
    worth = normalised_throughput(arrays, pools)
    if normalise == "none":
        worth = throughput(pools, arrays.counts * arrays.throughputs.max(axis=1))
    program = NeedsProgram(pools, Needs.constant(np.zeros(len(arrays.counts))))
    best = float(worth @ program.minimise(-worth / worth.max()))
    prices = program.prices() * worth.max() / arrays.num_workers.clip(1)
    program.keep_optima()
    return _Most(best, hand_out_rest(program, arrays, pools, ties), prices)

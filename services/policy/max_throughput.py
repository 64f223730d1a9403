"""Most throughput in all (§4.2), whoever has it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.classes import gather, to_rows
from services.policy.leftover import hand_out_rest, normalised_throughput, throughput
from services.policy.needs import Needs, NeedsProgram
from services.policy.pools import Pools, Ways
from services.policy.problem import Allocation, PolicyError, Problem


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
        worth = normalised_throughput(arrays, pools)
        if self.normalise == "none":
            worth = throughput(pools, arrays.counts * arrays.throughputs.max(axis=1))
        program = NeedsProgram(pools, Needs.constant(np.zeros(len(arrays.counts))))
        best = float(worth @ program.minimise(-worth / worth.max()))
        prices = program.prices() * worth.max() / arrays.num_workers.clip(1)
        program.keep_optima()
        shares = pools.fill(hand_out_rest(program, arrays, pools), ways)
        return Allocation(
            rows=to_rows(problem, arrays, shares),
            objective=best,
            prices=dict(zip(problem.worker_types, prices.tolist(), strict=True)),
            set_aside=set_aside,
        )

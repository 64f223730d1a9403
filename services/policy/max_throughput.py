"""Most throughput in all (§4.2), whoever has it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.classes import ClassArrays
from services.policy.cutting import Part, cut
from services.policy.leftover import hand_out_rest, normalised_throughput, throughput
from services.policy.needs import Needs, NeedsProgram
from services.policy.pooled import Optimum, solve_alone, solve_shared
from services.policy.pools import Pools
from services.policy.problem import Allocation, PolicyError, Problem
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
        return solve_alone(self._in_own_steps(problem), self._optimum)

    def _in_own_steps(self, problem: Problem) -> Problem:
        """Where steps/s count as they are, so does how fast a job is beside its class."""
        if self.normalise == "equal":
            return problem
        parts: dict[int, list[Part]] = {}
        for index, job_class in enumerate(problem.classes):
            factors = np.array(job_class.factors)
            parts[index] = [
                Part(tuple(np.flatnonzero(factors == speed).tolist()), speed=speed)
                for speed in np.unique(factors).tolist()
            ]
        return cut(problem, {index: cuts for index, cuts in parts.items() if cuts})

    def _optimum(self, arrays: ClassArrays, pools: Pools, ties: Floats | None) -> Optimum:
        worth = normalised_throughput(arrays, pools)
        if self.normalise == "none":
            worth = throughput(pools, arrays.counts * arrays.throughputs.max(axis=1))
        program = NeedsProgram(pools, Needs.constant(np.zeros(len(arrays.counts))))
        most = float(worth @ program.minimise(-worth / worth.max()))
        prices = program.prices() * worth.max() / arrays.num_workers.clip(1)
        program.keep_optima()
        return Optimum(most, hand_out_rest(program, arrays, pools, ties), prices)


@dataclass(frozen=True)
class MaxThroughputSharing(MaxThroughput):
    """``max-throughput`` where two jobs may share their workers (§3.1)."""

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return solve_shared(self._in_own_steps(problem), self._optimum)

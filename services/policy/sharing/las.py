"""Least attained service where two jobs may share their workers (§3.1, §4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from services.policy.classes import job_ids
from services.policy.problem import Allocation, Problem
from services.policy.sharing.levels import fill_shared
from services.policy.sharing.meetings import to_rows
from services.policy.sharing.pairs import gather_with_pairs


@dataclass(frozen=True)
class LasSharing:
    """``las``, with effective throughput summed over all combinations that hold the job.

    max min over jobs of s_i thr_i / (w_i Tbar_i), thr_i = sum over combinations k that hold i and
    types j of T_ikj X_kj, then on to the lexicographic optimum. Tbar_i is the throughput of the
    equal allocation, where nobody shares.
    """

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, columns, set_aside = gather_with_pairs(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        per_step = arrays.scale_factors / (arrays.weights * arrays.equal_throughputs())
        filling = fill_shared(arrays, columns, per_step)
        return Allocation(
            rows=to_rows(problem, arrays, columns, filling.units),
            objective=float(filling.levels.min()),
            prices=dict(zip(problem.worker_types, filling.prices.tolist(), strict=True)),
            bottlenecked=job_ids(problem, arrays, filling.bottlenecked),
            set_aside=set_aside,
        )

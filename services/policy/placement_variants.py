"""Policies that know whether a gang's workers lie on few servers (§3.1).

Each is the policy that it is named after, asked about the faster way to hold each worker type;
the mechanism grants such a share only in the way in which it was priced.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.policy.finish_time_fairness import FinishTimeFairness
from services.policy.las import Las
from services.policy.las_sharing import LasSharing
from services.policy.makespan import Makespan
from services.policy.max_throughput import MaxThroughput
from services.policy.placement import solve_by_placement
from services.policy.problem import Allocation, Problem


@dataclass(frozen=True)
class LasPlacement(Las):
    """`las`, thr_i and Tbar_i with each type held consolidated or not, as is faster."""

    needs_placement = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return solve_by_placement(super().solve, problem)


@dataclass(frozen=True)
class LasSharingPlacement(LasSharing):
    """`las:ss`, thr_i and Tbar_i with each type held consolidated or not, as is faster."""

    needs_placement = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return solve_by_placement(super().solve, problem)


@dataclass(frozen=True)
class MakespanPlacement(Makespan):
    """`makespan`, thr_i with each type held consolidated or not, as is faster."""

    needs_placement = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return solve_by_placement(super().solve, problem)


@dataclass(frozen=True)
class FinishTimeFairnessPlacement(FinishTimeFairness):
    """`ftf`, thr_i and iso_i with each type held consolidated or not, as is faster."""

    needs_placement = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return solve_by_placement(super().solve, problem)


@dataclass(frozen=True)
class MaxThroughputPlacement(MaxThroughput):
    """`max-throughput`, thr_i and Tbar_i with each type held consolidated or not, as is faster."""

    needs_placement = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return solve_by_placement(super().solve, problem)

"""Makespan and finish-time fairness where two jobs may share their workers (§3.1, §4.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from services.policy.classes import ClassArrays
from services.policy.finish_time_fairness import isolated_finish
from services.policy.jobs import Jobs
from services.policy.makespan import Deadlines, all_by_the_makespan, deadline_needs, raise_level
from services.policy.problem import Allocation, Problem
from services.policy.sharing.division import Served, serve_shared
from services.policy.sharing.pairs import Columns
from services.policy.sharing.pools import shared_pools


@dataclass(frozen=True)
class MakespanSharing:
    """``makespan``, with effective throughput summed over all combinations that hold the job."""

    needs_progress = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return _serve(problem, all_by_the_makespan)


@dataclass(frozen=True)
class FinishTimeFairnessSharing:
    """``ftf``, with effective throughput summed over all combinations; isolated jobs are alone."""

    needs_progress = True
    needs_isolated = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return _serve(problem, isolated_finish)


def _serve(problem: Problem, deadlines_of: Callable[[ClassArrays, Jobs], Deadlines]) -> Allocation:
    """Raise the level as far as it goes; the objective is its inverse."""

    def serve(_: Problem, arrays: ClassArrays, columns: Columns, jobs: Jobs) -> Served:
        needs = deadline_needs(arrays, jobs, deadlines_of(arrays, jobs))
        pools, ties = shared_pools(arrays, columns), columns.tie_breakers(arrays)
        best = raise_level(arrays, pools, needs, ties)
        return Served(
            needs.at(best.level)[0],
            best.values,
            objective=1 / best.level if best.level else 0.0,
            prices=best.prices,
            bottlenecked=tuple(jobs.ids[i] for i in np.flatnonzero(best.holding).tolist()),
        )

    return serve_shared(problem, serve)

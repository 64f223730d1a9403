"""Most throughput for the money while SLOs are met, or as nearly as can be (§4.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.classes import ClassArrays, gather
from services.policy.cost import best_ratio, check_floor, floors, usd_per_h
from services.policy.division import divide
from services.policy.jobs import Jobs, gather_jobs, job_rows
from services.policy.pooled import Optimum
from services.policy.pools import Pools, Ways
from services.policy.problem import Allocation, Problem
from services.policy.relief import RelievedProgram
from services.policy.sharing.division import Served, serve_shared
from services.policy.sharing.pairs import Columns
from services.policy.sharing.pools import shared_pools
from services.policy.solver import Floats


@dataclass(frozen=True)
class CostSlo:
    """``cost``, and every job fast enough for its SLO: thr_i >= r_i / time left.

    Where not all SLOs can be met beside the floors, the sum over jobs of how much of the needed
    speed is missing, as a fraction, is the least possible, and then the ratio the best possible;
    ``unmet`` names the jobs. A job whose SLO has passed has its floor.
    """

    floor: float = 0.5

    needs_progress = True

    def __post_init__(self) -> None:
        check_floor(self.floor)

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        jobs = gather_jobs(problem, arrays)
        if not len(jobs.rows):
            return Allocation(rows=(), set_aside=set_aside)
        ways = Ways.each_type(arrays)
        pools = Pools.of(arrays, ways)
        best, needs = _best(problem, arrays, jobs, pools, self.floor)
        division = divide(jobs.rows, needs, pools.fill(best.values, ways), ways)
        return Allocation(
            rows=job_rows(problem, arrays, jobs, division),
            objective=best.objective,
            prices=dict(zip(problem.worker_types, best.prices.tolist(), strict=True)),
            set_aside=set_aside,
            unmet=_unmet(arrays, jobs, division.speeds[division.groups]),
        )


@dataclass(frozen=True)
class CostSloSharing(CostSlo):
    """``cost-slo`` where two jobs may share their workers, and the money for them (§3.1)."""

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""

        def serve(asked: Problem, arrays: ClassArrays, columns: Columns, jobs: Jobs) -> Served:
            pools, ties = shared_pools(arrays, columns), columns.tie_breakers(arrays)
            best, needs = _best(asked, arrays, jobs, pools, self.floor, ties)
            return Served(
                needs,
                best.values,
                objective=best.objective,
                prices=best.prices,
                unmet=lambda speeds: _unmet(arrays, jobs, speeds),
            )

        return serve_shared(problem, serve)


def _best(
    problem: Problem,
    arrays: ClassArrays,
    jobs: Jobs,
    pools: Pools,
    floor: float,
    ties: Floats | None = None,
) -> tuple[Optimum, Floats]:
    """The best ratio with as little missing as can be, and (jobs,) what is then needed."""
    least, slos = floors(arrays, floor)[jobs.rows], _slo_needs(arrays, jobs)
    needs = np.clip(slos, least, 1.0)
    relief = needs - least
    missing = np.divide(relief, slos, out=np.zeros(len(slos)), where=relief > 0)
    program = RelievedProgram(pools, jobs.rows, needs, relief, missing)
    program.lower_least()
    best = best_ratio(program, arrays, pools, usd_per_h(problem), ties)
    return best, program.lowered()


def _slo_needs(arrays: ClassArrays, jobs: Jobs) -> Floats:
    """(jobs,) speed that makes the SLO, as a fraction of the class's fastest; 0 if it is past."""
    work_s = jobs.steps_remaining / arrays.throughputs.max(axis=1)[jobs.rows]
    left_s = jobs.slo_remaining_s
    needs: Floats = np.divide(work_s, left_s, out=np.zeros(len(work_s)), where=left_s > 0)
    return needs


def _unmet(arrays: ClassArrays, jobs: Jobs, given: Floats) -> dict[str, str]:
    """What is missing, and to whom; ``given`` (jobs,) as fractions of the fastest."""
    slos, fastest = _slo_needs(arrays, jobs), arrays.throughputs.max(axis=1)[jobs.rows]
    missed = (jobs.slo_remaining_s <= 0) & (jobs.steps_remaining > 0)
    short = given < slos * (1 - 1e-6)
    return {
        jobs.ids[i]: f"SLO passed {-jobs.slo_remaining_s[i]:.6g} s ago, "
        f"{jobs.steps_remaining[i]:.6g} steps to go"
        if missed[i]
        else f"SLO in {jobs.slo_remaining_s[i]:.6g} s takes {slos[i] * fastest[i]:.6g} steps/s, "
        f"{given[i] * fastest[i]:.6g} can be had: {1 - given[i] / slos[i]:.1%} missing"
        for i in np.flatnonzero(missed | short).tolist()
    }

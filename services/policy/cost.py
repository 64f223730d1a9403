"""Most throughput for the money (§4.2), with deadlines or without.

A ratio of two linear functions is maximised by linear programs (Dinkelbach 1967): for a guess of
the ratio, maximise throughput less the guess times cost; if more than nothing can be had, what
is found has a better ratio. Each guess takes a finite step, and three or four are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.classes import ClassArrays, gather, to_rows
from services.policy.division import Division, divide
from services.policy.isolated import isolated_shares
from services.policy.jobs import Jobs, gather_jobs, job_rows
from services.policy.leftover import hand_out_rest, normalised_throughput, worker_time
from services.policy.meetings import to_rows as shared_rows
from services.policy.needs import Needs, NeedsProgram
from services.policy.pairs import gather_with_pairs
from services.policy.pools import Pools, Ways
from services.policy.problem import Allocation, PolicyError, Problem, ProblemError
from services.policy.sharing_pools import shared_pools, weightless
from services.policy.solver import Floats, Ints

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
        _check_floor(self.floor)

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        ways = Ways.each_type(arrays)
        pools = Pools.of(arrays, ways)
        program = NeedsProgram(pools, Needs.constant(_floors(arrays, self.floor)))
        best = _maximise_ratio(program, arrays, pools, _usd_per_h(problem))
        shares = pools.fill(hand_out_rest(program, arrays, pools), ways)
        return Allocation(
            rows=to_rows(problem, arrays, shares),
            objective=best.ratio,
            prices=dict(zip(problem.worker_types, best.prices.tolist(), strict=True)),
            set_aside=set_aside,
        )


@dataclass(frozen=True)
class CostSharing(Cost):
    """``cost`` where two jobs may share their workers, and the money for them (§3.1)."""

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        problem = weightless(problem)
        arrays, columns, set_aside = gather_with_pairs(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        pools, ties = shared_pools(arrays, columns), columns.tie_breakers(arrays)
        program = NeedsProgram(pools, Needs.constant(_floors(arrays, self.floor)))
        best = _maximise_ratio(program, arrays, pools, _usd_per_h(problem))
        used = hand_out_rest(program, arrays, pools, ties)
        return Allocation(
            rows=shared_rows(problem, arrays, columns, used),
            objective=best.ratio,
            prices=dict(zip(problem.worker_types, best.prices.tolist(), strict=True)),
            set_aside=set_aside,
        )


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
        _check_floor(self.floor)

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        jobs = gather_jobs(problem, arrays)
        if not len(jobs.rows):
            return Allocation(rows=(), set_aside=set_aside)
        floors = _floors(arrays, self.floor)
        slos = _slo_needs(arrays, jobs)
        usd_per_h = _usd_per_h(problem)
        best, division = _meet_all(arrays, jobs, floors, slos, usd_per_h) or _meet_most(
            arrays, jobs, floors, slos, usd_per_h
        )
        return Allocation(
            rows=job_rows(problem, arrays, jobs, division),
            objective=best.ratio,
            prices=dict(zip(problem.worker_types, best.prices.tolist(), strict=True)),
            set_aside=set_aside,
            unmet=_unmet(arrays, jobs, slos, division),
        )


@dataclass(frozen=True, slots=True)
class _Best:
    """The highest ratio, None where nothing is paid, and (worker types,) its prices."""

    ratio: float | None
    prices: Floats


def _maximise_ratio(
    program: NeedsProgram, arrays: ClassArrays, pools: Pools, usd_per_h: Floats
) -> _Best:
    """The best ratio; from then on ``program`` allows nothing worse."""
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
        return _Best(None, np.zeros(pools.num_types))
    program.keep_optima()
    gains = program.prices() / arrays.num_workers.clip(1) / max(spent, _NOTHING)
    scale = worth_scale / cost_scale
    return _Best(ratio * scale, gains * scale)


# --- what jobs must have -------------------------------------------------------------------------


def _check_floor(floor: float) -> None:
    if not 0 <= floor <= 1:
        raise PolicyError(
            f"parameter floor is {floor!r}, must be between 0 and 1 times the isolated throughput"
        )


def _floors(arrays: ClassArrays, floor: float) -> Floats:
    """(classes,) least speed of a job, as a fraction of its class's fastest."""
    isolated = (arrays.throughputs * isolated_shares(arrays)).sum(axis=1)
    floors: Floats = floor * isolated / arrays.throughputs.max(axis=1)
    return floors


def _usd_per_h(problem: Problem) -> Floats:
    given = np.array(problem.prices_usd_per_h or [0.0] * len(problem.worker_types), dtype=float)
    if len(given) != len(problem.worker_types) or not ((given >= 0) & np.isfinite(given)).all():
        raise ProblemError(
            f"prices_usd_per_h is {problem.prices_usd_per_h}, must be one number >= 0 for each of "
            f"{problem.worker_types}"
        )
    return given


def _slo_needs(arrays: ClassArrays, jobs: Jobs) -> Floats:
    """(jobs,) speed that makes the SLO, as a fraction of the class's fastest; 0 if it is past."""
    work_s = jobs.steps_remaining / arrays.throughputs.max(axis=1)[jobs.rows]
    left_s = jobs.slo_remaining_s
    needs: Floats = np.divide(work_s, left_s, out=np.zeros(len(work_s)), where=left_s > 0)
    return needs


def _unmet(arrays: ClassArrays, jobs: Jobs, slos: Floats, division: Division) -> dict[str, str]:
    """What is missing, and to whom."""
    fastest = arrays.throughputs.max(axis=1)[jobs.rows]
    given = division.speeds[division.groups]
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


def _meet_all(
    arrays: ClassArrays, jobs: Jobs, floors: Floats, slos: Floats, usd_per_h: Floats
) -> tuple[_Best, Division] | None:
    """The best ratio with all SLOs met; None if they cannot be."""
    least = floors[jobs.rows]

    def at(level: float) -> tuple[Floats, Floats]:
        return np.maximum(least, level * slos), np.where(level * slos > least, slos, 0.0)

    highest = min(1.0, 1 / float(slos.max())) if slos.any() else 1.0
    needs = Needs(jobs.rows, at, highest)
    if highest < 1:
        return None
    ways = Ways.each_type(arrays)
    pools = Pools.of(arrays, ways)
    program = NeedsProgram(pools, needs)
    program.raise_level()
    if program.level < 1 - _NOTHING:
        return None
    best = _maximise_ratio(program, arrays, pools, usd_per_h)
    time = pools.fill(hand_out_rest(program, arrays, pools), ways)
    return best, divide(jobs.rows, at(program.level)[0], time, ways)


def _meet_most(
    arrays: ClassArrays, jobs: Jobs, floors: Floats, slos: Floats, usd_per_h: Floats
) -> tuple[_Best, Division]:
    """The least sum of relative shortfalls, then the best ratio, over jobs alike in SLO too."""
    order = np.lexsort((slos, jobs.rows))
    rows, slos = jobs.rows[order], slos[order]
    starts = np.append(True, (rows[1:] != rows[:-1]) | (slos[1:] != slos[:-1]))
    groups: Ints = np.zeros(len(rows), dtype=np.int64)
    groups[order] = np.cumsum(starts) - 1
    rows, slos = rows[starts], slos[starts]
    alike = ClassArrays(
        throughputs=arrays.throughputs[rows],
        scale_factors=arrays.scale_factors[rows],
        weights=arrays.weights[rows],
        counts=np.bincount(groups).astype(float),
        num_workers=arrays.num_workers,
        merged_into=np.arange(len(rows)),
    )
    ways = Ways.each_type(alike)
    pools = Pools.of(alike, ways)
    relief = np.maximum(slos - floors[rows], 0.0)
    needs = Needs.constant(np.maximum(slos, floors[rows]))
    program = NeedsProgram(pools, needs, relief)
    missing = np.divide(relief, slos, out=np.zeros(len(slos)), where=relief > 0)
    program.minimise(np.append(np.zeros(pools.num_columns), alike.counts * missing))
    program.keep_optima()
    best = _maximise_ratio(program, alike, pools, usd_per_h)
    time = pools.fill(hand_out_rest(program, alike, pools), ways)
    speeds = (time * ways.speeds).sum(axis=1)
    return best, Division(groups, rows, np.einsum("gw,gwj->gj", time, ways.spread), speeds)

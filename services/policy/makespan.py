"""Minimum makespan (§4.2), and what it shares with finish-time fairness.

Both ask for one number T or rho, the same for all jobs, as low as it can be. In its inverse, the
*level*, what each job needs is convex, and the highest level is found by ``needs.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.policy.classes import ClassArrays, gather
from services.policy.division import divide
from services.policy.jobs import Jobs, blind, gather_jobs, job_rows
from services.policy.leftover import all_on_their_fastest, hand_out_rest
from services.policy.needs import Needs, NeedsProgram
from services.policy.pools import Pools, Ways
from services.policy.problem import Allocation, Problem
from services.policy.solver import Floats


@dataclass(frozen=True)
class Makespan:
    """min max over jobs of r_i / thr_i: all jobs there are done as early as can be.

    r_i are the steps that remain. What that leaves of the cluster goes where it adds most to
    sum thr_i / Tbar_i, with the least worker time. Prices are seconds of makespan that a further
    worker of the type saves.
    """

    needs_progress = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return serve(problem, Ways.each_type, all_by_the_makespan)


@dataclass(frozen=True)
class MakespanAgnostic:
    """Makespan blind to types: r_i / (T_i x_i), T_i the speed on the reference type.

    Every job's share is spread over the types it can use in proportion to their workers.
    """

    needs_progress = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return serve(blind(problem), Ways.blind, all_by_the_makespan)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Jobs that at level t must be done within due_s / t of their arrival.

    Attributes
    ----------
    due_s, elapsed_s : (jobs,)
        Time from arrival to the deadline at level 1, and time since arrival.
    """

    due_s: Floats
    elapsed_s: Floats


def all_by_the_makespan(_: ClassArrays, jobs: Jobs) -> Deadlines:
    """At level t, all are done by 1 / t."""
    return Deadlines(np.ones(len(jobs.rows)), np.zeros(len(jobs.rows)))


def serve(
    problem: Problem,
    ways_of: Callable[[ClassArrays], Ways],
    deadlines_of: Callable[[ClassArrays, Jobs], Deadlines],
) -> Allocation:
    """Raise the level as far as it goes, and hand out what is left; the objective is its inverse.

    Raises
    ------
    ProblemError
        The problem holds a value no policy can make sense of.
    SolverError
        No solver found an answer.
    """
    arrays, set_aside = gather(problem)
    jobs = gather_jobs(problem, arrays)
    if not len(jobs.rows):
        return Allocation(rows=(), set_aside=set_aside)
    needs = deadline_needs(arrays, jobs, deadlines_of(arrays, jobs))
    ways = ways_of(arrays)
    pools = Pools.of(arrays, ways)
    best = raise_level(arrays, pools, needs)
    speeds, _ = needs.at(best.level)
    division = divide(jobs.rows, speeds, pools.fill(best.values, ways), ways)
    return Allocation(
        rows=job_rows(problem, arrays, jobs, division),
        objective=1 / best.level if best.level else 0.0,
        prices=dict(zip(problem.worker_types, best.prices.tolist(), strict=True)),
        bottlenecked=tuple(jobs.ids[i] for i in np.flatnonzero(best.holding).tolist()),
        set_aside=set_aside,
    )


@dataclass(frozen=True, slots=True)
class Best:
    """The highest level, and what it takes.

    Attributes
    ----------
    level : float
    values : (columns,)
        Who spends how much time where.
    prices : (worker types,)
        What a further worker of the type takes off the objective.
    holding : (jobs,)
        Who holds the level down.
    """

    level: float
    values: Floats
    prices: Floats
    holding: NDArray[np.bool_]


def raise_level(
    arrays: ClassArrays, pools: Pools, needs: Needs, ties: Floats | None = None
) -> Best:
    """The highest level, and what is left handed out; ``ties`` as of ``hand_out_rest``."""
    values = all_on_their_fastest(pools)
    if values is not None:
        speeds, _ = needs.at(needs.highest)
        return Best(needs.highest, values, np.zeros(pools.num_types), speeds >= 1 - 1e-9)
    program = NeedsProgram(pools, needs)
    prices, holding = np.zeros(pools.num_types), np.zeros(len(needs.rows), dtype=bool)
    if needs.highest > 0:
        program.raise_level()
        gains = program.level_prices() / program.level**2
        prices = np.divide(gains, arrays.num_workers, out=prices, where=gains > 0)
        holding = program.holding()
    values = hand_out_rest(program, arrays, pools, ties)
    return Best(program.level, values, prices, holding)


def deadline_needs(arrays: ClassArrays, jobs: Jobs, deadlines: Deadlines) -> Needs:
    """Speed r / (due / t - elapsed) at level t, in terms of the class's fastest."""
    work = jobs.steps_remaining / arrays.throughputs.max(axis=1)[jobs.rows]
    due, elapsed = deadlines.due_s, deadlines.elapsed_s
    to_do = work > 0
    alone = np.divide(due, work + elapsed, out=np.full(len(work), np.inf), where=to_do)
    highest = float(alone.min())
    if not to_do.any():
        zero = np.zeros(len(work))
        return Needs(jobs.rows, lambda _: (zero, zero), 0.0)
    work, due, elapsed = np.where(to_do, work, 0.0), np.where(to_do, due, 1.0), elapsed * to_do

    def at(level: float) -> tuple[Floats, Floats]:
        # No level up to the highest leaves less time than the work takes; rounding might.
        left = np.maximum(due - elapsed * level, work * level)
        needs = np.divide(work * level, left, out=np.zeros(len(work)), where=to_do)
        return needs, np.divide(work * due, left**2, out=np.zeros(len(work)), where=to_do)

    return Needs(jobs.rows, at, highest)

"""Policies with space sharing as programs to read: the maths of the fast paths in cvxpy.

Nothing at run time imports this; tests hold the fast paths to it. It takes the problem's classes
as they are, merges none, leaves no pair out, and knows nothing of columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy
import numpy as np

from services.policy.problem import Problem
from services.policy.reference.hierarchical import EntityJobs, fill
from services.policy.reference.las import solve
from services.policy.solver import Floats


@dataclass(frozen=True, slots=True)
class SharedOptimum:
    """The lexicographic max-min optimum of a problem.

    Attributes
    ----------
    levels : (classes of the problem,)
        s thr / (w Tbar) of each class; NaN for one that cannot run.
    worker_time : float
        Least worker time that reaches them.
    """

    levels: Floats
    worker_time: float


class Program:
    """Classes that run alone and beside each other: y_cj and y_cdj, c <= d, in total shares.

    A job of class c gets thr_c / m_c steps/s, where thr_c sums over types j
    T_cj y_cj + sum over d != c of T_c|dj y_cdj + 2 T_c|cj y_ccj, and is busy for (sum of y_c +
    sum over d != c of y_cd + 2 y_cc) / m_c <= 1 of its time. ``scale`` stretches all time and
    all workers alike.
    """

    def __init__(self, problem: Problem, scale: Any = 1.0) -> None:
        self.served = [
            index
            for index, c in enumerate(problem.classes)
            if c.job_ids and any(self._usable(problem, index))
        ]
        classes = [problem.classes[index] for index in self.served]
        place = {index: row for row, index in enumerate(self.served)}
        T = np.array([np.where(self._usable(problem, i), problem.classes[i].throughputs, 0.0)
                      for i in self.served])  # fmt: skip
        m = np.array([len(c.job_ids) for c in classes], dtype=float)
        s = np.array([c.scale_factor for c in classes], dtype=float)
        N = np.array(problem.num_workers, dtype=float)
        y: Any = cvxpy.Variable(T.shape, nonneg=True)
        thr: list[Any] = [cvxpy.multiply(speeds, y[row]) for row, speeds in enumerate(T)]
        time: list[Any] = [y[row] for row in range(len(T))]
        self.workers: Any = s @ y
        self.feasible: list[Any] = [y[T == 0] == 0]
        for (i, k), speeds in sorted(problem.pairs.items()):
            c, d = place.get(i, -1), place.get(k, -1)
            if c < 0 or d < 0 or s[c] != s[d] or (c == d and m[c] < 2):
                continue
            together = np.array(speeds)
            can = (together > 0).all(axis=0) & (T[c] > 0) & (T[d] > 0)
            shared: Any = cvxpy.Variable(len(N), nonneg=True)
            self.feasible.append(shared[~can] == 0)
            self.workers += s[c] * shared
            for row, steps_per_s in zip((c, d), together, strict=True):
                thr[row] = thr[row] + cvxpy.multiply(steps_per_s, shared)
                time[row] = time[row] + shared
        self.feasible.append(self.workers <= scale * N)
        self.feasible += [cvxpy.sum(each) <= scale * of for each, of in zip(time, m, strict=True)]
        #: (classes served,) steps/s of one job.
        self.speeds: Any = cvxpy.hstack(
            [cvxpy.sum(each) / of for each, of in zip(thr, m, strict=True)]
        )
        self.jobs = m
        w = np.array([c.priority_weight for c in classes])
        self.equal: Floats = T @ (N / N.sum())
        self.levels: Any = cvxpy.multiply(s / (w * self.equal), self.speeds)

    @staticmethod
    def _usable(problem: Problem, index: int) -> list[bool]:
        c = problem.classes[index]
        return [
            speed > 0 and c.scale_factor <= workers
            for speed, workers in zip(c.throughputs, problem.num_workers, strict=True)
        ]


def las(problem: Problem, dual_tolerance: float = 1e-6) -> SharedOptimum:
    """Raise a common level of all active classes; freeze those whose row has a dual; go on.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    program = Program(problem)
    levels = np.zeros(len(program.served))
    active = np.ones(len(levels), dtype=bool)
    t: Any = cvxpy.Variable()
    while active.any():
        rises = program.levels[np.flatnonzero(active)] >= t
        frozen = np.flatnonzero(~active)
        keeps = [program.levels[frozen] >= levels[frozen]] if len(frozen) else []
        solve(cvxpy.Problem(cvxpy.Maximize(t), [rises, *keeps, *program.feasible]))
        held = np.flatnonzero(active)[rises.dual_value > dual_tolerance]
        levels[held] = float(t.value)
        active[held] = False
    # Room for the rounding in the levels found above.
    reached = program.levels >= levels * (1 - 1e-9)
    least: Any = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum(program.workers)), [reached, *program.feasible]
    )
    solve(least)
    of_all = np.full(len(problem.classes), np.nan)
    of_all[program.served] = levels
    return SharedOptimum(levels=of_all, worker_time=float(least.value))


def best_multiple(problem: Problem, needs: Floats) -> float:
    """The most t for which every job of a class can have t times its need, (classes,) steps/s.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    program, t = Program(problem), cvxpy.Variable()
    of_served = needs[program.served]
    some = np.flatnonzero(of_served > 0)
    # In terms of needs, so that a small one counts as much as a large one.
    enough = program.speeds[some] / of_served[some] >= t
    most: Any = cvxpy.Problem(cvxpy.Maximize(t), [enough, *program.feasible])
    solve(most)
    return float(most.value)


def most_throughput(problem: Problem, *, normalised: bool) -> float:
    """Max sum over jobs of thr_i / Tbar_i, or of thr_i.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    program = Program(problem)
    worth = program.jobs / (program.equal if normalised else 1.0)
    most: Any = cvxpy.Problem(cvxpy.Maximize(worth @ program.speeds), program.feasible)
    solve(most)
    return float(most.value)


def best_ratio(
    problem: Problem, floors: Floats, wanted: Floats | None = None
) -> tuple[float, float]:
    """The least sum of relative shortfalls, and then the best (sum thr_i / Tbar_i) / cost.

    thr_c >= max(``floors``_c, ``wanted``_c (1 - d_c)) steps/s for a job of each class, (classes,),
    with the sum over jobs of d least. A ratio becomes linear where cost is held at 1 and time and
    workers may stretch instead (Charnes and Cooper 1962).

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    stretch: Any = cvxpy.Variable(nonneg=True)
    program = Program(problem, stretch)
    constraints = [program.speeds >= stretch * floors[program.served], *program.feasible]
    missing = 0.0
    if wanted is not None:
        of_served = wanted[program.served]
        (wants,) = np.nonzero(of_served)
        d: Any = cvxpy.Variable(len(wants), nonneg=True)
        # In terms of what is wanted, so that a small one counts as much as a large one.
        constraints.append(program.speeds[wants] / of_served[wants] >= stretch - d)
        short = program.jobs[wants] @ d
        least: Any = cvxpy.Problem(cvxpy.Minimize(short), [*constraints, stretch == 1])
        solve(least)
        missing = float(least.value)
        constraints.append(short <= stretch * (missing + 1e-9))
    cost = np.array(problem.prices_usd_per_h) @ program.workers
    worth: Any = cvxpy.Maximize((program.jobs / program.equal) @ program.speeds)
    most: Any = cvxpy.Problem(worth, [cost == 1, *constraints])
    solve(most)
    return missing, float(most.value)


def hierarchical(jobs: Problem) -> dict[str, float]:
    """{job id: thr_i / Tbar_i} by water filling, for a problem with a class for each job.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    below = EntityJobs(jobs)
    if not below.ids:
        return {}
    program = Program(jobs)
    return fill(below, cvxpy.multiply(1 / program.equal, program.speeds), program.feasible)

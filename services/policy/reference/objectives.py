"""Makespan, finish-time fairness, throughput and cost as programs to read, job by job in cvxpy.

The maths of their modules without classes and without speed. Nothing at run time imports this;
tests hold the fast paths to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy
import numpy as np

from services.policy.reference.las import solve
from services.policy.solver import Floats


@dataclass(frozen=True, slots=True)
class JobArrays:
    """Jobs and workers.

    Attributes
    ----------
    throughputs : (jobs, worker types)
        Steps/s; 0 where the job cannot run.
    scale_factors : (jobs,)
    num_workers : (worker types,)
    """

    throughputs: Floats
    scale_factors: Floats
    num_workers: Floats

    @property
    def fastest(self) -> Floats:
        """(jobs,) steps/s on the job's best type."""
        best: Floats = self.throughputs.max(axis=1)
        return best

    @property
    def equal(self) -> Floats:
        """(jobs,) steps/s under the equal allocation."""
        equal: Floats = self.throughputs @ (self.num_workers / self.num_workers.sum())
        return equal


def lowest_rho(jobs: JobArrays, steps: Floats, due_s: Floats, elapsed_s: Floats) -> float:
    """Min rho such that each job with steps to go is done ``rho * due_s`` after its arrival.

    With ``due_s`` 1 and ``elapsed_s`` 0, rho is the makespan. (jobs,) all three. How full the
    cluster must be is a convex function of 1 / rho: Newton's method, from above, finds where it
    is just full.
    """
    fullness: Any = cvxpy.Variable()
    thr, feasible = _allocation(jobs, fullness)
    to_do = np.flatnonzero(steps)
    work, due_s, elapsed_s = (steps / jobs.fastest)[to_do], due_s[to_do], elapsed_s[to_do]
    needed: Any = cvxpy.Parameter(len(work), nonneg=True)
    met = thr[to_do] >= needed
    program = cvxpy.Problem(cvxpy.Minimize(fullness), [met, *feasible])
    level = float((due_s / (work + elapsed_s)).min())
    while True:
        left_s = np.maximum(due_s - elapsed_s * level, work * level)
        needed.value = work * level / left_s
        excess = _optimum(program) - 1
        if excess <= 1e-9:
            return 1 / level
        level -= excess / float(met.dual_value @ (work * due_s / left_s**2))


def most_throughput(jobs: JobArrays, worth: Floats, least: Floats) -> float:
    """Max sum of ``worth`` * thr, (jobs,), with at least ``least`` steps/s for each job."""
    thr, feasible = _allocation(jobs)
    objective = cvxpy.Maximize(cvxpy.sum(cvxpy.multiply(worth * jobs.fastest, thr)))
    return _optimum(cvxpy.Problem(objective, [thr >= least / jobs.fastest, *feasible]))


def best_ratio(
    jobs: JobArrays, usd_per_h: Floats, least: Floats, wanted: Floats
) -> tuple[float, float]:
    """The least sum of relative shortfalls, and then the best sum thr/Tbar per USD an hour.

    thr_i >= max(``least``_i, ``wanted``_i (1 - d_i)) steps/s with the sum of d least; then, with
    all variables times kappa so that the cost is 1 (Charnes and Cooper 1962), a linear program;
    infinite where all that can be had for nothing. A job whose ``wanted`` is 0 wants nothing.
    """
    wants = wanted > 0
    x: Any = cvxpy.Variable(jobs.throughputs.shape, nonneg=True)
    d: Any = cvxpy.Variable(len(wanted), nonneg=True)
    kappa: Any = cvxpy.Variable(nonneg=True)
    thr: Any = cvxpy.sum(cvxpy.multiply(jobs.throughputs / jobs.fastest[:, None], x), axis=1)
    lowered = np.where(wants, wanted, 1.0) / jobs.fastest
    constraints = [
        cvxpy.sum(x, axis=1) <= kappa,
        jobs.scale_factors @ x <= kappa * jobs.num_workers,
        x[jobs.throughputs == 0] == 0,
        thr >= kappa * (least / jobs.fastest),
        thr >= kappa * (wanted / jobs.fastest) - cvxpy.multiply(lowered, d),
        d[~wants] == 0,
        d <= kappa,
    ]
    shortfall = cvxpy.Minimize(cvxpy.sum(d))
    missing = _optimum(cvxpy.Problem(shortfall, [*constraints, kappa == 1]))
    cost: Any = (jobs.scale_factors @ x) @ usd_per_h
    worth: Any = cvxpy.sum(cvxpy.multiply(jobs.fastest / jobs.equal, thr))
    no_worse = cvxpy.sum(d) <= kappa * (missing + 1e-9)
    constraints.append(no_worse)
    if _optimum(cvxpy.Problem(cvxpy.Minimize(cost), [*constraints, kappa == 1])) <= 1e-9:
        return missing, np.inf
    return missing, _optimum(cvxpy.Problem(cvxpy.Maximize(worth), [*constraints, cost == 1]))


def _allocation(jobs: JobArrays, fullness: Any = 1.0) -> tuple[Any, list[Any]]:
    """Throughput as a fraction of the fastest, and the constraints of every allocation."""
    x: Any = cvxpy.Variable(jobs.throughputs.shape, nonneg=True)
    thr: Any = cvxpy.sum(cvxpy.multiply(jobs.throughputs / jobs.fastest[:, None], x), axis=1)
    feasible = [
        cvxpy.sum(x, axis=1) <= 1,
        jobs.scale_factors @ x <= fullness * jobs.num_workers,
        x[jobs.throughputs == 0] == 0,
    ]
    return thr, feasible


def _optimum(program: Any) -> float:
    solve(program)
    return float(program.value)

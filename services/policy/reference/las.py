"""LAS as a program to read: the maths of ``las.py`` in cvxpy, without its speed.

Nothing at run time imports this; tests hold the fast path to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy
import numpy as np

from services.policy.classes import ClassArrays
from services.policy.problem import SolverError
from services.policy.solver import Floats


@dataclass(frozen=True, slots=True)
class ReferenceOptimum:
    """The lexicographic max-min optimum of a problem.

    Attributes
    ----------
    levels : (classes,)
        s thr / (w Tbar) of each class.
    worker_time : float
        Least sum of s_c y_cj that reaches them.
    """

    levels: Floats
    worker_time: float


def las(arrays: ClassArrays, dual_tolerance: float = 1e-6) -> ReferenceOptimum:
    """Solve LAS over classes, level after level.

    y_cj is the total share of class c on type j, so each of its m_c jobs has y_cj / m_c.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    per_share = arrays.scale_factors / (arrays.weights * arrays.equal_throughputs())
    a = arrays.throughputs * per_share[:, None]
    m, s, N = arrays.counts, arrays.scale_factors, arrays.num_workers
    y: Any = cvxpy.Variable(a.shape, nonneg=True)
    feasible = [cvxpy.sum(y, axis=1) <= m, s @ y <= N, y[~arrays.usable] == 0]
    gained: Any = cvxpy.sum(cvxpy.multiply(a, y), axis=1) / m
    return fill(gained, cvxpy.sum(s @ y), feasible, dual_tolerance)


def fill(
    gained: Any, held: Any, feasible: list[Any], dual_tolerance: float = 1e-6
) -> ReferenceOptimum:
    """Raise the least of ``gained``, (classes,), to the lexicographic end; then hold the least.

    Raise a common level t of all active classes as far as it goes; a positive dual of a class's
    row proves that no optimum gives the class more than t, so the class is frozen there. A tight
    row without a dual is frozen at a later step, of height zero.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    t: Any = cvxpy.Variable()
    levels = np.zeros(gained.shape[0])
    active = np.ones(len(levels), dtype=bool)
    while active.any():
        rises = gained[active] >= t
        keeps = [gained[~active] >= levels[~active]] if not active.all() else []
        solve(cvxpy.Problem(cvxpy.Maximize(t), [rises, *keeps, *feasible]))
        frozen = np.flatnonzero(active)[rises.dual_value > dual_tolerance]
        levels[frozen] = float(t.value)
        active[frozen] = False

    # Room for the rounding in the levels found above; its worth is added back.
    slack = 1e-9
    reached = gained / levels >= 1 - slack
    least: Any = cvxpy.Problem(cvxpy.Minimize(held), [reached, *feasible])
    solve(least)
    worker_time = float(least.value) + slack * float(np.sum(reached.dual_value))
    return ReferenceOptimum(levels=levels, worker_time=worker_time)


def solve(program: Any) -> None:
    """Solve by HiGHS, to ten digits.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    program.solve(
        solver=cvxpy.HIGHS,
        primal_feasibility_tolerance=1e-10,
        dual_feasibility_tolerance=1e-10,
    )
    if program.status != cvxpy.OPTIMAL:
        raise SolverError(f"cvxpy with HiGHS: {program.status}")

"""Proportional fairness as a program to read; the maths of ``strategy_proof.py`` in cvxpy.

Nothing at run time imports this; tests hold the fast path to it.
"""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np

from services.policy.classes import ClassArrays
from services.policy.problem import SolverError
from services.policy.solver import Floats


def proportionally_fair(arrays: ClassArrays, counts: Floats) -> Floats:
    """(classes,) thr relative to the fastest type, at the maximum of prod thr_c^(m_c w_c).

    ``counts``, (classes,), are the m_c: fewer than in ``arrays``, where a job is away.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    speeds = arrays.throughputs / arrays.throughputs.max(axis=1, keepdims=True)
    m, s, w, N = counts, arrays.scale_factors, arrays.weights, arrays.num_workers
    x: Any = cvxpy.Variable(speeds.shape, nonneg=True)
    thr: Any = cvxpy.sum(cvxpy.multiply(speeds, x), axis=1)
    there = m > 0
    value = cvxpy.sum(cvxpy.multiply((m * w)[there], cvxpy.log(thr[there])))
    feasible = [cvxpy.sum(x, axis=1) <= 1, (m * s) @ x <= N, x[~arrays.usable] == 0]
    program: Any = cvxpy.Problem(cvxpy.Maximize(value / float(m @ w)), feasible)
    program.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    if program.status not in {cvxpy.OPTIMAL, cvxpy.OPTIMAL_INACCURATE}:
        raise SolverError(f"cvxpy with Clarabel: {program.status}")
    levels: Floats = np.where(there, thr.value, 0.0)
    return levels

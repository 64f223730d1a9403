"""LAS by placement as a program to read: two columns for each worker type, one capacity (§3.1).

Nothing at run time imports this; tests hold the fast path to it.
"""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np

from services.policy.problem import Problem
from services.policy.reference.las import ReferenceOptimum, fill


def las(problem: Problem, dual_tolerance: float = 1e-6) -> ReferenceOptimum:
    """Solve LAS over the problem's classes, each of which can run somewhere.

    Columns are all types consolidated, then all types unconsolidated; what both columns of a type
    hold comes from its workers. y_cv is the total share of class c in column v. Levels rise as in
    ``reference.fill``. Tbar is the throughput of the equal allocation, a type held as is faster.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    N = np.array(problem.num_workers, dtype=float)
    s = np.array([c.scale_factor for c in problem.classes], dtype=float)
    w = np.array([c.priority_weight for c in problem.classes])
    m = np.array([len(c.job_ids) for c in problem.classes], dtype=float)
    T = np.array([c.throughputs for c in problem.classes])
    U = np.array([c.unconsolidated or c.throughputs for c in problem.classes])
    T, U = np.where(s[:, None] <= N, T, 0.0), np.where(s[:, None] <= N, U, 0.0)
    a = np.hstack([T, U]) * (s / (w * (np.maximum(T, U) @ N / N.sum())))[:, None]

    y: Any = cvxpy.Variable(a.shape, nonneg=True)
    held = s @ (y[:, : len(N)] + y[:, len(N) :])
    feasible = [cvxpy.sum(y, axis=1) <= m, held <= N, y[a == 0] == 0]
    gained: Any = cvxpy.sum(cvxpy.multiply(a, y), axis=1) / m
    return fill(gained, cvxpy.sum(held), feasible, dual_tolerance)

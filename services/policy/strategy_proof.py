"""Strategy-proof: proportional fairness, and everyone pays for what it takes from the others.

Among the policies that divide a cluster, proportional fairness is the one whose optimum tells by
how much each job's presence costs the others. Withhold that from the job, and nobody gains by
lying about throughputs. What is withheld is burnt, not given to others: it would be a reason to
lie again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from services.policy.classes import ClassArrays, gather, to_rows
from services.policy.problem import Allocation, Problem, SolverError
from services.policy.solver import Floats
from services.policy.water_filling import Needs

#: An extension module whose names no type checker sees.
_clarabel: Any = clarabel


@dataclass(frozen=True)
class StrategyProof:
    """max prod over jobs of thr_i^w_i, then each x_i times its discount.

    The discount of job i is (prod over the others k of (thr_k with i / thr_k without i)^w_k)
    ^(1/w_i): 1 for a job that costs nobody anything, and less the more it takes. Among optima
    the one with the least worker time.

    ``objective`` is the weighted geometric mean of s_i thr_i / (w_i Tbar_i) before the discount,
    and ``prices`` say by how much one more worker would raise it.
    """

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        market = _Market(arrays)
        levels, worth = market.clear(arrays.counts)
        program = Needs(market.speeds, market.loads)
        program.solve(levels)
        shares = program.shares(levels, arrays.demands, arrays.tie_breakers)
        rows = to_rows(problem, arrays, shares * market.discounts(levels)[:, None])

        weights = arrays.counts * arrays.weights
        best = arrays.throughputs.max(axis=1) / arrays.equal_throughputs()
        gains = arrays.scale_factors * best * levels / arrays.weights
        mean = float(np.exp((weights * np.log(gains)).sum() / weights.sum()))
        per_worker = np.divide(worth, arrays.num_workers, out=0 * worth, where=worth > 0)
        prices = mean * per_worker / weights.sum()
        return Allocation(
            rows=rows,
            objective=mean,
            prices=dict(zip(problem.worker_types, prices.tolist(), strict=True)),
            set_aside=set_aside,
        )


class _Market:
    """The optimum of the product, with all jobs or with some away.

    Attributes
    ----------
    speeds : (classes, worker types)
        Throughput relative to the job's fastest type.
    loads : (classes, worker types)
        Fraction of the type's workers that the class holds when always on it.
    """

    def __init__(self, arrays: ClassArrays) -> None:
        self._arrays = arrays
        self.speeds = arrays.throughputs / arrays.throughputs.max(axis=1, keepdims=True)
        self.loads = np.divide(
            arrays.demands[:, None],
            arrays.num_workers,
            out=np.zeros(self.speeds.shape),
            where=arrays.usable,
        )

    def discounts(self, levels: Floats) -> Floats:
        """(classes,) factor in [0, 1] of each job's shares; ``levels`` are those with all jobs.

        The optimum is flat: a solver near it has levels to half the digits, but the product over
        all, and so what a job costs the others, to nearly all.
        """
        counts, weights = self._arrays.counts, self._arrays.weights
        logs = np.zeros(len(counts))
        for row in range(len(counts)):
            others = counts - (np.arange(len(counts)) == row)
            without, _ = self.clear(others)
            there = others > 0
            lost = np.log(levels[there] / without[there])
            logs[row] = float((others * weights)[there] @ lost) / weights[row]
        discounts: Floats = np.exp(np.minimum(logs, 0.0))
        return discounts

    def clear(self, counts: Floats) -> tuple[Floats, Floats]:
        """(classes,) levels, relative to always on the fastest, and (worker types,) worth.

        The program: max sum m_c w_c log r_c over r_c = sum_j speed_cj x_cj, the time of each job
        and the workers of each type. ``counts``, (classes,), are the jobs there; the levels of
        classes without any are 0.

        Raises
        ------
        SolverError
            Clarabel has no optimum.
        """
        there = np.flatnonzero(counts > 0)
        levels, worth = np.zeros(len(counts)), np.zeros(self.speeds.shape[1])
        if not len(there):
            return levels, worth
        classes, types = np.nonzero(self.speeds[there])
        fraction = counts[there] / self._arrays.counts[there]
        loads = self.loads[there] * fraction[:, None]
        reach, held = self.speeds[there][classes, types], loads[classes, types]
        found, duals = _maximise_product(
            counts[there] * self._arrays.weights[there], classes, types, reach, held, len(worth)
        )
        levels[there] = found
        return levels, np.where(self.loads.any(axis=0), duals, 0.0)


def _maximise_product(
    weights: Floats, classes: Any, types: Any, reach: Floats, held: Floats, num_types: int
) -> tuple[Floats, Floats]:
    """Columns x, then t_c <= log r_c: an exponential cone (t_c, 1, r_c) for every class."""
    n, columns = len(weights), len(reach)
    every = np.arange(columns)
    positive = sparse.csc_matrix((-np.ones(columns), (every, every)), (columns, columns + n))
    time = sparse.csc_matrix((np.ones(columns), (classes, every)), (n, columns + n))
    capacity = sparse.csc_matrix((held, (types, every)), (num_types, columns + n))
    logs = sparse.csc_matrix(
        (
            np.concatenate([-np.ones(n), -reach]),
            (
                np.concatenate([3 * np.arange(n), 3 * classes + 2]),
                np.concatenate([columns + np.arange(n), every]),
            ),
        ),
        (3 * n, columns + n),
    )
    settings = _clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    scale = weights.sum()
    answer = _clarabel.DefaultSolver(
        sparse.csc_matrix((columns + n, columns + n)),
        np.concatenate([np.zeros(columns), -weights / scale]),
        sparse.vstack([positive, time, capacity, logs], format="csc"),
        np.concatenate([np.zeros(columns), np.ones(n + num_types), np.tile([0.0, 1.0, 0.0], n)]),
        [
            _clarabel.NonnegativeConeT(columns + n + num_types),
            *[_clarabel.ExponentialConeT() for _ in range(n)],
        ],
        settings,
    ).solve()
    good = (_clarabel.SolverStatus.Solved, _clarabel.SolverStatus.AlmostSolved)
    if answer.status not in good:
        raise SolverError(f"Clarabel: {answer.status}")
    shares = np.clip(np.array(answer.x)[:columns], 0.0, 1.0)
    levels: Floats = np.bincount(classes, reach * shares, n).astype(float)
    duals = np.array(answer.z)[columns + n : columns + n + num_types] * scale
    return levels, np.maximum(duals, 0.0)

"""Hierarchical fairness as a program to read: water filling, job by job, without its speed.

Nothing at run time imports this; tests hold the fast path to it.
"""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np

from schemas.domain import Entity
from services.policy.problem import Problem
from services.policy.reference.las import solve
from services.policy.solver import Floats

#: (entity or job id, weight, rank of arrival): what competes under one entity.
_Rival = tuple[str, float, float]


def hierarchical(problem: Problem, dual_tolerance: float = 1e-7) -> dict[str, float]:
    """{job id: thr_i / Tbar_i} of the jobs that can run somewhere.

    Every job has a growth g_i: of a unit rate at the root, each entity passes on what it gets in
    proportion to weights (fairness) or to the first in line (fifo), among those with a job below
    that can still rise, down to s_i g_i of a job. Raise all levels to L_i + h g_i for the largest
    h; a positive dual of a job's row proves that no optimum gives it more, so it is held there.
    A tight row without a dual is held at a later step, of height zero.

    Raises
    ------
    SolverError
        The solver has no optimum.
    """
    jobs = EntityJobs(problem)
    N = np.array(problem.num_workers, dtype=float)
    if not jobs.ids:
        return {}
    x: Any = cvxpy.Variable(jobs.normalised.shape, nonneg=True)
    level: Any = cvxpy.sum(cvxpy.multiply(jobs.normalised, x), axis=1)
    feasible = [cvxpy.sum(x, axis=1) <= 1, jobs.scale_factors @ x <= N, x[~jobs.usable] == 0]
    return fill(jobs, level, feasible, dual_tolerance)


def fill(
    jobs: EntityJobs, level: Any, feasible: list[Any], dual_tolerance: float = 1e-7
) -> dict[str, float]:
    """The same for any expression of the jobs' levels, and any constraints on it."""
    h: Any = cvxpy.Variable(nonneg=True)
    reached: Any = cvxpy.Parameter(len(jobs.ids), value=np.zeros(len(jobs.ids)))
    growth: Any = cvxpy.Parameter(len(jobs.ids), nonneg=True)
    rises = level >= reached + h * growth
    program: Any = cvxpy.Problem(cvxpy.Maximize(h), [rises, *feasible])
    can_rise = np.ones(len(jobs.ids), dtype=bool)
    while can_rise.any():
        growth.value = jobs.growth(can_rise)
        solve(program)
        # The rounding of one step must not keep the next from starting.
        reached.value = (reached.value + float(h.value) * growth.value) * (1 - 1e-9)
        can_rise &= rises.dual_value * growth.value <= dual_tolerance
    return dict(zip(jobs.ids, reached.value.tolist(), strict=True))


class EntityJobs:
    """The jobs that can run somewhere, and the tree above them."""

    def __init__(self, problem: Problem) -> None:
        N = np.array(problem.num_workers, dtype=float)
        self.ids: list[str] = []
        self._weights: dict[str, float] = {}
        self._ranks: dict[str, float] = {}
        self._below: dict[str, list[str]] = {}
        entities = {entity.entity_id: entity for entity in problem.entities}
        self._entities = entities | {"": Entity(entity_id="")}
        rows, scale_factors = [], []
        for asked in problem.classes:
            speeds = np.where(asked.scale_factor <= N, asked.throughputs, 0.0)
            if not speeds.any():
                continue
            home = asked.entity if asked.entity in entities else ""
            for job_id, rank in zip(asked.job_ids, asked.arrival_ranks, strict=True):
                self.ids.append(job_id)
                self._weights[job_id], self._ranks[job_id] = asked.priority_weight, rank
                self._below.setdefault(home, []).append(job_id)
                rows.append(speeds / (speeds @ N / N.sum()))
                scale_factors.append(asked.scale_factor)
        self.normalised = np.array(rows).reshape(len(rows), len(N))
        self.usable = self.normalised > 0
        self.scale_factors = np.array(scale_factors, dtype=float)

    def growth(self, can_rise: Floats) -> Floats:
        """(jobs,) g_i, when the root has a rate of 1 per unit of its weights."""
        rising = {job for job, rises in zip(self.ids, can_rise.tolist(), strict=True) if rises}
        rates: dict[str, float] = {}
        top = [e for e in self._entities if not self._entities[e].parent]
        rivals = self._with_rank([(e, self._entities[e].weight) for e in top], rising)
        rivals = [r for r in rivals if r[1] > 0] or [(name, 1.0, rank) for name, _, rank in rivals]
        for name, weight, _ in rivals:
            self._pass_on(name, weight, rising, rates)
        growth: Floats = np.array([rates.get(job, 0.0) for job in self.ids]) / self.scale_factors
        return growth

    def _pass_on(self, entity: str, rate: float, rising: set[str], rates: dict[str, float]) -> None:
        jobs = [(job, self._weights[job]) for job in self._below.get(entity, ())]
        children = [] if not entity else [e for e in self._entities.values() if e.parent == entity]
        rivals = self._with_rank([*jobs, *((c.entity_id, c.weight) for c in children)], rising)
        heavy = [rival for rival in rivals if rival[1] > 0]
        rivals = heavy or [(name, 1.0, rank) for name, _, rank in rivals]
        if self._entities[entity].policy == "fifo":
            rivals = [min(rivals, key=lambda rival: rival[2])]
        total = sum(weight for _, weight, _ in rivals)
        for name, weight, _ in rivals:
            if name in self._weights:
                rates[name] = rate * weight / total
            else:
                self._pass_on(name, rate * weight / total, rising, rates)

    def _with_rank(self, names: list[tuple[str, float]], rising: set[str]) -> list[_Rival]:
        """Those with a job that can rise; an entity arrives with the earliest of its jobs."""
        result = []
        for name, weight in names:
            jobs = [name] if name in self._weights else self._all_below(name)
            if rising.intersection(jobs):
                result.append((name, weight, min(self._ranks[job] for job in jobs)))
        return result

    def _all_below(self, entity: str) -> list[str]:
        children = [] if not entity else [e for e in self._entities.values() if e.parent == entity]
        below = [job for child in children for job in self._all_below(child.entity_id)]
        return [*self._below.get(entity, ()), *below]

"""Whether an allocation is one: what a policy of anybody's returned, before it goes on the log."""

from __future__ import annotations

import math
from collections.abc import Mapping

from schemas.domain import UNCONSOLIDATED, AllocationRow
from services.policy.problem import Allocation, Problem

#: What more than a whole may be off by rounding.
_TOLERANCE = 1e-6


def fault(problem: Problem, allocation: object) -> str | None:
    """What is wrong with an allocation, with the numbers; None if it can be carried out."""
    if not isinstance(allocation, Allocation):
        return f"a {type(allocation).__name__}, not an Allocation"
    scale_factors = {job: c.scale_factor for c in problem.classes for job in c.job_ids}
    workers = dict(zip(problem.worker_types, problem.num_workers, strict=True))
    used = dict.fromkeys(workers, 0.0)
    time = dict.fromkeys(scale_factors, 0.0)
    for row in allocation.rows:
        wrong = _row_fault(row, workers, scale_factors)
        if wrong is not None:
            return wrong
        for combination in row.combinations:
            for job in combination:
                time[job] += math.fsum(row.shares.values())
            for name, share in row.shares.items():
                used[name.removesuffix(UNCONSOLIDATED)] += share * scale_factors[combination[0]]
    return _excess(used, workers, time)


def _excess(
    used: Mapping[str, float], workers: Mapping[str, int], time: Mapping[str, float]
) -> str | None:
    for worker_type, total in used.items():
        if total > workers[worker_type] * (1 + _TOLERANCE) + _TOLERANCE:
            return f"{total:g} workers of {worker_type} in all; there are {workers[worker_type]}"
    for job, total in time.items():
        if total > 1 + _TOLERANCE:
            return f"job {job} has {total:g} of its time in all; it has 1"
    return None


def _row_fault(
    row: AllocationRow, workers: Mapping[str, int], scale_factors: Mapping[str, int]
) -> str | None:
    for worker_type, share in row.shares.items():
        if worker_type.removesuffix(UNCONSOLIDATED) not in workers:
            return f"a share on worker type {worker_type!r}, which is not there"
        if not 0 <= share <= 1 + _TOLERANCE:
            return f"a share of {share} on {worker_type}; shares lie between 0 and 1"
    for combination in row.combinations:
        known = all(job in scale_factors for job in combination)
        if not known or len(set(combination)) != len(combination) or len(combination) not in {1, 2}:
            return f"combination {combination!r} is not one or two jobs of the problem"
    return None

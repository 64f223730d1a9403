"""From a ``Problem`` to arrays, and from shares back to rows.

Solvers see classes merged by what they can tell apart and sorted by it, so that neither the order
nor the names of the classes of a problem can change anybody's share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from schemas.domain import AllocationRow
from services.policy.problem import JobClass, Problem, ProblemError
from services.policy.solver import Floats, Ints

#: Shares are whole multiples of this: every path to one optimum then gives the same bytes.
SHARE_UNIT = 1e-8
_UNITS = round(1 / SHARE_UNIT)


@dataclass(frozen=True, slots=True)
class ClassArrays:
    """The jobs that can be served, as arrays over merged classes and worker types.

    Attributes
    ----------
    throughputs : (classes, worker types)
        Steps/s of one job; 0 where it cannot run, too few workers for its scale factor included.
    scale_factors, weights, counts : (classes,)
        Workers of one job, its priority weight, and jobs of the class.
    num_workers : (worker types,)
        Workers that can be leased.
    merged_into : (classes of the problem,)
        Row of each class of the problem; -1 for one that is set aside.
    """

    throughputs: Floats
    scale_factors: Floats
    weights: Floats
    counts: Floats
    num_workers: Floats
    merged_into: Ints

    @property
    def demands(self) -> Floats:
        """(classes,) workers that all jobs of the class would hold if all ran at once."""
        return self.scale_factors * self.counts

    @property
    def usable(self) -> NDArray[np.bool_]:
        """(classes, worker types) where a job can run."""
        return self.throughputs > 0

    def tie_breakers(self) -> Floats:
        """(classes, worker types) a number in [0, 1) that is each class's own on each type.

        It comes from what the class is, so others that arrive or leave do not change it.
        """
        looks = np.column_stack([self.throughputs, self.scale_factors, self.weights])
        types = [bytes([column]) for column in range(self.throughputs.shape[1])]
        numbers = [[crc32(row.tobytes() + column) for column in types] for row in looks]
        return np.array(numbers, dtype=float).reshape(self.throughputs.shape) / 2**32

    def equal_throughputs(self) -> Floats:
        """(classes,) steps/s under the equal allocation, each type's share N_j / sum N (§4.1)."""
        equal: Floats = self.throughputs @ (self.num_workers / self.num_workers.sum())
        return equal


def gather(problem: Problem, kinds: Floats | None = None) -> tuple[ClassArrays, dict[str, str]]:
    """Arrays of the jobs that can run somewhere, and why each of the others cannot.

    ``kinds``, (classes of the problem,), tells apart classes that look alike here and are not.

    Raises
    ------
    ProblemError
        A throughput, weight, scale factor or worker count is no sensible number.
    """
    classes = problem.classes
    shape = (len(classes), len(problem.worker_types))
    try:
        throughputs = np.array([c.throughputs for c in classes], dtype=float).reshape(shape)
    except ValueError:
        raise ProblemError(_wrong_row_length(problem)) from None
    scale_factors = np.array([c.scale_factor for c in classes], dtype=float)
    weights = np.array([c.priority_weight for c in classes], dtype=float)
    counts = np.array([len(c.job_ids) for c in classes], dtype=float)
    num_workers = np.array(problem.num_workers, dtype=float)
    _check(problem, throughputs, scale_factors, weights, num_workers)
    throughputs = np.where(scale_factors[:, None] <= num_workers, throughputs, 0.0)
    served = throughputs.any(axis=1) & (counts > 0)

    told_apart = np.zeros(len(classes)) if kinds is None else kinds
    looks = np.column_stack([throughputs, scale_factors, weights, told_apart])
    order = np.lexsort(looks.T[::-1])
    order = order[served[order]]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (looks[order[1:]] != looks[order[:-1]]).any(axis=1)
    merged_into = np.full(len(classes), -1)
    merged_into[order] = np.cumsum(first) - 1
    kept = order[first]
    arrays = ClassArrays(
        throughputs=throughputs[kept],
        scale_factors=scale_factors[kept],
        weights=weights[kept],
        counts=np.bincount(merged_into[order], counts[order], len(kept)).astype(float),
        num_workers=num_workers,
        merged_into=merged_into,
    )
    set_aside = {
        job_id: _why_not(problem, classes[index])
        for index in np.flatnonzero(~served)
        for job_id in classes[index].job_ids
    }
    return arrays, set_aside


def job_ids(problem: Problem, arrays: ClassArrays, rows: NDArray[np.bool_]) -> tuple[str, ...]:
    """Ids of all jobs in the given rows, (classes,), in the order of the problem."""
    return tuple(
        job_id
        for job_class, row in zip(problem.classes, arrays.merged_into, strict=True)
        if row >= 0 and rows[row]
        for job_id in job_class.job_ids
    )


def to_rows(problem: Problem, arrays: ClassArrays, shares: Floats) -> tuple[AllocationRow, ...]:
    """One row for each class with a share; all its jobs have the same.

    Parameters
    ----------
    shares : (classes, worker types)
        Fraction of wall-clock time of one job of the class, feasible but for rounding.
    """
    units = round_to_units(shares, arrays.demands, arrays.num_workers)
    shares_of = [
        {name: n / _UNITS for name, n in zip(problem.worker_types, row, strict=True) if n > 0}
        for row in units.tolist()
    ]
    return tuple(
        AllocationRow(single_jobs(job_class.job_ids), shares_of[row])
        for job_class, row in zip(problem.classes, arrays.merged_into.tolist(), strict=True)
        if row >= 0 and shares_of[row]
    )


def single_jobs(ids: Iterable[str]) -> tuple[tuple[str], ...]:
    """The combinations of jobs that share with nobody."""
    return tuple((job_id,) for job_id in ids)


def round_to_units(
    shares: Floats,
    demands: Floats,
    num_workers: Floats,
    taken_time: Ints | int = 0,
    taken_workers: Ints | int = 0,
) -> Ints:
    """Shares as whole multiples of ``SHARE_UNIT``: the nearest that break no constraint.

    Where rounding to the nearest adds up to more than a job's time or a type's workers, those
    that gained most by it give one unit back.

    Parameters
    ----------
    shares : (classes, worker types)
        Shares of one job of each class.
    demands : (classes,)
        Scale factor times jobs.
    num_workers : (worker types,)
        Workers of each type.
    taken_time, taken_workers : (classes,), (worker types,)
        Units of a job's time and of a type's workers that are taken already.
    """
    exact = np.maximum(shares, 0.0) * _UNITS
    units: Ints = np.rint(exact).astype(np.int64)
    times = np.broadcast_to(_UNITS - np.asarray(taken_time), len(units))
    for row in np.flatnonzero(units.sum(axis=1) > times):
        while units[row].sum() > times[row]:
            gained = np.where(units[row] > 0, units[row] - exact[row], -np.inf)
            units[row, gained.argmax()] -= 1
    whole_demands = np.rint(demands).astype(np.int64)
    limits = np.rint(num_workers).astype(np.int64) * _UNITS - taken_workers
    for column in np.flatnonzero(whole_demands @ units > limits):
        while (excess := whole_demands @ units[:, column] - limits[column]) > 0:
            gained = np.where(units[:, column] > 0, units[:, column] - exact[:, column], -np.inf)
            order = np.argsort(-gained, kind="stable")
            order = order[gained[order] > -np.inf]
            enough = np.searchsorted(np.cumsum(whole_demands[order]), excess) + 1
            units[order[:enough], column] -= 1
    return units


def _check(
    problem: Problem, throughputs: Floats, scale_factors: Floats, weights: Floats, workers: Floats
) -> None:
    """Refuse what would turn into a silently wrong allocation."""
    rules = (
        ("throughputs", np.isfinite(throughputs) & (throughputs >= 0), "finite and >= 0"),
        ("scale_factor", scale_factors >= 1, "at least 1"),
        ("priority_weight", np.isfinite(weights) & (weights > 0), "finite and > 0"),
    )
    for field, fine, right in rules:
        if not fine.all():
            index = int(np.argwhere(~fine)[0][0])
            value = getattr(problem.classes[index], field)
            name = problem.classes[index].job_type
            raise ProblemError(f"class {index} ({name}): {field} is {value}, must be {right}")
    if len(workers) != len(problem.worker_types) or not (workers >= 0).all():
        raise ProblemError(
            f"num_workers is {problem.num_workers}, must be one count >= 0 for each of "
            f"{problem.worker_types}"
        )


def _wrong_row_length(problem: Problem) -> str:
    expected = len(problem.worker_types)
    for index, job_class in enumerate(problem.classes):
        if len(job_class.throughputs) != expected:
            return (
                f"class {index} ({job_class.job_type}): throughputs has "
                f"{len(job_class.throughputs)} values, must be one for each of "
                f"{problem.worker_types}"
            )
    return "throughputs must be numbers"


def _why_not(problem: Problem, job_class: JobClass) -> str:
    """Why no worker type will do, with the numbers."""
    types = "; ".join(
        f"{name}: {steps_per_s:g} steps/s, {workers} workers"
        for name, steps_per_s, workers in zip(
            problem.worker_types, job_class.throughputs, problem.num_workers, strict=True
        )
    )
    return (
        f"no worker type has both a throughput for it and the {job_class.scale_factor} "
        f"workers of its scale factor ({types or 'there are no worker types'})"
    )

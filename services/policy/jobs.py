"""The jobs of a problem one by one, for objectives in which jobs of a class differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import msgspec
import numpy as np

from schemas.domain import AllocationRow
from services.policy.classes import SHARE_UNIT, ClassArrays
from services.policy.division import Division
from services.policy.problem import JobClass, Problem, ProblemError
from services.policy.solver import Floats, Ints

_UNITS = round(1 / SHARE_UNIT)
#: Part of a unit that may be a solver's noise.
_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Jobs:
    """The jobs that can be served, by class and then by what sets them apart.

    Attributes
    ----------
    ids : (jobs,)
    rows : (jobs,)
        Class, a row of ``ClassArrays``; ascending.
    steps_remaining, elapsed_s, isolated_s, slo_remaining_s : (jobs,)
        See ``JobClass``.
    """

    ids: list[str]
    rows: Ints
    steps_remaining: Floats
    elapsed_s: Floats
    isolated_s: Floats
    slo_remaining_s: Floats


def gather_jobs(problem: Problem, arrays: ClassArrays) -> Jobs:
    """The jobs of the classes that are not set aside.

    Raises
    ------
    ProblemError
        The problem does not say of every job what is left of it, or says no sensible number.
    """
    served = [c for c, row in zip(problem.classes, arrays.merged_into, strict=True) if row >= 0]
    sizes = [len(c.job_ids) for c in served]
    rows = np.repeat(arrays.merged_into[arrays.merged_into >= 0], sizes)
    steps = _numbers(served, "steps_remaining", lambda c: c.steps_remaining)
    elapsed = _numbers(served, "elapsed_s", lambda c: c.elapsed_s)
    isolated = _numbers(served, "isolated_s", lambda c: c.isolated_s, 0.0)
    slo = _numbers(served, "slo_remaining_s", lambda c: c.slo_remaining_s, np.inf)
    # By value, so that sums over a class do not depend on the order of its jobs in the problem.
    sets_apart = [x for x in (slo, isolated, elapsed, steps) if len(x) and (x != x[0]).any()]
    order = np.lexsort((*sets_apart, rows))
    ids = list(chain.from_iterable(c.job_ids for c in served))
    return Jobs(
        ids=[ids[i] for i in order.tolist()],
        rows=rows[order],
        steps_remaining=steps[order],
        elapsed_s=elapsed[order],
        isolated_s=isolated[order],
        slo_remaining_s=slo[order],
    )


def _numbers(
    classes: list[JobClass],
    field: str,
    of: Callable[[JobClass], tuple[float, ...]],
    default: float | None = None,
) -> Floats:
    """(jobs,) a field of all classes; the default where no class has it."""
    parts = [of(job_class) for job_class in classes]
    if default is not None and not any(parts):
        return np.full(sum(len(c.job_ids) for c in classes), default)
    for job_class, given in zip(classes, parts, strict=True):
        if len(given) != len(job_class.job_ids):
            raise ProblemError(
                f"class {job_class.job_type}: {field} has {len(given)} values, must be one for "
                f"each of its {len(job_class.job_ids)} jobs"
            )
    values = np.fromiter(chain.from_iterable(parts), dtype=float)
    # Only a deadline may be infinite (there is none), or lie in the past.
    fine = ~np.isnan(values) if field == "slo_remaining_s" else (values >= 0) & (values < np.inf)
    if not fine.all():
        ids = list(chain.from_iterable(c.job_ids for c in classes))
        index = int(np.flatnonzero(~fine)[0])
        raise ProblemError(f"job {ids[index]}: {field} is {values[index]}, must be a number >= 0")
    return values


def job_rows(
    problem: Problem, arrays: ClassArrays, jobs: Jobs, division: Division
) -> tuple[AllocationRow, ...]:
    """One row for each group of jobs that have the same."""
    sizes = np.bincount(division.groups, minlength=len(division.rows)).astype(float)
    demands = arrays.scale_factors[division.rows] * sizes
    units = round_by_fractions(division.shares, demands, arrays.num_workers)
    by_group = np.argsort(division.groups, kind="stable")
    combinations = tuple(zip([jobs.ids[i] for i in by_group.tolist()], strict=True))
    ends = np.cumsum(sizes.astype(np.int64))
    starts = np.append(0, ends[:-1])
    of_groups = zip(starts.tolist(), ends.tolist(), named_shares(problem, units), strict=True)
    return tuple(
        AllocationRow(combinations[first:last], shares)
        for first, last, shares in of_groups
        if shares
    )


def round_by_fractions(shares: Floats, demands: Floats, num_workers: Floats) -> Ints:
    """Shares as whole multiples of ``SHARE_UNIT`` that break no constraint, none much smaller.

    A unit is nothing to half of a worker's time and much to a thousandth, which can be all that
    a short job needs. So shares are rounded up. Where that is more than a job's time, its largest
    share gives a unit back; where more than a type's workers, all that are no whole units lose
    the same fraction before they are rounded up, as little as will do.

    Parameters
    ----------
    shares, demands, num_workers : (groups, worker types), (groups,), (worker types,)
        See ``classes.round_to_units``.
    """
    exact = np.maximum(shares, 0.0) * _UNITS
    units: Ints = np.ceil(exact - _NOISE).astype(np.int64)
    while len(over := np.flatnonzero(units.sum(axis=1) > _UNITS)):
        units[over, units[over].argmax(axis=1)] -= 1
    whole_demands = np.rint(demands).astype(np.int64)
    limits = np.rint(num_workers).astype(np.int64) * _UNITS
    for column in np.flatnonzero(whole_demands @ units > limits):
        limit = int(limits[column])
        units[:, column] = _fit(units[:, column], exact[:, column], whole_demands, limit)
    return units


def _fit(units: Ints, exact: Floats, demands: Ints, limit: int) -> Ints:
    """(groups,) units of one type, (groups,), less what makes them fit."""
    broken = np.abs(exact - units) > _NOISE
    held = int(demands[~broken] @ units[~broken])
    whole, parts, of_parts = units[broken].astype(float), exact[broken], demands[broken]
    workers = of_parts.astype(float)
    left, used = np.empty(len(parts)), np.empty(len(parts))

    def too_many(fraction: float) -> bool:
        """Whether too many workers are used when ``left`` is what this much less leaves."""
        # In place: arrays this long are dear to allocate.
        np.multiply(parts, 1 - fraction, out=left)
        np.subtract(left, _NOISE, out=left)
        np.minimum(np.ceil(left, out=left), whole, out=left)
        np.multiply(workers, left, out=used)
        return float(used.sum()) > limit - (held if fraction < 1 else 0)

    too_little, enough = 0.0, float(demands @ units - limit) / float((demands * exact).sum())
    while too_many(enough):
        too_little, enough = enough, min(1.0, 2 * enough)
    for _ in range(10):
        middle = (too_little + enough) / 2
        if too_many(middle):
            too_little = middle
        else:
            enough = middle
    too_many(enough)
    fitting = units if enough < 1 else np.zeros_like(units)
    fitting[broken] = left
    return fitting


def named_shares(problem: Problem, units: Ints) -> list[dict[str, float]]:
    """(groups,) {worker type: share}, without the types that a group does not use."""
    used = units > 0
    patterns = used @ (1 << np.arange(used.shape[1]))
    named: list[dict[str, float]] = [{}] * len(units)
    for pattern in np.unique(patterns[patterns > 0]):
        groups = np.flatnonzero(patterns == pattern)
        types = np.flatnonzero(used[groups[0]])
        names = [problem.worker_types[j] for j in types]
        of_types = [(units[groups, j] / _UNITS).tolist() for j in types]
        for group, shares in zip(groups.tolist(), zip(*of_types, strict=True), strict=True):
            named[group] = dict(zip(names, shares, strict=True))
    return named


def blind(problem: Problem) -> Problem:
    """The problem with each job's speed on the reference type wherever it can run (§4).

    A job without a speed on that type is taken at its fastest.
    """
    if problem.reference_type in problem.worker_types:
        reference = problem.worker_types.index(problem.reference_type)
    else:
        reference = None
    classes = []
    for job_class in problem.classes:
        speeds = job_class.throughputs
        speed = 0.0 if reference is None else speeds[reference]
        speed = speed or max(speeds, default=0.0)
        blinded = tuple(speed if t > 0 else t for t in speeds)
        classes.append(msgspec.structs.replace(job_class, throughputs=blinded))
    return msgspec.structs.replace(problem, classes=tuple(classes))

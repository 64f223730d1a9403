"""Time that classes share, divided among jobs whose needs differ: compare ``meetings.py``.

What each job gets of each column is decided as without sharing (``division.py``). Then the jobs
of the two classes of a column are laid end to end, each as long as its time in it, and whoever
lie opposite meet. Where a class shares with itself, its line is folded in the middle; that needs
no job to be longer than half of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from schemas.domain import AllocationRow
from services.policy.classes import SHARE_UNIT, ClassArrays, round_to_units, single_jobs
from services.policy.cutting import Part, cut
from services.policy.division import divide
from services.policy.jobs import Jobs, gather_jobs
from services.policy.pools import Ways
from services.policy.problem import Allocation, Problem
from services.policy.sharing.meetings import ServedJobs, overuse, pair_rows, rows_of_equals
from services.policy.sharing.pairs import Columns, gather_with_pairs
from services.policy.sharing.pools import weightless
from services.policy.solver import Floats, Ints

_UNITS = round(1 / SHARE_UNIT)
#: Meetings of no more units than this are what rounding makes of ends that lie opposite.
_NO_MEETING = 1


@dataclass(frozen=True, slots=True)
class Served:
    """What an objective asks for, and what it comes to; the rest see ``Allocation``.

    Attributes
    ----------
    needs : (jobs,)
        Speed of each job, as a fraction of its class's fastest.
    values : (columns,)
        Units of each column; enough for the needs.
    prices : (worker types,)
    unmet : from (jobs,) speeds that were given
    """

    needs: Floats
    values: Floats
    objective: float | None
    prices: Floats
    bottlenecked: tuple[str, ...] = ()
    unmet: Callable[[Floats], dict[str, str]] = lambda _: {}


def serve_shared(
    problem: Problem, serve: Callable[[Problem, ClassArrays, Columns, Jobs], Served]
) -> Allocation:
    """Serve jobs that differ inside their classes, two of which may share.

    A job that would need more than half of what its class shares with itself cannot have it, for
    want of others to share with. Where that happens, the class is served again job by job.

    Raises
    ------
    ProblemError
        The problem holds a value no policy can make sense of.
    SolverError
        No solver found an answer.
    """
    problem = weightless(problem)
    while True:
        arrays, columns, set_aside = gather_with_pairs(problem)
        jobs = gather_jobs(problem, arrays)
        if not len(jobs.rows):
            return Allocation(rows=(), set_aside=set_aside)
        served = serve(problem, arrays, columns, jobs)
        times = divide_columns(arrays, columns, jobs, served.needs, served.values)
        rows = too_long(columns, jobs, times)
        if not len(rows):
            break
        problem = _one_by_one(problem, np.flatnonzero(np.isin(arrays.merged_into, rows)).tolist())
    return Allocation(
        rows=to_rows(problem, arrays, columns, jobs, times),
        objective=served.objective,
        prices=dict(zip(problem.worker_types, served.prices.tolist(), strict=True)),
        bottlenecked=served.bottlenecked,
        set_aside=set_aside,
        unmet=served.unmet(times.speeds),
    )


def _one_by_one(problem: Problem, indices: list[int]) -> Problem:
    """Classes of one job in place of these; weights, which nobody asks for here, part them."""
    to_cut = [problem.classes[index] for index in indices]
    ranks = [rank for c in to_cut for rank in c.arrival_ranks or [0] * len(c.job_ids)]
    ids = [job_id for c in to_cut for job_id in c.job_ids]
    weight = {job_id: 2.0 + n for n, (_, job_id) in enumerate(sorted(zip(ranks, ids, strict=True)))}
    parts = {
        index: [Part((n,), weight[job_id]) for n, job_id in enumerate(c.job_ids)]
        for index, c in zip(indices, to_cut, strict=True)
    }
    return cut(problem, parts)


@dataclass(frozen=True, slots=True)
class JobTimes:
    """What each job gets of each column in use.

    Attributes
    ----------
    columns, sides : (classes, ways)
        Column of the class's way, -1 for none, and whether the class is its first or second.
    times : (jobs, ways)
        Fraction of the job's time.
    speeds : (jobs,)
        What that makes, as a fraction of the class's fastest.
    """

    columns: Ints
    sides: Ints
    times: Floats
    speeds: Floats


def divide_columns(
    arrays: ClassArrays, columns: Columns, jobs: Jobs, needs: Floats, used: Floats
) -> JobTimes:
    """Divide the columns in use so that every job has the speed it needs.

    Parameters
    ----------
    needs : (jobs,)
        As fractions of the classes' fastest speeds.
    used : (columns,)
        Units of each column; enough for the needs.
    """
    used = used / overuse(arrays, columns, used)
    some = np.flatnonzero(used > 0)
    pairs = some[columns.second[some] >= 0]
    column, side = np.append(some, pairs), np.repeat([0, 1], [len(some), len(pairs)])
    owner = np.where(side == 0, columns.first[column], columns.second[column])
    order = np.argsort(owner, kind="stable")
    column, side, owner = column[order], side[order], owner[order]
    way = np.arange(len(owner)) - np.searchsorted(owner, owner)
    shape = (len(arrays.counts), int(way.max(initial=0)) + 1)
    speeds, times = np.zeros(shape), np.zeros(shape)
    of_way, sides = np.full(shape, -1), np.zeros(shape, dtype=np.int64)
    fastest = arrays.throughputs.max(axis=1)
    speeds[owner, way] = columns.speeds[side, column] / fastest[owner]
    times[owner, way] = columns.times[side, column] * used[column]
    of_way[owner, way], sides[owner, way] = column, side
    spread = np.broadcast_to(np.eye(shape[1]), (shape[0], shape[1], shape[1]))
    division = divide(jobs.rows, needs, times, Ways(speeds, spread))
    groups = division.groups
    return JobTimes(of_way, sides, division.shares[groups], division.speeds[groups])


def too_long(columns: Columns, jobs: Jobs, times: JobTimes) -> Ints:
    """Classes in which a job has more than half of what the class shares with itself."""
    found = []
    for row, way in np.argwhere(times.columns >= 0).tolist():
        if columns.with_itself[times.columns[row, way]]:
            of_class = times.times[jobs.rows == row, way]
            if of_class.max() > of_class.sum() / 2 * (1 + SHARE_UNIT):
                found.append(row)
    return np.array(found, dtype=np.int64)


def to_rows(
    problem: Problem, arrays: ClassArrays, columns: Columns, jobs: Jobs, times: JobTimes
) -> tuple[AllocationRow, ...]:
    """Rows of the jobs that run alone, then of those that share; equal shares in one row."""
    served = ServedJobs(problem, arrays)
    place = {job_id: n for n, job_id in enumerate(served.names(np.arange(len(jobs.ids))))}
    places = np.array([place[job_id] for job_id in jobs.ids])
    shares = _with_room(columns, jobs, times)
    order = np.lexsort((places, jobs.rows))
    starts = np.searchsorted(jobs.rows, np.arange(len(arrays.counts) + 1))
    lines: dict[int, list[tuple[Ints, Floats]]] = {}
    for row, way in np.argwhere(times.columns >= 0).tolist():
        of_class = order[starts[row] : starts[row + 1]]
        line = (places[of_class], shares[of_class, way])
        lines.setdefault(int(times.columns[row, way]), []).append(line)

    alone = np.zeros((len(jobs.ids), len(arrays.num_workers)))
    met = [(np.zeros(0, dtype=np.int64),) * 4]
    for column, (here, *there) in sorted(lines.items()):
        if columns.second[column] < 0 and not columns.with_itself[column]:
            alone[here[0], columns.types[column]] = here[1]
            continue
        first, second, together = _meet(*here, *there[0]) if there else _fold(*here)
        met.append((first, second, together, np.full(len(first), columns.types[column])))
    first, second, units, types = (np.concatenate(part) for part in zip(*met, strict=True))
    workers = np.zeros(len(jobs.ids))
    workers[places] = arrays.scale_factors[jobs.rows]
    time, taken = np.zeros(len(places), dtype=np.int64), np.zeros(alone.shape[1], dtype=np.int64)
    np.add.at(time, first, units)
    np.add.at(time, second, units)
    np.add.at(taken, types, units * workers[first].astype(np.int64))
    rest = round_to_units(alone, workers, arrays.num_workers, taken_time=time, taken_workers=taken)
    return (
        *rows_of_equals(problem, single_jobs(served.names(np.arange(len(places)))), rest),
        *_met_rows(problem, served, first, second, units, types),
    )


def _with_room(columns: Columns, jobs: Jobs, times: JobTimes) -> Floats:
    """(jobs, ways) times that leave every job that shares room to round up each of its ways."""
    own = times.columns[jobs.rows]
    shared = (own >= 0) & (times.times > 0) & ((columns.second >= 0) | columns.with_itself)[own]
    together = np.where(shared, times.times, 0.0).sum(axis=1)
    pieces = np.where(shared, 1 + columns.with_itself[own], 0).sum(axis=1)
    excess = np.where(pieces > 0, together + pieces * SHARE_UNIT - 1.0, 0.0)
    part = np.clip(excess / np.maximum(together, SHARE_UNIT), 0.0, 1.0)
    kept = np.ones(len(columns))
    for way in range(own.shape[1]):
        np.minimum.at(kept, own[shared[:, way], way], 1.0 - part[shared[:, way]])
    room: Floats = times.times * np.where(shared, kept[own], 1.0)
    return room


def _meet(
    here: Ints, lengths: Floats, there: Ints, other_lengths: Floats
) -> tuple[Ints, Ints, Ints]:
    """Two lines side by side: (pairs,) who meets whom, for how many units."""
    ends, other_ends = np.cumsum(lengths) * _UNITS, np.cumsum(other_lengths) * _UNITS
    return _opposite(here, ends, there, other_ends, min(ends[-1], other_ends[-1]))


def _fold(jobs: Ints, lengths: Floats) -> tuple[Ints, Ints, Ints]:
    """One line folded in the middle."""
    ends = np.cumsum(lengths) * _UNITS
    half = ends[-1] / 2
    first = int(np.searchsorted(ends, half * (1 + 1e-12), side="right"))
    return _opposite(jobs[: first + 1], ends[: first + 1], jobs[first:], ends[first:] - half, half)


def _opposite(
    here: Ints, ends: Floats, there: Ints, other_ends: Floats, total: float
) -> tuple[Ints, Ints, Ints]:
    ends, other_ends = np.floor(np.minimum(ends, total)), np.floor(np.minimum(other_ends, total))
    cuts = np.unique(np.concatenate([[0.0], ends, other_ends]).clip(min=0.0))
    one = np.searchsorted(ends, cuts[1:])
    two = np.searchsorted(other_ends, cuts[1:])
    units = np.diff(cuts).astype(np.int64)
    meet = (one < len(here)) & (two < len(there)) & (units > _NO_MEETING)
    one, two, units = one[meet], two[meet], units[meet]
    apart = here[one] != there[two]
    return here[one][apart], there[two][apart], units[apart]


def _met_rows(
    problem: Problem, served: ServedJobs, first: Ints, second: Ints, units: Ints, types: Ints
) -> list[AllocationRow]:
    """One combination may come from columns of several types."""
    if not len(first):
        return []
    places = int(max(first.max(), second.max())) + 1
    numbers = np.minimum(first, second) * places + np.maximum(first, second)
    numbers, which = np.unique(numbers, return_inverse=True)
    of_pairs = np.zeros((len(numbers), len(problem.worker_types)), dtype=np.int64)
    np.add.at(of_pairs, (which, types), units)
    return pair_rows(problem, served, numbers // places, numbers % places, of_pairs)

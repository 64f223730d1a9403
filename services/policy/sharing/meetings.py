"""From time that classes share to time that jobs share: who runs beside whom, for how long.

An optimum over classes says how long class c shares with class d in all. Every job of c gets an
equal part of it, and so does every job of d; which two jobs meet is free, and is decided so that
few do. One to one, until the smaller class is through; again with those of the larger class that
are left, and so on; then roles change, as in Euclid's algorithm. That makes at most as many pairs
as there are jobs, with about as many different shares as the algorithm has steps. Jobs that share
within their class meet one to one, or in a cycle if their number is odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schemas.domain import AllocationRow, Combination
from services.policy.classes import SHARE_UNIT, ClassArrays, round_to_units, single_jobs
from services.policy.jobs import named_shares
from services.policy.problem import Problem
from services.policy.sharing.pairs import Columns
from services.policy.solver import Floats, Ints

_UNITS = round(1 / SHARE_UNIT)
#: Units by which a solver's noise may miss a whole number of them.
_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class _Meetings:
    """Pairs of jobs: (pairs,) ``jobs`` and ``others``, (pairs, worker types) ``units``."""

    jobs: Ints
    others: Ints
    units: Ints


def to_rows(
    problem: Problem, arrays: ClassArrays, columns: Columns, used: Floats
) -> tuple[AllocationRow, ...]:
    """Rows of the jobs that run alone, then of those that share; equal shares in one row.

    Parameters
    ----------
    used : (columns,)
        Units of each column, feasible but for rounding.
    """
    used = used / overuse(arrays, columns, used)
    meetings = _all_meetings(arrays, columns, used, _NOISE)
    time, workers = _taken(arrays, meetings)
    if (time > _UNITS).any() or (workers > arrays.num_workers * _UNITS).any():
        meetings = _all_meetings(arrays, columns, used, noise=0.0)
        time, workers = _taken(arrays, meetings)
    alone = round_to_units(
        _shares_alone(arrays, columns, used),
        arrays.demands,
        arrays.num_workers,
        taken_time=time,
        taken_workers=workers,
    )
    jobs = ServedJobs(problem, arrays)
    rows = [
        AllocationRow(single_jobs(jobs.names(jobs.of_class(c))), shares)
        for c, shares in enumerate(named_shares(problem, alone))
        if shares
    ]
    if meetings:
        met = [
            (jobs.of_class(c)[each.jobs], jobs.of_class(d)[each.others], each.units)
            for (c, d), each in meetings.items()
        ]
        here, there, units = (np.concatenate(part) for part in zip(*met, strict=True))
        rows += pair_rows(problem, jobs, here, there, units)
    return tuple(rows)


def pair_rows(
    problem: Problem, jobs: ServedJobs, here: Ints, there: Ints, units: Ints
) -> list[AllocationRow]:
    """Rows of pairs, (pairs,) by the places of their jobs, with (pairs, worker types) units."""
    pairs = (jobs.names(np.minimum(here, there)), jobs.names(np.maximum(here, there)))
    return rows_of_equals(problem, list(zip(*pairs, strict=True)), units)


def rows_of_equals(
    problem: Problem, combinations: Sequence[Combination], units: Ints
) -> list[AllocationRow]:
    """Combinations with equal (combinations, worker types) units in one row; none without."""
    order = np.flatnonzero(units.any(axis=1))
    order = order[np.lexsort(-units[order].T[::-1])]
    if not len(order):
        return []
    ordered = units[order]
    changes = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
    starts = np.append(0, changes)
    sorted_combinations = tuple(combinations[i] for i in order.tolist())
    ends = np.append(starts[1:], len(order)).tolist()
    shares = named_shares(problem, ordered[starts])
    return [
        AllocationRow(sorted_combinations[first:last], of_row)
        for first, last, of_row in zip(starts.tolist(), ends, shares, strict=True)
    ]


class ServedJobs:
    """The jobs served, in order of arrival; ids decide where that is not known."""

    def __init__(self, problem: Problem, arrays: ClassArrays) -> None:
        served = [
            (job_class, row)
            for job_class, row in zip(problem.classes, arrays.merged_into.tolist(), strict=True)
            if row >= 0
        ]
        ids = [job_id for job_class, _ in served for job_id in job_class.job_ids]
        ranks = [rank for job_class, _ in served for rank in job_class.arrival_ranks]
        rows = np.repeat([row for _, row in served], [len(c.job_ids) for c, _ in served])
        if len(ranks) == len(ids) == len(set(ranks)):
            order = np.argsort(ranks)
        else:
            known = ranks if len(ranks) == len(ids) else [0] * len(ids)
            order = np.array(sorted(range(len(ids)), key=lambda i: (known[i], ids[i])))
        self._ids = np.array(ids, dtype=object)[order]
        by_class = np.argsort(rows[order], kind="stable")
        ends = np.cumsum(np.bincount(rows, minlength=len(arrays.counts)))
        self._of_class = np.split(by_class, ends[:-1])

    def names(self, places: Ints) -> list[str]:
        """Ids of the jobs at these places."""
        ids: list[str] = self._ids[places].tolist()
        return ids

    def of_class(self, row: int) -> Ints:
        """(jobs of the class,) their places among all jobs."""
        return self._of_class[row]


def overuse(arrays: ClassArrays, columns: Columns, used: Floats) -> float:
    """How far, as a factor, the solver's noise exceeds a job's time or a type's workers."""
    time = np.zeros(len(arrays.counts) + 1)
    np.add.at(time, columns.first, columns.times[0] * used)
    np.add.at(time, columns.second, columns.times[1] * used)
    workers = np.zeros(len(arrays.num_workers))
    np.add.at(workers, columns.types, columns.workers * used)
    there = arrays.num_workers > 0
    fullest = (workers[there] / arrays.num_workers[there]).max(initial=0.0)
    return max(1.0, float(time[:-1].max(initial=0.0)), float(fullest))


def _shares_alone(arrays: ClassArrays, columns: Columns, used: Floats) -> Floats:
    """(classes, worker types) shares of a job that nobody runs beside."""
    shares = np.zeros(arrays.throughputs.shape)
    alone = (columns.second < 0) & ~columns.with_itself
    shares[columns.first[alone], columns.types[alone]] = used[alone]
    return shares


def _all_meetings(
    arrays: ClassArrays, columns: Columns, used: Floats, noise: float
) -> dict[tuple[int, int], _Meetings]:
    """Who meets whom, by pair of classes, with no job's time exceeded."""
    shared = np.flatnonzero(((columns.second >= 0) | columns.with_itself) & (used > 0))
    first = columns.first[shared]
    second = np.where(columns.with_itself[shared], first, columns.second[shared])
    pairs, at = np.unique(np.array([first, second]), axis=1, return_inverse=True)
    #: (pairs of classes, worker types) units in all.
    amounts = np.zeros((pairs.shape[1], len(arrays.num_workers)))
    amounts[at.ravel(), columns.types[shared]] = columns.amounts[shared] * used[shared] * _UNITS
    counts = arrays.counts[pairs]
    parts = np.where(pairs[0] == pairs[1], counts / 2, counts)
    amounts *= _room_for_rounding(arrays, pairs, amounts / parts[..., None], noise)
    found = {}
    for (c, d), amount in zip(pairs.T.tolist(), amounts, strict=True):
        jobs, others = int(arrays.counts[c]), int(arrays.counts[d])
        found[c, d] = (
            _meet_within(jobs, amount, noise) if c == d else _meet(jobs, others, amount, noise)
        )
    return {pair: meeting for pair, meeting in found.items() if len(meeting.jobs)}


def _room_for_rounding(arrays: ClassArrays, pairs: Ints, parts: Floats, noise: float) -> Floats:
    """(pairs of classes, 1) factors that leave every job time for a unit more per meeting.

    Parameters
    ----------
    pairs : (2, pairs of classes)
        Rows of the classes.
    parts : (2, pairs of classes, worker types)
        Units of one job of the first and of the second class.
    """
    broken = np.abs(parts - np.rint(parts)) > noise
    together, rounded_up = np.zeros(len(arrays.counts)), np.zeros(len(arrays.counts))
    for side in range(2):
        own = (pairs[0] != pairs[1]) | (side == 0)
        np.add.at(together, pairs[side, own], parts[side, own].sum(axis=1))
        np.add.at(rounded_up, pairs[side, own], broken[side, own].sum(axis=1))
    excess = np.where(rounded_up > 0, together + rounded_up - _UNITS, 0.0)
    factors = 1.0 - np.clip(excess / np.maximum(together, 1.0), 0.0, 1.0)
    room: Floats = factors[pairs].min(axis=0)[:, None]
    return room


def _whole(units: Floats, noise: float) -> Floats:
    """Units rid of noise where they are all but whole."""
    nearest = np.rint(units)
    return np.where(np.abs(units - nearest) <= noise, nearest, units)


def _meet(jobs: int, others: int, amount: Floats, noise: float) -> _Meetings:
    """Divide ``amount``, (worker types,) units, equally among jobs and equally among others."""
    found = []
    #: Per side: who still has units, and how many each.
    sides = [np.arange(jobs), np.arange(others)]
    parts = [_whole(amount / jobs, noise), _whole(amount / others, noise)]
    while len(sides[0]) and len(sides[1]):
        few, many = (0, 1) if len(sides[0]) <= len(sides[1]) else (1, 0)
        times = len(sides[many]) // len(sides[few])
        served = times * len(sides[few])
        met = [sides[0], sides[1]]
        met[few], met[many] = np.tile(sides[few], times), sides[many][:served]
        units = np.diff(np.floor(np.arange(times + 1)[:, None] * parts[many]), axis=0)
        found.append((met[0], met[1], np.repeat(units, len(sides[few]), axis=0)))
        parts[few] = _whole(np.maximum(parts[few] - times * parts[many], 0.0), noise)
        sides[many] = sides[many][served:]
    return _gathered(found)


def _meet_within(jobs: int, amount: Floats, noise: float) -> _Meetings:
    """Divide ``amount``, (worker types,) units, so that each of the jobs has an equal part."""
    # Neighbours in both cases: one more job, or one less, leaves most of the others' pairs alone.
    here = np.arange(0, jobs, 1 if jobs % 2 else 2)
    there = (here + 1) % jobs
    units = np.floor(_whole(amount / len(here), noise))
    return _gathered([(here, there, np.tile(units, (len(here), 1)))])


def _gathered(found: list[tuple[Ints, Ints, Floats]]) -> _Meetings:
    jobs, others, units = (np.concatenate(part) for part in zip(*found, strict=True))
    some = units.any(axis=1)
    return _Meetings(jobs[some], others[some], units[some].astype(np.int64))


def _taken(arrays: ClassArrays, meetings: dict[tuple[int, int], _Meetings]) -> tuple[Ints, Ints]:
    """(classes,) time of the busiest job, (worker types,) workers, in units, that pairs take."""
    time = [np.zeros(int(count), dtype=np.int64) for count in arrays.counts]
    workers = np.zeros(len(arrays.num_workers), dtype=np.int64)
    for (c, d), meeting in meetings.items():
        each = meeting.units.sum(axis=1)
        np.add.at(time[c], meeting.jobs, each)
        np.add.at(time[d], meeting.others, each)
        workers += int(arrays.scale_factors[c]) * meeting.units.sum(axis=0)
    return np.array([of_class.max() for of_class in time], dtype=np.int64), workers

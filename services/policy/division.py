"""From a class's pool of time back to its jobs, whose needs differ.

The pool's whole speed goes out: jobs get what they need, and those that need least are raised to
a common speed with what is left. Then time is divided from the fastest type down: it goes to the
jobs that need most, as much as brings what they still need down to a common speed. That leaves
needs as equal as they can be, so the slower types can serve them if they can be served at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.pools import Ways
from services.policy.solver import Floats, Ints

_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Division:
    """Jobs in groups that have the same.

    Attributes
    ----------
    groups : (jobs,)
        Group of each job.
    rows : (groups,)
        Class of the group's jobs.
    shares : (groups, worker types)
        Fraction of time of one job.
    speeds : (groups,)
        Effective throughput, as a fraction of the class's fastest.
    """

    groups: Ints
    rows: Ints
    shares: Floats
    speeds: Floats


def divide(rows: Ints, needs: Floats, time: Floats, ways: Ways) -> Division:
    """Divide the pools.

    Parameters
    ----------
    rows, needs : (jobs,)
        Class of each job, ascending, and the speed it needs, as a fraction of its class's fastest.
    time : (classes, ways)
        Time of one job of the class in each way, on average; enough for the needs.
    """
    order = np.lexsort((-needs, rows))
    segments = _Segments(rows, len(time))
    offered = (time * ways.speeds).sum(axis=1) * segments.sizes
    speeds = _raise_the_lowest(segments, needs[order], offered)
    starts = np.append(True, (rows[1:] != rows[:-1]) | (speeds[1:] != speeds[:-1]))[: len(rows)]
    shares = np.zeros((len(rows), ways.speeds.shape[1]))
    fastest_first = np.argsort(-ways.speeds, axis=1, kind="stable")
    left, missing = np.ones(len(rows)), speeds.copy()
    every = np.arange(len(rows))
    for way in fastest_first.T:
        budget = time[np.arange(len(time)), way] * segments.sizes
        speed = ways.speeds[np.arange(len(time)), way]
        given, missing = _level_down(segments, left, missing, budget, speed)
        shares[every, way[rows]] = given
        left = np.maximum(left - given, 0.0)
    groups = np.zeros(len(rows), dtype=np.int64)
    groups[order] = np.cumsum(starts) - 1
    kept = rows[starts]
    on_types = np.einsum("gw,gwj->gj", shares[starts], ways.spread[kept])
    return Division(groups, kept, on_types, speeds[starts])


class _Segments:
    """Sums within classes, over jobs that are sorted by class."""

    def __init__(self, rows: Ints, classes: int) -> None:
        self.rows = rows
        self.sizes = np.bincount(rows, minlength=classes).astype(float)
        self.firsts = np.append(0, np.cumsum(self.sizes.astype(np.int64)))
        self.position = np.arange(len(rows)) - self.firsts[rows]

    def so_far(self, values: Floats) -> Floats:
        """(jobs,) sum of the values of the class from its first job to this one."""
        sums = np.cumsum(values)
        before = np.append(0.0, sums)[self.firsts[:-1]]
        within: Floats = sums - before[self.rows]
        return within

    def count(self, flags: Floats) -> Ints:
        """(classes,) jobs of the class that have the flag."""
        return np.bincount(self.rows, flags, len(self.sizes)).astype(np.int64)

    def at(self, values: Floats, position: Ints, default: float) -> Floats:
        """(classes,) the value of the class's job at the position; outside, the default."""
        inside = (position >= 0) & (position < self.sizes)
        padded = np.append(values, default)
        return padded[np.where(inside, self.firsts[:-1] + position, len(values))]


def _raise_the_lowest(segments: _Segments, needs: Floats, offered: Floats) -> Floats:
    """(jobs,) max(need, a common speed of the class) that adds up to ``offered``, (classes,)."""
    rows, above = segments.rows, segments.position
    so_far = segments.so_far(needs)
    if_raised_to_this = so_far + (segments.sizes[rows] - above - 1) * needs
    kept = segments.count((if_raised_to_this > offered[rows]).astype(float))
    lower = segments.sizes - kept
    rest = offered - segments.at(so_far, kept - 1, 0.0)
    common = np.divide(rest, lower, out=np.zeros(len(rest)), where=lower > 0)
    speeds = np.where(above < kept[rows], needs, np.maximum(needs, common[rows]))
    # Rounding must not part jobs that need the same.
    differs = np.append(True, (rows[1:] != rows[:-1]) | (needs[1:] != needs[:-1]))[: len(rows)]
    return speeds[np.maximum.accumulate(np.where(differs, np.arange(len(rows)), 0))]


def _level_down(
    segments: _Segments, left: Floats, missing: Floats, budget: Floats, speed: Floats
) -> tuple[Floats, Floats]:
    """Spend each class's ``budget`` of time at ``speed`` on its jobs that miss most.

    Parameters
    ----------
    left, missing : (jobs,)
        Time that the job has left, and the speed it must have on average in it, falling within
        the class.
    budget, speed : (classes,)

    Returns
    -------
    (jobs,) time given, and the speed then missing in the time then left.
    """
    rows = segments.rows
    time, work = segments.so_far(left), segments.so_far(left * missing)
    room = speed[rows] - missing
    to_come_down = np.divide(
        np.maximum(work - missing * time, 0.0), room, out=np.zeros(len(rows)), where=room > _TINY
    )
    served = segments.count((to_come_down < budget[rows]).astype(float))
    time, work = segments.at(time, served - 1, 0.0), segments.at(work, served - 1, 0.0)
    lowest = segments.at(missing, served, 0.0)
    rest = time - budget
    common = np.divide(
        work - budget * speed, rest, out=lowest.copy(), where=rest > _TINY * (1 + time)
    )
    common = np.clip(common, lowest, np.maximum(lowest, segments.at(missing, served - 1, 0.0)))
    room = speed - common
    evenly = np.minimum(np.divide(budget, time, out=np.zeros(len(time)), where=time > 0), 1.0)
    part = np.divide(missing - common[rows], room[rows], out=evenly[rows], where=room[rows] > _TINY)
    is_served = segments.position < served[rows]
    given = np.where(is_served, left * np.clip(part, 0.0, 1.0), 0.0)
    return given, np.where(is_served, np.minimum(missing, common[rows]), missing)

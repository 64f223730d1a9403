"""Jobs of a class that need different speeds, served from one pool of time.

A class's pool is the time that its jobs spend in all, on types of different speeds. It can be
divided so that every job i has its needed speed q_i, and none more than all of its time, if and
only if for every speed theta

    sum_i (q_i - theta)+  <=  sum_l time_l (v_l - theta)+

(needs are majorised by what the pool offers). The left side is convex in theta and the right side
linear between two speeds of the pool, so it is enough to ask at 0 and at those speeds. At 0 it
says that the pool does the work; the others are cuts, added where a solution violates them.

Needs grow with a *level*, convexly; the highest level that all can have is found from above, by
Newton's method: a linear program with each need's tangent in place of the need. Where needs are
proportional to the level, that is one program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.policy.pools import Pools
from services.policy.problem import SolverError
from services.policy.solver import INF, Floats, Ints, LinearProgram, Solution

#: Needs are met when they are missed by no more than this, relative to the class's fastest speed.
MET = 2e-10
#: A class's need is a row of its program in units of itself, but of no smaller one than this:
#: whoever needs less of its time gets more by rounding, and solvers refuse huge coefficients.
_SMALLEST_UNIT = 1e-12
#: Relative distance below which two levels are one.
_SAME_LEVEL = 1e-12
#: Parts of the highest level that are given up, one after the other, where it leaves no room.
_ROOM = (1e-10, 1e-9, 1e-8, 1e-7)


@dataclass(frozen=True, slots=True)
class Needs:
    """The speed that each job needs at a level.

    Attributes
    ----------
    rows : (jobs,)
        Class of each job, ascending.
    at : level -> ((jobs,), (jobs,))
        Speed that the job needs, as a fraction of its class's fastest, and its derivative: convex
        and not falling in the level. Needs at level 0 can be met.
    highest : float
        Level at which some job needs all its time on the fastest type, or that is enough.
    """

    rows: Ints
    at: Callable[[float], tuple[Floats, Floats]]
    highest: float

    @classmethod
    def constant(cls, needs: Floats) -> Needs:
        """The same at all levels, for classes, (classes,), in which all jobs need the same."""
        none = np.zeros(len(needs))
        return cls(np.arange(len(needs)), lambda _: (needs, none), 1.0)


class NeedsProgram:
    """Who spends how much time in which column, so that all needs are met.

    Columns: those of the pools; the level, in units of the first guess. Rows: what the classes
    need in all, classes' time, types' capacity, cuts.
    """

    def __init__(self, pools: Pools, needs: Needs) -> None:
        self._pools, self._needs = pools, needs
        #: Columns in all.
        self._width = pools.num_columns + 1
        self._sizes = np.bincount(needs.rows, minlength=pools.num_classes).astype(float)
        self._starts = np.append(0, np.cumsum(self._sizes.astype(np.int64)))
        self._cuts = np.zeros(0, dtype=np.int64)
        self.level = self._first_guess()
        self._unit = self.level or 1.0
        self._sort_needs(self.level)
        means = self._mean_needs()[0]
        units = np.where(means > 0, np.maximum(means, _SMALLEST_UNIT), 1.0)
        self._scales = 1.0 / units
        self._program = self._build()
        self._linearise(self.level)
        self.solution: Solution

    # --- what to ask -----------------------------------------------------------------------------

    def raise_level(self) -> None:
        """Find the highest level, and hold it from then on."""
        self._program.set_costs(np.append(np.zeros(self._pools.num_columns), -1.0))
        while True:
            self.solution = self._program.solve()
            before, reached = self.level, float(self.solution.values[-1]) * self._unit
            self._linearise(min(reached, before))
            cut = self._cut()
            if not cut and (self._is_met() or reached >= before * (1 - _SAME_LEVEL)):
                break
        self.hold_level(self.level)

    def hold_level(self, level: float) -> None:
        """Ask for the needs at this level, no more and no less."""
        self._linearise(level)
        held = level / self._unit
        self._program.set_col_bounds(self._pools.num_columns, held, held)

    def minimise(self, costs: Floats) -> Floats:
        """The cheapest way, (columns,), to meet the needs at the level held.

        Columns that ``costs``, (columns,), leaves out cost nothing.
        """
        self._program.set_costs(np.append(costs, np.zeros(self._width - len(costs))))
        while True:
            self.solution = self._solve_with_room()
            if not self._cut():
                return self.values

    def _solve_with_room(self) -> Solution:
        """Solve at the level held; at a little less if that one was reached by rounding alone."""
        for room in _ROOM:
            try:
                return self._program.solve()
            except SolverError:
                if not self._slopes.any():  # They need as much at any level.
                    raise
                self.hold_level(self.level * (1 - room))
        return self._program.solve()

    def keep_optima(self) -> None:
        """Allow from now on only what is as cheap as the last answer of ``minimise``."""
        self._program.keep_optima(self.solution)

    # --- what was answered -----------------------------------------------------------------------

    @property
    def values(self) -> Floats:
        """(columns of the pools,) the last answer."""
        return self.solution.values[: self._pools.num_columns]

    def prices(self) -> Floats:
        """(worker types,) what the last answer gains by another 100 % of the type's workers."""
        first = 2 * self._pools.num_classes
        duals = self.solution.row_duals[first : first + self._pools.num_types]
        return np.where(duals < -self.solution.accuracy, -duals, 0.0)

    def level_prices(self) -> Floats:
        """The same of ``raise_level``, in its units."""
        return self.prices() * self._unit

    def holding(self) -> NDArray[np.bool_]:
        """(jobs,) whose needs hold the level down, right after ``raise_level``."""
        rows = self._needs.rows
        needs, _ = self._needs.at(self.level)
        duals = self.solution.row_duals
        held = (duals[: self._pools.num_classes] > self.solution.accuracy)[rows] & (needs > 0)
        binding = np.flatnonzero(duals[self._first_cut :] > self.solution.accuracy)
        above = np.full(self._pools.num_classes, INF)
        cuts = self._cuts[binding]
        np.minimum.at(above, self._pools.classes[cuts], self._pools.speeds[cuts])
        held |= needs > above[rows]
        if self.solution.values[-1] * self._unit >= self._needs.highest * (1 - 1e-9):
            held |= needs >= 1 - 1e-9
        return held

    # --- needs as rows ---------------------------------------------------------------------------

    @property
    def _first_cut(self) -> int:
        return 2 * self._pools.num_classes + self._pools.num_types

    def _first_guess(self) -> float:
        """A level no lower than the highest: all workers together are worth no more.

        Every unit of speed costs at least what it costs in the column that holds the fewest
        workers for it; a column that serves two classes charges each half.
        """
        pools = self._pools
        held = np.bincount(pools.loaded, pools.loads, pools.num_columns) / pools.num_types
        served = np.bincount(pools.columns, minlength=pools.num_columns)
        least = np.full(pools.num_classes, INF)
        prices = (held / np.maximum(served, 1))[pools.columns] / (pools.times * pools.speeds)
        np.minimum.at(least, pools.classes, prices)
        level = self._needs.highest
        for _ in range(20):
            self._sort_needs(level)
            means, slopes = self._mean_needs()
            excess, slope = float(least @ means) - 1, float(least @ slopes)
            if excess <= 1e-3 or slope <= 0:
                break
            level -= excess / slope
        return level

    def _sort_needs(self, level: float) -> None:
        """Needs at the level, those of each class from the highest down, summed up on the way."""
        needs, slopes = self._needs.at(level)
        keys = 2.0 * self._needs.rows - np.minimum(needs, 1.0)
        order = np.argsort(keys, kind="stable")
        self._keys, self._sorted, self._slopes = keys[order], needs[order], slopes[order]
        self._needs_so_far = np.append(0.0, np.cumsum(self._sorted))
        self._slopes_so_far = np.append(0.0, np.cumsum(self._slopes))

    def _mean_needs(self) -> tuple[Floats, Floats]:
        """(classes,) mean need of a job of the class, and its derivative."""
        used = self._sizes > 0
        firsts = self._starts[:-1][used]
        needs, slopes = np.zeros(len(self._sizes)), np.zeros(len(self._sizes))
        needs[used] = np.add.reduceat(self._sorted, firsts) / self._sizes[used]
        slopes[used] = np.add.reduceat(self._slopes, firsts) / self._sizes[used]
        return needs, slopes

    def _needs_above(self, entries: Ints) -> tuple[Floats, Floats]:
        """(entries,) mean of (need - speed of the entry)+ in its class, and its derivative."""
        classes, speeds = self._pools.classes[entries], self._pools.speeds[entries]
        first = self._starts[classes]
        last = np.searchsorted(self._keys, 2.0 * classes - speeds)
        above = np.maximum(last - first, 0)
        last = first + above
        sizes = np.maximum(self._sizes[classes], 1.0)
        needs = self._needs_so_far[last] - self._needs_so_far[first] - speeds * above
        slopes = self._slopes_so_far[last] - self._slopes_so_far[first]
        return np.maximum(needs, 0.0) / sizes, np.where(above > 0, slopes, 0.0) / sizes

    def _offered_above(self, values: Floats) -> Floats:
        """(entries,) time of a job of the class times (speed - speed of the entry)+, summed."""
        pools = self._pools
        times = pools.times * values[pools.columns]
        time, work = np.cumsum(times), np.cumsum(times * pools.speeds)
        before = np.searchsorted(pools.classes, np.arange(pools.num_classes))
        time_before, work_before = np.append(0.0, time)[before], np.append(0.0, work)[before]
        offered: Floats = work - work_before[pools.classes]
        offered -= pools.speeds * (time - time_before[pools.classes])
        return offered

    def _linearise(self, level: float) -> None:
        """Put the tangents at this level in place of the needs."""
        self.level = level
        self._sort_needs(level)
        means, slopes = self._mean_needs()
        cut_needs, cut_slopes = self._needs_above(self._cuts)
        coefficients = np.zeros(self._first_cut + len(self._cuts))
        classes = self._pools.num_classes
        coefficients[:classes] = -self._scales * slopes * self._unit
        coefficients[self._first_cut :] = -cut_slopes * self._unit
        self._program.set_coefficients(self._pools.num_columns, coefficients)
        # The rows between have a lower bound only where ``keep_optima`` has given them one.
        self._program.set_row_lower(self._scales * (means - slopes * level))
        self._program.set_row_lower(cut_needs - cut_slopes * level, self._first_cut)

    def _cut(self) -> bool:
        """Add the cuts that the last answer violates; False if there are none."""
        every = np.arange(len(self._pools.speeds))
        missing = self._needs_above(every)[0] - self._offered_above(self.values)
        missing[self._cuts] = 0.0
        new = np.flatnonzero(missing > MET)
        if not len(new):
            return False
        self._program.add_rows(np.full(len(new), -INF), np.full(len(new), INF), self._offers(new))
        self._cuts = np.append(self._cuts, new)
        self._linearise(self.level)
        return True

    def _offers(self, cuts: Ints) -> tuple[Ints, Ints, Floats]:
        """Rows from 0, columns and values of what is offered above the speeds of these entries."""
        pools = self._pools
        rows, entries = np.nonzero(
            (pools.classes[cuts][:, None] == pools.classes)
            & (pools.speeds[cuts][:, None] < pools.speeds)
        )
        values = pools.times[entries] * (pools.speeds[entries] - pools.speeds[cuts][rows])
        return rows, pools.columns[entries], values

    def _is_met(self) -> bool:
        """Whether the last answer meets the needs at the level."""
        pools = self._pools
        gains = pools.times * pools.speeds * self.values[pools.columns]
        given = np.bincount(pools.classes, gains, pools.num_classes)
        if (given < self._mean_needs()[0] * (1 - MET)).any():
            return False
        above = self._needs_above(self._cuts)[0]
        return bool((above <= self._offered_above(self.values)[self._cuts] + MET).all())

    def _build(self) -> LinearProgram:
        pools = self._pools
        classes, types, columns = pools.num_classes, pools.num_types, pools.num_columns
        gains = pools.times * pools.speeds * self._scales[pools.classes]
        entries = [
            (pools.classes, pools.columns, gains),
            (classes + pools.classes, pools.columns, pools.times),
            (2 * classes + pools.types, pools.loaded, pools.loads),
        ]
        col_upper = np.ones(columns + 1)
        col_upper[:columns] = INF
        col_upper[-1] = self._needs.highest / self._unit
        return LinearProgram(
            costs=np.zeros(columns + 1),
            col_lower=np.zeros(columns + 1),
            col_upper=col_upper,
            row_lower=np.full(2 * classes + types, -INF),
            row_upper=np.concatenate([np.full(classes, INF), np.ones(classes + types)]),
            entries=(
                np.concatenate([rows for rows, _, _ in entries]),
                np.concatenate([columns for _, columns, _ in entries]),
                np.concatenate([values for _, _, values in entries]),
            ),
        )

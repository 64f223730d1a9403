"""Levels where classes may share workers: the needs of all, met together or as nearly as can be.

Two classes that share are coupled by each other's time as well as by workers, so no hull of
prices finds the level (``prices.py``). One program does: what is the least *load* at which every
class gets what it needs, where load is how full the fullest type and how busy the busiest class
is? Load is a convex function of the needs, and its duals bound it from below everywhere. A level
too high costs a load above 1; the duals there say how far down the level must come at least, and
after a few such steps it is the highest there is. At that level a class whose need has a dual
cannot gain unless another loses, in any optimum.

Pairs are many and few are used, so the program starts with some and asks after each solve which of
the others would lower its cost; when none would, its optimum is that of all.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.policy.classes import ClassArrays
from services.policy.prices import Hull
from services.policy.problem import SolverError
from services.policy.sharing.pairs import Columns
from services.policy.solver import INF, Floats, Ints, LinearProgram, Solution

#: Relative distance below which two levels are one.
_SAME_LEVEL = 1e-9
#: Needs are met when the load exceeds 1 by no more than this.
_MET = 1e-12
#: Rows of small needs are enlarged by no more than this: numbers must not lie too far apart.
_MOST_ENLARGED = 1e6
#: Weight of the tie-break beside worker time, which it may raise by at most this fraction.
_TIE_WEIGHT = 1e-6


@dataclass(frozen=True, slots=True)
class Prices:
    """What the needs of a program cost at its optimum.

    Attributes
    ----------
    load : float
        How full the fullest type, and how busy the busiest class, must be.
    needs : (classes,)
        Rise of the load per rise of each class's need; 0 where that is noise.
    workers : (worker types,)
        Part of each type in the load; with the classes' own time they add up to the load.
    tight : (classes,)
        Whether more than its need would cost the class anything; so it does where a need has a
        dual, and for who needs nothing where no column is free.
    free : (classes,)
        The most that the class could have in columns that cost nothing, as a fraction of its top
        speed: whoever rises further without anybody's loss does so in these.
    """

    load: float
    needs: Floats
    workers: Floats
    tight: NDArray[np.bool_]
    free: Floats


class SharedNeeds:
    """The least load at which all classes get what they need.

    Program columns: the load, then the columns in use, each in units of its own. Rows: classes'
    needs, as fractions of their top speed; classes' time; types' workers.

    Parameters
    ----------
    arrays : the classes
    columns : all the ways they can spend time
    typical : (classes,)
        Needs to expect, to any scale: a solver is as exact, in absolute numbers, about all rows.
    """

    def __init__(self, arrays: ClassArrays, columns: Columns, typical: Floats) -> None:
        self._scales = np.minimum(typical.max(initial=0.0) / typical, _MOST_ENLARGED)
        self._classes, self._types = arrays.throughputs.shape
        self._columns = columns
        classes = self._classes
        #: (classes,) steps/s of one job at its best; needs are fractions of it.
        self.top = columns.top_speeds(classes)
        worth = np.append(self._scales / self.top, 0.0)
        #: (2, columns) what one unit gives a job of the first and of the second class, in its row.
        self._gains = columns.speeds * columns.times * worth[[columns.first, columns.second]]
        #: (columns,) fraction of its type's workers that one unit holds.
        self._loads = columns.workers / arrays.num_workers[columns.types]
        self._used = self._first_columns()
        self._program = self._build()
        self._solution: Solution

    def solve(self, needs: Floats) -> Prices:
        """Find the least load for these needs, (classes,) fractions of the top speeds.

        Raises
        ------
        SolverError
            No solver found an answer.
        """
        self._program.set_row_lower(needs * self._scales)
        self._solve()
        duals = self._solution.row_duals
        of_needs = duals[: self._classes] * self._scales
        of_types = -duals[2 * self._classes :]
        load = float(self._solution.values[0])
        noise = self._solution.accuracy * load
        priced = of_needs * needs > noise
        first_steps, free = self._on_top(duals[: self._classes])
        return Prices(
            load=load,
            needs=np.where(priced, of_needs, 0.0),
            workers=np.where(of_types * load > noise, of_types, 0.0),
            tight=priced | ((needs <= 0) & (first_steps > noise)),
            free=free,
        )

    def least_worker_time(self, needs: Floats, ties: Floats) -> Floats:
        """(columns,) units that meet the needs with the least worker time.

        Needs must be met at a load of 1. ``ties``, (columns,) in [0, 1), decides between equals.
        """
        costs = self._columns.workers / self._columns.workers.max() * (1 + _TIE_WEIGHT * ties)
        load = max(1.0, float(self._solution.values[0]))
        self._program.set_row_lower(needs * self._scales)
        self._program.set_col_bounds(0, 0.0, load)
        self._costs = costs
        self._program.set_costs(np.append(0.0, costs[self._used]))
        # Where speeds differ by over six orders of magnitude, exact levels can be out of reach by
        # a rounding error. Then the shares stay that proved the levels.
        with suppress(SolverError):
            self._solve()
        units = np.zeros(len(self._columns))
        units[self._used] = np.maximum(self._solution.values[1:], 0.0)
        return units

    def _solve(self) -> None:
        """Solve, and go on with more columns until no other would lower the cost."""
        while True:
            self._solution = self._program.solve()
            costs = self._reduced_costs()
            costs[self._used] = 0.0
            useful = np.flatnonzero(costs < -self._solution.accuracy)
            if not len(useful):
                return
            best = useful[np.argsort(costs[useful], kind="stable")][: 2 * self._classes]
            self._program.add_columns(self._costs[best], self._entries(best))
            self._used = np.append(self._used, best)

    def _reduced_costs(self) -> Floats:
        """(columns,) what one unit of each column would add to the cost."""
        columns, duals = self._columns, self._solution.row_duals
        needs = np.append(duals[: self._classes], 0.0)
        time = np.append(duals[self._classes : 2 * self._classes], 0.0)
        both = np.array([columns.first, columns.second])
        saved = (needs[both] * self._gains + time[both] * columns.times).sum(axis=0)
        saved += duals[2 * self._classes + columns.types] * self._loads
        reduced: Floats = self._costs - saved
        return reduced

    def _on_top(self, duals: Floats) -> tuple[Floats, Floats]:
        """(classes,) least cost of a gain to who has nothing, and most in columns without cost."""
        columns, costs = self._columns, np.maximum(self._reduced_costs(), 0.0)
        tops = np.append(self.top, 1.0)
        least, free = np.full(self._classes + 1, INF), np.zeros(self._classes + 1)
        sides = zip((columns.first, columns.second), self._gains, columns.speeds, strict=True)
        for owner, gains, speeds in sides:
            step = np.divide(costs, gains, out=np.full(len(costs), INF), where=gains > 0)
            np.minimum.at(least, owner, step)
            without = costs <= self._solution.accuracy
            np.maximum.at(free, owner[without], (speeds / tops[owner])[without])
        return least[:-1] + duals, free[:-1]

    def _first_columns(self) -> Ints:
        """All columns alone, and for each class and type the pair that gains most."""
        columns = self._columns
        self._costs = np.zeros(len(columns))
        pairs = np.flatnonzero((columns.second >= 0) | columns.with_itself)
        worth = np.append(1.0 / self.top, 0.0)[[columns.first[pairs], columns.second[pairs]]]
        gain = (columns.speeds[:, pairs] * worth).sum(axis=0)
        best = []
        for side in (columns.first, columns.second):
            owner = side[pairs] * self._types + columns.types[pairs]
            order = np.lexsort((-gain, owner))
            _, leaders = np.unique(owner[order], return_index=True)
            best.append(pairs[order[leaders]])
        alone = np.flatnonzero((columns.second < 0) & ~columns.with_itself)
        return np.append(alone, np.unique(np.concatenate(best)))

    def _build(self) -> LinearProgram:
        classes, types = self._classes, self._types
        rows, columns, values = self._entries(self._used)
        limited = np.arange(classes, 2 * classes + types)
        return LinearProgram(
            costs=np.append(1.0, np.zeros(len(self._used))),
            col_lower=np.zeros(1 + len(self._used)),
            col_upper=np.full(1 + len(self._used), INF),
            row_lower=np.append(np.zeros(classes), np.full(classes + types, -INF)),
            row_upper=np.append(np.full(classes, INF), np.zeros(classes + types)),
            entries=(
                np.concatenate([limited, rows]),
                np.concatenate([np.zeros(len(limited), dtype=np.int64), columns + 1]),
                np.concatenate([np.full(len(limited), -1.0), values]),
            ),
        )

    def _entries(self, chosen: Ints) -> tuple[Ints, Ints, Floats]:
        """Rows, columns (counted from 0) and values of the chosen columns."""
        columns, counted = self._columns, np.arange(len(chosen))
        pairs = np.flatnonzero(columns.second[chosen] >= 0)
        parts = [
            (2 * self._classes + columns.types[chosen], counted, self._loads[chosen]),
            (columns.first[chosen], counted, self._gains[0, chosen]),
            (self._classes + columns.first[chosen], counted, columns.times[0, chosen]),
            (columns.second[chosen[pairs]], pairs, self._gains[1, chosen[pairs]]),
            (self._classes + columns.second[chosen[pairs]], pairs, columns.times[1, chosen[pairs]]),
        ]
        rows, at, values = zip(*parts, strict=True)
        return np.concatenate(rows), np.concatenate(at), np.concatenate(values)


@dataclass(frozen=True, slots=True)
class Rise:
    """How far all growing classes can rise together.

    Attributes
    ----------
    height : float
        In units of growth.
    held : (classes,)
        Who cannot rise further unless another falls.
    prices : Prices
        What proves it.
    """

    height: float
    held: NDArray[np.bool_]
    prices: Prices


def rise(program: SharedNeeds, start: Floats, growth: Floats, most: Floats) -> Rise:
    """Raise the needs of all classes as far as they can be met.

    Parameters
    ----------
    program : the classes' needs
    start : (classes,)
        Needs at height 0, as fractions of the top speeds; they can be met.
    growth : (classes,)
        Rise of the needs per height.
    most : (classes,)
        Needs that rise no more.
    """
    growing = growth > 0
    limits = np.divide(most - start, growth, out=np.full(len(start), np.inf), where=growing)
    lowest, highest = float(limits.min()), float(limits[growing].max())
    height = lowest
    prices = program.solve(np.minimum(most, start + lowest * growth))
    if prices.load <= 1 + _MET:
        height = highest
        prices = program.solve(np.minimum(most, start + highest * growth))
    while prices.load > 1 + _MET:
        below = _height_at_load_1(prices, start, growth, limits)
        if below >= height * (1 - _MET):
            break
        height = below
        after = program.solve(np.minimum(most, start + height * growth))
        if after.load <= 1 + _MET:
            break
        prices = after
    held = growing & (prices.tight | (limits <= height * (1 + _SAME_LEVEL)))
    return Rise(height, held, prices)


def _height_at_load_1(prices: Prices, start: Floats, growth: Floats, limits: Floats) -> float:
    """The height above which these prices prove that not all needs can be met."""
    ends = np.where(growth > 0, limits, 0.0)
    hull = Hull(np.zeros((1, len(start))), ends[None, :], (prices.needs * growth)[None, :])
    left = 1.0 - float(prices.needs @ start)
    return hull.affordable_level(growth > 0, left)


@dataclass(frozen=True, slots=True)
class SharedFilling:
    """The lexicographic max-min optimum with sharing; compare ``water_filling.Filling``.

    Attributes
    ----------
    levels : (classes,)
        What each class reaches.
    units : (columns,)
        How much of each column is used, with the least worker time that reaches the levels.
    prices : (worker types,)
        Gain of the lowest level per further worker.
    bottlenecked : (classes,)
        Who is held down at the lowest level.
    """

    levels: Floats
    units: Floats
    prices: Floats
    bottlenecked: NDArray[np.bool_]


def fill_shared(arrays: ClassArrays, columns: Columns, per_step: Floats) -> SharedFilling:
    """Raise max-min levels to the end (§4.3).

    Parameters
    ----------
    arrays, columns : the classes, and the ways they can spend time
    per_step : (classes,)
        Level of one job per step/s.

    Raises
    ------
    SolverError
        No solver found an answer.
    """
    best = per_step * columns.top_speeds(len(per_step))
    program = SharedNeeds(arrays, columns, 1.0 / best)
    levels, active = np.zeros(len(best)), np.ones(len(best), dtype=bool)
    first: Rise | None = None
    level, most = 0.0, np.ones(len(best))
    while active.any():
        growth = np.where(active, 1.0 / best, 0.0)
        most = np.where(active, most, levels / best)
        risen = rise(program, levels / best, growth, most)
        first = first or risen
        # Where numbers lie too far apart for the solver to say who is held, all stay where they
        # are, and whoever was missed where others were held stays there too.
        held = risen.held if risen.held.any() else active
        level = max(level, risen.height)
        levels[held] = np.minimum(level, (most * best)[held])
        active = active & ~held
        most = np.minimum(most, np.maximum(risen.prices.free, level / best))
    assert first is not None
    units = program.least_worker_time(levels / best, columns.tie_breakers(arrays))
    lowest = levels <= levels.min() * (1 + _SAME_LEVEL)
    if best.min() <= first.height * (1 + _SAME_LEVEL):
        return SharedFilling(levels, units, np.zeros(len(arrays.num_workers)), lowest)
    rate = float((first.prices.needs / best).sum())
    workers = np.maximum(arrays.num_workers, 1.0)
    return SharedFilling(levels, units, first.prices.workers / (workers * rate), lowest)

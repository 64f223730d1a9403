"""Max-min fairness to the end: the lexicographic optimum, by raising levels (§4.3).

All classes rise together until workers or their own time hold some of them down; those are frozen
at their level and the others rise on. The paper finds out by a mixed-integer program who is held
down; here the prices say it. At prices p every class has a cheapest way to its level
(``prices.py``), and when all that the workers are worth is spent, nobody whose next bit costs
anything can rise unless somebody else falls. A class that is only short of its own 24 hours a day
never stops the others, so all such classes are passed in one step, however many there are.

The level itself is found from above: prices bound it, a linear program says by how much the needs
at that bound exceed the workers and at which prices, and these give the next bound. Two programs
are typical. Each of the ``J`` types can be priced once, so there are at most J + 1 stages.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.policy.market import Market
from services.policy.prices import Hull, cheapest
from services.policy.problem import SolverError
from services.policy.solver import INF, Floats, LinearProgram, Solution

#: Relative distance below which two levels are one.
_SAME_LEVEL = 1e-9
#: Needs are met when the busiest type is overfull by no more than this.
_MET = 1e-12
#: Classes from which on it pays to look for prices before the first program.
_MANY = 1000
#: Weight of the tie-break beside worker time, which it may raise by at most this fraction.
_TIE_WEIGHT = 1e-6


@dataclass(frozen=True, slots=True)
class Filling:
    """The lexicographic max-min optimum.

    Attributes
    ----------
    levels : (classes,)
        What each class reaches.
    shares : (classes, worker types)
        Fraction of time of one job, with the least worker time that reaches the levels.
    prices : (worker types,)
        Gain of the lowest level per further worker.
    bottlenecked : (classes,)
        Who is held down at the lowest level.
    """

    levels: Floats
    shares: Floats
    prices: Floats
    bottlenecked: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Stage:
    """One common level: ``worth`` (worker types,) sums to 1 and proves that it is the highest."""

    level: float
    worth: Floats
    hull: Hull


def fill(
    reachable: Floats,
    demands: Floats,
    num_workers: Floats,
    tie_breakers: Callable[[], Floats],
) -> Filling:
    """Raise max-min levels to the end.

    Parameters
    ----------
    reachable : (classes, worker types)
        Level of a class whose jobs spend all their time on the type; 0 where they cannot run.
        Every class can run somewhere.
    demands : (classes,)
        Workers that all jobs of the class would hold if all ran at once.
    num_workers : (worker types,)
        Workers of each type.
    tie_breakers : () -> (classes, worker types)
        Gives numbers in [0, 1) that decide between shares with equal levels and equal worker time.

    Raises
    ------
    SolverError
        No solver found an answer.
    """
    best = reachable.max(axis=1)
    #: Fraction of a type's workers that a class holds when its jobs spend all their time there.
    loads = np.divide(
        demands[:, None], num_workers, out=np.zeros(reachable.shape), where=reachable > 0
    )
    if (uncontended := _all_on_their_best(reachable, loads)) is not None:
        return uncontended

    program = Needs(reachable / best[:, None], loads)
    levels, active, limits = np.zeros(len(best)), np.ones(len(best), dtype=bool), best
    free = worth = num_workers / num_workers.sum()
    if len(best) > _MANY:
        worth = _good_guess(program, reachable, loads, best, free)
    first: _Stage | None = None
    while active.any():
        stage = _raise(program, reachable, loads, best, levels, active, worth)
        first = first or stage
        just_above = stage.level * (1 + _SAME_LEVEL)
        held = active & (stage.hull.rises_at(just_above) | (limits <= just_above))
        if not held.any():
            raise SolverError(f"water filling: nothing holds the level {stage.level!r} down")
        levels[held] = np.minimum(limits[held], stage.level)
        active &= ~held
        # Who can still rise does so on free types alone: priced ones are full of those held.
        free = np.where(stage.worth > 0, 0.0, free)
        free = worth = free / (free.sum() or 1.0)
        reachable = np.where(active[:, None], reachable * (free > 0), reachable)
        limits = reachable.max(axis=1)

    assert first is not None
    shares = program.shares(levels / best, demands, tie_breakers)
    return _with_first_prices(first, best, num_workers, levels, shares)


def _all_on_their_best(reachable: Floats, loads: Floats) -> Filling | None:
    """The optimum of a cluster on which everybody has all of their best type: no program needed."""
    classes, types = reachable.shape
    rows, favourites = np.arange(classes), reachable.argmax(axis=1)
    if (np.bincount(favourites, loads[rows, favourites], types) > 1).any():
        return None
    shares = np.zeros(reachable.shape)
    shares[rows, favourites] = 1.0
    best = reachable[rows, favourites]
    lowest = best <= best.min() * (1 + _SAME_LEVEL)
    return Filling(best, shares, np.zeros(types), lowest)


def _raise(
    program: Needs,
    reachable: Floats,
    loads: Floats,
    best: Floats,
    levels: Floats,
    active: NDArray[np.bool_],
    worth: Floats,
) -> _Stage:
    """The highest common level of the active classes, while the others keep theirs.

    A class that cannot reach it is taken at the highest it can reach. ``levels`` (classes,) is 0
    for the active; ``worth`` (worker types,) is a first guess of the prices, in workers' worth.
    """
    limits = reachable.max(axis=1)
    highest = float(limits[active].max())
    stage: _Stage | None = None
    while True:
        hull = cheapest(reachable, loads * worth)
        left = float(worth.sum() - hull.costs(levels).sum())
        level = min(hull.affordable_level(active, left), highest)
        if stage is not None and level >= stage.level * (1 - _MET):
            return stage
        needs = np.where(active, np.minimum(level, limits), levels) / best
        if not program.are_met(needs):
            program.solve(needs)
        stage = _Stage(level, worth, hull)
        if program.are_met(needs):
            return stage
        worth = program.worth()


def _good_guess(
    program: Needs, reachable: Floats, loads: Floats, best: Floats, worth: Floats
) -> Floats:
    """(worker types,) prices of the first level, by the market; the program starts from there."""
    market, level, needs = Market(reachable, loads), np.inf, np.ones(len(best))
    every = np.ones(len(best), dtype=bool)
    while True:
        hull = market.hull(worth)
        affordable = min(hull.affordable_level(every, 1.0), float(best.max()))
        if affordable >= level * (1 - _MET):
            break
        level, needs = affordable, np.minimum(affordable, best)
        worse = market.worst(needs, 1 + _MET)
        if worse is None:
            break
        worth = worse
    program.start_near(market.hull(worth).shares(needs, len(worth)))
    return worth


def _with_first_prices(
    stage: _Stage, best: Floats, num_workers: Floats, levels: Floats, shares: Floats
) -> Filling:
    """Prices and bottleneck of the lowest level, which a class's own time may hold down too."""
    just_above = stage.level * (1 + _SAME_LEVEL)
    if best.min() <= just_above:
        lowest = best <= best.min() * (1 + _SAME_LEVEL)
        return Filling(levels, shares, np.zeros(len(num_workers)), lowest)
    rate = stage.hull.slope_at(just_above, np.ones(len(best), dtype=bool))
    prices = np.divide(
        stage.worth, num_workers * rate, out=np.zeros(len(num_workers)), where=stage.worth > 0
    )
    return Filling(levels, shares, prices, stage.hull.rises_at(just_above))


class Needs:
    """How near all classes come to what they need, and what the workers are worth then.

    Columns: the share of each class on each type it can use; ``fullness``, how full the fullest
    type is; ``progress``, how far on the way to their needs all classes are. The first program
    fixes fullness at 1 and maximises progress, which gives the level at once where nobody's own
    time holds it back. All others fix progress and minimise fullness; from one to the next only
    bounds change. Rows: classes' needs, classes' time, types' capacity.

    Parameters
    ----------
    reachable : (classes, worker types)
        Fraction of the class's best level that the type reaches.
    loads : (classes, worker types)
        Fraction of the type's workers that the class holds when it spends all its time there.
    """

    def __init__(self, reachable: Floats, loads: Floats) -> None:
        self._reachable, self._loads = reachable, loads
        self._classes, self._types = np.nonzero(reachable)
        self._fullness, self._progress = len(self._classes), len(self._classes) + 1
        self._program: LinearProgram | None = None
        self._progress_is_fixed = False
        self._near: Floats | None = None
        self._solution: Solution

    def solve(self, needs: Floats) -> None:
        """Come as near to these needs, (classes,) fractions of the classes' best, as can be."""
        if self._program is None:
            self._program = self._toward(needs)
            if self._near is not None:
                self._start(self._program, self._near)
        else:
            if not self._progress_is_fixed:
                self._fix_progress(self._program)
                self._program.set_col_bounds(self._fullness, 0.0, INF)
                self._program.set_costs(self._costs(fullness=1.0))
            self._program.set_row_lower(needs)
        self._solution = self._program.solve()

    def start_near(self, shares: Floats) -> None:
        """Begin the first program with about these shares, (classes, worker types)."""
        self._near = shares

    def are_met(self, needs: Floats) -> bool:
        """Whether the last solution gives every class these needs, and fits."""
        if self._program is None or self._solution.values[self._fullness] > 1 + _MET:
            return False
        given = self._reachable[self._classes, self._types] * self._solution.values[:-2]
        return bool((np.bincount(self._classes, given) >= needs * (1 - _MET)).all())

    def worth(self) -> Floats:
        """(worker types,) part of each type in the worth of all workers; 0 of a free type."""
        worth = np.where(
            self._loads.any(axis=0), -self._solution.row_duals[2 * len(self._reachable) :], 0.0
        )
        worth = np.where(worth > self._solution.accuracy * worth.sum(), worth, 0.0)
        normalised: Floats = worth / (worth.sum() or 1.0)
        return normalised

    def shares(self, needs: Floats, demands: Floats, tie_breakers: Callable[[], Floats]) -> Floats:
        """Shares, (classes, worker types), that meet the needs with the least worker time."""
        assert self._program is not None
        solution = self._solution
        fullness = float(solution.values[self._fullness])
        if fullness < 1 - _SAME_LEVEL or not solution.is_unique():
            self._fix_progress(self._program)
            self._program.set_col_bounds(self._fullness, 0.0, max(1.0, fullness))
            self._program.set_row_lower(needs)
            weights = demands[self._classes] / demands.max()
            ties = tie_breakers()[self._classes, self._types]
            self._program.set_costs(np.append(weights * (1 + _TIE_WEIGHT * ties), [0.0, 0.0]))
            if self._near is not None:
                self._program.keep_feasible()
            # Where weights or speeds differ by over six orders of magnitude, exact levels can be
            # out of reach by a rounding error. Then the shares stay that proved the levels.
            with suppress(SolverError):
                solution = self._program.solve()
        shares = np.zeros(self._reachable.shape)
        shares[self._classes, self._types] = solution.values[:-2] / max(1.0, fullness)
        return shares

    def _fix_progress(self, program: LinearProgram) -> None:
        program.set_col_bounds(self._progress, 0.0, 0.0)
        self._progress_is_fixed = True

    def _toward(self, needs: Floats) -> LinearProgram:
        classes, types = self._reachable.shape
        columns = np.arange(self._fullness)
        every_class, every_type = np.arange(classes), np.arange(types)
        entries = [
            (self._classes, columns, self._reachable[self._classes, self._types]),
            (every_class, np.full(classes, self._progress), -needs),
            (classes + self._classes, columns, np.ones(len(columns))),
            (2 * classes + self._types, columns, self._loads[self._classes, self._types]),
            (2 * classes + every_type, np.full(types, self._fullness), np.full(types, -1.0)),
        ]
        return LinearProgram(
            costs=self._costs(progress=-1.0),
            col_lower=np.append(np.zeros(len(columns)), [1.0, 0.0]),
            col_upper=np.append(np.full(len(columns), INF), [1.0, 1.0]),
            row_lower=np.concatenate([np.zeros(classes), np.full(classes + types, -INF)]),
            row_upper=np.concatenate([np.full(classes, INF), np.ones(classes), np.zeros(types)]),
            entries=(
                np.concatenate([rows for rows, _, _ in entries]),
                np.concatenate([columns for _, columns, _ in entries]),
                np.concatenate([values for _, _, values in entries]),
            ),
        )

    def _start(self, program: LinearProgram, shares: Floats) -> None:
        """Of each class the column that it uses most, and progress until a type is full."""
        classes, types = shares.shape
        used = np.zeros(shares.shape, dtype=np.int64)
        used[self._classes, self._types] = np.arange(self._fullness)
        most = shares.argmax(axis=1)
        every = np.arange(classes)
        held = np.bincount(most, (shares * self._loads)[every, most], types)
        rows = np.append(every, 2 * classes + held.argmax())
        program.start_from(np.append(used[every, most], self._progress), rows)

    def _costs(self, fullness: float = 0.0, progress: float = 0.0) -> Floats:
        return np.append(np.zeros(len(self._classes)), [fullness, progress])

"""What a level costs at given prices of the worker types.

Without space sharing only the capacity of each type couples jobs. Put a price on a worker of each
type, and the cheapest way for a class to reach a level is its own affair: a point on the lower
convex hull of (0, 0) and (level on type j, cost of type j). The sum over classes is piecewise
linear in the level, so the highest level that the whole cluster's workers can pay for is found
by sorting. For any prices it bounds the true level from above; at the right ones it is the level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.policy.solver import Floats


@dataclass(frozen=True, slots=True)
class Hull:
    """Cheapest cost of a level, per class, as segments of growing slope.

    Attributes
    ----------
    starts, ends : (segments, classes)
        Levels between which a segment holds; empty segments have equal ends.
    slopes : (segments, classes)
        Cost per unit of level on it; 0 on what is free.
    """

    starts: Floats
    ends: Floats
    slopes: Floats

    def costs(self, levels: Floats) -> Floats:
        """(classes,) cheapest cost of these levels, (classes,)."""
        within: Floats = np.clip(levels, self.starts, self.ends) - self.starts
        total: Floats = (self.slopes * within).sum(axis=0)
        return total

    def rises_at(self, level: float) -> NDArray[np.bool_]:
        """(classes,) whether more than ``level`` costs more."""
        on = (self.starts <= level) & (level < self.ends) & (self.slopes > 0)
        rises: NDArray[np.bool_] = np.logical_or.reduce(on)
        return rises

    def slope_at(self, level: float, classes: NDArray[np.bool_]) -> float:
        """Cost per unit of level just above ``level``, summed over the given classes."""
        on = (self.starts <= level) & (level < self.ends) & classes
        return float(self.slopes[on].sum())

    def affordable_level(self, classes: NDArray[np.bool_], budget: float) -> float:
        """Highest common level of the given classes, (classes,), that ``budget`` pays for.

        A class that cannot reach a level stays at the highest it can reach. Infinite when the
        budget pays for the highest level of all.
        """
        priced = (self.slopes > 0) & (self.ends > self.starts) & classes
        starts, ends, slopes = self.starts[priced], self.ends[priced], self.slopes[priced]
        if not len(starts):
            return np.inf
        budget = max(budget, 0.0)
        levels = np.concatenate([starts, ends])
        order = np.argsort(levels, kind="stable")
        levels = levels[order]
        rates = np.maximum(np.cumsum(np.concatenate([slopes, -slopes])[order]), 0.0)
        spent = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(levels))])
        last = int(np.searchsorted(spent, budget, side="right")) - 1
        if last == len(levels) - 1:
            return np.inf
        # Summed afresh: the running sums above have lost digits where slopes differ widely.
        level = levels[last]
        rate = float(slopes[(starts <= level) & (level < ends)].sum())
        spent_there = float((slopes * (np.clip(level, starts, ends) - starts)).sum())
        return float(level + (budget - spent_there) / rate)


def cheapest(reachable: Floats, costs: Floats) -> Hull:
    """The cheapest ways to each level.

    Parameters
    ----------
    reachable : (classes, worker types)
        Level of a class whose jobs spend all their time on the type; 0 where they cannot run.
    costs : (classes, worker types)
        Price of that.
    """
    levels, spent = np.zeros(len(reachable)), np.zeros(len(reachable))
    rows = np.arange(len(reachable))
    starts, ends, slopes = [], [], []
    for _ in range(reachable.shape[1]):
        gains = reachable - levels[:, None]
        further = gains > 0
        steepness = np.divide(
            costs - spent[:, None], gains, out=np.full(gains.shape, np.inf), where=further
        )
        best = steepness.argmin(axis=1)
        moves = further.any(axis=1)
        starts.append(levels)
        slopes.append(np.where(moves, np.maximum(steepness[rows, best], 0.0), 0.0))
        levels = np.where(moves, reachable[rows, best], levels)
        spent = np.where(moves, costs[rows, best], spent)
        ends.append(levels)
        if not (reachable > levels[:, None]).any():
            break
    return Hull(np.array(starts), np.array(ends), np.array(slopes))

"""What a level costs at given prices of the worker types.

Without space sharing only the capacity of each type couples jobs. Put a price on a worker of each
type, and the cheapest way for a class to reach a level is its own affair: a point on the lower
convex hull of (0, 0) and (level on type j, cost of type j). The sum over classes is piecewise
linear in the level, so the highest level that the whole cluster's workers can pay for is found
by sorting. For any prices it bounds the true level from above; at the right ones it is the level.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.policy.solver import Floats, Ints


@dataclass(frozen=True, slots=True)
class Hull:
    """Cheapest cost of a level, per class, as segments of growing slope.

    Attributes
    ----------
    starts, ends : (segments, classes)
        Levels between which a segment holds; empty segments have equal ends.
    slopes : (segments, classes)
        Cost per unit of level on it; 0 on what is free.
    types : (segments, classes)
        Worker type that the segment leads to.
    """

    starts: Floats
    ends: Floats
    slopes: Floats
    types: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def costs(self, levels: Floats) -> Floats:
        """(classes,) cheapest cost of these levels, (classes,)."""
        within: Floats = np.clip(levels, self.starts, self.ends) - self.starts
        total: Floats = (self.slopes * within).sum(axis=0)
        return total

    def shares(self, levels: Floats, num_types: int) -> Floats:
        """(classes, worker types) the cheapest way to these levels, (classes,).

        A level inside a segment mixes the types at its two ends; the first begins at no type.
        """
        shares = np.zeros((len(levels), num_types))
        rows, before = np.arange(len(levels)), np.full(len(levels), -1)
        for start, end, kind in zip(self.starts, self.ends, self.types, strict=True):
            here = (levels > start) & (end > start)
            part = np.divide(levels - start, end - start, out=np.zeros(len(levels)), where=here)
            part = np.minimum(part, 1.0)
            from_one = here & (before >= 0)
            shares[rows[from_one], before[from_one]] -= part[from_one]
            shares[rows[here], kind[here]] += part[here]
            before = np.where(here, kind, before)
        return shares

    def rises_at(self, level: float | Floats) -> NDArray[np.bool_]:
        """(classes,) whether more than ``level``, one for all or (classes,), costs more."""
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
        # Summed afresh: the running sums above have lost digits where slopes differ widely, and
        # may show a cost where, between two segments, going higher is free.
        for level in levels[last:-1]:
            rate = float(slopes[(starts <= level) & (level < ends)].sum())
            if rate > 0:
                spent_there = float((slopes * (np.clip(level, starts, ends) - starts)).sum())
                return float(level + (budget - spent_there) / rate)
        return np.inf


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
    starts, ends, slopes, types = [], [], [], []
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
        types.append(best)
        if not (reachable > levels[:, None]).any():
            break
    return Hull(np.array(starts), np.array(ends), np.array(slopes), np.array(types))

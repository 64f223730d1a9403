"""Which combinations run in the coming round, and on which worker type (Algorithm 1, §5).

Greedy over the ranked pairs: a pair is taken if its workers are still free and none of its jobs
runs already. The exact problem is a multiple-choice knapsack; what greed gets wrong in one round,
the next one's priorities put right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from services.mechanism.claims import Claims, Floats

#: (row, column): one combination chosen for one worker type.
Choice = tuple[int, int]


def select(
    claims: Claims,
    capacity: Sequence[int],
    keys: tuple[Floats, ...],
    *,
    type_order: Sequence[int] | None,
    fill: str,
) -> list[Choice]:
    """Choose for one round.

    Parameters
    ----------
    claims : the combinations, their shares and where they can run
    capacity : (worker types,) workers free in the round
    keys : (combinations, worker types) arrays to rank by, most significant first, descending;
        ties go to the earlier arrival
    type_order : visit types one after another in this order; None ranks all types in one list
    fill : pairs with X = 0 come ``last``, after all pairs with X > 0 of every type; or
        ``in_order``, at the end of each type's own list; or ``none`` of them runs
    """
    free = list(capacity)
    taken: set[str] = set()
    chosen: list[Choice] = []
    columns = range(len(free)) if type_order is None else type_order
    entitled = claims.runnable & (claims.share > 0)
    passes = {
        "last": [entitled, claims.runnable & ~entitled],
        "in_order": [claims.runnable],
        "none": [entitled],
    }
    for eligible in passes[fill]:
        if type_order is None:
            pairs = _ranked(claims, eligible, keys, list(columns))
            _take(claims, pairs, free, taken, chosen)
        else:
            for column in columns:
                if free[column] > 0:
                    pairs = _ranked(claims, eligible, keys, [column])
                    _take(claims, pairs, free, taken, chosen)
        if not any(free):
            break
    return chosen


def _ranked(
    claims: Claims, eligible: NDArray[np.bool_], keys: tuple[Floats, ...], columns: list[int]
) -> Iterable[tuple[int, int]]:
    """Eligible pairs of these columns, best first; equal ones by arrival, then type."""
    if len(columns) == 1:
        rows = np.flatnonzero(eligible[:, columns[0]])
        cols = np.full(len(rows), columns[0])
    else:
        rows, cols = np.nonzero(eligible)
    sort_keys = [cols, claims.arrival[rows], *(-key[rows, cols] for key in reversed(keys))]
    order = np.lexsort(sort_keys)
    return zip(rows[order].tolist(), cols[order].tolist(), strict=True)


def _take(
    claims: Claims,
    pairs: Iterable[tuple[int, int]],
    free: list[int],
    taken: set[str],
    chosen: list[Choice],
) -> None:
    scale_factors = claims.scale_factor
    left = sum(free)
    for row, column in pairs:
        if left == 0:
            return
        if free[column] == 0:
            continue
        combination = claims.combinations[row]
        if any(job in taken for job in combination):
            continue
        workers = int(scale_factors[row])
        if workers > free[column]:
            continue
        free[column] -= workers
        left -= workers
        taken.update(combination)
        chosen.append((row, column))

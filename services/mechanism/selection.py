"""Which combinations run in the coming round, and on which worker type (Algorithm 1, §5).

Greedy over the ranked pairs: a pair is taken if its workers are still free and none of its jobs
runs already. The exact problem is a multiple-choice knapsack; what greed gets wrong in one round,
the next one's priorities put right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.mechanism.claims import Claims, Floats, Pairs

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
    passes = {
        "last": (claims.entitled, claims.fillers),
        "in_order": (_both(claims.entitled, claims.fillers),),
        "none": (claims.entitled,),
    }
    for pairs in passes[fill]:
        if any(free):
            _take(claims, _ranked(claims, pairs, keys, type_order), free, taken, chosen)
    return chosen


def _both(one: Pairs, other: Pairs) -> Pairs:
    return np.concatenate((one[0], other[0])), np.concatenate((one[1], other[1]))


def _ranked(
    claims: Claims, pairs: Pairs, keys: tuple[Floats, ...], type_order: Sequence[int] | None
) -> Iterable[Choice]:
    """Order the pairs, best first: by type if types have an order, by key, arrival, then type."""
    rows, columns = pairs
    sort_keys: list[NDArray[Any]] = [columns, claims.arrival[rows]]
    sort_keys += [-key[rows, columns] for key in reversed(keys)]
    # A key may rank a filler above an entitled pair in debt; it is served after it all the same.
    sort_keys.append(claims.share[rows, columns] <= 0)
    if type_order is not None:
        visit = np.empty(len(type_order), dtype=np.intp)
        visit[list(type_order)] = np.arange(len(type_order))
        sort_keys.append(visit[columns])
    order = np.lexsort(sort_keys)
    return zip(rows[order].tolist(), columns[order].tolist(), strict=True)


def _take(
    claims: Claims,
    pairs: Iterable[Choice],
    free: list[int],
    taken: set[str],
    chosen: list[Choice],
) -> None:
    combinations = claims.combinations
    scale_factors = claims.scale_factor.tolist()
    left = sum(free)
    for row, column in pairs:
        workers = scale_factors[row]
        if workers > free[column]:
            continue
        combination = combinations[row]
        if combination[0] in taken or combination[-1] in taken:
            continue
        free[column] -= workers
        left -= workers
        taken.update(combination)
        chosen.append((row, column))
        if left == 0:
            return

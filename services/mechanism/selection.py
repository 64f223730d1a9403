"""Which combinations run in the coming round, and on which worker type (Algorithm 1, §5).

Greedy over the ranked pairs: a pair is taken if its workers are still free and none of its jobs
runs already. The exact problem is a multiple-choice knapsack; what greed gets wrong in one round,
the next one's priorities put right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from services.mechanism.claims import Claims, Floats, Pairs
from services.mechanism.consolidation import Room

#: (row, column): one combination chosen for one worker type.
Choice = tuple[int, int]
#: Pairs that are looked at before those without a chance are taken out; twice as many each time.
_FIRST_STRETCH = 1024
#: So few pairs are looked at one by one as they are.
_FEW = 256


def select(
    claims: Claims,
    capacity: Sequence[int],
    keys: tuple[Floats, ...],
    *,
    type_order: Sequence[int] | None,
    fill: str,
    rooms: Mapping[int, Room] = MappingProxyType({}),
) -> list[Choice]:
    """Choose for one round.

    Parameters
    ----------
    claims : the combinations, their shares and where they can run
    capacity : (pools,) workers free in the round
    keys : (combinations, worker types) arrays to rank by, most significant first, descending;
        ties go to the earlier arrival
    type_order : visit types one after another in this order; None ranks all types in one list
    fill : pairs with X = 0 come ``last``, after all pairs with X > 0 of every type; or
        ``in_order``, at the end of each type's own list; or ``none`` of them runs
    rooms : {column whose gangs must be consolidated: the room there is for them}
    """
    free = list(capacity)
    taken = bytearray(len(claims.jobs))
    chosen: list[Choice] = []
    pool: list[int] = claims.pool.tolist()
    for column, pairs in _in_turn(claims, type_order, fill):
        if any(free) if column is None else free[pool[column]]:
            _take(claims, pairs, keys, free, pool, taken, chosen, rooms)
    return chosen


def _in_turn(
    claims: Claims, type_order: Sequence[int] | None, fill: str
) -> Iterator[tuple[int | None, Pairs]]:
    """Pairs that are ranked among themselves, in the order in which they are served.

    With each its column; None where the pairs are of all.
    """
    entitled = claims.entitled, claims.entitled_on
    fillers = claims.fillers, claims.fillers_on
    passes = {
        "last": ((entitled,), (fillers,)),
        "in_order": ((entitled, fillers),),
        "none": ((entitled,),),
    }
    for kinds in passes[fill]:
        if type_order is None:
            yield from ((None, of_all) for of_all, _ in kinds)
            continue
        for column in type_order:
            yield from ((column, on[column]) for _, on in kinds)


def _take(
    claims: Claims,
    pairs: Pairs,
    keys: tuple[Floats, ...],
    free: list[int],
    pool: list[int],
    taken: bytearray,
    chosen: list[Choice],
    rooms: Mapping[int, Room],
) -> None:
    """Serve the pairs, best first; equals by arrival, then type.

    Once most jobs run, nearly all pairs that are left cannot. They are taken out by the array,
    and only what is left of a stretch is looked at one by one.
    """
    rows, columns = pairs
    if not len(rows):
        return
    order = np.lexsort([-key[rows, columns] for key in reversed(keys)])
    is_taken = np.frombuffer(taken, dtype=bool)
    start, stretch = 0, _FIRST_STRETCH
    while start < len(order) and any(free):
        ahead = order[start : start + stretch]
        start += len(ahead)
        stretch *= 2
        of_jobs, of_types = rows[ahead], columns[ahead]
        if len(ahead) > _FEW:
            possible = claims.scale_factor[of_jobs] <= np.array(free)[claims.pool[of_types]]
            possible &= ~is_taken[claims.members[of_jobs]].any(axis=1)
            of_jobs, of_types = of_jobs[possible], of_types[possible]
        candidates = zip(
            of_jobs.tolist(),
            of_types.tolist(),
            claims.scale_factor[of_jobs].tolist(),
            claims.members[of_jobs].tolist(),
            strict=True,
        )
        for row, column, workers, (job, other) in candidates:
            if workers <= free[pool[column]] and not taken[job] and not taken[other]:
                if workers > 1 and column in rooms and not rooms[column].take(workers):
                    continue
                free[pool[column]] -= workers
                taken[job] = taken[other] = 1
                chosen.append((row, column))

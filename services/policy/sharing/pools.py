"""Pools of time in which classes share workers: what the columns of pairs are to ``needs.py``."""

from __future__ import annotations

import msgspec
import numpy as np

from services.policy.classes import ClassArrays
from services.policy.pools import Pools
from services.policy.problem import Problem
from services.policy.sharing.pairs import Columns


def shared_pools(arrays: ClassArrays, columns: Columns) -> Pools:
    """The columns as pools: a column of two classes is in the pool of both."""
    pairs = np.flatnonzero(columns.second >= 0)
    classes = np.append(columns.first, columns.second[pairs])
    of_column = np.append(np.arange(len(columns)), pairs)
    steps_per_s = np.append(columns.speeds[0], columns.speeds[1, pairs])
    speeds = steps_per_s / arrays.throughputs.max(axis=1)[classes]
    times = np.append(columns.times[0], columns.times[1, pairs])
    order = np.lexsort((of_column, -speeds, classes))
    return Pools(
        classes=classes[order],
        columns=of_column[order],
        times=times[order],
        speeds=speeds[order],
        types=columns.types,
        loaded=np.arange(len(columns)),
        loads=columns.workers / arrays.num_workers[columns.types],
        num_classes=len(arrays.counts),
        num_columns=len(columns),
        num_types=len(arrays.num_workers),
    )


def weightless(problem: Problem) -> Problem:
    """The problem for an objective that knows no weights, so that no classes differ in them."""
    return msgspec.structs.replace(
        problem,
        classes=tuple(msgspec.structs.replace(c, priority_weight=1.0) for c in problem.classes),
    )

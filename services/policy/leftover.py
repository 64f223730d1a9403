"""What an objective leaves of the cluster goes where it does most, and X becomes unique."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.policy.classes import ClassArrays
from services.policy.needs import NeedsProgram
from services.policy.pools import Pools
from services.policy.solver import Floats

#: Weight of the tie-break beside worker time, which it may raise by at most this fraction.
_TIE_WEIGHT = 1e-6


def hand_out_rest(
    program: NeedsProgram, arrays: ClassArrays, pools: Pools, ties: Floats | None = None
) -> Floats:
    """(columns,) the most of sum thr_i / Tbar_i, of that the least worker time, then fixed order.

    ``program`` holds what the objective asked for. The order is that of ``ties``, (columns,) in
    [0, 1), which columns that serve one class can do without.
    """
    worth = normalised_throughput(arrays, pools)
    values = program.minimise(-worth / worth.max())
    if not program.solution.is_unique():
        program.keep_optima()
        held = worker_time(arrays, pools)
        ties = _tie_breakers(arrays, pools) if ties is None else ties
        values = program.minimise(held / held.max() * (1 + _TIE_WEIGHT * ties))
    return values


def all_on_their_fastest(pools: Pools) -> Floats | None:
    """(columns,) every job always in its fastest way, if that fits: nothing is better."""
    first = np.searchsorted(pools.classes, np.arange(pools.num_classes))
    values = np.zeros(pools.num_columns)
    values[pools.columns[first]] = 1 / pools.times[first]
    used = np.bincount(pools.types, pools.loads * values[pools.loaded], pools.num_types)
    return None if (used > 1).any() else values


def normalised_throughput(arrays: ClassArrays, pools: Pools) -> Floats:
    """(columns,) sum of thr_i / Tbar_i of a unit of the column."""
    fastest = arrays.throughputs.max(axis=1) / arrays.equal_throughputs()
    return throughput(pools, arrays.counts * fastest)


def throughput(pools: Pools, fastest: Floats) -> Floats:
    """(columns,) of a unit, where all jobs of a class at their fastest are worth ``fastest``."""
    gains = pools.times * pools.speeds * fastest[pools.classes]
    return np.bincount(pools.columns, gains, pools.num_columns).astype(float)


def worker_time(arrays: ClassArrays, pools: Pools, prices: Floats | None = None) -> Floats:
    """(columns,) workers that a unit of the column holds, each at its type's price, or at 1."""
    workers = arrays.num_workers if prices is None else arrays.num_workers * prices
    held = pools.loads * workers[pools.types]
    return np.bincount(pools.loaded, held, pools.num_columns).astype(float)


def _tie_breakers(arrays: ClassArrays, pools: Pools) -> Floats:
    """(columns,) numbers in [0, 1) of the class and type that the column serves first."""
    columns: NDArray[np.int64] = np.arange(pools.num_columns)
    by_column = np.argsort(pools.columns, kind="stable")
    classes = pools.classes[by_column[np.searchsorted(pools.columns[by_column], columns)]]
    by_load = np.argsort(pools.loaded, kind="stable")
    types = pools.types[by_load[np.searchsorted(pools.loaded[by_load], columns)]]
    ties: Floats = arrays.tie_breakers()[classes, types]
    return ties

"""Pools of time: in which ways classes can spend it, and what each way holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.classes import ClassArrays
from services.policy.solver import Floats, Ints


@dataclass(frozen=True, slots=True)
class Ways:
    """How a job of each class can spend its time.

    Attributes
    ----------
    speeds : (classes, ways)
        As a fraction of the class's fastest; 0 where the class lacks the way.
    spread : (classes, ways, worker types)
        Part of the time spent in this way that is spent on the type; sums to 1.
    """

    speeds: Floats
    spread: Floats

    @classmethod
    def each_type(cls, arrays: ClassArrays) -> Ways:
        """A way for each type, as long as the job likes."""
        speeds = arrays.throughputs / arrays.throughputs.max(axis=1, keepdims=True)
        types = speeds.shape[1]
        return cls(speeds, np.broadcast_to(np.eye(types), (len(speeds), types, types)))

    @classmethod
    def blind(cls, arrays: ClassArrays) -> Ways:
        """One way only: all usable types in proportion to their workers."""
        workers = arrays.usable * arrays.num_workers
        spread = workers / workers.sum(axis=1, keepdims=True)
        return cls(np.ones((len(spread), 1)), spread[:, None, :])


@dataclass(frozen=True, slots=True)
class Pools:
    """Columns to fill with time, whom they serve, and what they hold.

    Attributes
    ----------
    classes, columns, times, speeds : (entries,)
        A unit of the column gives every job of the class ``times`` of its time, at this fraction
        of the class's fastest speed. Of each class, fastest first.
    types, loaded, loads : (loads,)
        A unit of column ``loaded`` holds this fraction of the type's workers.
    num_classes, num_columns, num_types : int
    """

    classes: Ints
    columns: Ints
    times: Floats
    speeds: Floats
    types: Ints
    loaded: Ints
    loads: Floats
    num_classes: int
    num_columns: int
    num_types: int

    @classmethod
    def of(cls, arrays: ClassArrays, ways: Ways) -> Pools:
        """A column for each class and way, filled when all jobs spend all their time so."""
        order = np.argsort(-ways.speeds, axis=1, kind="stable")
        classes = np.repeat(np.arange(len(order)), order.shape[1])
        used = (np.take_along_axis(ways.speeds, order, 1) > 0).ravel()
        classes, chosen = classes[used], order.ravel()[used]
        spread = ways.spread[classes, chosen]
        loaded, types = np.nonzero(spread)
        held = spread[loaded, types] * arrays.demands[classes[loaded]]
        return cls(
            classes=classes,
            columns=np.arange(len(classes)),
            times=np.ones(len(classes)),
            speeds=ways.speeds[classes, chosen],
            types=types,
            loaded=loaded,
            loads=held / arrays.num_workers[types],
            num_classes=len(arrays.counts),
            num_columns=len(classes),
            num_types=len(arrays.num_workers),
        )

    def fill(self, values: Floats, ways: Ways) -> Floats:
        """(classes, ways) time of one job of the class, for columns made by ``of``."""
        time = np.zeros(ways.speeds.shape)
        order = np.argsort(-ways.speeds, axis=1, kind="stable")
        used = np.take_along_axis(ways.speeds, order, 1) > 0
        time[self.classes, order[used]] = values
        return time

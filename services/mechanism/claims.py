"""What each combination may claim of each worker type: the arrays a round is decided on.

Rows are combinations, columns worker types. The arrays are built when an allocation, a job or a
worker changes, and only read when a round is planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.domain import Combination

Floats = NDArray[np.float64]
#: (rows, columns): pairs of a combination and a worker type.
Pairs = tuple[NDArray[np.intp], ...]


@dataclass(frozen=True, slots=True)
class Claims:
    """Allocation X with everything selection needs beside it."""

    worker_types: tuple[str, ...]
    combinations: tuple[Combination, ...]
    #: (combinations, worker types) X, fraction of wall-clock time.
    share: Floats
    #: (combinations, worker types) whether it can run there at all.
    runnable: NDArray[np.bool_]
    #: (combinations,) workers held at once.
    scale_factor: NDArray[np.int64]
    #: (combinations,) rank of arrival; of a pair, the rank of its earlier job.
    arrival: NDArray[np.int64]
    #: {combination: row}
    row: dict[Combination, int]
    #: Runnable pairs with X > 0, and those without.
    entitled: Pairs
    fillers: Pairs

    @classmethod
    def build(
        cls,
        worker_types: Sequence[str],
        shares: Mapping[Combination, Sequence[float]],
        runnable: Mapping[Combination, Sequence[bool]],
        scale_factors: Mapping[Combination, int],
        arrivals: Mapping[Combination, int],
    ) -> Claims:
        """Arrays over the combinations of ``shares``, in its order."""
        combinations = tuple(shares)
        shape = (len(combinations), len(worker_types))
        share = np.array([shares[c] for c in combinations], dtype=float).reshape(shape)
        can_run = np.array([runnable[c] for c in combinations], dtype=bool).reshape(shape)
        return cls(
            worker_types=tuple(worker_types),
            combinations=combinations,
            share=share,
            runnable=can_run,
            scale_factor=np.array([scale_factors[c] for c in combinations], dtype=np.int64),
            arrival=np.array([arrivals[c] for c in combinations], dtype=np.int64),
            row={c: k for k, c in enumerate(combinations)},
            entitled=np.nonzero(can_run & (share > 0)),
            fillers=np.nonzero(can_run & ~(share > 0)),
        )

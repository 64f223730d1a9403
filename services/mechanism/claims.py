"""What each combination may claim of each worker type: the arrays a round is decided on.

Rows are combinations, columns worker types, or ways to hold one (see ``UNCONSOLIDATED``): two
columns, consolidated and not, then draw on the workers of one type, their pool. The arrays are
built when an allocation, a job or a worker changes, and only read when a round is planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.domain import UNCONSOLIDATED, Combination

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: (rows, columns): pairs of a combination and a worker type, by arrival, then type.
Pairs = tuple[NDArray[np.intp], ...]


@dataclass(frozen=True, slots=True)
class Claims:
    """Allocation X with everything selection needs beside it."""

    worker_types: tuple[str, ...]
    #: Worker types as they are registered, and (columns,) the index of each column's.
    pools: tuple[str, ...]
    pool: Ints
    combinations: tuple[Combination, ...]
    #: (combinations, worker types) X, fraction of wall-clock time.
    share: Floats
    #: (combinations, worker types) whether it can run there at all.
    runnable: NDArray[np.bool_]
    #: (combinations,) workers held at once.
    scale_factor: Ints
    #: (combinations,) decides between equals, the lower first.
    arrival: Ints
    #: {combination: row}
    row: dict[Combination, int]
    #: {job id: its number, from 0}
    jobs: dict[str, int]
    #: (combinations, 2) numbers of the jobs; twice the same of a job that runs alone.
    members: Ints
    #: Runnable pairs with X > 0, and those without; then the same of each column.
    entitled: Pairs
    fillers: Pairs
    entitled_on: tuple[Pairs, ...]
    fillers_on: tuple[Pairs, ...]

    @classmethod
    def build(
        cls,
        worker_types: Sequence[str],
        combinations: Sequence[Combination],
        share: Floats,
        runnable: NDArray[np.bool_],
        scale_factor: Ints,
        arrival: Ints,
    ) -> Claims:
        """Arrays over the combinations; for what they hold see the fields."""
        jobs: dict[str, int] = {}
        for combination in combinations:
            for job_id in combination:
                jobs.setdefault(job_id, len(jobs))
        physical = [name.removesuffix(UNCONSOLIDATED) for name in worker_types]
        pools = tuple(dict.fromkeys(physical))
        members = [(jobs[c[0]], jobs[c[-1]]) for c in combinations]
        by_arrival = np.argsort(arrival, kind="stable")
        entitled, fillers = (
            (by_arrival[rows], columns)
            for rows, columns in (
                np.nonzero((runnable & (share > 0))[by_arrival]),
                np.nonzero((runnable & ~(share > 0))[by_arrival]),
            )
        )
        entitled_on, fillers_on = (
            tuple(
                (rows[columns == column], columns[columns == column])
                for column in range(len(worker_types))
            )
            for rows, columns in (entitled, fillers)
        )
        return cls(
            worker_types=tuple(worker_types),
            pools=pools,
            pool=np.array([pools.index(name) for name in physical], dtype=np.int64),
            combinations=tuple(combinations),
            share=share,
            runnable=runnable,
            scale_factor=scale_factor,
            arrival=arrival,
            row={c: k for k, c in enumerate(combinations)},
            jobs=jobs,
            members=np.array(members, dtype=np.int64).reshape(-1, 2),
            entitled=entitled,
            fillers=fillers,
            entitled_on=entitled_on,
            fillers_on=fillers_on,
        )

"""Rows of an allocation that serves jobs of one class differently: by pieces of classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schemas.domain import AllocationRow
from services.policy.classes import SHARE_UNIT, round_to_units, single_jobs
from services.policy.problem import Problem
from services.policy.solver import Floats


def piece_rows(
    problem: Problem, pieces: Sequence[tuple[int, Sequence[str]]], shares: Floats
) -> tuple[AllocationRow, ...]:
    """One row for each piece with a share, and for pieces of one class with equal shares.

    Parameters
    ----------
    pieces : (class index, ids of some of its jobs) each
    shares : (pieces, worker types)
        Fraction of wall-clock time of one job of the piece, feasible but for rounding.
    """
    if not pieces:
        return ()
    demands = [problem.classes[index].scale_factor * len(ids) for index, ids in pieces]
    workers = np.array(problem.num_workers, dtype=float)
    units = round_to_units(shares, np.array(demands, dtype=float), workers)
    alike: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    for (index, ids), row in zip(pieces, units.tolist(), strict=True):
        alike.setdefault((index, tuple(row)), []).extend(ids)
    per_share = round(1 / SHARE_UNIT)
    return tuple(
        AllocationRow(
            single_jobs(ids),
            {t: n / per_share for t, n in zip(problem.worker_types, row, strict=True) if n > 0},
        )
        for (_, row), ids in sorted(alike.items(), key=lambda item: item[0])
        if any(row)
    )

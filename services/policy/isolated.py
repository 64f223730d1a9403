"""Isolated: every job gets 1/n of each worker type, as if it had a cluster of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.classes import ClassArrays, gather, to_rows
from services.policy.problem import Allocation, Problem
from services.policy.solver import Floats


def isolated_shares(arrays: ClassArrays) -> Floats:
    """(classes, worker types) X_ij = N_j / (n s_i) on usable types, rows scaled to sum <= 1."""
    shares = arrays.usable * arrays.num_workers / arrays.counts.sum()
    shares = shares / arrays.scale_factors[:, None]
    scaled: Floats = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
    return scaled


def isolated_speeds(problem: Problem) -> tuple[float, ...]:
    """(classes,) steps/s of a job on its isolated share; 0 of a class that is set aside.

    Raises
    ------
    ProblemError
        The problem holds a value no policy can make sense of.
    """
    arrays, _ = gather(problem)
    speeds = (arrays.throughputs * isolated_shares(arrays)).sum(axis=1)
    return tuple(np.append(speeds, 0.0)[arrays.merged_into].tolist())


@dataclass(frozen=True)
class Isolated:
    """The static partition that sharing has to beat (§3): the yardstick of fairness."""

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        return Allocation(
            rows=to_rows(problem, arrays, isolated_shares(arrays)), set_aside=set_aside
        )

"""Shortest job first: the job that would be done first, at its best, takes what is best for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schemas.domain import AllocationRow
from services.policy.classes import SHARE_UNIT, ClassArrays, gather, round_to_units, single_jobs
from services.policy.fifo import admit, arrival_ranks, running_rows
from services.policy.jobs import blind, gather_jobs
from services.policy.problem import Allocation, Problem

#: What is left of a type after many fractions have been taken is off by less than this.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ShortestJobFirst:
    """In order of remaining time at best speed, each job takes its fastest type with room.

    As in FIFO, a job that finds no room closes whatever it could use to all behind it.
    """

    needs_progress = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        running = admit(problem, _shortest_first(problem, arrays))
        return Allocation(rows=running_rows(problem, running), set_aside=set_aside)


@dataclass(frozen=True)
class ShortestJobFirstAgnostic:
    """In order of remaining time on the reference type, each job takes a share of every type.

    The share of a type is that of its free workers among all that the job could use.
    """

    needs_progress = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        problem = blind(problem)
        arrays, set_aside = gather(problem)
        return Allocation(rows=_spread(problem, arrays), set_aside=set_aside)


def _shortest_first(problem: Problem, arrays: ClassArrays) -> list[tuple[str, int]]:
    """(job id, class index) of every job that can run; equals in order of arrival."""
    jobs = gather_jobs(problem, arrays)
    best = arrays.throughputs.max(axis=1, initial=0.0)
    remaining_s = dict(
        zip(jobs.ids, (jobs.steps_remaining / best[jobs.rows]).tolist(), strict=True)
    )
    queue = sorted(
        (remaining_s[job_id], rank, job_id, index)
        for index, job_class in enumerate(problem.classes)
        for rank, job_id in zip(arrival_ranks(index, job_class), job_class.job_ids, strict=True)
        if job_id in remaining_s
    )
    return [(job_id, index) for _, _, job_id, index in queue]


def _spread(problem: Problem, arrays: ClassArrays) -> tuple[AllocationRow, ...]:
    free = arrays.num_workers.copy()
    groups: dict[tuple[int, tuple[float, ...]], list[str]] = {}
    for job_id, index in _shortest_first(problem, arrays):
        row = int(arrays.merged_into[index])
        room = np.where(arrays.usable[row], free, 0.0)
        total = float(room.sum())
        if total + _ROUNDING >= arrays.scale_factors[row]:
            shares = room / total
            free = np.maximum(free - arrays.scale_factors[row] * shares, 0.0)
            groups.setdefault((row, tuple(shares.tolist())), []).append(job_id)
        else:
            free = np.where(arrays.usable[row], 0.0, free)
        if free.sum() <= _ROUNDING:
            break
    if not groups:
        return ()
    demands = np.array([arrays.scale_factors[row] * len(ids) for (row, _), ids in groups.items()])
    shares = np.array([shares for _, shares in groups])
    units = round_to_units(shares, demands, arrays.num_workers).tolist()
    whole = round(1 / SHARE_UNIT)
    return tuple(
        AllocationRow(
            single_jobs(ids),
            {t: n / whole for t, n in zip(problem.worker_types, given, strict=True) if n > 0},
        )
        for ids, given in zip(groups.values(), units, strict=True)
    )

"""Tiresias, a baseline: least attained service in two queues, blind to worker types."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.baselines.jobs import of_each_job
from services.policy.classes import gather
from services.policy.fifo import arrival_ranks
from services.policy.pieces import piece_rows
from services.policy.problem import Allocation, PolicyError, Problem

#: What is left of a type after many fractions have been taken is off by less than this.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Tiresias:
    """Two-queue discretised LAS: who has had little comes first; in a queue, first come first.

    Attained service is worker-seconds held. A job moves to the second queue for good when it has
    had ``threshold_worker_s``, and so needs no lengths known in advance. In order of queue and
    arrival each job takes all its time, spread over the types that it can use in proportion to
    their free workers; the last to find room may get less than all its time.
    """

    threshold_worker_s: float = 3600.0
    needs_progress = True

    def __post_init__(self) -> None:
        if not self.threshold_worker_s > 0:
            raise PolicyError(
                f"parameter threshold_worker_s is {self.threshold_worker_s}, must be above 0"
            )

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        free = arrays.num_workers.copy()
        pieces, shares = [], []
        for index, job_id in self._queue(problem):
            row = int(arrays.merged_into[index])
            if row < 0:
                continue
            room = np.where(arrays.usable[row], free, 0.0)
            total = float(room.sum())
            if total <= _ROUNDING:
                continue
            share = room * min(1.0 / total, 1.0 / arrays.scale_factors[row])
            free = np.maximum(free - arrays.scale_factors[row] * share, 0.0)
            pieces.append((index, (job_id,)))
            shares.append(share)
            if free.sum() <= _ROUNDING:
                break
        return Allocation(rows=piece_rows(problem, pieces, np.array(shares)), set_aside=set_aside)

    def _queue(self, problem: Problem) -> list[tuple[int, str]]:
        """(class index, job id) of all jobs, in order."""
        ranked = []
        for index, each in enumerate(problem.classes):
            ranks = arrival_ranks(index, each)
            for rank, job_id, held_s in zip(
                ranks, each.job_ids, of_each_job(each, "held_s", 0.0), strict=True
            ):
                second = each.scale_factor * held_s >= self.threshold_worker_s
                ranked.append((second, rank, job_id, index))
        return [(index, job_id) for _, _, job_id, index in sorted(ranked)]

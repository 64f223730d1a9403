"""First in, first out by a scheduler that does not look at worker types: the paper's baseline."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from schemas.domain import AllocationRow
from services.policy.problem import Allocation, Problem


@dataclass(frozen=True)
class BlindFifo:
    """In order of arrival, each job takes the first type with room, in an order drawn for it.

    The order is a job's own and stays, so that a job moves only if a type that it prefers for no
    reason gets free. Nobody overtakes the first job that does not fit.
    """

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        free = dict(zip(problem.worker_types, problem.num_workers, strict=True))
        jobs = sorted(
            (rank, job_id, c)
            for c in range(len(problem.classes))
            for rank, job_id in zip(
                problem.classes[c].arrival_ranks, problem.classes[c].job_ids, strict=True
            )
        )
        rows = []
        for _, job_id, c in jobs:
            job_class = problem.classes[c]
            speeds = dict(zip(problem.worker_types, job_class.throughputs, strict=True))
            fits = [t for t in free if speeds[t] > 0 and free[t] >= job_class.scale_factor]
            if not fits:
                break
            chosen = min(fits, key=lambda t, job=job_id: crc32(f"{job}/{t}".encode()))  # type: ignore[misc] # mypy does not infer a default's type
            free[chosen] -= job_class.scale_factor
            rows.append(AllocationRow(((job_id,),), {chosen: 1.0}))
        return Allocation(rows=tuple(rows))

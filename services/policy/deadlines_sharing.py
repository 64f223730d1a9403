"""Makespan and finish-time fairness where two jobs may share their workers (§3.1, §4.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import msgspec
import numpy as np

from services.policy.classes import ClassArrays
from services.policy.finish_time_fairness import isolated_finish
from services.policy.jobs import Jobs, gather_jobs
from services.policy.makespan import Deadlines, all_by_the_makespan, deadline_needs, raise_level
from services.policy.pairs import gather_with_pairs
from services.policy.problem import Allocation, JobClass, Problem
from services.policy.sharing_division import divide_columns, to_rows, too_long
from services.policy.sharing_pools import shared_pools, weightless

#: What a class says of each of its jobs.
_PER_JOB = (
    "arrival_ranks",
    "steps_remaining",
    "elapsed_s",
    "isolated_s",
    "held_s",
    "slo_remaining_s",
)


@dataclass(frozen=True)
class MakespanSharing:
    """``makespan``, with effective throughput summed over all combinations that hold the job."""

    needs_progress = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return serve_shared(problem, all_by_the_makespan)


@dataclass(frozen=True)
class FinishTimeFairnessSharing:
    """``ftf``, with effective throughput summed over all combinations; isolated jobs are alone."""

    needs_progress = True
    needs_isolated = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return serve_shared(problem, isolated_finish)


def serve_shared(
    problem: Problem, deadlines_of: Callable[[ClassArrays, Jobs], Deadlines]
) -> Allocation:
    """Raise the level as far as it goes, and hand out what is left; the objective is its inverse.

    A job that would need more than half of what its class shares with itself cannot have it, for
    want of others to share with. Where that happens, the class is solved again job by job.

    Raises
    ------
    ProblemError
        The problem holds a value no policy can make sense of.
    SolverError
        No solver found an answer.
    """
    problem = weightless(problem)
    while True:
        arrays, columns, set_aside = gather_with_pairs(problem)
        jobs = gather_jobs(problem, arrays)
        if not len(jobs.rows):
            return Allocation(rows=(), set_aside=set_aside)
        needs = deadline_needs(arrays, jobs, deadlines_of(arrays, jobs))
        pools, ties = shared_pools(arrays, columns), columns.tie_breakers(arrays)
        best = raise_level(arrays, pools, needs, ties)
        times = divide_columns(arrays, columns, jobs, needs.at(best.level)[0], best.values)
        rows = too_long(columns, jobs, times)
        if not len(rows):
            break
        problem = _cut(problem, np.flatnonzero(np.isin(arrays.merged_into, rows)).tolist())
    return Allocation(
        rows=to_rows(problem, arrays, columns, jobs, times),
        objective=1 / best.level if best.level else 0.0,
        prices=dict(zip(problem.worker_types, best.prices.tolist(), strict=True)),
        bottlenecked=tuple(jobs.ids[i] for i in np.flatnonzero(best.holding).tolist()),
        set_aside=set_aside,
    )


def _cut(problem: Problem, indices: list[int]) -> Problem:
    """Classes of one job in place of these; weights, which nobody asks for here, part them."""
    to_cut = [problem.classes[index] for index in indices]
    ranks = [rank for c in to_cut for rank in c.arrival_ranks or [0] * len(c.job_ids)]
    ids = [job_id for c in to_cut for job_id in c.job_ids]
    weight = {job_id: 2.0 + n for n, (_, job_id) in enumerate(sorted(zip(ranks, ids, strict=True)))}
    classes: list[JobClass] = []
    pieces: list[list[int]] = []
    for index, job_class in enumerate(problem.classes):
        parts = _single_jobs(job_class, weight) if index in indices else [job_class]
        pieces.append(list(range(len(classes), len(classes) + len(parts))))
        classes += parts
    pairs = {}
    for (c, d), (one, two) in problem.pairs.items():
        for a, b in product(pieces[c], pieces[d]):
            pairs[min(a, b), max(a, b)] = (one, two) if a <= b else (two, one)
    return msgspec.structs.replace(problem, classes=tuple(classes), pairs=pairs)


def _single_jobs(job_class: JobClass, weight: dict[str, float]) -> list[JobClass]:
    fields = [name for name in _PER_JOB if getattr(job_class, name)]
    return [
        msgspec.structs.replace(
            job_class,
            job_ids=(job_id,),
            priority_weight=weight[job_id],
            **{name: (getattr(job_class, name)[n],) for name in fields},
        )
        for n, job_id in enumerate(job_class.job_ids)
    ]

"""First in, first out: jobs run to the end in order of arrival, each on the fastest type left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from schemas.domain import AllocationRow
from services.policy.classes import gather, single_jobs
from services.policy.problem import Allocation, JobClass, Problem, ProblemError


@dataclass(frozen=True)
class Fifo:
    """In order of arrival, each job takes all its workers on its fastest type with room for them.

    A job that finds no room waits, and whatever it could use is closed to all behind it: workers
    come free one by one, and a large job behind a stream of small ones would never get its many.
    """

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        _, set_aside = gather(problem)
        return Allocation(
            rows=running_rows(problem, admit(problem, _in_arrival_order(problem))),
            set_aside=set_aside,
        )


def _in_arrival_order(problem: Problem) -> list[tuple[str, int]]:
    """(job id, class index) of every job, first come first."""
    queue = sorted(
        (rank, job_id, index)
        for index, job_class in enumerate(problem.classes)
        for rank, job_id in zip(arrival_ranks(index, job_class), job_class.job_ids, strict=True)
    )
    return [(job_id, index) for _, job_id, index in queue]


def arrival_ranks(index: int, job_class: JobClass) -> tuple[int, ...]:
    """(jobs,) the class's ranks of arrival.

    Raises
    ------
    ProblemError
        Not every job has one.
    """
    if len(job_class.arrival_ranks) != len(job_class.job_ids):
        raise ProblemError(
            f"class {index} ({job_class.job_type}): arrival_ranks has "
            f"{len(job_class.arrival_ranks)} values, must be one for each of its "
            f"{len(job_class.job_ids)} jobs"
        )
    return job_class.arrival_ranks


def admit(problem: Problem, queue: Iterable[tuple[str, int]]) -> dict[tuple[int, int], list[str]]:
    """Jobs that run, by class and worker type, when each of the queue takes the best that is left.

    A job that finds no room closes what it could use to all behind it.
    """
    choices = [_fastest_first(job_class, problem.num_workers) for job_class in problem.classes]
    free = list(problem.num_workers)
    running: dict[tuple[int, int], list[str]] = {}
    for job_id, index in queue:
        scale_factor = problem.classes[index].scale_factor
        for j in choices[index]:
            if scale_factor <= free[j]:
                free[j] -= scale_factor
                running.setdefault((index, j), []).append(job_id)
                break
        else:
            for j in choices[index]:
                free[j] = 0
        if not any(free):
            break
    return running


def _fastest_first(job_class: JobClass, num_workers: Sequence[int]) -> list[int]:
    """Worker types that the class can use."""
    speeds = job_class.throughputs
    usable = [j for j, n in enumerate(num_workers) if speeds[j] > 0 and job_class.scale_factor <= n]
    return sorted(usable, key=lambda j: -speeds[j])


def running_rows(
    problem: Problem, running: Mapping[tuple[int, int], list[str]]
) -> tuple[AllocationRow, ...]:
    """Rows of jobs that run all the time."""
    return tuple(
        AllocationRow(single_jobs(ids), {problem.worker_types[j]: 1.0})
        for (_, j), ids in sorted(running.items())
    )

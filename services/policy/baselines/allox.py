"""AlloX, a baseline: the assignment of jobs to queues of workers with the least average JCT.

Each worker works through a queue, and a job that is k-th from the end of one delays k jobs, its
own time included. So the sum of all completion times is a sum over jobs of position times length,
and the best queues are an assignment problem, whose solutions are whole. Nothing in it looks after
the job that is always put last: at high load, long jobs starve.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from services.policy.baselines.jobs import of_each_job
from services.policy.classes import gather
from services.policy.fifo import arrival_ranks, running_rows
from services.policy.problem import Allocation, Problem
from services.policy.solver import Floats, Ints

#: Steps that a job with none left is taken to have.
_NEXT_TO_NOTHING = 1e-9


@dataclass(frozen=True)
class AlloX:
    """Least sum of completion times over queues of single workers; a start is never undone.

    A job with r_i steps left that is k-th from the end of the queue of a worker of type j costs
    k r_i / T_ij seconds. Only the first job of every queue runs; it keeps its worker until it
    completes, and with every solve the others queue anew at the workers that are free. AlloX
    knows only jobs of one worker: larger ones are set aside.

    ``objective`` is the sum over the jobs in queues of seconds from arrival to completion.
    """

    needs_progress = True
    needs_previous = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        _, set_aside = gather(problem)
        jobs = _in_arrival_order(problem, set_aside)
        set_aside |= {
            job.job_id: f"AlloX places jobs of one worker; this one holds {job.scale_factor}"
            for job in jobs
            if job.scale_factor > 1
        }
        jobs = [job for job in jobs if job.scale_factor == 1]
        running = _keep(problem, jobs)
        free = np.array(problem.num_workers, dtype=np.int64)
        np.subtract.at(free, list(running.values()), 1)
        queued = [
            job
            for job in jobs
            if job.job_id not in running and (job.seconds[free > 0] < np.inf).any()
        ]
        objective = None
        if queued:
            places = _assign(np.array([job.seconds for job in queued]), free)
            objective = sum(
                job.elapsed_s + position * float(job.seconds[column])
                for job, (column, position) in zip(queued, places, strict=True)
            )
            running |= {queued[i].job_id: places[i][0] for i in _first_of_queues(places, free)}
        on_type: dict[tuple[int, int], list[str]] = {}
        for index, each in enumerate(problem.classes):
            for job_id in each.job_ids:
                if job_id in running:
                    on_type.setdefault((index, running[job_id]), []).append(job_id)
        rows = running_rows(problem, on_type)
        return Allocation(rows=rows, objective=objective, set_aside=set_aside)


@dataclass(frozen=True, slots=True)
class _Job:
    """One job: ``seconds``, (worker types,), is what is left of it on each; inf where it cannot."""

    job_id: str
    scale_factor: int
    seconds: Floats
    elapsed_s: float


def _in_arrival_order(problem: Problem, set_aside: Container[str]) -> list[_Job]:
    """The jobs that can run somewhere, first come first."""
    ranked = []
    for index, each in enumerate(problem.classes):
        speeds = np.array(each.throughputs, dtype=float)
        per_step = np.divide(1.0, speeds, out=np.full(len(speeds), np.inf), where=speeds > 0)
        for rank, job_id, steps, elapsed_s in zip(
            arrival_ranks(index, each),
            each.job_ids,
            of_each_job(each, "steps_remaining"),
            of_each_job(each, "elapsed_s"),
            strict=True,
        ):
            # A job with nothing left is done in no time, but still only where it can run.
            seconds = per_step * max(steps, _NEXT_TO_NOTHING)
            if job_id not in set_aside:
                ranked.append((rank, _Job(job_id, each.scale_factor, seconds, elapsed_s)))
    return [job for _, job in sorted(ranked, key=lambda item: (item[0], item[1].job_id))]


def _keep(problem: Problem, jobs: Iterable[_Job]) -> dict[str, int]:
    """{job id: worker type, by position} of the jobs that have a worker and keep it."""
    columns = {name: column for column, name in enumerate(problem.worker_types)}
    had = {
        combination[0]: columns[name]
        for row in problem.previous
        for name, share in row.shares.items()
        if share == 1.0 and name in columns
        for combination in row.combinations
        if len(combination) == 1
    }
    free = list(problem.num_workers)
    kept: dict[str, int] = {}
    for job in jobs:
        column = had.get(job.job_id)
        if column is not None and job.seconds[column] < np.inf and free[column] > 0:
            kept[job.job_id] = column
            free[column] -= 1
    return kept


def _assign(seconds: Floats, free: Ints) -> list[tuple[int, int]]:
    """(worker type, position from the end of a queue) of each job, at the least total cost.

    Parameters
    ----------
    seconds : (jobs, worker types)
        What is left of each job; inf where it cannot run.
    free : (worker types,)
        Queues of each type.
    """
    depth = [-(-len(seconds) // int(count)) if count else 0 for count in free]
    places = [
        (column, position)
        for column, count in enumerate(free.tolist())
        for position in range(1, depth[column] + 1)
        for _ in range(count)
    ]
    columns, positions = np.array(places).T
    # The longest first: they lie where they end, and few have to be moved again.
    order = np.argsort(-seconds.min(axis=1), kind="stable")
    _, chosen = linear_sum_assignment(seconds[order][:, columns] * positions)
    return [places[place] for place in chosen[np.argsort(order)].tolist()]


def _first_of_queues(places: Iterable[tuple[int, int]], free: Ints) -> Iterable[int]:
    """Jobs, by index, that run: on each type, those furthest from the end, one for each queue.

    Among jobs at one position who leads a queue and who stands behind a longer job makes no
    difference to the cost; the first to arrive leads.
    """
    ranked = sorted(enumerate(places), key=lambda item: (item[1][0], -item[1][1], item[0]))
    left = free.copy()
    for index, (column, _) in ranked:
        if left[column] > 0:
            left[column] -= 1
            yield index

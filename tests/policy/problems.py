"""Problems to try policies on, and what an allocation gives to whom."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from services.policy.problem import Allocation, JobClass, Problem
from services.policy.solver import Floats

TYPES = ("k80", "p100", "v100", "a100")


def job_class(
    *throughputs: float,
    ids: str = "a",
    scale_factor: int = 1,
    weight: float = 1.0,
    steps: float | tuple[float, ...] = 1000.0,
    elapsed_s: float | tuple[float, ...] = 0.0,
) -> JobClass:
    """A class with one job for each word of ``ids``, arrived in this order.

    ``steps`` remain and ``elapsed_s`` have passed of each job, or of all of them alike.
    """
    jobs = len(ids.split())
    return JobClass(
        job_type="-".join(ids.split()),
        scale_factor=scale_factor,
        priority_weight=weight,
        throughputs=throughputs,
        job_ids=tuple(ids.split()),
        arrival_ranks=tuple(range(jobs)),
        steps_remaining=steps if isinstance(steps, tuple) else (steps,) * jobs,
        elapsed_s=elapsed_s if isinstance(elapsed_s, tuple) else (elapsed_s,) * jobs,
    )


def problem(num_workers: tuple[int, ...], *classes: JobClass) -> Problem:
    """A problem on as many types as there are counts of workers."""
    return Problem(worker_types=TYPES[: len(num_workers)], num_workers=num_workers, classes=classes)


def _numbers(lowest_decade: float, highest_decade: float) -> st.SearchStrategy[float]:
    """Numbers of three digits: equal or clearly apart, so that optima are not near-ties."""
    return st.floats(lowest_decade, highest_decade).map(lambda x: float(f"{10**x:.3g}"))


@st.composite
def problems(
    draw: st.DrawFn,
    throughput_decades: tuple[float, float] = (-1.5, 1.5),
    weight_decades: tuple[float, float] = (-1.0, 1.0),
    max_classes: int = 7,
) -> Problem:
    """Random classes and workers; zeros, ties and proportional rows are frequent."""
    num_types = draw(st.integers(1, 4))
    speeds = _numbers(*throughput_decades) | st.sampled_from([0.0, 1.0, 2.0])
    weights = _numbers(*weight_decades) | st.sampled_from([1.0, 2.0])
    rows: list[tuple[float, ...]] = []
    classes = []
    for index in range(draw(st.integers(1, max_classes))):
        if rows and draw(st.integers(0, 3)) == 0:
            row = tuple(2 * speed for speed in rows[draw(st.integers(0, len(rows) - 1))])
        else:
            row = tuple(draw(st.lists(speeds, min_size=num_types, max_size=num_types)))
        rows.append(row)
        classes.append(
            JobClass(
                job_type=f"type-{index}",
                scale_factor=draw(st.sampled_from([1, 2, 4, 8])),
                priority_weight=draw(weights),
                throughputs=row,
                job_ids=tuple(f"{index}-{n}" for n in range(draw(st.integers(1, 5)))),
            )
        )
    num_workers = draw(st.lists(st.integers(0, 24), min_size=num_types, max_size=num_types))
    return problem(tuple(num_workers), *classes)


def shares(asked: Problem, allocation: Allocation) -> dict[str, Floats]:
    """{job id: (worker types,) share}, also of jobs that get nothing."""
    given = {
        job_id: np.zeros(len(asked.worker_types))
        for asked_class in asked.classes
        for job_id in asked_class.job_ids
    }
    for row in allocation.rows:
        for (job_id,) in row.combinations:
            given[job_id] = np.array([row.shares.get(name, 0.0) for name in asked.worker_types])
    return given


def violation(asked: Problem, allocation: Allocation) -> float:
    """By how much the allocation exceeds the time of a job or the workers of a type."""
    given = shares(asked, allocation)
    used = np.zeros(len(asked.worker_types))
    worst = 0.0
    for asked_class in asked.classes:
        for job_id in asked_class.job_ids:
            used += asked_class.scale_factor * given[job_id]
            worst = max(worst, float(given[job_id].sum()) - 1.0, float(-given[job_id].min()))
    return max(worst, float((used - np.array(asked.num_workers)).max()))

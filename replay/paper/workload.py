"""The jobs of the paper's simulations (§7.1), and how many of them a cluster can serve."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from replay.traces import generate
from services.estimator.tables import ThroughputTable
from services.policy.catalog import resolve
from services.policy.problem import JobClass, Problem

TYPES = ("k80", "p100", "v100")
REFERENCE = "v100"
#: Alike jobs of a class, by which its work is divided: more change nothing that can be seen.
_COPIES = 400


def cluster_of(each: int) -> str:
    """As ``--cluster`` takes it: so many workers of each type."""
    return ",".join(f"{worker_type}={each}" for worker_type in reversed(TYPES))


def mean_duration_s() -> float:
    """Mean length of a drawn job on the reference type, from the ranges it is drawn from."""
    ranges = (
        (1 - generate.LONG_SHARE, generate.SHORT_EXPONENTS),
        (generate.LONG_SHARE, generate.LONG_EXPONENTS),
    )
    return sum(
        60 * share * (10**high - 10**low) / ((high - low) * math.log(10))
        for share, (low, high) in ranges
    )


def capacity_jobs_per_h(
    table: ThroughputTable, each: int, *, multi_gpu: bool, aware: bool
) -> float:
    """Arrivals per hour that a cluster with ``each`` workers a type can just serve.

    Aware of types, it is what the makespan policy makes of a large batch of such jobs. Blind to
    them, each job has each type in proportion to its workers.
    """
    classes = list(_classes(table, multi_gpu=multi_gpu))
    if not aware:
        worker_s = sum(
            share * scale_factor * mean_duration_s() * rates[REFERENCE] * len(TYPES)
            / sum(rates.values())
            for share, scale_factor, rates in classes
        )  # fmt: skip
        return 3600 * each * len(TYPES) / worker_s
    problem = Problem(
        worker_types=TYPES,
        num_workers=(each,) * len(TYPES),
        reference_type=REFERENCE,
        classes=tuple(
            JobClass(
                job_type=str(number),
                scale_factor=scale_factor,
                throughputs=tuple(rates[name] for name in TYPES),
                job_ids=tuple(f"{number}-{copy}" for copy in range(_COPIES)),
                arrival_ranks=tuple(range(number * _COPIES, (number + 1) * _COPIES)),
                steps_remaining=(share * mean_duration_s() * rates[REFERENCE],) * _COPIES,
                elapsed_s=(0.0,) * _COPIES,
            )
            for number, (share, scale_factor, rates) in enumerate(classes)
        ),
    )
    makespan_s = resolve("makespan").solve(problem).objective
    assert makespan_s, "jobs that take time have a makespan"
    return 3600 * _COPIES / makespan_s


def _classes(
    table: ThroughputTable, *, multi_gpu: bool
) -> Iterator[tuple[float, int, Mapping[str, float]]]:
    """(share of the jobs, scale factor, {worker type: steps/s}) of each class that is drawn."""
    sizes = (
        dict(zip(generate.SCALE_FACTORS, generate.SCALE_FACTOR_SHARES, strict=True))
        if multi_gpu
        else {1: 1.0}
    )
    for scale_factor, share in sizes.items():
        rates = [
            {name: table.alone(*key, name) or 0.0 for name in TYPES}
            for key in table.classes()
            if key[1] == scale_factor and table.alone(*key, REFERENCE)
        ]
        yield from ((share / len(rates), scale_factor, each) for each in rates)

"""How long a solve takes, policy by policy, from problem to rows; `make bench` prints the table."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import pytest

from replay.traces.tables import read_table
from schemas.domain import Entity
from services.estimator.tables import ThroughputTable
from services.policy import reference
from services.policy.catalog import resolve
from services.policy.classes import gather
from services.policy.problem import JobClass, Problem

_TYPES = ("k80", "p100", "v100")
_SCALES, _SCALE_SHARES = (1, 2, 4, 8), (0.70, 0.10, 0.15, 0.05)
#: (policy, jobs, gangs, weights, workers per job, most ms): the limits are those of a whole solve.
_CASES = [
    ("las", 2048, False, (1.0,), 0.25, 100),
    ("las", 2048, True, (1.0, 2.0, 5.0), 1.2, 500),
    ("las:ss", 512, False, (1.0,), 0.25, 30),
    ("las:ss", 2048, False, (1.0,), 0.25, 40),
    ("las:ss", 32_768, False, (1.0,), 0.25, 200),
    ("ftf", 2048, True, (1.0,), 0.25, 10),
    ("ftf", 8192, True, (1.0,), 0.25, 400),
    ("makespan", 2048, True, (1.0,), 0.25, 40),
    ("makespan", 32_768, True, (1.0,), 0.25, 100),
    ("makespan:ss", 32_768, False, (1.0,), 0.25, 200),
    ("hierarchical", 512, True, (1.0, 2.0, 5.0), 0.25, 240),
    ("hierarchical", 2048, True, (1.0, 2.0, 5.0), 0.25, 900),
    ("hierarchical", 8192, True, (1.0, 2.0, 5.0), 0.25, 4500),
    ("allox", 256, False, (1.0,), 0.25, 40),
    ("allox", 512, False, (1.0,), 0.25, 100),
]


def problem(
    table: ThroughputTable,
    num_jobs: int,
    *,
    gangs: bool,
    weights: tuple[float, ...],
    workers_per_job: float,
) -> Problem:
    """Jobs drawn over the table's classes, with the paper's lengths, on three equal types."""
    rng = np.random.default_rng(0)
    keys = [key for key in table.classes() if key[1] in (_SCALES if gangs else (1,))]
    scales = rng.choice(_SCALES, num_jobs, p=_SCALE_SHARES) if gangs else np.ones(num_jobs, int)
    members: dict[tuple[tuple[str, int], float, str], list[int]] = {}
    for i in range(num_jobs):
        fitting = [key for key in keys if key[1] == scales[i]]
        key = fitting[int(rng.integers(len(fitting)))]
        where = (key, float(rng.choice(weights)), f"e{rng.integers(5)}")
        members.setdefault(where, []).append(i)
    lengths_s = 60 * 10 ** np.where(
        rng.random(num_jobs) < 0.8, rng.uniform(1.5, 3, num_jobs), rng.uniform(3, 4, num_jobs)
    )
    classes = []
    for (key, weight, entity), jobs in sorted(members.items()):
        speeds = tuple(table.alone(*key, worker_type) or 0.0 for worker_type in _TYPES)
        classes.append(
            JobClass(
                job_type=key[0],
                scale_factor=key[1],
                priority_weight=weight,
                entity=entity,
                throughputs=speeds,
                job_ids=tuple(str(i) for i in jobs),
                arrival_ranks=tuple(jobs),
                steps_remaining=tuple(float(lengths_s[i] * speeds[2]) for i in jobs),
                elapsed_s=(0.0,) * len(jobs),
                isolated_s=(0.0,) * len(jobs),
            )
        )
    each = max(8, int(num_jobs * workers_per_job / 3))
    return Problem(
        worker_types=_TYPES,
        num_workers=(each,) * 3,
        classes=tuple(classes),
        pairs=_pairs(table, classes),
        reference_type="v100",
        entities=tuple(
            Entity(entity_id=f"e{i}", weight=float(i + 1), policy=("fairness", "fifo")[i % 2])
            for i in range(5)
        ),
    )


def _pairs(
    table: ThroughputTable, classes: list[JobClass]
) -> dict[tuple[int, int], tuple[tuple[float, ...], tuple[float, ...]]]:
    pairs = {}
    for c, one in enumerate(classes):
        for d, other in enumerate(classes[c:], start=c):
            if one.scale_factor != other.scale_factor:
                continue
            both = [
                table.beside(one.job_type, other.job_type, one.scale_factor, t) or (0.0, 0.0)
                for t in _TYPES
            ]
            first, second = zip(*both, strict=True)
            if any(first):
                pairs[c, d] = (first, second)
    return pairs


@pytest.fixture(scope="module")
def table(reference_data: Path) -> ThroughputTable:
    """The published throughputs, pairs and gangs included."""
    return read_table(reference_data / "throughputs" / "simulation_throughputs.json")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "jobs", "gangs", "weights", "workers", "most_ms"), _CASES)
def test_a_solve(
    table: ThroughputTable,
    name: str,
    jobs: int,
    gangs: bool,
    weights: tuple[float, ...],
    workers: float,
    most_ms: float,
) -> None:
    """From problem to rows, median of five, in processor time."""
    asked = problem(table, jobs, gangs=gangs, weights=weights, workers_per_job=workers)
    policy = resolve(name)
    took_ms = []
    for _ in range(5):
        started = time.process_time()
        policy.solve(asked)
        took_ms.append(1e3 * (time.process_time() - started))
    median = statistics.median(took_ms)
    beside = f"; cvxpy {_reference_ms(asked):,.0f} ms" if name == "las" else ""
    print(
        f"\n{name}, {jobs:,} jobs in {len(asked.classes)} classes: {median:,.1f} ms "
        f"(at most {most_ms:,.0f}){beside}"
    )
    assert median <= most_ms


def _reference_ms(asked: Problem) -> float:
    """The readable program on the same problem, to the same lexicographic end."""
    arrays, _ = gather(asked)
    started = time.process_time()
    reference.las(arrays)
    return 1e3 * (time.process_time() - started)

"""Problems drawn at random over the classes of a throughput table, to measure solves with."""

from __future__ import annotations

import numpy as np

from schemas.domain import Entity
from services.estimator.tables import ThroughputTable
from services.policy.problem import JobClass, Problem

_TYPES = ("k80", "p100", "v100")
_SCALES, _SCALE_SHARES = (1, 2, 4, 8), (0.70, 0.10, 0.15, 0.05)


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

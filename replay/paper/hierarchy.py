"""Figure 11: fairness between entities and inside them, as jobs come (§7.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from replay.paper.result import Claim, Reproduction, Setup
from replay.paper.workload import REFERENCE, TYPES
from replay.report.charts import Chart, Line
from schemas.domain import Entity
from services.estimator.tables import ThroughputTable
from services.policy.catalog import resolve
from services.policy.problem import JobClass, Problem

#: {entity: its weight}, six jobs of each, in this order, on three workers of each type.
_WEIGHTS = {"entity 0": 1.0, "entity 1": 2.0, "entity 2": 3.0}
_JOBS_EACH, _WORKERS_EACH = 6, 3
#: A job comes every four time steps.
_STEPS = 4
_DRAWS, _FULL_DRAWS = 20, 100

Floats = NDArray[np.float64]


def figure11(setup: Setup) -> Reproduction:
    """Three entities of weights 1, 2 and 3 on a small cluster, over many draws of job types."""
    draws = _FULL_DRAWS if setup.full else _DRAWS
    table = setup.table()
    num_jobs = _JOBS_EACH * len(_WEIGHTS)
    shares = np.zeros((num_jobs, len(_WEIGHTS)))
    aware, static = np.zeros(num_jobs), np.zeros(num_jobs)
    first = np.zeros((num_jobs, num_jobs))
    for seed in range(draws):
        speeds = _draw(table, num_jobs, seed)
        for present in range(1, num_jobs + 1):
            gained = _hierarchical(speeds[:present])
            if seed == 0:
                first[present - 1, :present] = gained / gained.sum()
            by_entity = [gained[_of(entity, present)].sum() for entity in range(len(_WEIGHTS))]
            shares[present - 1] += np.array(by_entity) / gained.sum() / draws
            aware[present - 1] += gained.sum() / draws
            static[present - 1] += _static(speeds[:present]).sum() / draws
    last, whole = shares[-1], sum(_WEIGHTS.values())
    loss = 1 - static[-1] / aware[-1]
    return Reproduction(
        title="Figure 11: fairness over entities of weights 1, 2, 3",
        setting=f"{_WORKERS_EACH} workers of each type, {num_jobs} jobs that come one after the "
        f"other, {draws} draws of job types, {table.source}",
        claims=[
            Claim(
                what="entities' shares of effective throughput, all jobs there",
                paper=" : ".join(f"{w / whole:.2f}" for w in _WEIGHTS.values()) + " (§7.3)",
                ours=" : ".join(f"{share:.2f}" for share in last),
                why="nobody is given more than all of his time: what an entity cannot use goes on "
                "to the others",
            ),
            Claim(
                what="total effective throughput, a static partition below the policy",
                paper="about 17 % (§7.3)",
                ours=f"{loss:.0%}",
                why="it hangs on which job types are drawn, and on the job types that there are",
            ),
        ],
        columns=("jobs there", *_WEIGHTS, "policy", "static partition"),
        rows=[
            (
                str(present),
                *(f"{share:.2f}" for share in shares[present - 1]),
                f"{aware[present - 1]:.2f}",
                f"{static[present - 1]:.2f}",
            )
            for present in (1, 4, 6, 7, 9, 12, 13, 15, 18)
        ],
        pictures=_pictures(first, aware, static),
    )


def _draw(table: ThroughputTable, num_jobs: int, seed: int) -> Floats:
    """(jobs, worker types) throughputs over that of the equal allocation."""
    rng = np.random.default_rng(seed)
    keys = [key for key in table.classes() if key[1] == 1 and table.alone(*key, REFERENCE)]
    drawn = [keys[int(n)] for n in rng.integers(len(keys), size=num_jobs)]
    speeds = np.array([[table.alone(*key, name) or 0.0 for name in TYPES] for key in drawn])
    normalised: Floats = speeds / speeds.mean(axis=1, keepdims=True)
    return normalised


def _of(entity: int, present: int) -> slice:
    return slice(entity * _JOBS_EACH, min(present, (entity + 1) * _JOBS_EACH))


def _hierarchical(speeds: Floats) -> Floats:
    """(jobs,) normalised effective throughput under the hierarchical policy."""
    names = list(_WEIGHTS)
    problem = Problem(
        worker_types=TYPES,
        num_workers=(_WORKERS_EACH,) * len(TYPES),
        entities=tuple(Entity(entity_id=name, weight=w) for name, w in _WEIGHTS.items()),
        classes=tuple(
            JobClass(
                job_type=str(number),
                scale_factor=1,
                entity=names[number // _JOBS_EACH],
                throughputs=tuple(row),
                job_ids=(str(number),),
                arrival_ranks=(number,),
            )
            for number, row in enumerate(speeds.tolist())
        ),
    )
    gained = np.zeros(len(speeds))
    for row in resolve("hierarchical").solve(problem).rows:
        share = np.array([row.shares.get(name, 0.0) for name in TYPES])
        for (job_id,) in row.combinations:
            gained[int(job_id)] = speeds[int(job_id)] @ share
    return gained


def _static(speeds: Floats) -> Floats:
    """(jobs,) the same where each entity has its weight's part of each type, divided equally."""
    present = len(speeds)
    there = [e for e in range(len(_WEIGHTS)) if _of(e, present).stop > _of(e, present).start]
    weights = list(_WEIGHTS.values())
    whole = sum(weights[e] for e in there)
    shares = np.zeros(speeds.shape)
    for entity in there:
        jobs = _of(entity, present)
        shares[jobs] = _WORKERS_EACH * weights[entity] / whole / (jobs.stop - jobs.start)
    shares /= np.maximum(1.0, shares.sum(axis=1, keepdims=True))
    gained: Floats = (speeds * shares).sum(axis=1)
    return gained


def _pictures(first: Floats, aware: Floats, static: Floats) -> Sequence[Chart]:
    times = [float(_STEPS * n) for n in range(len(first) + 1)]
    entities = [f"entity {n // _JOBS_EACH}" for n in range(len(first))]
    return [
        Chart(
            key="shares",
            title="Who has how much of the effective throughput",
            x="time (steps)",
            y="fraction of effective throughput",
            lines=[
                Line(
                    name=f"{entity}, job {n % _JOBS_EACH}",
                    x=np.repeat(times, 2)[1:-1].tolist(),
                    y=np.repeat(first[:, n], 2).tolist(),
                    group=entity,
                )
                for n, entity in enumerate(entities)
            ],
            note="One draw. A band is a job, six to an entity; a job comes every four steps.",
            stacked=True,
            y_top=1.0,
        ),
        Chart(
            key="total",
            title="Total effective throughput",
            x="time (steps)",
            y="sum of thr / thr of equal allocation",
            lines=[
                Line(name=name, x=times, y=[*total.tolist(), float(total[-1])], style="step")
                for name, total in (("hierarchical", aware), ("static partition", static))
            ],
        ),
    ]

"""Figure 12: how long policies take to solve, by the number of jobs (§7.4)."""

from __future__ import annotations

import statistics
import time

import numpy as np

from replay.paper.result import Claim, Reproduction, Setup
from replay.paper.workload import REFERENCE, TYPES
from replay.report.charts import Chart, Line
from schemas.domain import Entity
from services.estimator.tables import ClassKey, ThroughputTable
from services.policy.catalog import resolve
from services.policy.problem import JobClass, PairSpeeds, Problem

_POLICIES = ("las", "las:ss", "hierarchical", "hierarchical:ss")
#: As in the paper; with --full, beyond it.
_SIZES, _BEYOND = (32, 64, 128, 256, 512, 1024, 2048), (8192, 32768)
_TRIALS = 3
#: Workers grow with the jobs: as many of each type as a quarter of the jobs.
_JOBS_TO_A_WORKER = 4
_ENTITIES = 5


def figure12(setup: Setup) -> Reproduction:
    """LAS and hierarchical, with and without sharing, in processor time."""
    table = setup.table()
    sizes = _SIZES + _BEYOND if setup.full else _SIZES
    took_s: dict[str, dict[int, float]] = {policy: {} for policy in _POLICIES}
    for done, size in enumerate(sizes):
        for policy in _POLICIES:
            took_s[policy][size] = _seconds(policy, problem(table, size))
        setup.tell(done + 1, len(sizes))
    return Reproduction(
        title="Figure 12: time to solve, by number of jobs",
        setting=f"a worker of each type to {_JOBS_TO_A_WORKER} jobs, {_ENTITIES} entities, median "
        f"of {_TRIALS} in processor time, {table.source}",
        claims=[
            Claim(
                what="hierarchical, 2048 jobs",
                paper="under 10 min (§7.4)",
                ours=f"{took_s['hierarchical'][2048]:.2f} s",
                why="solved over classes of alike jobs, all active classes of a level at once, "
                "without integers",
            ),
            Claim(
                what="hierarchical with sharing, 512 jobs",
                paper="under 10 min (§7.4)",
                ours=f"{took_s['hierarchical:ss'][512]:.2f} s",
                why=f"as above; 512 jobs are {len(problem(table, 512).classes)} classes",
            ),
        ],
        columns=("jobs", *(f"{policy} (s)" for policy in _POLICIES)),
        rows=[
            (str(size), *(f"{took_s[policy][size]:.3f}" for policy in _POLICIES)) for size in sizes
        ],
        pictures=[
            Chart(
                key="solving",
                title="Time to solve",
                x="jobs",
                y="seconds",
                lines=[
                    Line(name=policy, x=list(took), y=list(took.values()), style="marked")
                    for policy, took in took_s.items()
                ],
                log_x=True,
                log_y=True,
            )
        ],
    )


def _seconds(policy_name: str, asked: Problem) -> float:
    policy = resolve(policy_name)
    took = []
    for _ in range(_TRIALS):
        started = time.process_time()
        policy.solve(asked)
        took.append(time.process_time() - started)
    return statistics.median(took)


def problem(table: ThroughputTable, num_jobs: int) -> Problem:
    """So many jobs, of types and entities drawn at random, one worker each."""
    rng = np.random.default_rng(0)
    keys = [key for key in table.classes() if key[1] == 1 and table.alone(*key, REFERENCE)]
    members: dict[tuple[ClassKey, int], list[int]] = {}
    for job in range(num_jobs):
        where = keys[int(rng.integers(len(keys)))], int(rng.integers(_ENTITIES))
        members.setdefault(where, []).append(job)
    listed = sorted(members.items())
    return Problem(
        worker_types=TYPES,
        num_workers=(max(1, num_jobs // _JOBS_TO_A_WORKER),) * len(TYPES),
        reference_type=REFERENCE,
        entities=tuple(Entity(entity_id=f"e{n}", weight=float(n + 1)) for n in range(_ENTITIES)),
        classes=tuple(
            JobClass(
                job_type=key[0],
                scale_factor=1,
                entity=f"e{entity}",
                throughputs=tuple(table.alone(*key, name) or 0.0 for name in TYPES),
                job_ids=tuple(map(str, jobs)),
                arrival_ranks=tuple(jobs),
            )
            for (key, entity), jobs in listed
        ),
        pairs=_pairs(table, [key for (key, _), _ in listed]),
    )


def _pairs(table: ThroughputTable, keys: list[ClassKey]) -> PairSpeeds:
    pairs: PairSpeeds = {}
    for c, (one, _) in enumerate(keys):
        for d, (other, _) in enumerate(keys[c:], start=c):
            both = [table.beside(one, other, 1, name) or (0.0, 0.0) for name in TYPES]
            first, second = zip(*both, strict=True)
            if any(first):
                pairs[c, d] = (first, second)
    return pairs

"""How long a solve takes, policy by policy, from problem to rows; `make bench` prints the table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from replay.traces.tables import read_table
from services.estimator.tables import ThroughputTable
from services.policy.catalog import resolve
from services.policy.classes import gather
from services.policy.problem import Problem
from services.policy.reference import hierarchical, las, objectives, sharing
from tests.bench.drawn import problem
from tests.policy.progress import Jobs
from tests.policy.sharing import one_by_one

_ALIKE, _THREE = (1.0,), (1.0, 2.0, 5.0)
_SINGLE, _GANGS = False, True
#: Every job's weight its own: classes of one job.
_ALL_DIFFERENT = tuple(np.random.default_rng(3).uniform(0.1, 10.0, 100_000).tolist())


class Case(NamedTuple):
    """A policy, what it is asked, and the most ms for it."""

    policy: str
    jobs: int
    gangs: bool
    weights: tuple[float, ...]
    workers_per_job: float
    most_ms: float


_CASES = [
    Case("las", 2048, _SINGLE, _ALIKE, 0.25, 100),
    Case("las", 2048, _GANGS, _THREE, 1.2, 500),
    Case("las", 2048, _GANGS, _ALL_DIFFERENT, 0.25, 100),
    Case("las", 2048, _GANGS, _ALL_DIFFERENT, 1.2, 500),
    Case("las:ss", 512, _SINGLE, _ALIKE, 0.25, 30),
    Case("las:ss", 2048, _SINGLE, _ALIKE, 0.25, 40),
    Case("las:ss", 32_768, _SINGLE, _ALIKE, 0.25, 200),
    Case("ftf", 2048, _GANGS, _ALIKE, 0.25, 10),
    Case("ftf", 8192, _GANGS, _ALIKE, 0.25, 400),
    Case("makespan", 2048, _GANGS, _ALIKE, 0.25, 40),
    Case("makespan", 32_768, _GANGS, _ALIKE, 0.25, 100),
    Case("makespan:ss", 32_768, _SINGLE, _ALIKE, 0.25, 200),
    Case("hierarchical", 512, _GANGS, _THREE, 0.25, 240),
    Case("hierarchical", 2048, _GANGS, _THREE, 0.25, 900),
    Case("hierarchical", 2048, _GANGS, _ALL_DIFFERENT, 0.25, 900),
    Case("hierarchical", 8192, _GANGS, _THREE, 0.25, 4500),
    Case("hierarchical:ss", 512, _SINGLE, _ALIKE, 0.25, 2000),
    Case("allox", 256, _SINGLE, _ALIKE, 0.25, 40),
    Case("allox", 512, _SINGLE, _ALIKE, 0.25, 100),
]


def _las(asked: Problem) -> object:
    return las.las(gather(asked)[0])


def _makespan(asked: Problem) -> object:
    jobs = Jobs.of(asked)
    none = np.zeros(len(jobs.ids))
    return objectives.lowest_rho(jobs.arrays, jobs.steps, none + 1.0, none)


def _finish_time(asked: Problem) -> object:
    jobs = Jobs.of(asked)
    due_s = jobs.isolated_s + jobs.steps / jobs.isolated
    return objectives.lowest_rho(jobs.arrays, jobs.steps, due_s, jobs.elapsed_s)


def _shared_makespan(asked: Problem) -> object:
    jobs = one_by_one(asked)
    steps = np.array([c.steps_remaining[0] for c in jobs.classes])
    return sharing.best_multiple(jobs, steps)


def _shared_hierarchical(asked: Problem) -> object:
    return sharing.hierarchical(one_by_one(asked))


#: {policy: (jobs that its readable program in cvxpy is given, the program)}: over classes for LAS,
#: over jobs and over pairs of jobs for the others, so as many as take it seconds.
_READABLE: dict[str, tuple[int, Callable[[Problem], object]]] = {
    "las": (2048, _las),
    "las:ss": (24, sharing.las),
    "ftf": (512, _finish_time),
    "makespan": (512, _makespan),
    "makespan:ss": (24, _shared_makespan),
    "hierarchical": (64, hierarchical.hierarchical),
    "hierarchical:ss": (16, _shared_hierarchical),
}


@pytest.fixture(scope="module")
def table(reference_data: Path) -> ThroughputTable:
    """The published throughputs, pairs and gangs included."""
    return read_table(reference_data / "throughputs" / "simulation_throughputs.json")


def _ms(run: Callable[[], object], times: int = 5) -> float:
    """Median of a few runs, in processor time."""
    took = []
    for _ in range(times):
        started = time.process_time()
        run()
        took.append(1e3 * (time.process_time() - started))
    return statistics.median(took)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", _CASES, ids=lambda c: f"{c.policy}-{c.jobs}-{len(c.weights)}")
def test_a_solve(table: ThroughputTable, case: Case) -> None:
    """From problem to rows, and beside it the readable program on a problem that it can take."""

    def asked(jobs: int) -> Problem:
        return problem(
            table,
            jobs,
            gangs=case.gangs,
            weights=case.weights,
            workers_per_job=case.workers_per_job,
        )

    whole, policy = asked(case.jobs), resolve(case.policy)
    took_ms = _ms(lambda: policy.solve(whole))
    beside = ""
    if case.policy in _READABLE and case.weights is not _ALL_DIFFERENT:
        jobs, program = _READABLE[case.policy]
        small = asked(min(jobs, case.jobs))
        ours, cvxpy = _ms(lambda: policy.solve(small)), _ms(lambda: program(small), times=1)
        beside = f"; at {small.num_jobs} jobs {ours:,.1f} ms, in cvxpy {cvxpy:,.0f} ms"
    print(
        f"\n{case.policy}, {case.jobs:,} jobs in {len(whole.classes)} classes: {took_ms:,.1f} ms "
        f"(at most {case.most_ms:,.0f}){beside}"
    )
    assert took_ms <= case.most_ms

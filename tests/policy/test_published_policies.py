"""Twenty allocation problems with independently computed optima, by the paper's artifact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.policy.catalog import resolve
from services.policy.problem import JobClass, Problem
from services.policy.solver import Floats
from tests.policy.problems import shares, violation

NUM_CASES = 20


class Case:
    """A published problem, with results by policy name."""

    def __init__(self, folder: Path, index: int) -> None:
        document = json.loads((folder / "golden" / "policy_cases.json").read_text())
        raw: dict[str, Any] = document["cases"][index]
        types = document["worker_types"]
        self.throughputs = np.array([raw["throughputs"][name] for name in types]).T
        self.scale_factors = np.array([job["scale_factor"] for job in raw["jobs"]])
        self.weights = np.array([job["weight"] for job in raw["jobs"]])
        self.results = {result["policy"]: result for result in raw["results"]}
        self.problem = Problem(
            worker_types=tuple(types),
            num_workers=tuple(raw["cluster_spec"][name] for name in types),
            classes=tuple(
                JobClass(
                    job_type=job["job_type"],
                    scale_factor=job["scale_factor"],
                    priority_weight=job["weight"],
                    throughputs=tuple(row),
                    job_ids=(str(job["id"]),),
                    arrival_ranks=(job["id"],),
                )
                for job, row in zip(raw["jobs"], self.throughputs, strict=True)
            ),
        )

    def solve(self, policy: str) -> tuple[Floats, float | None]:
        """(jobs, worker types) X of our policy, and its objective."""
        allocation = resolve(policy).solve(self.problem)
        assert violation(self.problem, allocation) <= 1e-9
        return np.array(list(shares(self.problem, allocation).values())), allocation.objective

    def published(self, policy: str) -> Floats:
        """(jobs, worker types) X of the artifact's policy."""
        given = self.results[policy]["allocation"]
        types = len(self.problem.worker_types)
        return np.array([given.get(str(job), [0.0] * types) for job in range(len(self.weights))])

    def lexicographic(self, policy: str) -> Floats | None:
        """Optimal levels, ascending, where they were computed independently."""
        optimum = self.results.get(policy, {}).get("independent_optimum")
        return np.sort(optimum["lexicographic_v"]) if optimum else None


@pytest.fixture(params=range(NUM_CASES))
def case(request: pytest.FixtureRequest, reference_data: Path) -> Case:
    """Each of the published problems."""
    return Case(reference_data, request.param)


def test_las_reaches_the_published_optimum(case: Case) -> None:
    """Objective, and all levels where they are known, within 1e-6 of the independent optimum."""
    x, objective = case.solve("las")
    workers = np.array(case.problem.num_workers)
    equal = case.throughputs @ (workers / workers.sum())
    levels = case.scale_factors * (case.throughputs * x).sum(axis=1) / (case.weights * equal)
    best = case.results["max_min_fairness_perf"]["independent_optimum"]
    assert objective == pytest.approx(best, rel=1e-6)
    assert levels.min() == pytest.approx(best, rel=1e-6)
    if (lexicographic := case.lexicographic("max_min_fairness_water_filling_perf")) is not None:
        np.testing.assert_allclose(np.sort(levels), lexicographic, rtol=1e-6)


def test_blind_las_reaches_the_published_optimum(case: Case) -> None:
    """Of total shares, the fixed spread over types costs nothing in any of these cases."""
    x, objective = case.solve("las:agnostic")
    levels = case.scale_factors * x.sum(axis=1) / case.weights
    best = case.results["max_min_fairness"]["independent_optimum"]
    assert objective == pytest.approx(best, rel=1e-6)
    if (lexicographic := case.lexicographic("max_min_fairness_water_filling")) is not None:
        np.testing.assert_allclose(np.sort(levels), lexicographic, rtol=1e-6)


def test_isolated_and_fifo_are_the_published_ones(case: Case) -> None:
    """Share by share; where a job cannot run on a type, ours gives it nothing of it."""
    can_run = case.throughputs.all(axis=1)
    np.testing.assert_allclose(
        case.solve("isolated")[0][can_run], case.published("isolated")[can_run], atol=1e-8
    )
    assert (case.solve("fifo")[0] == case.published("fifo_perf")).all()


def test_all_cases_are_tried(reference_data: Path) -> None:
    """The file holds as many cases as these tests go through."""
    document = json.loads((reference_data / "golden" / "policy_cases.json").read_text())
    assert len(document["cases"]) == NUM_CASES

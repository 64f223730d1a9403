"""The published allocation problems with pairs, and their independently computed optima."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from services.policy.catalog import resolve
from services.policy.problem import Problem
from tests.policy.sharing import levels, shares, throughputs, violation
from tests.policy.test_published_objectives import Case as ProgressCase
from tests.policy.test_published_policies import NUM_CASES, Case


class PairCase:
    """A published problem with the speeds of its pairs, and results by policy name."""

    def __init__(self, folder: Path, index: int) -> None:
        document = json.loads((folder / "golden" / "policy_cases.json").read_text())
        alone, progress = Case(folder, index), ProgressCase(document, index)
        pairs: dict[str, Any] | None = document["cases"][index].get("pair_throughputs")
        if pairs is None:
            pytest.skip("published without pairs")
        classes = zip(alone.problem.classes, progress.problem.classes, strict=True)
        self.problem: Problem = msgspec.structs.replace(
            alone.problem,
            classes=tuple(
                msgspec.structs.replace(c, steps_remaining=p.steps_remaining, elapsed_s=p.elapsed_s)
                for c, p in classes
            ),
            pairs={
                tuple(int(job) for job in names.split(",")): tuple(
                    tuple(speeds[name][side] for name in document["worker_types"])
                    for side in range(2)
                )
                for names, speeds in pairs.items()
            },
        )
        self.results = alone.results


@pytest.fixture(params=range(NUM_CASES))
def case(request: pytest.FixtureRequest, reference_data: Path) -> PairCase:
    """Each of the published problems that has pairs."""
    return PairCase(reference_data, request.param)


def test_las_with_sharing_reaches_the_published_optimum(case: PairCase) -> None:
    """Objective, and all levels where they are known, within 1e-6 of the independent optimum."""
    allocation = resolve("las:ss").solve(case.problem)
    given_shares = shares(case.problem, allocation)
    assert violation(case.problem, given_shares) <= 1e-9
    reached = np.sort(list(levels(case.problem, given_shares).values()))
    best = case.results["max_min_fairness_packed"]["independent_optimum"]
    assert allocation.objective == pytest.approx(best, rel=1e-6)
    assert reached[0] == pytest.approx(best, rel=1e-6)
    filled = case.results.get("max_min_fairness_water_filling_packed", {})
    if "independent_optimum" in filled:
        lexicographic = np.sort(filled["independent_optimum"]["lexicographic_v"])
        np.testing.assert_allclose(reached, lexicographic, rtol=1e-6)


@pytest.mark.parametrize(
    ("policy", "published"),
    [("makespan:ss", "min_total_duration_packed"), ("ftf:ss", "finish_time_fairness_packed")],
)
def test_one_number_for_all_reaches_the_published_optimum(
    case: PairCase, policy: str, published: str
) -> None:
    """Within 1e-6; the artifact's bisection stays up to 4 % above the least makespan."""
    allocation = resolve(policy).solve(case.problem)
    given_shares = shares(case.problem, allocation)
    assert violation(case.problem, given_shares) <= 1e-9
    best = case.results[published]["independent_optimum"]
    assert allocation.objective == pytest.approx(best, rel=1e-6)
    if policy == "makespan:ss":
        gained = throughputs(case.problem, given_shares)
        latest = max(c.steps_remaining[0] / gained[c.job_ids[0]] for c in case.problem.classes)
        assert latest == pytest.approx(best, rel=1e-5)

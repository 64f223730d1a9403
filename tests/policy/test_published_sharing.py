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
from tests.policy.sharing import levels, shares, violation
from tests.policy.test_published_policies import NUM_CASES, Case


class PairCase:
    """A published problem with the speeds of its pairs, and results by policy name."""

    def __init__(self, folder: Path, index: int) -> None:
        alone = Case(folder, index)
        document = json.loads((folder / "golden" / "policy_cases.json").read_text())
        pairs: dict[str, Any] | None = document["cases"][index].get("pair_throughputs")
        if pairs is None:
            pytest.skip("published without pairs")
        self.problem: Problem = msgspec.structs.replace(
            alone.problem,
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

"""Published problems with entities, and of the baselines, and sequences of those with a memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from schemas.domain import AllocationRow, Entity
from services.policy.baselines.allox import AlloX
from services.policy.baselines.gandiva import Gandiva
from services.policy.hierarchical import Hierarchical
from services.policy.problem import Allocation, JobClass, Problem
from services.policy.solver import Floats
from services.policy.strategy_proof import StrategyProof
from tests.policy.problems import shares, violation

NUM_CASES = 20


class Case:
    """A published problem; ``published`` holds the artifact's results by policy name."""

    def __init__(self, document: dict[str, Any], index: int) -> None:
        raw = document["cases"][index]
        self.types: list[str] = document["worker_types"]
        self.published: dict[str, Any] = {r["policy"]: r for r in raw["results"]}
        self.jobs: list[dict[str, Any]] = raw["jobs"]
        self.throughputs = np.array([raw["throughputs"][name] for name in self.types]).T
        homes = {job: name for name, jobs in raw["entities"]["jobs"].items() for job in jobs}
        policies = raw["entities"]["internal_policy"]
        self.problem = Problem(
            worker_types=tuple(self.types),
            num_workers=tuple(raw["cluster_spec"][name] for name in self.types),
            entities=tuple(
                Entity(entity_id=name, weight=weight, policy=policies[name])
                for name, weight in raw["entities"]["weights"].items()
            ),
            pairs={
                (int(c), int(d)): (
                    tuple(by_type[name][0] for name in self.types),
                    tuple(by_type[name][1] for name in self.types),
                )
                for key, by_type in raw.get("pair_throughputs", {}).items()
                for c, d in [key.split(",")]
            },
            classes=tuple(
                JobClass(
                    job_type=job["job_type"],
                    scale_factor=job["scale_factor"],
                    priority_weight=job["weight"],
                    entity=homes[job["id"]],
                    throughputs=tuple(row),
                    job_ids=(str(job["id"]),),
                    arrival_ranks=(job["id"],),
                    steps_remaining=(job["steps_remaining"],),
                    elapsed_s=(job["time_since_start"],),
                )
                for job, row in zip(self.jobs, self.throughputs.tolist(), strict=True)
            ),
        )

    def result(self, policy: str) -> dict[str, Any]:
        """The artifact's result; the test is skipped where there is none."""
        if policy not in self.published:
            pytest.skip(f"no {policy} was published for this problem")
        result: dict[str, Any] = self.published[policy]
        return result

    def shares(self, allocation: Allocation) -> Floats:
        """(jobs, worker types) X of ours."""
        assert violation(self.problem, allocation) <= 1e-9
        return np.array(list(shares(self.problem, allocation).values()))

    def normalised(self, x: Floats) -> Floats:
        """(jobs,) thr_i / Tbar_i."""
        workers = np.array(self.problem.num_workers)
        result: Floats = (self.throughputs * x).sum(axis=1) / (
            self.throughputs @ (workers / workers.sum())
        )
        return result

    def speeds(self, combination: tuple[str, ...]) -> Floats:
        """(jobs of the combination, worker types) steps/s."""
        jobs = sorted(int(job) for job in combination)
        if len(jobs) == 1:
            return self.throughputs[jobs]
        return np.array(self.problem.pairs.get((jobs[0], jobs[1]), (0.0,)))


@pytest.fixture(params=range(NUM_CASES))
def case(request: pytest.FixtureRequest, reference_data: Path) -> Case:
    """Each of the published problems."""
    return Case(
        json.loads((reference_data / "golden" / "policy_cases.json").read_text()), request.param
    )


def test_hierarchical_is_the_independent_optimum(case: Case) -> None:
    """All levels, within what the published optimum's own steps left out.

    It was computed in steps that each gave up 3e-7 of the level so as to stay feasible: a job
    that gets nothing has 3e-7 a step in it. Ours is held to 1e-6 by the readable program.
    """
    optimum = case.result("max_min_fairness_water_filling_perf_hierarchical")["independent_optimum"]
    levels = case.normalised(case.shares(Hierarchical().solve(case.problem)))
    np.testing.assert_allclose(levels, optimum["u"], atol=4e-7 * optimum["iterations"], rtol=1e-6)


def test_strategy_proof_is_the_published_one(case: Case) -> None:
    """Discounted throughputs and, put together, the objective; all weights 1.

    The artifact leaves weights out of the product: with them its levels are no optimum.
    """
    result = case.result("max_min_fairness_strategy_proof_perf")
    equal = [msgspec.structs.replace(c, priority_weight=1.0) for c in case.problem.classes]
    allocation = StrategyProof().solve(msgspec.structs.replace(case.problem, classes=tuple(equal)))
    given = case.result("max_min_fairness_strategy_proof_perf")["allocation"]
    theirs = case.normalised(np.array([given[str(job["id"])] for job in case.jobs]))
    ours = case.normalised(case.shares(allocation))
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)

    discount = float(np.exp(np.log(result["discount_factors"]).mean()))
    scale_factors = np.array([job["scale_factor"] for job in case.jobs])
    discounted = float(np.exp(np.log(scale_factors * theirs).mean()))
    assert allocation.objective == pytest.approx(discounted / discount, rel=1e-5)


def test_allox_costs_what_was_published(case: Case) -> None:
    """The least sum of completion times, to the last digits."""
    published = case.result("allox")["assignment_cost_s"]
    assert AlloX().solve(case.problem).objective == pytest.approx(published, rel=1e-9)


def test_gandiva_divides_time_as_published_between_the_published_pairs(case: Case) -> None:
    """Given the artifact's draw of pairs, shares are the artifact's wherever a pair can run.

    A pair that can run nowhere is not kept, where the artifact first gives it a turn; then
    there are more to divide between.
    """
    given = case.result("gandiva")["allocation"]
    published = {tuple(key.split(",")): row for key, row in given.items()}
    pairs = tuple(combination for combination in published if len(combination) == 2)
    previous = (AllocationRow(pairs, dict.fromkeys(case.types, 0.1)),)
    rows = Gandiva().solve(msgspec.structs.replace(case.problem, previous=previous)).rows
    ours = {
        combination: [row.shares.get(name, 0.0) for name in case.types]
        for row in rows
        for combination in row.combinations
    }
    speeds = {pair: case.speeds(pair) for pair in published}
    assert all((pair in ours) == bool(speeds[pair].any()) for pair in pairs)
    for combination, row in published.items():
        if len(ours) == len(published) and speeds[combination].all():
            assert ours[combination] == pytest.approx(row, abs=1e-7)


@pytest.mark.parametrize("index", [0, 2, 4, 6])
def test_allox_has_the_published_memory(reference_data: Path, index: int) -> None:
    """Step after step, as many jobs start on each type, and whoever ran goes on where it ran.

    Given what ran before in the artifact. Which of several jobs with nobody behind them starts
    first makes no difference to the cost; there we go by arrival and the artifact by chance.
    """
    document = json.loads((reference_data / "golden" / "policy_sequences.json").read_text())
    raw, types = document["cases"][index], document["worker_types"]
    previous: tuple[AllocationRow, ...] = ()
    for step in raw["steps"]:
        published = {
            job: types[int(np.argmax(row))]
            for job, row in step["alloc"]["allox"].items()
            if any(row)
        }
        asked = Problem(
            worker_types=tuple(types),
            num_workers=tuple(raw["cluster_spec"][name] for name in types),
            previous=previous,
            classes=tuple(
                JobClass(
                    job_type=f"type of {job}",
                    scale_factor=1,
                    throughputs=tuple(raw["throughputs"][name][job] for name in types),
                    job_ids=(str(job),),
                    arrival_ranks=(job,),
                    steps_remaining=(step["steps_remaining"][str(job)],),
                    elapsed_s=(step["time_since_start"][str(job)],),
                )
                for job in step["active"]
            ),
        )
        ours = {
            combination[0]: next(iter(row.shares))
            for row in AlloX().solve(asked).rows
            for combination in row.combinations
        }
        ran = {c[0]: next(iter(row.shares)) for row in previous for c in row.combinations}
        assert {job: name for job, name in ours.items() if job in ran} == {
            job: name for job, name in ran.items() if job in step["steps_remaining"]
        }
        assert sorted(ours.values()) == sorted(published.values())
        previous = tuple(AllocationRow(((job,),), {name: 1.0}) for job, name in published.items())


def test_all_cases_are_tried(reference_data: Path) -> None:
    """The file holds as many cases as these tests go through."""
    document = json.loads((reference_data / "golden" / "policy_cases.json").read_text())
    assert len(document["cases"]) == NUM_CASES

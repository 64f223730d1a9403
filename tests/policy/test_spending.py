"""Most throughput, and most throughput for the money."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings

from services.policy.catalog import resolve
from services.policy.problem import Allocation, PolicyError, Problem, ProblemError
from services.policy.reference import objectives as reference
from services.policy.solver import Floats
from tests.policy.problems import job_class, problem, shares, violation
from tests.policy.progress import Jobs, underway


def cost_of(asked: Problem, jobs: Jobs, allocation: Allocation) -> float:
    """USD an hour that the allocation spends."""
    x = jobs.shares(asked, allocation)
    return float(jobs.arrays.scale_factors @ x @ np.array(asked.prices_usd_per_h))


def priced(*usd_per_h: float, asked: Problem) -> Problem:
    """The problem at these prices."""
    return msgspec.structs.replace(asked, prices_usd_per_h=usd_per_h)


@pytest.mark.parametrize("normalise", ["equal", "none"])
@settings(max_examples=60)
@given(asked=underway())
def test_the_sum_of_throughputs_is_that_of_the_readable_program(
    normalise: str, asked: Problem
) -> None:
    """In terms of the equal allocation or in steps/s; said and given agree."""
    jobs = Jobs.of(asked)
    assume(jobs.ids)
    allocation = resolve("max-throughput", {"normalise": normalise}).solve(asked)
    worth = 1 / jobs.arrays.equal if normalise == "equal" else np.ones(len(jobs.ids))
    most = reference.most_throughput(jobs.arrays, worth, np.zeros(len(jobs.ids)))
    assert allocation.objective == pytest.approx(most, rel=1e-6)
    assert violation(asked, allocation) <= 1e-9
    given_sum = worth @ jobs.speeds(asked, allocation)
    assert given_sum >= most * (1 - 1e-6) - jobs.lost_by_rounding @ worth


@pytest.mark.parametrize("name", ["max-throughput", "max-throughput:ss"])
def test_raw_steps_are_each_jobs_own(name: str) -> None:
    """Three times as fast as its class, a job is worth three in steps/s; normalised, it is one."""
    job = msgspec.structs.replace(job_class(2.0, ids="a fast c"), factors=(1.0, 3.0, 1.0))
    asked = msgspec.structs.replace(problem((1,), job), pairs={(0, 0): ((0.5,), (0.5,))})
    raw = resolve(name, {"normalise": "none"}).solve(asked)
    assert raw.objective == pytest.approx(6.0)
    assert shares(asked, raw)["fast"].tolist() == [1.0]
    normalised = resolve(name).solve(asked)
    assert normalised.objective == pytest.approx(1.0)
    assert shares(asked, normalised)["fast"][0] == pytest.approx(1 / 3, abs=1e-8)


@settings(max_examples=60)
@given(asked=underway())
def test_the_ratio_is_that_of_the_readable_program(asked: Problem) -> None:
    """Throughput per USD as by Charnes and Cooper; what is free, if that is enough, is not paid."""
    jobs = Jobs.of(asked)
    assume(jobs.ids)
    allocation = resolve("cost").solve(asked)
    least = 0.5 * jobs.isolated
    assert violation(asked, allocation) <= 1e-9
    assert (jobs.speeds(asked, allocation) >= least * (1 - 1e-6) - jobs.lost_by_rounding).all()
    _check_ratio(asked, jobs, allocation, least, np.zeros(len(jobs.ids)))


@settings(max_examples=60)
@given(asked=underway(max_classes=5))
def test_slos_are_met_or_missed_by_the_least_sum(asked: Problem) -> None:
    """The sum of relative shortfalls and then the ratio are those of the readable program."""
    jobs = Jobs.of(asked)
    assume(jobs.ids)
    allocation = resolve("cost-slo").solve(asked)
    assert violation(asked, allocation) <= 1e-9
    least = 0.5 * jobs.isolated
    wanted = np.divide(jobs.steps, jobs.slo_s, out=np.zeros(len(least)), where=jobs.slo_s > 0)
    speeds = jobs.speeds(asked, allocation)
    assert (speeds >= least * (1 - 1e-6) - jobs.lost_by_rounding).all()

    missing = _check_ratio(asked, jobs, allocation, least, wanted)
    wants = wanted > 0
    short = np.maximum(1 - speeds[wants] / wanted[wants], 0.0)
    rounding = float((jobs.lost_by_rounding[wants] / wanted[wants]).sum())
    assert short.sum() <= missing + 1e-6 * (1 + missing) + rounding
    named = {
        job_id
        for job_id, slo, steps in zip(jobs.ids, jobs.slo_s, jobs.steps, strict=True)
        if slo <= 0 < steps
    }
    clearly_short = np.flatnonzero(wants)[
        short > 1e-5 + jobs.lost_by_rounding[wants] / wanted[wants]
    ]
    named |= {jobs.ids[i] for i in clearly_short}
    assert named <= allocation.unmet.keys()
    assert missing > 0 or not any("missing" in why for why in allocation.unmet.values())


def _check_ratio(
    asked: Problem, jobs: Jobs, allocation: Allocation, least: Floats, wanted: Floats
) -> float:
    """Hold the ratio to the readable program; the least sum of relative shortfalls."""
    prices = np.array(asked.prices_usd_per_h)
    missing, ratio = reference.best_ratio(jobs.arrays, prices, least, wanted)
    worth = float(jobs.speeds(asked, allocation) @ (1 / jobs.arrays.equal))
    lost = float(jobs.lost_by_rounding @ (1 / jobs.arrays.equal))
    cost = cost_of(asked, jobs, allocation)
    if np.isinf(ratio):
        assert allocation.objective is None
        assert cost <= 1e-6 * jobs.arrays.scale_factors.sum() * max(prices)
    else:
        # Two programs, one after the other: what the first leaves open to its tolerance moves the
        # optimum of the second.
        near = 1e-5 if missing > 0 else 1e-6
        assert allocation.objective == pytest.approx(ratio, rel=near)
        extra = 2e-8 * float(jobs.arrays.scale_factors.sum()) * float(prices.sum())
        assert worth + lost >= ratio * (cost - extra) * (1 - near)
    return missing


def test_money_goes_where_it_buys_most() -> None:
    """A k80 at a tenth of the price and a fifth of the speed is the better buy, if enough."""
    asked = priced(0.1, 1.0, asked=problem((2, 2), job_class(1.0, 5.0, ids="a b")))
    allocation = resolve("cost", {"floor": 0.0}).solve(asked)
    for share in shares(asked, allocation).values():
        assert share.tolist() == [1.0, 0.0]
    # Half of an isolated share, 1 + 5 over 2 steps/s, is more than a k80 gives.
    with_floor = resolve("cost", {"floor": 0.5}).solve(asked)
    for share in shares(asked, with_floor).values():
        assert share @ [1.0, 5.0] == pytest.approx(1.5, rel=1e-6)


def test_what_is_free_is_filled_first() -> None:
    """With k80s at $0 that can carry the floors, nothing else is used."""
    asked = priced(0.0, 1.0, asked=problem((2, 2), job_class(1.0, 1.5, ids="a b")))
    allocation = resolve("cost").solve(asked)
    assert allocation.objective is None
    for share in shares(asked, allocation).values():
        assert share.tolist() == [1.0, 0.0]


def test_without_prices_cost_is_throughput() -> None:
    """Where nothing costs anything, the most throughput with the floors held."""
    asked = problem((2, 2), job_class(1.0, 5.0, ids="a b"), job_class(1.0, 2.0, ids="c"))
    most = resolve("max-throughput").solve(asked)
    assert resolve("cost", {"floor": 0.0}).solve(asked).rows == most.rows


def test_who_cannot_be_served_in_time_is_named_with_the_numbers() -> None:
    """Two jobs, one worker: 20 steps in 10 s cannot be; one has passed; the rest go on."""
    late = msgspec.structs.replace(
        job_class(1.0, ids="impossible passed fine", steps=(20.0, 20.0, 20.0)),
        slo_remaining_s=(10.0, -5.0, 1000.0),
    )
    asked = priced(1.0, asked=problem((3,), late))
    allocation = resolve("cost-slo").solve(asked)
    assert allocation.unmet == {
        "impossible": "SLO in 10 s takes 2 steps/s, 1 can be had: 50.0% missing",
        "passed": "SLO passed 5 s ago, 20 steps to go",
    }
    given_shares = shares(asked, allocation)
    assert given_shares["impossible"].tolist() == [1.0]
    assert given_shares["fine"][0] >= 0.5


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("cost", {"floor": 1.5}, "floor is 1.5, must be between 0 and 1"),
        ("cost-slo", {"floor": -1.0}, "floor is -1.0, must be between 0 and 1"),
        ("max-throughput", {"normalise": "cost"}, "normalise is 'cost', must be 'equal' or 'none'"),
    ],
)
def test_senseless_parameters_are_refused(
    name: str, parameters: dict[str, float | str], message: str
) -> None:
    """The error names the parameter, the value, and what would be right."""
    with pytest.raises(PolicyError, match=message):
        resolve(name, parameters)


def test_senseless_prices_are_refused() -> None:
    """Negative money is none."""
    asked = priced(-1.0, asked=problem((1,), job_class(1.0)))
    with pytest.raises(ProblemError, match=r"prices_usd_per_h is \(-1.0,\), must be one number"):
        resolve("cost").solve(asked)

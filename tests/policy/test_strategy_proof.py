"""Strategy-proof: proportional fairness, its discount, and that lying does not pay."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from services.policy.classes import gather
from services.policy.problem import Problem
from services.policy.reference import strategy_proof as reference_strategy_proof
from services.policy.solver import Floats
from services.policy.strategy_proof import StrategyProof, _Market
from tests.policy.problems import job_class, problem, problems, shares, violation


def throughputs(asked: Problem, given_shares: dict[str, Floats]) -> dict[str, float]:
    """{job id: effective throughput}."""
    return {
        job_id: float(given_shares[job_id] @ np.array(each.throughputs))
        for each in asked.classes
        for job_id in each.job_ids
    }


@settings(max_examples=60)
@given(problems(max_classes=5))
def test_agrees_with_the_readable_program(asked: Problem) -> None:
    """The product is that of the cvxpy program; levels too, as far as a flat optimum tells."""
    arrays, _ = gather(asked)
    assume(len(arrays.counts))
    levels, _ = _Market(arrays).clear(arrays.counts)
    expected = reference_strategy_proof.proportionally_fair(arrays, arrays.counts)
    np.testing.assert_allclose(levels, expected, rtol=1e-3, atol=1e-4)
    weights = arrays.counts * arrays.weights
    apart = float(weights @ np.log(levels / expected)) / weights.sum()
    assert apart == pytest.approx(0.0, abs=1e-6)


@settings(max_examples=40)
@given(problems(max_classes=4))
def test_what_a_job_pays_is_what_its_presence_costs_the_others(asked: Problem) -> None:
    """Throughput over that without discount is the product the paper's rule gives, per class."""
    arrays, _ = gather(asked)
    assume(len(arrays.counts))
    allocation = StrategyProof().solve(asked)
    assert violation(asked, allocation) <= 1e-9
    given_shares = shares(asked, allocation)
    present = reference_strategy_proof.proportionally_fair(arrays, arrays.counts)
    for each, row in zip(asked.classes, arrays.merged_into.tolist(), strict=True):
        if row < 0:
            continue
        others = arrays.counts - (np.arange(len(present)) == row)
        there = others > 0
        cost = 0.0
        if there.any():
            absent = reference_strategy_proof.proportionally_fair(arrays, others)
            weights = (others * arrays.weights)[there]
            cost = float(weights @ np.log(present[there] / absent[there])) / arrays.weights[row]
        speeds = arrays.throughputs[row] / arrays.throughputs[row].max()
        paid = float(given_shares[each.job_ids[0]] @ speeds)
        assert paid == pytest.approx(present[row] * np.exp(min(cost, 0.0)), rel=1e-4, abs=1e-6)


@settings(max_examples=30)
@given(problems(max_classes=4), st.data())
def test_nobody_gains_by_lying_about_throughputs(asked: Problem, data: st.DataObject) -> None:
    """Whatever speeds one job claims, its true throughput is no more than when it is honest."""
    arrays, _ = gather(asked)
    assume(len(arrays.counts))
    served = [i for i, row in enumerate(arrays.merged_into.tolist()) if row >= 0]
    liar = data.draw(st.sampled_from(served))
    honest = asked.classes[liar]
    rest = msgspec.structs.replace(honest, job_ids=honest.job_ids[1:])
    factors = data.draw(
        st.lists(
            st.sampled_from([0.1, 0.5, 1.0, 2.0, 10.0]),
            min_size=len(honest.throughputs),
            max_size=len(honest.throughputs),
        )
    )
    claimed = tuple(t * f for t, f in zip(honest.throughputs, factors, strict=True))
    job = honest.job_ids[0]

    def true_throughput(row: tuple[float, ...]) -> float:
        one = msgspec.structs.replace(honest, job_ids=(job,), throughputs=row)
        others = [c for i, c in enumerate(asked.classes) if i != liar]
        told = problem(asked.num_workers, one, rest, *others)
        given_shares = shares(told, StrategyProof().solve(told))
        return float(given_shares[job] @ np.array(honest.throughputs))

    truthful, lying = true_throughput(honest.throughputs), true_throughput(claimed)
    assert lying <= truthful * (1 + 1e-5) + 1e-6 * max(honest.throughputs)


@settings(max_examples=60)
@given(problems(throughput_decades=(-4, 4), weight_decades=(-6, 6), max_classes=8))
def test_extreme_numbers_still_give_a_feasible_allocation(asked: Problem) -> None:
    """Weights over twelve orders of magnitude and throughputs over eight do not break it."""
    assert violation(asked, StrategyProof().solve(asked)) <= 1e-9


@settings(max_examples=30)
@given(problems(max_classes=4), st.randoms(use_true_random=False))
def test_order_of_the_input_changes_nobodys_share(asked: Problem, seed: Random) -> None:
    """Classes in another order give every job the same; so does asking again."""
    before = StrategyProof().solve(asked)
    assert StrategyProof().solve(asked) == before
    classes = list(asked.classes)
    seed.shuffle(classes)
    after = shares(asked, StrategyProof().solve(problem(asked.num_workers, *classes)))
    for job_id, share in shares(asked, before).items():
        assert (share == after[job_id]).all()


def test_alone_is_free_and_company_costs() -> None:
    """One job on one worker pays nothing; two alike halve it, and each burns half of its half."""
    alone = problem((1,), job_class(2.0))
    assert shares(alone, StrategyProof().solve(alone))["a"].tolist() == [1.0]
    both = problem((1,), job_class(2.0, ids="a b"))
    for share in shares(both, StrategyProof().solve(both)).values():
        assert share.tolist() == pytest.approx([0.25], abs=1e-6)


def test_prices_say_what_one_more_worker_is_worth() -> None:
    """Four jobs on two workers have 1/2 each, normalised by itself; more workers, more of it."""
    jobs = job_class(1.0, ids="a b c d")
    few = StrategyProof().solve(problem((200,), msgspec.structs.replace(jobs, job_ids=_ids(400))))
    more = StrategyProof().solve(problem((201,), msgspec.structs.replace(jobs, job_ids=_ids(400))))
    assert few.objective is not None
    assert more.objective == pytest.approx(few.objective + few.prices["k80"], rel=1e-5)


def _ids(count: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(count))


@pytest.mark.parametrize("num_workers", [(), (0,), (0, 3)])
@pytest.mark.parametrize("with_job", [False, True])
def test_no_jobs_no_workers_no_types_are_ordinary(
    num_workers: tuple[int, ...], with_job: bool
) -> None:
    """Emptiness of any kind is answered, not raised; a job without workers is set aside."""
    classes = [job_class(*[1.0] * len(num_workers))] if with_job else []
    allocation = StrategyProof().solve(problem(num_workers, *classes))
    assert len(allocation.rows) == int(with_job and sum(num_workers) > 0)
    assert len(allocation.set_aside) == int(with_job and sum(num_workers) == 0)

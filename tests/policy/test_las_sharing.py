"""LAS with space sharing: right, whatever the input, and the same for equal input."""

from __future__ import annotations

import dataclasses
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from services.policy.las import Las
from services.policy.problem import Problem
from services.policy.reference import sharing as reference_sharing
from services.policy.sharing.las import LasSharing
from services.policy.sharing.levels import fill_shared
from services.policy.sharing.pairs import gather_with_pairs
from tests.policy.problems import job_class, problem, problems
from tests.policy.sharing import levels, lost_by_rounding, shared_problems, shares, violation


@settings(max_examples=60)
@given(shared_problems())
def test_agrees_with_the_readable_program(asked: Problem) -> None:
    """Objective and all levels are those of the cvxpy program; each job reaches its class's."""
    allocation = LasSharing().solve(asked)
    assume(allocation.objective is not None)
    optimum = reference_sharing.las(asked)
    assert allocation.objective == pytest.approx(np.nanmin(optimum.levels), rel=1e-6)

    given_shares = shares(asked, allocation)
    assert violation(asked, given_shares) <= 1e-9
    reached = levels(asked, given_shares)
    for c, best in zip(asked.classes, optimum.levels, strict=True):
        for job_id in set(c.job_ids) & reached.keys():
            lost = lost_by_rounding(asked, job_id)
            assert reached[job_id] == pytest.approx(best, rel=1e-6, abs=lost)


@settings(max_examples=60)
@given(shared_problems())
def test_reaches_its_levels_with_the_least_worker_time(asked: Problem) -> None:
    """No more worker time than the readable program, but for the weight of the tie-break."""
    arrays, columns, _ = gather_with_pairs(asked)
    assume(len(arrays.counts))
    worth = arrays.scale_factors / (arrays.weights * arrays.equal_throughputs())
    filling = fill_shared(arrays, columns, worth)
    optimum = reference_sharing.las(asked)
    assert float(columns.workers @ filling.units) <= optimum.worker_time * (1 + 1e-5) + 1e-6


@settings(max_examples=80)
@given(shared_problems(throughput_decades=(-4, 4), weight_decades=(-6, 6), max_classes=12))
def test_extreme_numbers_still_give_a_feasible_allocation(asked: Problem) -> None:
    """Weights over twelve orders of magnitude and throughputs over eight do not break it."""
    allocation = LasSharing().solve(asked)
    assert violation(asked, shares(asked, allocation)) <= 1e-9
    assert allocation.objective is None or allocation.objective > 0


@settings(max_examples=50)
@given(asked=shared_problems(), seed=st.randoms(use_true_random=False))
def test_order_and_grouping_of_the_input_change_nobodys_share(asked: Problem, seed: Random) -> None:
    """Classes in another order, or cut in two, give every combination the same."""
    before = LasSharing().solve(asked)
    assert LasSharing().solve(asked) == before

    pieces = [
        (index, ids)
        for index, c in enumerate(asked.classes)
        for ids in (c.job_ids[: len(c.job_ids) // 2], c.job_ids[len(c.job_ids) // 2 :])
    ]
    seed.shuffle(pieces)
    classes = tuple(
        msgspec.structs.replace(asked.classes[index], job_ids=ids) for index, ids in pieces
    )
    pairs = {}
    for c, (i, _) in enumerate(pieces):
        for d, (k, _) in enumerate(pieces[c:], c):
            if (min(i, k), max(i, k)) in asked.pairs:
                one, two = asked.pairs[min(i, k), max(i, k)]
                pairs[c, d] = (one, two) if i <= k else (two, one)
    after = LasSharing().solve(msgspec.structs.replace(asked, classes=classes, pairs=pairs))
    shares_before, shares_after = shares(asked, before), shares(asked, after)
    assert shares_before.keys() == shares_after.keys()
    for combination, share in shares_before.items():
        assert (share == shares_after[combination]).all()


@settings(max_examples=60)
@given(shared_problems(max_classes=5))
def test_sharing_never_lowers_the_lowest_level(asked: Problem) -> None:
    """What is possible alone remains possible."""
    allocation = LasSharing().solve(asked)
    assume(allocation.objective is not None)
    alone = Las().solve(asked).objective
    assert alone is not None
    assert allocation.objective is not None
    assert allocation.objective >= alone * (1 - 1e-7)


@settings(max_examples=60)
@given(problems())
def test_without_pairs_it_is_las(asked: Problem) -> None:
    """Every job has the level that plain LAS gives it."""
    plain, sharing = Las().solve(asked), LasSharing().solve(asked)
    assert sharing.set_aside == plain.set_aside
    expected = levels(asked, shares(asked, plain))
    for job_id, level in levels(asked, shares(asked, sharing)).items():
        lost = lost_by_rounding(asked, job_id)
        assert level == pytest.approx(expected[job_id], rel=1e-6, abs=lost)


@settings(max_examples=60)
@given(shared_problems(max_classes=5))
def test_prices_say_what_a_little_more_of_a_type_is_worth(asked: Problem) -> None:
    """The lowest level grows with each type's workers at the type's price, or not at all."""
    arrays, columns, _ = gather_with_pairs(asked)
    assume(len(arrays.counts))
    worth = arrays.scale_factors / (arrays.weights * arrays.equal_throughputs())
    before = fill_shared(arrays, columns, worth)
    for j in np.flatnonzero(arrays.num_workers):
        gains = []
        for step in (-1e-4, 1e-4):
            workers = arrays.num_workers.copy()
            workers[j] += step
            changed = dataclasses.replace(arrays, num_workers=workers)
            lowest = fill_shared(changed, columns, worth).levels.min()
            gains.append((lowest - before.levels.min()) / step)
        slack = 1e-4 * max(gains) + 1e-6 * before.levels.min()
        assert gains[1] - slack <= before.prices[j] <= gains[0] + slack


def both_ways(*, kept: float) -> Problem:
    """Four jobs of one class on one worker, each at a fraction of its speed beside another."""
    asked = problem((1,), job_class(10.0, ids="a b c d"))
    return msgspec.structs.replace(asked, pairs={(0, 0): ((10.0 * kept,), (10.0 * kept,))})


def test_pairs_that_gain_share_and_pairs_that_lose_do_not() -> None:
    """At 60 % each, two beside each other do 20 % more than in turns; at half, nothing."""
    gaining, losing = (
        LasSharing().solve(both_ways(kept=0.6)),
        LasSharing().solve(both_ways(kept=0.5)),
    )
    assert shares(both_ways(kept=0.6), gaining) == {("a", "b"): 0.5, ("c", "d"): 0.5}
    assert {len(combination) for combination in shares(both_ways(kept=0.5), losing)} == {1}
    assert gaining.objective == pytest.approx(0.3)
    assert losing.objective == pytest.approx(0.25)


def test_an_odd_number_of_alike_jobs_meets_in_a_cycle() -> None:
    """Three jobs, three pairs, equal shares."""
    asked = problem((1,), job_class(10.0, ids="a b c"))
    asked = msgspec.structs.replace(asked, pairs={(0, 0): ((8.0,), (8.0,))})
    given_shares = shares(asked, LasSharing().solve(asked))
    assert sorted(given_shares) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert len({float(share[0]) for share in given_shares.values()}) == 1

"""LAS with space sharing: right, whatever the input, and the same for equal input."""

from __future__ import annotations

import dataclasses
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from services.policy import reference_sharing
from services.policy.classes import SHARE_UNIT
from services.policy.las import Las
from services.policy.las_sharing import LasSharing
from services.policy.pairs import gather_with_pairs
from services.policy.problem import Allocation, Problem
from services.policy.sharing import fill_shared
from services.policy.solver import Floats
from tests.policy.problems import job_class, problem, problems

Shares = dict[tuple[str, ...], Floats]


@st.composite
def shared_problems(
    draw: st.DrawFn,
    throughput_decades: tuple[float, float] = (-1.5, 1.5),
    weight_decades: tuple[float, float] = (-1.0, 1.0),
    max_classes: int = 6,
    kept: tuple[float, float] = (0.2, 1.0),
) -> Problem:
    """``problems`` in which most classes can share, at a random fraction of their speed."""
    asked = draw(problems(throughput_decades, weight_decades, max_classes))
    asked = msgspec.structs.replace(
        asked,
        classes=tuple(
            msgspec.structs.replace(c, scale_factor=min(c.scale_factor, 2)) for c in asked.classes
        ),
    )
    fractions = st.floats(*kept).map(lambda x: round(x, 3)) | st.sampled_from([0.0, 0.5, 1.0])
    pairs = {}
    for c, one in enumerate(asked.classes):
        for d, other in enumerate(asked.classes[c:], c):
            if one.scale_factor == other.scale_factor and draw(st.integers(0, 3)):
                mine = tuple(draw(fractions) * speed for speed in one.throughputs)
                yours = tuple(draw(fractions) * speed for speed in other.throughputs)
                pairs[c, d] = (mine, mine if c == d else yours)
    return msgspec.structs.replace(asked, pairs=pairs)


def shares(asked: Problem, allocation: Allocation) -> Shares:
    """{combination: (worker types,) share}, each combination listed once."""
    given_shares: Shares = {}
    for row in allocation.rows:
        for combination in row.combinations:
            assert combination not in given_shares
            share = [row.shares.get(name, 0.0) for name in asked.worker_types]
            given_shares[combination] = np.array(share)
    return given_shares


def violation(asked: Problem, given_shares: Shares) -> float:
    """By how much the time of a job or the workers of a type are exceeded."""
    scale = {job_id: c.scale_factor for c in asked.classes for job_id in c.job_ids}
    time = dict.fromkeys(scale, 0.0)
    used = np.zeros(len(asked.worker_types))
    for combination, share in given_shares.items():
        assert len(set(combination)) == len(combination)
        assert len({scale[job_id] for job_id in combination}) == 1
        used += scale[combination[0]] * share
        for job_id in combination:
            time[job_id] += float(share.sum())
    over = (used - np.array(asked.num_workers)).tolist()
    return float(max(max(time.values(), default=0.0) - 1.0, *over))


def throughputs(asked: Problem, given_shares: Shares) -> dict[str, float]:
    """{job id: effective throughput} of all jobs."""
    place = {job_id: c for c, each in enumerate(asked.classes) for job_id in each.job_ids}
    gained = dict.fromkeys(place, 0.0)
    for combination, share in given_shares.items():
        first, last = combination[0], combination[-1]
        c, d = place[first], place[last]
        if first == last:
            gained[first] += float(np.array(asked.classes[c].throughputs) @ share)
            continue
        of_c, of_d = asked.pairs[min(c, d), max(c, d)]
        gained[first] += float(np.array(of_c if c <= d else of_d) @ share)
        gained[last] += float(np.array(of_d if c <= d else of_c) @ share)
    return gained


def per_step(asked: Problem) -> dict[str, float]:
    """{job id: s / (w Tbar)}, the level of one step/s, of all jobs that can run."""
    workers = np.array(asked.num_workers)
    worth: dict[str, float] = {}
    for c in asked.classes:
        speeds = np.where(c.scale_factor <= workers, c.throughputs, 0.0)
        if speeds.any():
            equal = float(speeds @ workers / workers.sum())
            worth |= dict.fromkeys(c.job_ids, c.scale_factor / (c.priority_weight * equal))
    return worth


def levels(asked: Problem, given_shares: Shares) -> dict[str, float]:
    """{job id: s thr / (w Tbar)} of all jobs that can run."""
    gained = throughputs(asked, given_shares)
    return {job_id: worth * gained[job_id] for job_id, worth in per_step(asked).items()}


def lost_by_rounding(asked: Problem, job_id: str) -> float:
    """Level that a job may lose in shares of 1e-8, one for each type and each class it meets."""
    speed = max(max(c.throughputs) for c in asked.classes if job_id in c.job_ids)
    shares_of_job = len(asked.worker_types) * (1 + 2 * len(asked.classes))
    return SHARE_UNIT * shares_of_job * speed * per_step(asked)[job_id]


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

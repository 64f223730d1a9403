"""LAS: right, whatever the input, and the same for equal input."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from services.policy import solver, water_filling
from services.policy.classes import SHARE_UNIT, ClassArrays, gather
from services.policy.las import Las, LasAgnostic
from services.policy.problem import Allocation, JobClass, Policy, Problem, ProblemError
from services.policy.reference import las as reference
from services.policy.solver import Floats
from services.policy.water_filling import Filling, fill
from tests.policy.problems import job_class, problem, problems, shares, violation

POLICIES = pytest.mark.parametrize("policy", [Las(), LasAgnostic()], ids=["las", "las:agnostic"])


def reachable(arrays: ClassArrays) -> Floats:
    """(classes, worker types) level of a job that is always on the type."""
    per_share = arrays.scale_factors / (arrays.weights * arrays.equal_throughputs())
    levels: Floats = arrays.throughputs * per_share[:, None]
    return levels


def class_shares(asked: Problem, arrays: ClassArrays, allocation: Allocation) -> Floats:
    """(classes, worker types) shares, by the rows of the arrays."""
    given_shares = shares(asked, allocation)
    result = np.zeros(arrays.throughputs.shape)
    for asked_class, row in zip(asked.classes, arrays.merged_into, strict=True):
        if row >= 0:
            result[row] = given_shares[asked_class.job_ids[0]]
    return result


def fill_las(arrays: ClassArrays) -> Filling:
    """The optimum before it is rounded."""
    return fill(reachable(arrays), arrays.demands, arrays.num_workers, arrays.tie_breakers)


@settings(max_examples=100)
@given(problems())
def test_where_the_program_starts_changes_nothing(asked: Problem) -> None:
    """Many classes are started near the answer: the same levels for the same worker time."""
    arrays, _ = gather(asked)
    assume(len(arrays.counts))
    afresh = fill_las(arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(water_filling, "_MANY", 0)
        near = fill_las(arrays)
    np.testing.assert_allclose(near.levels, afresh.levels, rtol=1e-9)
    held, expected = (arrays.demands @ filling.shares.sum(axis=1) for filling in (near, afresh))
    assert held == pytest.approx(expected, rel=1e-6)


@settings(max_examples=150)
@given(problems())
def test_agrees_with_the_readable_program(asked: Problem) -> None:
    """Objective and levels are those of the cvxpy program, with no more worker time."""
    arrays, _ = gather(asked)
    assume(len(arrays.counts))
    allocation = Las().solve(asked)
    optimum = reference.las(arrays)
    assert allocation.objective == pytest.approx(optimum.levels.min(), rel=1e-6)
    assert violation(asked, allocation) <= 1e-9

    filling = fill_las(arrays)
    np.testing.assert_allclose(filling.levels, optimum.levels, rtol=1e-6)
    worker_time = float(arrays.demands @ filling.shares.sum(axis=1))
    assert worker_time <= optimum.worker_time * (1 + 1e-5)

    given_levels = (reachable(arrays) * class_shares(asked, arrays, allocation)).sum(axis=1)
    lost_by_rounding = SHARE_UNIT * reachable(arrays).sum(axis=1)
    assert (np.abs(given_levels - optimum.levels) <= 1e-6 * optimum.levels + lost_by_rounding).all()


@settings(max_examples=60)
@given(problems(max_classes=5))
def test_nobody_can_rise_unless_somebody_no_better_off_falls(asked: Problem) -> None:
    """The definition of max-min fairness holds, tried for each class by a program of its own."""
    arrays, _ = gather(asked)
    assume(len(arrays.counts))
    levels = fill_las(arrays).levels
    a, (classes, types) = reachable(arrays), arrays.throughputs.shape
    best = a.max(axis=1)
    time_rows = np.kron(np.eye(classes), np.ones(types))
    capacity_rows = np.kron(arrays.demands, np.eye(types))
    gain_rows = np.kron(np.eye(classes), np.ones(types)) * (a / best[:, None]).ravel()
    for c in range(classes):
        kept = (levels <= levels[c] * (1 + 1e-7)) & (np.arange(classes) != c)
        answer = linprog(
            -gain_rows[c],
            A_ub=np.vstack([time_rows, capacity_rows, -gain_rows[kept]]),
            b_ub=np.concatenate(
                [np.ones(classes), arrays.num_workers, -(levels / best)[kept] * (1 - 1e-9)]
            ),
            bounds=[(0, 1 if can else 0) for can in arrays.usable.ravel()],
        )
        highest = -answer.fun * best[c]
        # What all others lent it, 1e-9 each, is worth as much as their speeds differ.
        assert highest <= levels[c] * (1 + 1e-5)


@settings(max_examples=150)
@given(problems(throughput_decades=(-4, 4), weight_decades=(-6, 6), max_classes=20))
def test_extreme_numbers_still_give_a_feasible_allocation(asked: Problem) -> None:
    """Weights over twelve orders of magnitude and throughputs over eight do not break it."""
    for policy in (Las(), LasAgnostic()):
        allocation = policy.solve(asked)
        assert violation(asked, allocation) <= 1e-9
        assert allocation.objective is None or allocation.objective > 0


@POLICIES
@settings(max_examples=80)
@given(asked=problems(), seed=st.randoms(use_true_random=False))
def test_order_and_grouping_of_the_input_change_nobodys_share(
    policy: Policy, asked: Problem, seed: Random
) -> None:
    """Classes in another order, or cut in two, give every job the same; so does asking again."""
    before = policy.solve(asked)
    assert policy.solve(asked) == before

    pieces = []
    for each in asked.classes:
        half = len(each.job_ids) // 2
        halves = (each.job_ids[:half], each.job_ids[half:])
        pieces += [msgspec.structs.replace(each, job_ids=ids) for ids in halves]
    seed.shuffle(pieces)
    after = policy.solve(problem(asked.num_workers, *pieces))
    shares_before, shares_after = shares(asked, before), shares(asked, after)
    for job_id, share in shares_before.items():
        assert (share == shares_after[job_id]).all()


@settings(max_examples=60)
@given(problems())
def test_prices_say_what_a_little_more_of_a_type_is_worth(asked: Problem) -> None:
    """The lowest level grows with each type's workers at the type's price, or not at all."""
    arrays, _ = gather(asked)
    assume(len(arrays.counts))
    before = fill_las(arrays)
    for j in np.flatnonzero(arrays.num_workers):
        gains = []
        for step in (-1e-4, 1e-4):
            workers = arrays.num_workers.copy()
            workers[j] += step
            level = fill(reachable(arrays), arrays.demands, workers, arrays.tie_breakers).levels
            gains.append((level.min() - before.levels.min()) / step)
        # At a kink, any price between the two slopes is a dual.
        slack = 1e-4 * max(gains) + 1e-6 * before.levels.min()
        assert gains[1] - slack <= before.prices[j] <= gains[0] + slack


@settings(max_examples=40)
@given(asked=problems(max_classes=5))
def test_clarabel_carries_on_where_highs_gives_up(asked: Problem) -> None:
    """With HiGHS stopped before its first pivot, levels are the same to 1e-6."""
    arrays, _ = gather(asked)
    assume(len(arrays.counts))
    by_highs = fill_las(arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(solver._OPTIONS, "simplex_iteration_limit", 0)
        by_clarabel = fill_las(arrays)
    np.testing.assert_allclose(by_clarabel.levels, by_highs.levels, rtol=1e-6)


@settings(max_examples=100)
@given(asked=problems())
def test_blind_shares_follow_the_workers_and_are_max_min(asked: Problem) -> None:
    """``las:agnostic`` spreads by the workers; each job is at its limit or tops a full type."""
    arrays, _ = gather(asked)
    assume(len(arrays.counts))
    x = class_shares(asked, arrays, LasAgnostic().solve(asked))
    workers = arrays.usable * arrays.num_workers
    spread = workers / workers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(x, x.sum(axis=1, keepdims=True) * spread, atol=2 * SHARE_UNIT)

    levels = arrays.scale_factors * x.sum(axis=1) / arrays.weights
    full = arrays.demands @ x >= arrays.num_workers - SHARE_UNIT * (arrays.demands.sum() + 1)
    step = SHARE_UNIT * x.shape[1] * arrays.scale_factors / arrays.weights
    for c, level in enumerate(levels):
        tops = [
            level + step[c] + step[arrays.usable[:, j]].max() >= levels[arrays.usable[:, j]].max()
            for j in np.flatnonzero(full & arrays.usable[c])
        ]
        assert x[c].sum() >= 1 - x.shape[1] * SHARE_UNIT or any(tops)


@POLICIES
def test_twice_the_weight_is_twice_the_share(policy: Policy) -> None:
    """Weights 1 and 3 divide one worker 1 : 3."""
    asked = problem((1,), job_class(5.0, ids="light"), job_class(5.0, ids="heavy", weight=3.0))
    given_shares = shares(asked, policy.solve(asked))
    assert given_shares["light"].tolist() == [0.25]
    assert given_shares["heavy"].tolist() == [0.75]


@POLICIES
def test_a_job_that_can_run_nowhere_is_set_aside_and_changes_nothing(policy: Policy) -> None:
    """The reason has the numbers; the others get what they would get without it."""
    fine = (job_class(1.0, 3.0, ids="a b c"), job_class(2.0, 2.5, ids="d"))
    never = job_class(0.0, 7.5, ids="big", scale_factor=4)
    allocation = policy.solve(problem((8, 2), *fine, never))
    assert allocation.set_aside == {
        "big": "no worker type has both a throughput for it and the 4 workers of its scale factor "
        "(k80: 0 steps/s, 8 workers; p100: 7.5 steps/s, 2 workers)"
    }
    without = policy.solve(problem((8, 2), *fine))
    assert allocation.rows == without.rows
    assert allocation.objective == without.objective


@POLICIES
def test_a_type_too_small_for_a_gang_is_never_given_to_it(policy: Policy) -> None:
    """Two workers are no half of a job that needs four at once."""
    asked = problem((4, 2), job_class(1.0, 100.0, ids="gang", scale_factor=4))
    assert shares(asked, policy.solve(asked))["gang"].tolist() == [1.0, 0.0]


@POLICIES
@pytest.mark.parametrize("num_workers", [(), (0,), (0, 3)])
@pytest.mark.parametrize("with_job", [False, True])
def test_no_jobs_no_workers_no_types_are_ordinary(
    policy: Policy, num_workers: tuple[int, ...], with_job: bool
) -> None:
    """Emptiness of any kind is answered, not raised; a job without workers is set aside."""
    classes = [job_class(*[1.0] * len(num_workers))] if with_job else []
    allocation = policy.solve(problem(num_workers, *classes))
    assert len(allocation.rows) == int(with_job and sum(num_workers) > 0)
    assert len(allocation.set_aside) == int(with_job and sum(num_workers) == 0)


def test_who_is_held_down_at_the_lowest_level_is_named() -> None:
    """Three jobs share the only p100 they can use; the fourth rises on k80s and is not held."""
    asked = problem((2, 1), job_class(0.0, 1.0, ids="a b c"), job_class(1.0, 0.0, ids="d"))
    allocation = Las().solve(asked)
    assert allocation.bottlenecked == ("a", "b", "c")
    assert allocation.prices["k80"] == 0.0
    assert allocation.prices["p100"] > 0.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (job_class(1.0, float("nan")), r"class 0 \(a\): throughputs is \(1.0, nan\), must be fini"),
        (job_class(1.0, float("inf")), r"throughputs is \(1.0, inf\), must be finite"),
        (job_class(1.0, -1.0), r"throughputs is \(1.0, -1.0\), must be finite and >= 0"),
        (job_class(1.0), r"throughputs has 1 values, must be one for each of \('k80', 'p100'\)"),
        (job_class(1.0, 1.0, weight=0.0), r"priority_weight is 0.0, must be finite and > 0"),
        (job_class(1.0, 1.0, scale_factor=0), r"scale_factor is 0, must be at least 1"),
    ],
)
@POLICIES
def test_senseless_numbers_are_refused_by_name(policy: Policy, bad: JobClass, message: str) -> None:
    """The error names the class, the field, the value, and what would be right."""
    with pytest.raises(ProblemError, match=message):
        policy.solve(problem((1, 1), bad))

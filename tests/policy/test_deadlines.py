"""Makespan and finish-time fairness: needs that differ inside a class, met exactly."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings

from services.policy import solver
from services.policy.catalog import resolve
from services.policy.classes import SHARE_UNIT
from services.policy.jobs import blind
from services.policy.problem import Allocation, Problem
from services.policy.reference import objectives as reference
from services.policy.solver import Floats
from tests.policy.problems import job_class, problem, shares, violation
from tests.policy.progress import Jobs, underway

AWARE = pytest.mark.parametrize("name", ["makespan", "ftf"])
BLIND = pytest.mark.parametrize("name", ["makespan:agnostic", "ftf:agnostic"])


def deadlines(name: str, jobs: Jobs) -> tuple[Floats, Floats]:
    """(jobs,) time from arrival in which the job is done at rho 1, and how much has passed."""
    if name.startswith("makespan"):
        return np.ones(len(jobs.ids)), np.zeros(len(jobs.ids))
    return jobs.isolated_s + jobs.steps / jobs.isolated, jobs.elapsed_s


def needs(name: str, jobs: Jobs, allocation: Allocation) -> Floats:
    """(jobs,) steps/s without which the objective would not be what it is said to be."""
    due_s, elapsed_s = deadlines(name, jobs)
    assert allocation.objective is not None
    left_s = allocation.objective * due_s - elapsed_s
    needed = np.divide(jobs.steps, left_s, out=np.zeros(len(left_s)), where=jobs.steps > 0)
    return np.minimum(needed, jobs.arrays.fastest)


@AWARE
@settings(max_examples=60)
@given(asked=underway())
def test_agrees_with_the_readable_program(name: str, asked: Problem) -> None:
    """Objective as by cvxpy, every job has what it needs for it, and the rest is handed out."""
    jobs = Jobs.of(asked)
    assume(jobs.steps.any())
    allocation = resolve(name).solve(asked)
    best = reference.lowest_rho(jobs.arrays, jobs.steps, *deadlines(name, jobs))
    assert allocation.objective == pytest.approx(best, rel=1e-6)
    assert violation(asked, allocation) <= 1e-9
    assert_nothing_is_left(name, jobs, asked, allocation)


def assert_nothing_is_left(name: str, jobs: Jobs, asked: Problem, allocation: Allocation) -> None:
    """Every job has what it needs, and beside that no more throughput can be had."""
    needed, speeds = needs(name, jobs, allocation), jobs.speeds(asked, allocation)
    assert (speeds >= needed * (1 - 1e-6) - jobs.lost_by_rounding).all()
    worth = 1 / jobs.arrays.equal
    most = reference.most_throughput(jobs.arrays, worth, needed * (1 - 1e-9))
    assert speeds @ worth >= most * (1 - 1e-6) - jobs.lost_by_rounding @ worth


def test_what_is_handed_out_is_kept_when_jobs_turn_out_to_need_a_cut() -> None:
    """Least worker time asks for a time of "b" and "c" that does not serve "c": one cut more."""
    asked = problem(
        (1, 1, 1),
        job_class(3.0, 5.0, 4.0, ids="a", steps=5.0),
        job_class(3.0, 3.0, 4.0, ids="b c", steps=(2.0, 10.0)),
        job_class(2.0, 4.0, 2.0, ids="d", steps=5.0),
    )
    allocation = resolve("makespan").solve(asked)
    assert_nothing_is_left("makespan", Jobs.of(asked), asked, allocation)


@AWARE
@settings(max_examples=40)
@given(asked=underway(max_classes=3))
def test_prices_say_what_a_little_more_of_a_type_takes_off(name: str, asked: Problem) -> None:
    """The objective falls with each type's workers at the type's price, deadlines unchanged."""
    jobs = Jobs.of(asked)
    assume(jobs.steps.any())
    allocation = resolve(name).solve(asked)
    assert allocation.objective is not None
    for j in np.flatnonzero(jobs.arrays.num_workers):
        falls = []
        for step in (-1e-3, 1e-3):
            workers = jobs.arrays.num_workers.copy()
            workers[j] += step
            more = reference.JobArrays(jobs.arrays.throughputs, jobs.arrays.scale_factors, workers)
            rho = reference.lowest_rho(more, jobs.steps, *deadlines(name, jobs))
            falls.append((allocation.objective - rho) / step)
        # At a kink, any price between the two slopes is a dual.
        slack = 5e-3 * max(falls) + 1e-4 * allocation.objective
        assert falls[1] - slack <= allocation.prices[asked.worker_types[j]] <= falls[0] + slack


@BLIND
@settings(max_examples=60)
@given(asked=underway())
def test_blind_shares_follow_the_workers_and_reach_the_optimum(name: str, asked: Problem) -> None:
    """Shares spread by the workers; with less, some job would be late for lack of workers or time.

    A spread leaves each job one number, its total share. So the objective is optimal if nobody
    can have less than it needs, and somebody's need is all of its time or fills a type.
    """
    asked = blind(asked)
    jobs = Jobs.of(asked)
    assume(jobs.steps.any())
    allocation = resolve(name).solve(asked)
    assert violation(asked, allocation) <= 1e-9
    x = jobs.shares(asked, allocation)
    workers = (jobs.arrays.throughputs > 0) * jobs.arrays.num_workers
    spread = workers / workers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(x, x.sum(axis=1, keepdims=True) * spread, atol=2 * SHARE_UNIT)

    needed = needs(name, jobs, allocation) / jobs.arrays.fastest
    assert (x.sum(axis=1) >= needed * (1 - 1e-6) - 4 * SHARE_UNIT).all()
    held = (jobs.arrays.scale_factors * needed) @ spread
    full = held >= jobs.arrays.num_workers * (1 - 1e-6)
    assert needed.max() >= 1 - 1e-6 or full[jobs.arrays.num_workers > 0].any()


@AWARE
@settings(max_examples=60)
@given(asked=underway(throughput_decades=(-4, 4), step_decades=(0, 6), max_classes=12))
def test_over_eight_orders_of_magnitude_who_needs_more_has_no_less(
    name: str, asked: Problem
) -> None:
    """Of two jobs of a class, the one with the greater need is at least as fast."""
    jobs = Jobs.of(asked)
    assume(jobs.steps.any())
    allocation = resolve(name).solve(asked)
    needed = needs(name, jobs, allocation)
    speeds = dict(zip(jobs.ids, jobs.speeds(asked, allocation), strict=True))
    needed_by = dict(zip(jobs.ids, needed, strict=True))
    lost = dict(zip(jobs.ids, jobs.lost_by_rounding, strict=True))
    for each in asked.classes:
        served = [job_id for job_id in each.job_ids if job_id in speeds]
        served.sort(key=needed_by.__getitem__)
        for slower, faster in itertools.pairwise(served):
            assert speeds[slower] <= speeds[faster] * (1 + 1e-6) + lost[faster]


@AWARE
@settings(max_examples=25)
@given(asked=underway(max_classes=4))
def test_clarabel_carries_on_where_highs_gives_up(name: str, asked: Problem) -> None:
    """With HiGHS stopped before its first pivot, the objective is the same to 1e-6."""
    assume(Jobs.of(asked).ids)
    by_highs = resolve(name).solve(asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(solver._OPTIONS, "simplex_iteration_limit", 0)
        by_clarabel = resolve(name).solve(asked)
    assert violation(asked, by_clarabel) <= 1e-9
    assert by_clarabel.objective == pytest.approx(by_highs.objective, rel=1e-6)


def test_everybody_is_done_by_the_makespan_and_nobody_waits_for_nothing() -> None:
    """A long job takes the fast worker; two short ones of its class share the slow one."""
    asked = problem((1, 1), job_class(1.0, 4.0, ids="long a b", steps=(4000.0, 500.0, 500.0)))
    allocation = resolve("makespan").solve(asked)
    assert allocation.objective == pytest.approx(1000.0)
    given_shares = shares(asked, allocation)
    assert given_shares["long"].tolist() == [0.0, 1.0]
    assert given_shares["a"].tolist() == given_shares["b"].tolist() == [0.5, 0.0]


def test_a_level_that_rounding_has_reached_gives_way() -> None:
    """Speeds over six orders of magnitude: at the highest level found there is no room at all."""
    alike = [job_class(2.0, 2.0, 2000.0, 0.02, ids=name, steps=1.0) for name in "cdef"]
    slow = [job_class(1.0, 1.0, 1.0, 1.0, ids=name, steps=1.0) for name in "gh"]
    wide = job_class(1.0, 1.0, 1000.0, 0.01, ids="a b", scale_factor=8, steps=(1.0, 10.0))
    paired = job_class(
        1e4, 1.0, 1.0, 1.0, ids="p q r s", scale_factor=2, steps=(1.0, 1.0, 10.0, 1000.0)
    )
    asked = problem((8, 0, 3, 1), wide, paired, *alike, *slow)
    allocation = resolve("makespan").solve(asked)
    assert violation(asked, allocation) <= 1e-9
    jobs = Jobs.of(asked)
    best = reference.lowest_rho(jobs.arrays, jobs.steps, *deadlines("makespan", jobs))
    assert allocation.objective == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("name", ["makespan", "makespan:agnostic", "makespan:ss"])
def test_a_job_as_good_as_done_keeps_nobody_from_an_answer(name: str) -> None:
    """A billionth of a second beside 30 million years: no solver takes that for a coefficient."""
    long, short = (
        job_class(1.0, ids="long late", steps=1e15),
        job_class(1e6, ids="short", steps=1e-3),
    )
    allocation = resolve(name).solve(problem((1,), long, short))
    assert allocation.objective == pytest.approx(2e15, rel=1e-6)


def test_the_job_that_holds_the_makespan_is_named() -> None:
    """The long job can go no faster; the others could be later and nobody would mind."""
    asked = problem((2,), job_class(1.0, ids="long a b", steps=(1000.0, 100.0, 100.0)))
    allocation = resolve("makespan").solve(asked)
    assert allocation.objective == pytest.approx(1000.0)
    assert allocation.bottlenecked == ("long",)
    assert allocation.prices == {"k80": 0.0}


def test_a_late_job_is_helped() -> None:
    """Two jobs alike but in age: the one that has waited is further behind, and gets more."""
    asked = problem((1,), job_class(1.0, ids="old new", steps=1000.0, elapsed_s=(2000.0, 0.0)))
    allocation = resolve("ftf").solve(asked)
    given_shares = shares(asked, allocation)
    # Isolated, each would take 1000 / 0.5 s: (2000 + 1000 / x) / 2000 = (1000 / (1 - x)) / 2000.
    old, new = given_shares["old"][0], given_shares["new"][0]
    assert old + new == 1.0
    assert 2000 + 1000 / old == pytest.approx(1000 / new, rel=1e-6)
    assert allocation.objective == pytest.approx(1000 / new / 2000, rel=1e-6)


def test_time_used_up_in_isolation_counts_for_the_job() -> None:
    """C_i lengthens the yardstick: who has had its share so far is not behind."""
    had_its_share = msgspec.structs.replace(
        job_class(1.0, ids="ahead behind", elapsed_s=1000.0), isolated_s=(2000.0, 0.0)
    )
    asked = problem((1,), had_its_share)
    given_shares = shares(asked, resolve("ftf").solve(asked))
    assert given_shares["ahead"][0] < given_shares["behind"][0]

"""The baselines: AlloX, Gandiva, Gandiva_fair and Tiresias."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from schemas.domain import AllocationRow
from services.policy.baselines.allox import AlloX
from services.policy.baselines.gandiva import Gandiva
from services.policy.baselines.gandiva_fair import GandivaFair
from services.policy.baselines.tiresias import Tiresias
from services.policy.catalog import resolve
from services.policy.isolated import Isolated
from services.policy.problem import JobClass, PolicyError, Problem, ProblemError
from services.policy.solver import Floats
from tests.policy.problems import job_class, problem, problems, shares, violation

BASELINES = pytest.mark.parametrize("name", ["allox", "gandiva", "gandiva-fair", "tiresias"])


@st.composite
def running_problems(draw: st.DrawFn, /, largest: int = 8, max_classes: int = 7) -> Problem:
    """Problems whose jobs have arrived in some order and have come some way."""
    asked = draw(problems(max_classes=max_classes))
    ranks = draw(st.permutations(range(asked.num_jobs)))
    seconds = st.floats(0.0, 1e5)
    classes = []
    for each in asked.classes:
        jobs = len(each.job_ids)
        mine, ranks = sorted(ranks[:jobs]), ranks[jobs:]
        changes = {
            "scale_factor": min(each.scale_factor, largest),
            "arrival_ranks": tuple(mine),
            "steps_remaining": tuple(draw(st.lists(seconds, min_size=jobs, max_size=jobs))),
            "elapsed_s": tuple(draw(st.lists(seconds, min_size=jobs, max_size=jobs))),
            "held_s": tuple(draw(st.lists(seconds, min_size=jobs, max_size=jobs))),
        }
        classes.append(msgspec.structs.replace(each, **changes))
    return msgspec.structs.replace(asked, classes=tuple(classes))


@BASELINES
@settings(max_examples=50)
@given(asked=running_problems(max_classes=8), seed=st.randoms(use_true_random=False))
def test_feasible_and_blind_to_the_order_of_the_input(
    name: str, asked: Problem, seed: Random
) -> None:
    """Every constraint holds, and classes in another order give every job the same."""
    before = resolve(name).solve(asked)
    assert violation(asked, before) <= 1e-9
    classes = list(asked.classes)
    seed.shuffle(classes)
    after = resolve(name).solve(msgspec.structs.replace(asked, classes=tuple(classes)))
    shares_after = shares(asked, after)
    for job_id, share in shares(asked, before).items():
        np.testing.assert_allclose(share, shares_after[job_id], atol=1.5e-8)


@BASELINES
@pytest.mark.parametrize("num_workers", [(), (0,), (0, 3)])
@pytest.mark.parametrize("with_job", [False, True])
def test_no_jobs_no_workers_no_types_are_ordinary(
    name: str, num_workers: tuple[int, ...], with_job: bool
) -> None:
    """Emptiness of any kind is answered, not raised; a job without workers is set aside."""
    classes = [job_class(*[1.0] * len(num_workers))] if with_job else []
    allocation = resolve(name).solve(problem(num_workers, *classes))
    assert len(allocation.rows) == int(with_job and sum(num_workers) > 0)
    assert len(allocation.set_aside) == int(with_job and sum(num_workers) == 0)


@BASELINES
def test_a_job_that_can_run_nowhere_changes_nothing(name: str) -> None:
    """It is set aside with its numbers; the others get what they would get without it."""
    fine = (job_class(1.0, 3.0, ids="a b c"), job_class(2.0, 2.5, ids="d"))
    never = job_class(0.0, 7.5, ids="big", scale_factor=4)
    allocation = resolve(name).solve(problem((2, 2), *fine, never))
    assert "4 workers" in allocation.set_aside["big"]
    assert allocation.rows == resolve(name).solve(problem((2, 2), *fine)).rows


# --- AlloX ---------------------------------------------------------------------------------------


def least_total(seconds: Floats, workers: tuple[int, ...]) -> float:
    """The assignment as a linear program: jobs to places, (type, position from the end)."""
    jobs, types = seconds.shape
    places = [(j, k) for j in range(types) for k in range(1, jobs + 1)]
    costs = np.array([[k * seconds[i, j] for j, k in places] for i in range(jobs)])
    can = np.isfinite(costs)
    one_place = np.kron(np.eye(jobs), np.ones(len(places)))
    room = np.kron(np.ones(jobs), np.eye(len(places)))
    answer = linprog(
        np.where(can, costs, 0.0).ravel(),
        A_eq=one_place,
        b_eq=np.ones(jobs),
        A_ub=room,
        b_ub=[workers[j] for j, _ in places],
        bounds=[(0, 1 if fine else 0) for fine in can.ravel()],
    )
    return float(answer.fun)


@settings(max_examples=60)
@given(running_problems(largest=1, max_classes=4))
def test_allox_finds_the_least_sum_of_completion_times(asked: Problem) -> None:
    """Its objective is that of the assignment program, plus the time that has passed."""
    allocation = AlloX().solve(asked)
    assume(allocation.objective is not None)
    seconds, elapsed = [], 0.0
    for each in asked.classes:
        speeds = np.where(np.array(asked.num_workers) > 0, each.throughputs, 0.0)
        if speeds.any():
            per_step = np.divide(1, speeds, out=np.full(len(speeds), np.inf), where=speeds > 0)
            seconds += [per_step * max(steps, 1e-9) for steps in each.steps_remaining]
            elapsed += sum(each.elapsed_s)
    expected = elapsed + least_total(np.array(seconds), asked.num_workers)
    assert allocation.objective == pytest.approx(expected, rel=1e-6, abs=1e-6)


@settings(max_examples=60)
@given(running_problems(largest=1, max_classes=5), st.data())
def test_a_start_is_never_undone(asked: Problem, data: st.DataObject) -> None:
    """Solved again after some jobs are done, all others that ran go on where they ran."""
    before = AlloX().solve(asked)
    job_ids = [job_id for each in asked.classes for job_id in each.job_ids]
    done = data.draw(st.sets(st.sampled_from(job_ids)))
    classes = []
    for each in asked.classes:
        keep = [i for i, job_id in enumerate(each.job_ids) if job_id not in done]
        changes = {
            field: tuple(getattr(each, field)[i] for i in keep)
            for field in ("job_ids", "arrival_ranks", "steps_remaining", "elapsed_s", "held_s")
        }
        classes.append(msgspec.structs.replace(each, **changes))
    later = msgspec.structs.replace(asked, classes=tuple(classes), previous=before.rows)
    shares_before, shares_after = shares(asked, before), shares(later, AlloX().solve(later))
    for job_id, share in shares_after.items():
        if shares_before[job_id].any():
            assert (share == shares_before[job_id]).all()


def test_allox_makes_the_long_job_wait_behind_the_short_one() -> None:
    """On one worker the short job runs first, whenever it came."""
    asked = problem((1,), job_class(1.0, ids="long short", steps=(1000.0, 10.0)))
    assert shares(asked, AlloX().solve(asked))["short"].tolist() == [1.0]
    assert shares(asked, AlloX().solve(asked))["long"].tolist() == [0.0]
    assert AlloX().solve(asked).objective == 10.0 + (10.0 + 1000.0)


def test_allox_does_not_know_jobs_of_several_workers() -> None:
    """They are set aside with the reason; jobs of one worker are placed."""
    asked = problem((4,), job_class(1.0, ids="gang", scale_factor=2), job_class(1.0, ids="one"))
    allocation = AlloX().solve(asked)
    assert "this one holds 2" in allocation.set_aside["gang"]
    assert shares(asked, allocation)["one"].tolist() == [1.0]


def test_when_workers_are_lost_the_last_to_arrive_gives_way() -> None:
    """Two ran, one worker is left: the earlier keeps it."""
    asked = problem((1,), job_class(1.0, ids="first second", steps=(500.0, 5.0)))
    before = (AllocationRow((("second",), ("first",)), {"k80": 1.0}),)
    found = AlloX().solve(msgspec.structs.replace(asked, previous=before))
    assert [row.combinations for row in found.rows] == [(("first",),)]


def test_jobs_without_progress_are_refused_by_name() -> None:
    """AlloX cannot order jobs whose length it does not know."""
    unknown = msgspec.structs.replace(job_class(1.0, ids="a b"), steps_remaining=())
    with pytest.raises(ProblemError, match="class a-b: steps_remaining has 0 values, must be one"):
        AlloX().solve(problem((1,), unknown))


# --- Gandiva -------------------------------------------------------------------------------------


def sharing(num_workers: tuple[int, ...], speed: float, *classes: JobClass) -> Problem:
    """A problem in which any two jobs together each have ``speed`` times that alone."""
    pairs = {}
    for c, one in enumerate(classes):
        for d, other in enumerate(classes):
            if c <= d and one.scale_factor == other.scale_factor:
                pairs[c, d] = (
                    tuple(speed * t for t in one.throughputs),
                    tuple(speed * t for t in other.throughputs),
                )
    return msgspec.structs.replace(problem(num_workers, *classes), pairs=pairs)


def combinations(asked: Problem, policy: Gandiva | None = None) -> dict[tuple[str, ...], float]:
    """{combination: total share}."""
    rows = (policy or Gandiva()).solve(asked).rows
    return {c: sum(row.shares.values()) for row in rows for c in row.combinations}


def test_nobody_shares_while_all_fit() -> None:
    """Four jobs on four workers: each alone, with all of its time."""
    asked = sharing((4,), 0.9, job_class(1.0, ids="a b c d"))
    assert combinations(asked) == {(job,): 1.0 for job in "abcd"}


def test_when_they_do_not_fit_pairs_are_formed_and_time_is_divided_evenly() -> None:
    """Six jobs on two workers: three pairs, two thirds of the time for each."""
    found = combinations(sharing((2,), 0.6, job_class(1.0, ids="a b c d e f")))
    assert sorted(job for pair in found for job in pair) == list("abcdef")
    assert {len(pair) for pair in found} == {2}
    assert list(found.values()) == pytest.approx([2 / 3] * 3, abs=1e-7)


def test_a_pair_that_slows_down_more_than_it_shares_is_not_kept() -> None:
    """Each at less than half its speed: all stay alone."""
    found = combinations(sharing((2,), 0.49, job_class(1.0, ids="a b c d e f")))
    assert {len(combination) for combination in found} == {1}


def test_jobs_of_different_scale_factors_are_never_paired() -> None:
    """A gang shares with a gang of its size, or with nobody."""
    small = job_class(1.0, ids="a b c")
    gangs = job_class(1.0, ids="g h", scale_factor=2)
    found = combinations(sharing((2,), 0.9, small, gangs))
    assert sorted(len(combination) for combination in found) == [1, 2, 2]
    assert ("g", "h") in found or ("h", "g") in found


def test_pairs_stay_together_and_depend_on_the_seed() -> None:
    """A pair in force is kept although the draw would make another; another seed makes others."""
    asked = sharing((2,), 0.9, job_class(1.0, ids=" ".join(f"j{i}" for i in range(12))))
    drawn = Gandiva().solve(asked)
    others = {frozenset(pair) for pair in combinations(asked, Gandiva(seed=1.0))}
    assert others != {frozenset(pair) for pair in combinations(asked)}
    kept = msgspec.structs.replace(asked, previous=drawn.rows)
    again = {frozenset(pair) for pair in combinations(kept, Gandiva(seed=1.0))}
    assert again == {frozenset(pair) for pair in combinations(asked)}


# --- Gandiva_fair --------------------------------------------------------------------------------


def test_who_gains_most_by_the_fast_type_buys_it_from_who_gains_least() -> None:
    """Speed-ups 9 and 1 trade at a price of 3, until the seller has no fast time left."""
    asked = problem((3, 3), job_class(1.0, 9.0, ids="a b c"), job_class(1.0, 1.0, ids="x y z"))
    isolated = shares(asked, Isolated().solve(asked))
    traded = shares(asked, GandivaFair().solve(asked))
    # A seller has half of each type, and so no more time to take what it would be paid.
    assert (traded["a"] == isolated["a"]).all()
    asked = problem((1, 1), *asked.classes)
    traded = shares(asked, GandivaFair().solve(asked))
    sold = 1 / 6 / 3
    assert traded["a"].tolist() == pytest.approx([0.0, 1 / 6 + sold], abs=1e-7)
    assert traded["x"].tolist() == pytest.approx([1 / 3, 1 / 6 - sold], abs=1e-7)


@settings(max_examples=100)
@given(problems())
def test_nobody_loses_by_trading(asked: Problem) -> None:
    """Every job's throughput is at least that of the isolated allocation."""
    isolated = shares(asked, Isolated().solve(asked))
    traded = shares(asked, GandivaFair().solve(asked))
    for each in asked.classes:
        speeds = np.array(each.throughputs)
        for job_id in each.job_ids:
            rounding = 1e-7 * speeds.sum()
            assert traded[job_id] @ speeds >= isolated[job_id] @ speeds - rounding


@settings(max_examples=100)
@given(problems())
def test_after_trading_two_types_no_deal_is_left(asked: Problem) -> None:
    """No two jobs with time to spare could still swap shares of two types and both gain."""
    assume(len(asked.worker_types) == 2)
    traded = shares(asked, GandivaFair().solve(asked))
    traders = [
        (each.throughputs[1] / each.throughputs[0], traded[each.job_ids[0]])
        for each in asked.classes
        if min(each.throughputs) > 0 and each.scale_factor <= min(asked.num_workers)
    ]
    some = 1e-6
    for up, buyer in traders:
        for other_up, seller in traders:
            # Unless each is faster on what it gets, who gets the slower type needs more time.
            needs_time = seller if up > 1 else buyer
            time_for_it = 0.0 if up > 1 > other_up else needs_time.sum()
            if up > other_up * 1.01 and time_for_it < 1 - some:
                assert buyer[0] <= some or seller[1] <= some


# --- Tiresias ------------------------------------------------------------------------------------


def served(asked: Problem, threshold_worker_s: float = 3600.0) -> set[str]:
    """Jobs that get all of their time."""
    found = shares(asked, Tiresias(threshold_worker_s).solve(asked))
    return {job_id for job_id, share in found.items() if share.sum() > 1 - 1e-6}


def test_who_has_had_little_comes_first_whenever_it_came() -> None:
    """Past the threshold a job makes room for new ones; before it, first come first."""
    jobs = job_class(1.0, ids="a b c")
    fresh = msgspec.structs.replace(jobs, held_s=(0.0, 0.0, 0.0))
    assert served(problem((2,), fresh)) == {"a", "b"}
    worn = msgspec.structs.replace(jobs, held_s=(3600.0, 3599.0, 0.0))
    assert served(problem((2,), worn)) == {"b", "c"}
    assert served(problem((2,), worn), threshold_worker_s=7200.0) == {"a", "b"}


def test_service_is_counted_in_worker_seconds() -> None:
    """A gang of four uses up its threshold four times as fast."""
    gang = msgspec.structs.replace(job_class(1.0, ids="g", scale_factor=4), held_s=(900.0,))
    small = msgspec.structs.replace(job_class(1.0, ids="s"), held_s=(900.0,), arrival_ranks=(9,))
    assert "s" in served(problem((4,), gang, small))
    assert "g" not in served(problem((4,), gang, small))


def test_shares_are_blind_to_speed() -> None:
    """A job's time is spread as the workers are, however fast it is where."""
    asked = problem((3, 1), job_class(1.0, 100.0))
    assert shares(asked, Tiresias().solve(asked))["a"].tolist() == [0.75, 0.25]


def test_a_threshold_that_is_none_is_refused() -> None:
    """The message says what would be right."""
    with pytest.raises(PolicyError, match=r"threshold_worker_s is 0\.0, must be above 0"):
        Tiresias(threshold_worker_s=0.0)


@settings(max_examples=60)
@given(running_problems())
def test_the_cluster_is_not_left_idle_while_a_job_waits(asked: Problem) -> None:
    """Whoever has not all of its time finds every type that it can use full."""
    allocation = Tiresias().solve(asked)
    found = shares(asked, allocation)
    used: Counter[int] = Counter()
    for each in asked.classes:
        for job_id in each.job_ids:
            for column, share in enumerate(found[job_id].tolist()):
                used[column] += share * each.scale_factor
    for each in asked.classes:
        for job_id in each.job_ids:
            if job_id not in allocation.set_aside and found[job_id].sum() < 1 - 1e-6:
                for column, workers in enumerate(asked.num_workers):
                    if each.throughputs[column] > 0 and each.scale_factor <= workers:
                        assert used[column] >= workers - 1e-5

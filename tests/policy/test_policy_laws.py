"""What holds of every objective that asks what is left of a job, or what it costs."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.policy.catalog import resolve
from services.policy.problem import JobClass, Problem, ProblemError
from tests.policy.problems import TYPES, job_class, problem, shares, violation
from tests.policy.progress import in_pieces, underway

NAMES = (
    "cost",
    "cost-slo",
    "ftf",
    "ftf:agnostic",
    "makespan",
    "makespan:agnostic",
    "max-throughput",
    "sjf",
    "sjf:agnostic",
)
EVERY = pytest.mark.parametrize("name", NAMES)
PROGRESSING = pytest.mark.parametrize("name", [n for n in NAMES if resolve(n).needs_progress])


@EVERY
@settings(max_examples=50)
@given(
    asked=underway(
        throughput_decades=(-4, 4), weight_decades=(-6, 6), step_decades=(0, 6), max_classes=12
    )
)
def test_extreme_numbers_still_give_a_feasible_allocation(name: str, asked: Problem) -> None:
    """Throughputs over eight orders of magnitude and needs over six do not break it."""
    assert violation(asked, resolve(name).solve(asked)) <= 1e-9


@EVERY
@settings(max_examples=30)
@given(asked=underway(), rng=st.randoms(use_true_random=False))
def test_order_and_grouping_of_the_input_change_nobodys_share(
    name: str, asked: Problem, rng: Random
) -> None:
    """Classes in another order, or cut in two, give every job the same; so does asking again."""
    before = resolve(name).solve(asked)
    assert resolve(name).solve(asked) == before
    after = resolve(name).solve(in_pieces(asked, rng))
    shares_before, shares_after = shares(asked, before), shares(asked, after)
    for job_id, share in shares_before.items():
        assert (share == shares_after[job_id]).all()
    assert after.unmet == before.unmet
    assert sorted(after.bottlenecked) == sorted(before.bottlenecked)


@EVERY
def test_a_job_that_can_run_nowhere_is_set_aside_and_changes_nothing(name: str) -> None:
    """The reason has the numbers; the others get what they would get without it."""
    fine = (job_class(1.0, 3.0, ids="a b c"), job_class(2.0, 2.5, ids="d"))
    never = msgspec.structs.replace(
        job_class(0.0, 7.5, ids="big", scale_factor=4), arrival_ranks=(9,)
    )
    allocation = resolve(name).solve(problem((8, 2), *fine, never))
    assert allocation.set_aside == {
        "big": "no worker type has both a throughput for it and the 4 workers of its scale factor "
        "(k80: 0 steps/s, 8 workers; p100: 7.5 steps/s, 2 workers)"
    }
    without = resolve(name).solve(problem((8, 2), *fine))
    assert allocation.rows == without.rows
    assert allocation.objective == without.objective


@EVERY
def test_a_type_too_small_for_a_gang_is_never_given_to_it(name: str) -> None:
    """Two workers are no half of a job that needs four at once."""
    asked = problem((4, 2), job_class(1.0, 100.0, ids="gang", scale_factor=4))
    assert shares(asked, resolve(name).solve(asked))["gang"].tolist() == [1.0, 0.0]


@EVERY
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


@EVERY
def test_a_type_that_nobody_can_use_stays_empty(name: str) -> None:
    """It is neither an error nor given to anybody."""
    asked = problem((2, 5), job_class(1.0, 0.0, ids="a b"))
    for share in shares(asked, resolve(name).solve(asked)).values():
        assert share.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("sjf")])
def test_identical_jobs_have_identical_shares(name: str) -> None:
    """Ten of a kind on three workers of two types: one row."""
    asked = problem((1, 2), job_class(1.0, 3.0, ids="a b c d e f g h i j"))
    allocation = resolve(name).solve(asked)
    assert [len(row.combinations) for row in allocation.rows] == [10]


@PROGRESSING
def test_jobs_with_nothing_left_to_do_are_ordinary(name: str) -> None:
    """A job whose last step is done, its completion still on the way, holds nobody up."""
    asked = problem((1,), job_class(1.0, ids="done going", steps=(0.0, 100.0)))
    given_shares = shares(asked, resolve(name).solve(asked))
    assert given_shares["done"].sum() + given_shares["going"].sum() == 1.0
    all_done = problem((1,), job_class(1.0, ids="a b", steps=0.0))
    assert violation(all_done, resolve(name).solve(all_done)) <= 0


@PROGRESSING
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps_remaining": ()}, r"class a-b: steps_remaining has 0 values, .* its 2 jobs"),
        ({"elapsed_s": (1.0,)}, r"class a-b: elapsed_s has 1 values, .* its 2 jobs"),
        ({"steps_remaining": (1.0, float("nan"))}, r"job b: steps_remaining is nan, must be a num"),
        ({"steps_remaining": (1.0, float("inf"))}, r"job b: steps_remaining is inf, must be a num"),
        ({"elapsed_s": (-1.0, 0.0)}, r"job a: elapsed_s is -1.0, must be a number >= 0"),
        ({"slo_remaining_s": (float("nan"), 1.0)}, r"job a: slo_remaining_s is nan, must be a num"),
    ],
)
def test_senseless_progress_is_refused_by_name(
    name: str, changes: dict[str, tuple[float, ...]], message: str
) -> None:
    """The error names the job or its class, the field, the value, and what would be right."""
    bad: JobClass = msgspec.structs.replace(job_class(1.0, ids="a b"), **changes)
    with pytest.raises(ProblemError, match=message):
        resolve(name).solve(problem((1,), bad))


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith(":agnostic")])
def test_a_job_that_has_no_speed_on_the_reference_type_is_taken_at_its_fastest(name: str) -> None:
    """Neither a type that is not there nor one the job cannot use makes a blind policy fail."""
    asked = problem((2, 2), job_class(1.0, 2.0, ids="a"), job_class(0.0, 4.0, ids="b"))
    expected = resolve(name).solve(msgspec.structs.replace(asked, reference_type=TYPES[1]))
    assert resolve(name).solve(asked) == expected
    on_k80 = msgspec.structs.replace(asked, reference_type=TYPES[0])
    assert violation(asked, resolve(name).solve(on_k80)) <= 0

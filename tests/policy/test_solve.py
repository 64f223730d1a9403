"""From a problem to the event that tells its outcome."""

from __future__ import annotations

from schemas.domain import AllocationRow
from schemas.events import AllocationComputed, AllocationFailed
from services.policy.core import Solve
from services.policy.problem import JobClass, Problem
from services.policy.solve import carry_out


def problem(*throughputs: float) -> Problem:
    """Single-worker jobs a, b, ... of a class each, on one worker."""
    return Problem(
        worker_types=("v100",),
        num_workers=(1,),
        classes=tuple(
            JobClass(
                job_type=f"m{i}",
                scale_factor=1,
                throughputs=(speed,),
                job_ids=("abc"[i],),
                arrival_ranks=(i,),
            )
            for i, speed in enumerate(throughputs)
        ),
    )


def test_an_answer_lists_shares_by_class() -> None:
    """Two equal jobs on one worker have half of it each."""
    event = carry_out(Solve("las", {}, problem(1.0, 2.0)))
    assert isinstance(event, AllocationComputed)
    shares = {row.combinations: row.shares for row in event.rows}
    assert shares == {(("a",),): {"v100": 0.5}, (("b",),): {"v100": 0.5}}


def test_jobs_that_get_nothing_are_listed_without_shares() -> None:
    """FIFO gives the worker to the first; the other is known, and may fill what is idle."""
    event = carry_out(Solve("fifo", {}, problem(1.0, 1.0)))
    assert isinstance(event, AllocationComputed)
    assert event.rows == (
        AllocationRow((("a",),), {"v100": 1.0}),
        AllocationRow((("b",),), {}),
    )


def test_jobs_that_can_run_nowhere_are_set_aside_and_the_others_served() -> None:
    """A throughput of 0 everywhere is that job's trouble only."""
    event = carry_out(Solve("las", {}, problem(1.0, 0.0)))
    assert isinstance(event, AllocationComputed)
    assert list(event.set_aside) == ["b"]
    assert event.rows == (
        AllocationRow((("a",),), {"v100": 1.0}),
        AllocationRow((("b",),), {}),
    )


def test_a_policy_nobody_knows_is_an_outcome_in_the_log() -> None:
    """The event names the policy and what may have been meant; nothing is raised."""
    event = carry_out(Solve("lass", {}, problem(1.0)))
    assert isinstance(event, AllocationFailed)
    assert event.policy == "lass"
    assert event.reason.startswith("policy 'lass' is not known; did you mean 'las'")


def test_a_problem_that_makes_no_sense_is_an_outcome_too() -> None:
    """A throughput that is no number fails the solve with the value, not the service."""
    event = carry_out(Solve("las", {}, problem(1.0, float("nan"))))
    assert isinstance(event, AllocationFailed)
    assert "nan" in event.reason


def test_equal_problems_have_equal_answers() -> None:
    """No answer depends on the solves before it."""
    solve = Solve("las", {}, problem(1.0, 2.0))
    first = carry_out(solve)
    carry_out(Solve("las", {}, problem(3.0, 1.0)))
    assert carry_out(solve) == first

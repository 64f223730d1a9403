"""Admission: what can never run is refused with the numbers that say so, everything else waits."""

from __future__ import annotations

import math
from typing import Any

import pytest

from schemas.decisions import Emit, Wake
from schemas.domain import JobSpec
from schemas.events import JobAdmitted, JobRejected, ThroughputUnknown
from services.mechanism.admission import hopeless, refusal
from services.mechanism.core import MechanismCore
from tests.mechanism.events import allocation, estimate, job, lease, plan, told, worker, workers

CLUSTER = {"k80": 4, "v100": 2}


def spec(**changes: Any) -> JobSpec:
    """A job that is fine but for the changes."""
    facts: dict[str, Any] = {"job_id": "j", "job_type": "m", "total_steps": 10.0}
    return JobSpec(**(facts | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"job_id": "a b"}, "job_id 'a b' is not 1 to 64 letters, digits, '_' or '-'"),
        ({"job_id": "x" * 65}, f"job_id {'x' * 65!r} is not 1 to 64 letters, digits, '_' or '-'"),
        ({"scale_factor": 0}, "scale_factor is 0; it must be at least 1"),
        ({"total_steps": None}, "total_steps is None; it must be a number above 0"),
        ({"total_steps": 0.0}, "total_steps is 0.0; it must be a number above 0"),
        ({"total_steps": math.nan}, "total_steps is nan; it must be a number above 0"),
        ({"total_steps": math.inf}, "total_steps is inf; it must be a number above 0"),
        ({"priority_weight": 0.0}, "priority_weight is 0.0; it must be a number above 0"),
        ({"priority_weight": -1.0}, "priority_weight is -1.0; it must be a number above 0"),
        (
            {"declared_throughputs": {"v100": -2.0}},
            "declared_throughputs of v100 is -2.0; it must be 0 or more steps/s",
        ),
        (
            {"declared_throughputs": {"v100": math.inf}},
            "declared_throughputs of v100 is inf; it must be 0 or more steps/s",
        ),
        ({"scale_factor": 5}, "asks for 5 workers of one type; there are k80: 4, v100: 2"),
        (
            {"scale_factor": 3, "allowed_worker_types": ("v100", "a100")},
            "asks for 3 workers of one type; there are a100: 0, v100: 2",
        ),
    ],
)
def test_refusals_name_the_value_and_what_would_be_right(
    changes: dict[str, Any], reason: str
) -> None:
    """Each fault of a job is refused in words that have its numbers."""
    assert refusal(spec(**changes), CLUSTER) == reason


@pytest.mark.parametrize("scale_factor", [1, 2, 4])
def test_a_job_that_fits_one_type_is_admitted(scale_factor: int) -> None:
    """All workers of one type may be asked for."""
    assert refusal(spec(scale_factor=scale_factor), CLUSTER) is None


def test_nobody_is_too_big_for_a_cluster_that_is_not_there_yet() -> None:
    """While no worker has registered, size is no reason to refuse."""
    assert refusal(spec(scale_factor=64), {}) is None
    assert hopeless(spec(scale_factor=64), {"v100": 1.0}, {}) is None


@pytest.mark.parametrize(
    ("changes", "speeds", "reason"),
    [
        (
            {},
            {"k80": 0.0, "v100": 0.0},
            "throughput is 0 on every worker type (steps/s known: k80: 0, v100: 0)",
        ),
        ({}, {}, "throughput is 0 on every worker type (steps/s known: none)"),
        (
            {"allowed_worker_types": ("k80",)},
            {"k80": 0.0, "v100": 2.5},
            (
                "throughput is 0 on every worker type of the allowed k80 "
                "(steps/s known: k80: 0, v100: 2.5)"
            ),
        ),
        (
            {"scale_factor": 3},
            {"k80": 0.0, "v100": 2.5},
            (
                "asks for 3 workers of one type that it can run on; there are v100: 2 "
                "(steps/s known: k80: 0, v100: 2.5)"
            ),
        ),
        (
            {},
            {"a100": 2.5},
            (
                "asks for 1 workers of one type that it can run on; there are a100: 0 "
                "(steps/s known: a100: 2.5)"
            ),
        ),
    ],
)
def test_throughputs_that_can_never_be_had_are_said_so(
    changes: dict[str, Any], speeds: dict[str, float], reason: str
) -> None:
    """A job that runs nowhere it may, or only where there are too few workers, is hopeless."""
    assert hopeless(spec(**changes), speeds, CLUSTER) == reason


def test_one_usable_type_is_hope_enough() -> None:
    """A throughput above 0 on one allowed type with enough workers is enough."""
    assert hopeless(spec(scale_factor=2), {"k80": 0.0, "v100": 1.0}, CLUSTER) is None


def test_a_job_for_16_of_12_workers_is_refused_and_nobody_notices() -> None:
    """The refused job leaves the others' plan exactly as it would be without it."""
    plans = []
    for also_the_giant in (False, True):
        core = MechanismCore()
        told(core, 0.0, *workers(12), estimate({"v100": 1.0}, 1), estimate({"v100": 1.0}, 8))
        submitted = told(core, 0.0, job("small"), job("big", 8))
        if also_the_giant:
            assert told(core, 0.0, job("giant", 16)) == [
                Emit(
                    JobRejected(
                        job_id="giant",
                        reason="asks for 16 workers of one type; there are v100: 12",
                    )
                )
            ]
        assert Wake("round/1", 10.0) in submitted
        told(core, 0.0, allocation({("small",): {"v100": 1.0}, ("big",): {"v100": 1.0}}))
        plans.append(plan(core, 1, 10.0))
    assert plans[0] == plans[1]
    assert [each.tasks[0].job_id for each in plans[0].granted] == ["big", "small"]


def test_jobs_from_before_the_first_worker_run_once_there_is_one() -> None:
    """Jobs submitted to an empty cluster are admitted, wait without a timer, and then run."""
    core = MechanismCore()
    assert told(core, 5.0, estimate({"v100": 1.0}), job("a")) == [Emit(JobAdmitted(job_id="a"))]
    assert told(core, 100.0, worker("w")) == [Wake("round/1", 110.0)]
    planned = plan(core, 1, 110.0)
    assert planned.granted == (lease("r1-0", ["a"], ["w"], priority=1.0),)


def test_jobs_without_a_throughput_do_not_hold_up_the_others() -> None:
    """A job of unknown throughput is rejected with the estimator's reason, the other runs."""
    core = MechanismCore()
    told(core, 0.0, worker("w"), estimate({"v100": 1.0}), job("lost", job_type="x"), job("a"))
    unknown = ThroughputUnknown(job_id="lost", reason="no throughput of job type 'x' is known")
    assert told(core, 1.0, unknown) == [
        Emit(JobRejected(job_id="lost", reason="no throughput of job type 'x' is known"))
    ]
    assert [g.tasks[0].job_id for g in plan(core, 1, 10.0).granted] == ["a"]


def test_an_estimate_of_zero_rejects_the_jobs_of_its_class_only() -> None:
    """Hopeless jobs are rejected when the estimate comes; jobs of other classes stay."""
    core = MechanismCore()
    told(core, 0.0, worker("w"), estimate({"v100": 1.0}))
    told(core, 0.0, job("a"), job("x1", job_type="x"), job("x2", job_type="x"))
    decisions = told(core, 1.0, estimate({"v100": 0.0}, job_type="x"))
    reason = "throughput is 0 on every worker type (steps/s known: v100: 0)"
    assert decisions == [Emit(JobRejected(job_id=job_id, reason=reason)) for job_id in ("x1", "x2")]
    assert [g.tasks[0].job_id for g in plan(core, 1, 10.0).granted] == ["a"]


def test_the_second_submit_of_a_running_job_changes_nothing() -> None:
    """A job id that is active is not admitted, or refused, a second time."""
    core = MechanismCore()
    told(core, 0.0, worker("w"), estimate({"v100": 1.0}), job("a"))
    assert told(core, 1.0, job("a"), job("a", 0)) == []


def test_a_type_with_throughput_zero_is_never_given_out() -> None:
    """Of two idle workers the job gets the one it runs on, whatever X says of the other."""
    core = MechanismCore()
    told(core, 0.0, worker("k", "k80"), worker("v"), estimate({"k80": 0.0, "v100": 1.0}))
    told(core, 0.0, job("a"), job("b"))
    told(core, 0.0, allocation({("a",): {"v100": 0.5}, ("b",): {"k80": 1.0, "v100": 0.5}}))
    planned = plan(core, 1, 10.0)
    assert [g.worker_type for g in planned.granted] == ["v100"]

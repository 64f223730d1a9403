"""The policy's core: when X is stale, when it is solved for, and what the problem is made of."""

from __future__ import annotations

import math
from typing import Any

import pytest

from schemas.decisions import Decision, Run, Wake
from schemas.domain import JobSpec, PairThroughput, TaskProgress, Throughput, ThroughputRow
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    AnyEvent,
    ClusterConfigured,
    DrainRequested,
    JobAdmitted,
    JobCompleted,
    JobSubmitted,
    ProgressReported,
    RoundDue,
    TaskStopped,
    ThroughputEstimated,
    TimerFired,
    WorkerLost,
    WorkerRegistered,
    WorkerReturned,
)
from services.policy.core import PolicyCore, Solve
from services.policy.problem import JobClass, Problem

ANSWER = AllocationComputed(policy="las", rows=())
NO_ANSWER = AllocationFailed(policy="las", reason="infeasible")
ON_GRID = ClusterConfigured(policy="las")
WITH_GAP = ClusterConfigured(policy="las", resolve_min_gap_s=100.0)
LAST_TASK = ClusterConfigured(policy="las", round_end="last_task", resolve_min_gap_s=100.0)


def told(core: PolicyCore, at: float, *events: AnyEvent) -> list[Decision]:
    """What the core decides on these events, all of them at one time."""
    return [decision for event in events for decision in core.handle(event, at)]


def registered(worker_id: str, worker_type: str = "v100", server: str = "s") -> WorkerRegistered:
    """One accelerator."""
    return WorkerRegistered(
        worker_id=worker_id, worker_type=worker_type, server_id=server, reporter="worker.a"
    )


def estimated(
    job_type: str = "m",
    job_id: str = "",
    beside: tuple[PairThroughput, ...] = (),
    **speeds: float,
) -> ThroughputEstimated:
    """Steps/s by worker type of a class of scale factor 1, or of one job."""
    row = ThroughputRow(
        job_type=job_type,
        scale_factor=1,
        alone=tuple(Throughput(*cell) for cell in sorted(speeds.items())),
        beside=beside,
    )
    return ThroughputEstimated(row=row, job_id=job_id, source="table")


def admitted(job_id: str, **facts: Any) -> tuple[JobSubmitted, JobAdmitted]:
    """A job comes in."""
    fields: dict[str, Any] = {"job_id": job_id, "job_type": "m", "total_steps": 100.0}
    spec = JobSpec(**(fields | facts))
    return JobSubmitted(job=spec), JobAdmitted(job_id=job_id)


def standing(config: ClusterConfigured) -> PolicyCore:
    """A core with one worker and the estimate of one class, nothing asked for yet."""
    core = PolicyCore()
    assert told(core, 0.0, config, registered("w"), estimated(v100=2.0)) == []
    return core


def problems(decisions: list[Decision]) -> list[Problem]:
    """The problems of the solves asked for."""
    solves = [d.effect for d in decisions if isinstance(d, Run)]
    return [solve.problem for solve in solves if isinstance(solve, Solve)]


def jobs_of(decisions: list[Decision]) -> list[list[str]]:
    """Per solve asked for, its jobs."""
    return [
        sorted(job_id for c in problem.classes for job_id in c.job_ids)
        for problem in problems(decisions)
    ]


# --- when ----------------------------------------------------------------------------------------


def test_a_solve_carries_its_whole_input() -> None:
    """The first job is a reset event; the effect names policy, parameters and problem."""
    core = PolicyCore()
    config = ClusterConfigured(
        policy="las:ss",
        policy_parameters={"tolerance": 0.5},
        prices_usd_per_h={"v100": 3.0},
        reference_type="v100",
    )
    told(core, 0.0, config, registered("w"), estimated(v100=2.0))
    assert told(core, 5.0, *admitted("a")) == [
        Run(
            Solve(
                "las:ss",
                {"tolerance": 0.5},
                Problem(
                    worker_types=("v100",),
                    num_workers=(1,),
                    classes=(
                        JobClass(
                            job_type="m",
                            scale_factor=1,
                            throughputs=(2.0,),
                            job_ids=("a",),
                            arrival_ranks=(0,),
                        ),
                    ),
                    prices_usd_per_h=(3.0,),
                    reference_type="v100",
                ),
            )
        )
    ]


def test_requests_that_come_during_a_solve_are_one_request_after_it() -> None:
    """Three arrivals while one solve is under way: the answer is followed by one solve of all."""
    core = standing(ON_GRID)
    assert jobs_of(told(core, 1.0, *admitted("a"))) == [["a"]]
    assert told(core, 1.0, *admitted("b"), *admitted("c"), *admitted("d")) == []
    assert jobs_of(told(core, 2.0, ANSWER)) == [["a", "b", "c", "d"]]
    assert told(core, 3.0, ANSWER) == []


@pytest.mark.parametrize(
    "event",
    [
        registered("w2"),
        WorkerLost(worker_id="w", since_s=0.0),
        WorkerReturned(worker_id="w", reporter="worker.a"),
        DrainRequested(worker_id="w"),
        JobCompleted(job_id="a", steps=100.0),
        estimated(v100=3.0),
        estimated(job_id="b", v100=3.0),
        ON_GRID,
    ],
    ids=lambda event: type(event).__name__,
)
def test_every_reset_event_is_followed_by_a_solve(event: AnyEvent) -> None:
    """Arrivals, ends, workers, estimates and settings make X stale."""
    core = standing(ON_GRID)
    told(core, 1.0, *admitted("a"), *admitted("b"), ANSWER, ANSWER)
    assert len(problems(told(core, 2.0, event))) == 1


@pytest.mark.parametrize(
    "event",
    [
        estimated("other", v100=3.0),
        TimerFired(timer="solve/7", due_s=2.0),
        RoundDue(round_id=2),
        JobCompleted(job_id="nobody", steps=1.0),
        ProgressReported(reporter="worker.a", round_id=1, rows=()),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_changes_no_problem_leads_to_no_solve(event: AnyEvent) -> None:
    """An estimate of a class without jobs, an old timer, progress: X is as good as before."""
    core = standing(ON_GRID)
    told(core, 1.0, *admitted("a"), ANSWER)
    assert told(core, 2.0, event) == []


def test_between_two_solves_lies_the_least_gap() -> None:
    """Within it a reset event asks for one timer; the solve follows when that is due."""
    core = standing(WITH_GAP)
    told(core, 10.0, *admitted("a"), ANSWER)
    assert told(core, 30.0, *admitted("b")) == [Wake("solve/110.0", 110.0)]
    assert told(core, 40.0, *admitted("c")) == []
    due = TimerFired(timer="solve/110.0", due_s=110.0)
    assert jobs_of(told(core, 110.0, due)) == [["a", "b", "c"]]


def test_no_gap_is_kept_once_no_known_job_is_left() -> None:
    """All jobs that X knows of are done: the one that waits is not made to wait for the gap."""
    core = standing(WITH_GAP)
    told(core, 10.0, *admitted("a"), ANSWER, *admitted("b"))
    assert jobs_of(told(core, 20.0, JobCompleted(job_id="a", steps=100.0))) == [["b"]]


def test_after_an_idle_spell_no_gap_is_kept() -> None:
    """The first job after the last one is solved for at once."""
    core = standing(WITH_GAP)
    told(core, 10.0, *admitted("a"), ANSWER)
    assert told(core, 11.0, JobCompleted(job_id="a", steps=100.0)) == []
    assert jobs_of(told(core, 12.0, *admitted("b"))) == [["b"]]


def test_rounds_that_end_with_their_last_task_solve_when_due_only() -> None:
    """``last_task``: reset events wait for RoundDue, and RoundDue for the least gap."""
    core = standing(LAST_TASK)
    assert told(core, 10.0, *admitted("a")) == []
    assert jobs_of(told(core, 10.0, RoundDue(round_id=1))) == [["a"]]
    assert told(core, 10.0, ANSWER, *admitted("b")) == []
    assert told(core, 60.0, RoundDue(round_id=2)) == []
    assert jobs_of(told(core, 110.0, RoundDue(round_id=3))) == [["a", "b"]]
    assert told(core, 110.0, ANSWER, RoundDue(round_id=4)) == []


def test_last_task_solves_within_the_gap_once_no_known_job_is_left() -> None:
    """Waiting out the gap would leave the cluster idle."""
    core = standing(LAST_TASK)
    told(core, 10.0, *admitted("a"), RoundDue(round_id=1), ANSWER, *admitted("b"))
    told(core, 20.0, JobCompleted(job_id="a", steps=100.0))
    assert jobs_of(told(core, 20.0, RoundDue(round_id=2))) == [["b"]]


def test_last_task_asked_before_it_knows_of_a_job_answers_when_it_does() -> None:
    """An estimate that comes after RoundDue: nothing runs, so nobody will ask again."""
    core = PolicyCore()
    told(core, 0.0, LAST_TASK, registered("w"), *admitted("a"))
    assert told(core, 10.0, RoundDue(round_id=1)) == []
    assert jobs_of(told(core, 11.0, estimated(v100=2.0))) == [["a"]]
    assert told(core, 11.0, ANSWER, *admitted("b")) == []


def test_a_failed_solve_is_tried_again_at_the_next_reset_event() -> None:
    """Not at once, and not never."""
    core = standing(ON_GRID)
    told(core, 1.0, *admitted("a"))
    assert told(core, 2.0, NO_ANSWER) == []
    assert jobs_of(told(core, 3.0, *admitted("b"))) == [["a", "b"]]


def test_a_failed_solve_that_is_stale_already_is_followed_by_the_next() -> None:
    """What came during it is a reset event like any other."""
    core = standing(ON_GRID)
    told(core, 1.0, *admitted("a"), *admitted("b"))
    assert jobs_of(told(core, 2.0, NO_ANSWER)) == [["a", "b"]]


# --- what the problem is made of -----------------------------------------------------------------


def test_jobs_without_an_estimate_stay_outside_until_it_comes() -> None:
    """Nothing is solved for them; with the estimate they are in."""
    core = standing(ON_GRID)
    assert told(core, 1.0, *admitted("x", job_type="x")) == []
    assert jobs_of(told(core, 2.0, *admitted("a"), ANSWER)) == [["a"]]
    assert jobs_of(told(core, 3.0, estimated("x", v100=1.0))) == [["a", "x"]]


def test_jobs_are_classes_by_all_that_a_solver_sees() -> None:
    """Same type and weight: one class. Another weight, entity, choice of types: another class."""
    core = PolicyCore()
    told(core, 0.0, ON_GRID, registered("w"), registered("k", "k80"), estimated(k80=1.0, v100=2.0))
    arrivals = [
        admitted("a"),
        admitted("heavy", priority_weight=2.0),
        admitted("b"),
        admitted("team", entity="e"),
        admitted("choosy", allowed_worker_types=("k80",)),
    ]
    for arrival in arrivals:
        told(core, 1.0, *arrival)
    (problem,) = problems(told(core, 2.0, ANSWER))
    assert problem.worker_types == ("k80", "v100")
    seen = {c.job_ids: (c.throughputs, c.arrival_ranks) for c in problem.classes}
    assert seen == {
        ("a", "b"): ((1.0, 2.0), (0, 2)),
        ("heavy",): ((1.0, 2.0), (1,)),
        ("team",): ((1.0, 2.0), (3,)),
        ("choosy",): ((1.0, 0.0), (4,)),
    }


def test_a_type_without_figure_or_with_figure_zero_has_throughput_zero() -> None:
    """What is not known to run does not run."""
    core = PolicyCore()
    told(core, 0.0, ON_GRID, *(registered(t, t) for t in ("k80", "p100", "v100")))
    told(core, 0.0, estimated(k80=0.0, v100=2.0))
    (problem,) = problems(told(core, 1.0, *admitted("a")))
    assert problem.classes[0].throughputs == (0.0, 0.0, 2.0)


def test_a_job_with_an_estimate_of_its_own_is_a_class_of_its_own() -> None:
    """And goes by its own figures."""
    core = standing(ON_GRID)
    told(core, 1.0, *admitted("a"), *admitted("b"), ANSWER, ANSWER)
    (problem,) = problems(told(core, 2.0, estimated(job_id="b", v100=5.0, k80=1.0)))
    assert {c.job_ids: c.throughputs for c in problem.classes} == {("a",): (2.0,), ("b",): (5.0,)}


def test_a_job_that_is_as_its_class_but_for_a_factor_stays_in_it() -> None:
    """In terms of the class's speed it has so much less to go, now and when the class changes."""
    core = standing(ClusterConfigured(policy="makespan"))
    told(core, 1.0, *admitted("a"), *admitted("b"), ANSWER, ANSWER)
    (problem,) = problems(told(core, 2.0, estimated(job_id="b", v100=5.0), ANSWER))
    (job_class,) = problem.classes
    assert job_class.throughputs == (2.0,)
    assert job_class.steps_remaining == (100.0, 100.0 / (5.0 / 2.0))
    assert job_class.factors == (1.0, 5.0 / 2.0)
    (problem,) = problems(told(core, 3.0, estimated(v100=4.0), ANSWER))
    (job_class,) = problem.classes
    assert job_class.throughputs == (4.0,)
    assert job_class.steps_remaining == (100.0, 100.0 / (5.0 / 4.0))


def test_progress_is_told_to_policies_that_ask_for_it() -> None:
    """Steps to go, seconds since arrival and to the deadline; steps never go back."""
    core = standing(ClusterConfigured(policy="fifo"))
    # No policy of the catalog asks for progress yet: the switch is the policy's own property.
    core._needs_progress = True
    told(core, 10.0, *admitted("a", slo_s=500.0), ANSWER)
    for steps in (40.0, 30.0):
        rows = (TaskProgress("l", "a", steps, 0.0, 20.0),)
        told(core, 30.0, ProgressReported(reporter="worker.a", round_id=1, rows=rows))
    stop = TaskProgress("l", "a", 50.0, 35.0, 20.0)
    told(core, 30.0, TaskStopped(reporter="worker.a", task=stop, reason="lost"))
    (problem,) = problems(told(core, 60.0, *admitted("b")))
    (job_class,) = problem.classes
    assert job_class.steps_remaining == (100.0 - 40.0, 100.0)
    assert job_class.elapsed_s == (60.0 - 10.0, 0.0)
    assert job_class.slo_remaining_s == (10.0 + 500.0 - 60.0, math.inf)


def test_workers_that_are_lost_or_draining_are_no_capacity() -> None:
    """Each comes back by its own way: a drained worker that returns is still drained."""
    core = PolicyCore()
    told(core, 0.0, ON_GRID, estimated(v100=1.0))
    told(core, 0.0, *(registered(name, server=f"s{name}") for name in "abc"))
    told(core, 0.0, *admitted("j"), ANSWER)
    seen = []
    for event in (
        WorkerLost(worker_id="a", since_s=0.0),
        DrainRequested(server_id="sb"),
        WorkerReturned(worker_id="b", reporter="worker.a"),
        WorkerReturned(worker_id="a", reporter="worker.a"),
        registered("b"),
    ):
        (problem,) = problems(told(core, 1.0, event, ANSWER))
        seen.append(problem.num_workers)
    assert seen == [(2,), (1,), (1,), (2,), (3,)]


def test_pairs_are_told_of_once_per_two_classes_and_only_to_space_sharing() -> None:
    """Rows of either class serve; a job with figures of its own pairs as its class does, scaled."""
    for policy, expected in (
        ("las", {}),
        (
            "las:ss",
            {
                (0, 0): ((0.6,), (0.6,)),
                (0, 1): ((0.6,), (1.2,)),
                (1, 1): ((1.2,), (1.2,)),
                (0, 2): ((0.7,), (0.9,)),
                (1, 2): ((1.4,), (0.9,)),
            },
        ),
    ):
        core = PolicyCore()
        told(core, 0.0, ClusterConfigured(policy=policy), registered("w"))
        same = PairThroughput("v100", "m", 0.6, 0.6)
        other = PairThroughput("v100", "m", 0.9, 0.7)
        told(core, 0.0, estimated(beside=(same,), v100=1.0))
        told(core, 0.0, estimated("x", beside=(other,), v100=1.0))
        told(core, 0.0, estimated(job_id="own", v100=2.0, k80=1.0))
        told(core, 1.0, *admitted("a"), *admitted("own"), *admitted("b", job_type="x"))
        (problem,) = problems(told(core, 2.0, ANSWER))
        classes = [c.job_ids for c in problem.classes]
        assert classes == [("a",), ("own",), ("b",)]
        assert problem.pairs == expected


def test_a_job_submitted_twice_is_the_job_submitted_first() -> None:
    """What the mechanism ignores, the policy must not believe."""
    core = standing(ON_GRID)
    first, admission = admitted("a")
    second, _ = admitted("a", priority_weight=9.0)
    (problem,) = problems(told(core, 1.0, first, second, admission))
    assert problem.classes[0].priority_weight == 1.0

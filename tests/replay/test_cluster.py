"""The simulated cluster: tasks run as the arithmetic of rates and checkpoints says."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.cluster import Cluster
from replay.driver import Outcome
from schemas.decisions import Effect
from schemas.domain import Lease, TaskProgress, TaskSpec
from schemas.events import (
    AnyEvent,
    ProgressReported,
    TasksStarted,
    TaskStopped,
    WorkerRegistered,
)
from services.policy.core import Solve
from services.policy.problem import Problem
from services.worker.core import DetectWorkers, RunRound, StopTask

NAME, ROUND_S = "worker.simulated", 100.0
#: Steps/s alone; of two together, each runs at this part of its own.
SPEED = {"m": 1.0, "fast": 4.0, "odd": 0.3, "slow": 0.004, "stuck": 0.0}
TOGETHER = 0.5

Reported = list[tuple[float, AnyEvent]]


def rates(tasks: Sequence[TaskSpec], _worker_type: str) -> Sequence[float]:
    """The truth: by job type, and whether alone."""
    part = 1.0 if len(tasks) == 1 else TOGETHER
    return [part * SPEED[task.job_type] for task in tasks]


class Playing:
    """Carries out effects on a cluster and lets time pass, each report in its turn."""

    def __init__(
        self,
        *workers: WorkerRegistered,
        load_s: float = 0.0,
        save_s: float = 0.0,
    ) -> None:
        self._cluster = Cluster(workers, rates, load_s=load_s, save_s=save_s)
        self._queue: list[tuple[float, int, int, int, Outcome]] = []
        self._effects = 0
        self._pushed = 0

    def carry_out(self, effect: Effect, now: float) -> None:
        """Start the effect; what it reports comes with ``until``."""
        self._effects += 1
        cause = self._effects

        def report(at: float, n: int, outcome: Outcome) -> None:
            self._pushed += 1
            heapq.heappush(self._queue, (max(at, now), cause, n, self._pushed, outcome))

        self._cluster.carry_out(effect, now, report)

    def until(self, end: float) -> Reported:
        """What is reported up to ``end``, and when."""
        reported: Reported = []
        while self._queue and self._queue[0][0] <= end:
            at, _, _, _, outcome = heapq.heappop(self._queue)
            event = outcome() if callable(outcome) else outcome
            if event is not None:
                reported.append((at, event))
        return reported


def task(job_id: str, total_steps: float, job_type: str = "m") -> TaskSpec:
    """A job on one worker."""
    return TaskSpec(job_id=job_id, job_type=job_type, scale_factor=1, total_steps=total_steps)


def lease(lease_id: str, *tasks: TaskSpec) -> Lease:
    """The right of these tasks to one worker."""
    return Lease(
        lease_id=lease_id,
        tasks=tasks,
        worker_type="v100",
        worker_ids=("w",),
        reporters=(NAME,),
    )


def a_round(
    round_id: int, *granted: Lease, renewed: tuple[Lease, ...] = (), last_task: bool = False
) -> RunRound:
    """Round 1 starts at 0, and so on; whole steps where a round ends with its last task."""
    starts_at_s = (round_id - 1) * ROUND_S
    return RunRound(
        reporter=NAME,
        round_id=round_id,
        starts_at_s=starts_at_s,
        ends_at_s=starts_at_s + ROUND_S,
        whole_steps_in_s=ROUND_S if last_task else None,
        granted=granted,
        renewed=renewed,
    )


def started(*lease_ids: str) -> TasksStarted:
    """These leases' tasks are up."""
    return TasksStarted(reporter=NAME, lease_ids=lease_ids)


def progress(round_id: int, *rows: TaskProgress) -> ProgressReported:
    """The round's last word."""
    return ProgressReported(reporter=NAME, round_id=round_id, rows=rows)


def completed(row: TaskProgress) -> TaskStopped:
    """A job is done."""
    return TaskStopped(reporter=NAME, task=row, reason="completed")


# --- rounds on the grid --------------------------------------------------------------------------


def test_a_job_completes_exactly_when_its_steps_are_done() -> None:
    """Load, then steps at the rate of its type: 10 s + 120 steps at 4 a second."""
    play = Playing(load_s=10.0, save_s=5.0)
    play.carry_out(a_round(1, lease("l", task("a", 120.0, "fast"))), 0.0)
    done_s = 10.0 + 120.0 / 4.0
    assert play.until(ROUND_S) == [
        (0.0, started("l")),
        (done_s, completed(TaskProgress("l", "a", 120.0, 120.0, done_s, 10.0))),
        (ROUND_S, progress(1)),
    ]


def test_checkpoints_cost_where_a_lease_starts_and_ends_not_where_it_is_renewed() -> None:
    """Loaded in the first of three rounds, saved in the last; the steps are what is left."""
    load_s, save_s = 10.0, 5.0
    play = Playing(load_s=load_s, save_s=save_s)
    held = lease("l", task("a", 1000.0))
    play.carry_out(a_round(1, held), 0.0)
    for round_id in (2, 3):
        play.carry_out(a_round(round_id, renewed=(held,)), 0.0)
    assert play.until(3 * ROUND_S) == [
        (0.0, started("l")),
        (100.0, progress(1, TaskProgress("l", "a", 90.0, 0.0, ROUND_S, load_s))),
        (200.0, progress(2, TaskProgress("l", "a", 190.0, 0.0, ROUND_S))),
        (300.0, progress(3, TaskProgress("l", "a", 285.0, 285.0, ROUND_S, 0.0, save_s))),
    ]


def test_a_new_lease_goes_on_from_the_checkpoint() -> None:
    """Steps saved when the lease ended, no others: 95 of round 1, then 90 + 100 - 5 more."""
    play = Playing(load_s=10.0, save_s=5.0)
    job = task("a", 1000.0)
    play.carry_out(a_round(1, lease("l1", job)), 0.0)
    play.until(ROUND_S)
    play.carry_out(a_round(3, lease("l2", job)), 200.0)
    saved = 100.0 - 10.0 - 5.0
    assert play.until(3 * ROUND_S) == [
        (200.0, started("l2")),
        (300.0, progress(3, TaskProgress("l2", "a", 2 * saved, 2 * saved, ROUND_S, 10.0, 5.0))),
    ]


def test_a_completion_on_the_boundary_is_one_of_its_round() -> None:
    """100 steps at 1 a second end with the round, before its report, and only once."""
    play = Playing()
    held = lease("l", task("a", 100.0))
    play.carry_out(a_round(1, held), 0.0)
    play.carry_out(a_round(2, renewed=(held,)), 90.0)
    assert play.until(2 * ROUND_S) == [
        (0.0, started("l")),
        (100.0, completed(TaskProgress("l", "a", 100.0, 100.0, 100.0))),
        (100.0, progress(1)),
        (200.0, progress(2)),
    ]


def test_of_two_on_one_worker_the_survivor_speeds_up() -> None:
    """Half speed until the other is done, full speed from then on, to the second."""
    play = Playing()
    play.carry_out(a_round(1, lease("l", task("a", 20.0), task("b", 60.0))), 0.0)
    a_done_s = 20.0 / (TOGETHER * 1.0)
    b_done_s = a_done_s + (60.0 - a_done_s * TOGETHER) / 1.0
    assert play.until(ROUND_S) == [
        (0.0, started("l")),
        (a_done_s, completed(TaskProgress("l", "a", 20.0, 20.0, a_done_s))),
        (b_done_s, completed(TaskProgress("l", "b", 60.0, 60.0, b_done_s))),
        (ROUND_S, progress(1)),
    ]


def test_a_job_that_does_not_run_holds_its_worker_and_gets_nowhere() -> None:
    """Rate 0 is no error of the cluster's: the round is reported, without a step."""
    play = Playing()
    play.carry_out(a_round(1, lease("l", task("a", 5.0, "stuck"))), 0.0)
    assert play.until(ROUND_S)[1:] == [
        (ROUND_S, progress(1, TaskProgress("l", "a", 0.0, 0.0, ROUND_S)))
    ]


# --- stopped by order ----------------------------------------------------------------------------


def test_a_revoked_task_stops_at_once_and_keeps_its_checkpoint_only() -> None:
    """Forty seconds in: forty steps run, none saved; no completion comes after it."""
    play = Playing()
    play.carry_out(a_round(1, lease("l", task("a", 50.0))), 0.0)
    play.until(40.0)
    play.carry_out(StopTask(NAME, "l", "a", "cancelled by its owner"), 40.0)
    stop = TaskStopped(
        reporter=NAME, task=TaskProgress("l", "a", 40.0, 0.0, 40.0), reason="cancelled"
    )
    assert play.until(ROUND_S) == [(40.0, stop), (ROUND_S, progress(1))]


def test_the_other_of_two_speeds_up_when_one_is_revoked() -> None:
    """After 40 s at half speed 20 of its 60 steps are done; the rest takes 40 s more."""
    play = Playing()
    play.carry_out(a_round(1, lease("l", task("a", 1000.0), task("b", 60.0))), 0.0)
    play.until(40.0)
    play.carry_out(StopTask(NAME, "l", "a", "cancelled"), 40.0)
    done_s = 40.0 + (60.0 - 40.0 * TOGETHER)
    assert play.until(ROUND_S)[1] == (
        done_s,
        completed(TaskProgress("l", "b", 60.0, 60.0, done_s)),
    )


@pytest.mark.parametrize("renewed", [False, True])
def test_what_was_revoked_before_a_round_does_not_run_in_it(renewed: bool) -> None:
    """The round was planned before the order: neither a renewed nor a new lease starts again."""
    play = Playing()
    held = lease("l", task("a", 1000.0))
    if renewed:
        play.carry_out(a_round(1, held), 0.0)
        play.carry_out(a_round(2, renewed=(held,)), 90.0)
    else:
        play.carry_out(a_round(2, held), 90.0)
    play.until(95.0)
    play.carry_out(StopTask(NAME, "l", "a", "cancelled"), 95.0)
    later = play.until(2 * ROUND_S)
    assert isinstance(later[0][1], TaskStopped)
    assert later[-1] == (2 * ROUND_S, progress(2))
    assert not [event for _, event in later if isinstance(event, TasksStarted)]


# --- rounds that end with their last task --------------------------------------------------------


def test_whole_steps_only_and_the_round_ends_when_the_last_has_done_them() -> None:
    """Of a job of 0.3 steps a second 30 fit the 100 s; the other runs its 100."""
    play = Playing()
    effect = a_round(
        1, lease("l1", task("a", 1000.0)), lease("l2", task("b", 1000.0, "odd")), last_task=True
    )
    play.carry_out(effect, 0.0)
    odd_s = int(0.3 * ROUND_S) / 0.3
    rows = (
        TaskProgress("l1", "a", 100.0, 100.0, 100.0),
        TaskProgress("l2", "b", 30.0, 30.0, odd_s),
    )
    assert play.until(odd_s) == [
        (0.0, started("l1", "l2")),
        (max(100.0, odd_s), progress(1, *rows)),
    ]


def test_a_round_whose_tasks_all_complete_ends_with_the_last_of_them() -> None:
    """Nothing is waited for: two jobs of 20 and 40 seconds, and the round is over at 40."""
    play = Playing()
    effect = a_round(
        1, lease("l1", task("a", 20.0)), lease("l2", task("b", 160.0, "fast")), last_task=True
    )
    play.carry_out(effect, 0.0)
    assert play.until(ROUND_S) == [
        (0.0, started("l1", "l2")),
        (20.0, completed(TaskProgress("l1", "a", 20.0, 20.0, 20.0))),
        (40.0, completed(TaskProgress("l2", "b", 160.0, 160.0, 40.0))),
        (40.0, progress(1)),
    ]


def test_two_that_share_hold_their_worker_until_the_later_is_done() -> None:
    """Whole steps at half speed: 20 steps take 40 s, 10 take 20 s; both held it for 40 s."""
    play = Playing()
    effect = a_round(1, lease("l", task("a", 20.0), task("b", 10.0)), last_task=True)
    play.carry_out(effect, 0.0)
    assert play.until(ROUND_S)[1:] == [
        (40.0, completed(TaskProgress("l", "a", 20.0, 20.0, 40.0))),
        (40.0, completed(TaskProgress("l", "b", 10.0, 10.0, 40.0))),
        (40.0, progress(1)),
    ]


def test_a_step_longer_than_a_round_is_run_all_the_same() -> None:
    """At least one step: a round of a slow job takes as long as the step does."""
    play = Playing()
    play.carry_out(a_round(1, lease("l", task("a", 5.0, "slow")), last_task=True), 0.0)
    step_s = 1 / SPEED["slow"]
    row = TaskProgress("l", "a", 1.0, 1.0, step_s)
    assert play.until(step_s)[1:] == [(step_s, progress(1, row))]


# --- the same effect, twice ----------------------------------------------------------------------


@pytest.mark.parametrize("last_task", [False, True])
@given(again_s=st.floats(0.0, 2 * ROUND_S), load_s=st.sampled_from([0.0, 10.0]))
def test_an_effect_carried_out_again_reports_the_same_again(
    last_task: bool, again_s: float, load_s: float
) -> None:
    """At whatever time a restarted service asks again, nothing else comes of it."""
    effect = a_round(
        1,
        lease("l1", task("a", 30.0), task("b", 500.0)),
        lease("l2", task("c", 70.0)),
        last_task=last_task,
    )
    once = Playing(load_s=load_s)
    once.carry_out(effect, 0.0)
    expected = once.until(3 * ROUND_S)

    twice = Playing(load_s=load_s)
    twice.carry_out(effect, 0.0)
    before = twice.until(again_s)
    twice.carry_out(effect, again_s)
    after = twice.until(3 * ROUND_S)
    assert before == [(at, event) for at, event in expected if at <= again_s]
    events = [event for _, event in before + after]
    assert all(events.count(event) == 2 for _, event in expected)
    assert len(events) == 2 * len(expected)


def test_only_accelerators_that_are_new_or_have_changed_are_reported() -> None:
    """What the service knows already is no news."""

    def registered(worker_id: str, **facts: Any) -> WorkerRegistered:
        return WorkerRegistered(
            worker_id=worker_id, worker_type="v100", server_id="s", reporter=NAME, **facts
        )

    there = (registered("w1"), registered("w2", usd_per_h=2.0), registered("w3"))
    play = Playing(*there)
    play.carry_out(DetectWorkers(NAME, (registered("w1"), registered("w2", usd_per_h=1.0))), 5.0)
    assert play.until(5.0) == [(5.0, there[1]), (5.0, there[2])]


def test_an_effect_of_another_service_is_an_error_of_ours() -> None:
    """A cluster does not solve."""
    solve = Solve("las", {}, Problem(worker_types=(), num_workers=(), classes=()))
    with pytest.raises(TypeError, match="no effect Solve"):
        Playing().carry_out(solve, 0.0)


@given(
    steps=st.floats(1.0, 400.0),
    load_s=st.floats(0.0, 30.0),
    save_s=st.floats(0.0, 30.0),
    rounds=st.integers(1, 4),
)
def test_steps_are_the_seconds_that_were_neither_loading_nor_saving(
    steps: float, load_s: float, save_s: float, rounds: int
) -> None:
    """For a job alone, over any rounds of one lease: steps = rate x (run - load - save)."""
    play = Playing(load_s=load_s, save_s=save_s)
    held = lease("l", task("a", steps))
    play.carry_out(a_round(1, held), 0.0)
    for round_id in range(2, rounds + 1):
        play.carry_out(a_round(round_id, renewed=(held,)), 0.0)
    rows: list[TaskProgress] = []
    for _, event in play.until(rounds * ROUND_S):
        if isinstance(event, TaskStopped):
            rows.append(event.task)
        elif isinstance(event, ProgressReported):
            rows += event.rows
    useful_s = sum(row.run_s - row.load_s - row.save_s for row in rows)
    assert rows[-1].steps == pytest.approx(useful_s * SPEED["m"])
    assert rows[-1].steps <= steps

"""When rounds are planned, and what a plan says of the leases before it."""

from __future__ import annotations

from schemas.decisions import Emit, Wake
from schemas.domain import PairThroughput, TaskProgress
from schemas.events import ClusterConfigured, JobCompleted, RoundDue, RoundScheduled
from services.mechanism.core import MechanismCore
from tests.mechanism.events import (
    allocation,
    emitted,
    estimate,
    job,
    lease,
    plan,
    progress,
    stopped,
    timer,
    told,
    worker,
    workers,
)

#: Round duration, and the seconds before a boundary at which it is planned.
ROUND_S, LEAD_S = 360.0, 10.0
ON_V100 = estimate({"v100": 1.0})
LAST_TASK = ClusterConfigured(round_end="last_task", plan_lead_s=0.0, priority="reset")


def running(*jobs: str, count: int = 1, config: ClusterConfigured | None = None) -> MechanismCore:
    """A core with workers v100-0 ..., and jobs submitted at 0."""
    core = MechanismCore()
    told(core, 0.0, config or ClusterConfigured(), *workers(count), ON_V100)
    told(core, 0.0, *map(job, jobs))
    return core


# --- the grid ------------------------------------------------------------------------------------


def test_the_first_round_waits_a_plan_lead_for_jobs_that_come_together() -> None:
    """One timer for all jobs of a moment; the round starts when it is due."""
    core = MechanismCore()
    told(core, 0.0, *workers(2), ON_V100)
    assert told(core, 100.0, job("a"))[1:] == [Wake("round/1", 100.0 + LEAD_S)]
    assert told(core, 104.0, job("b"))[1:] == []
    planned = plan(core, 1, 110.0)
    assert (planned.starts_at_s, planned.ends_at_s) == (110.0, 110.0 + ROUND_S)
    assert [each.tasks[0].job_id for each in planned.granted] == ["a", "b"]


def test_each_next_round_is_planned_a_lead_before_the_boundary() -> None:
    """The next timer is asked for with the plan, off the boundary and not off the present."""
    core = running("a")
    boundary = LEAD_S + ROUND_S
    assert told(core, LEAD_S, timer("round/1", LEAD_S)) == [
        Emit(
            RoundScheduled(
                round_id=1,
                starts_at_s=LEAD_S,
                ends_at_s=boundary,
                granted=(lease("r1-0", ["a"], ["v100-0"], priority=1.0),),
            )
        ),
        Wake("round/2", boundary - LEAD_S),
    ]
    # Four seconds late: the boundaries stay where they were.
    assert told(core, boundary - LEAD_S + 4.0, timer("round/2", boundary - LEAD_S)) == [
        Emit(
            RoundScheduled(
                round_id=2,
                starts_at_s=boundary,
                ends_at_s=boundary + ROUND_S,
                renewed=("r1-0",),
                renewed_priorities=(1.0 - 1.0 + 1.0 + 2.0,),
            )
        ),
        Wake("round/3", boundary + ROUND_S - LEAD_S),
    ]


def test_a_timer_that_is_not_the_one_waited_for_plans_nothing() -> None:
    """Old names, and a name seen twice, lead to no plan."""
    core = running("a")
    assert told(core, 10.0, timer("round/7", 10.0)) == []
    plan(core, 1, 10.0)
    assert told(core, 11.0, timer("round/1", 10.0)) == []


def test_rounds_missed_are_skipped_not_made_up_for() -> None:
    """Planned 2.5 rounds after the boundary: one plan, from now on, two numbers left out."""
    core = running("a")
    first = plan(core, 1, 10.0)
    late = first.ends_at_s + 2.5 * ROUND_S
    decisions = told(core, late, timer("round/2", first.ends_at_s - LEAD_S))
    assert [e.round_id for e in emitted(decisions) if isinstance(e, RoundScheduled)] == [4]
    assert decisions[1:] == [Wake("round/5", late + ROUND_S - LEAD_S)]
    planned = decisions[0]
    assert isinstance(planned, Emit)
    assert planned.event == RoundScheduled(
        round_id=4,
        starts_at_s=late,
        ends_at_s=late + ROUND_S,
        granted=(lease("r4-0", ["a"], ["v100-0"], priority=1.0, resume_from="r1-0"),),
    )


def test_an_idle_cluster_is_silent_and_the_grid_starts_anew() -> None:
    """After the last job no timer is asked for; the next job starts a grid of its own."""
    core = running("a")
    plan(core, 1, 10.0)
    done = stopped("r1-0", "a", "completed", steps=1000.0, run_s=100.0)
    assert told(core, 110.0, done) == [Emit(JobCompleted(job_id="a", steps=1000.0))]
    assert told(core, 360.0, timer("round/2", 360.0)) == []
    assert told(core, 370.0, progress(1)) == []
    assert told(core, 5000.0, job("b"))[1:] == [Wake("round/2", 5010.0)]
    planned = plan(core, 2, 5010.0)
    assert (planned.round_id, planned.starts_at_s) == (2, 5010.0)
    assert planned.granted == (lease("r2-0", ["b"], ["v100-0"], priority=1.0),)


def test_a_job_that_comes_within_a_round_waits_for_its_end() -> None:
    """No round is cut short; the plan before the boundary takes the new job in."""
    core = running("a", count=2)
    first = plan(core, 1, 10.0)
    assert told(core, 50.0, job("b"))[1:] == []
    second = plan(core, 2, first.ends_at_s - LEAD_S)
    assert second.renewed == ("r1-0",)
    assert second.granted == (lease("r2-0", ["b"], ["v100-1"], priority=1.0),)
    assert second.ended == ()


# --- renewed, granted, ended ---------------------------------------------------------------------


def test_who_moves_to_another_type_gets_a_new_lease_and_the_old_one_ends() -> None:
    """A lease is renewed on its own workers only; elsewhere it is another lease."""
    core = MechanismCore()
    told(core, 0.0, worker("v"), worker("k", "k80"), estimate({"k80": 1.0, "v100": 1.0}), job("a"))
    told(core, 0.0, allocation({("a",): {"v100": 1.0}}))
    first = plan(core, 1, 10.0)
    assert first.granted == (lease("r1-0", ["a"], ["v"], priority=1.0),)
    told(core, 20.0, allocation({("a",): {"k80": 1.0}}))
    second = plan(core, 2, 360.0)
    assert second.granted == (lease("r2-0", ["a"], ["k"], "k80", priority=1.0, resume_from="r1-0"),)
    assert (second.renewed, second.ended) == ((), ("r1-0",))


def test_two_that_share_a_worker_hold_one_lease() -> None:
    """A pair's lease has both tasks; jobs alone and jobs together are different combinations."""
    core = MechanismCore()
    both = estimate({"v100": 1.0}, beside=[PairThroughput("v100", "m", 0.6, 0.6)])
    told(core, 0.0, worker("w"), both, job("a"), job("b"))
    told(core, 0.0, allocation({("a", "b"): {"v100": 1.0}}))
    assert plan(core, 1, 10.0).granted == (lease("r1-0", ["a", "b"], ["w"], priority=1.0),)


def test_a_pair_that_turns_out_not_to_fit_is_parted() -> None:
    """Once the estimate says that two do not fit one worker, no lease has both."""
    core = MechanismCore()
    fits = PairThroughput("v100", "m", 0.6, 0.6)
    told(core, 0.0, worker("w"), estimate({"v100": 1.0}, beside=[fits]), job("a"), job("b"))
    told(core, 0.0, allocation({("a", "b"): {"v100": 1.0}}))
    plan(core, 1, 10.0)
    does_not = PairThroughput("v100", "m", 0.0, 0.0)
    told(core, 20.0, estimate({"v100": 1.0}, beside=[does_not]))
    second = plan(core, 2, 360.0)
    assert [[task.job_id for task in each.tasks] for each in second.granted] == [["a"]]
    assert second.ended == ("r1-0",)


def test_lease_ids_are_never_used_twice() -> None:
    """Over many rounds in which leases move to and fro, each id is granted once."""
    core = running("a", "b", "c")
    seen: list[str] = []
    at = LEAD_S
    for round_id in range(1, 30):
        planned = plan(core, round_id, at)
        seen += [each.lease_id for each in planned.granted]
        at = planned.ends_at_s - LEAD_S
    assert len(seen) > 3
    assert len(seen) == len(set(seen))


def test_equal_jobs_are_served_in_turn_and_no_worker_idles() -> None:
    """Three equal jobs on two workers: over any stretch each has its due within four rounds."""
    core = running("a", "b", "c", count=2)
    told(core, 1.0, allocation({(name,): {"v100": 2 / 3} for name in "abc"}))
    holders: dict[str, str] = {}
    rounds: list[set[str]] = []
    at = LEAD_S
    for round_id in range(1, 61):
        planned = plan(core, round_id, at)
        for lease_id in planned.ended:
            del holders[lease_id]
        holders |= {each.lease_id: each.tasks[0].job_id for each in planned.granted}
        rounds.append(set(holders.values()))
        at = planned.ends_at_s - LEAD_S
    assert all(len(served) == 2 for served in rounds)
    for name in "abc":
        served = [name in each for each in rounds]
        for start in range(len(rounds)):
            for end in range(start + 1, len(rounds) + 1):
                assert abs(sum(served[start:end]) - (end - start) * 2 / 3) < 4


# --- completions on their way --------------------------------------------------------------------


def test_a_completion_on_its_way_when_the_next_round_is_planned_counts_once() -> None:
    """The renewed lease ends with its job; nobody is told to stop what has stopped."""
    core = running("a")
    plan(core, 1, 10.0)
    assert plan(core, 2, 360.0).renewed == ("r1-0",)
    done = stopped("r1-0", "a", "completed", steps=1000.0, run_s=355.0)
    assert told(core, 366.0, done) == [Emit(JobCompleted(job_id="a", steps=1000.0))]
    assert told(core, 367.0, done) == []
    assert core._leases.ignored == 1
    assert told(core, 370.0, progress(1)) == []


def test_a_completion_under_an_ended_lease_revokes_the_one_planned_since() -> None:
    """The job was to move to another type; it completes before, and its new lease is void."""
    core = MechanismCore()
    told(core, 0.0, worker("v"), worker("k", "k80"), estimate({"k80": 1.0, "v100": 1.0}), job("a"))
    told(core, 0.0, allocation({("a",): {"v100": 1.0}}))
    plan(core, 1, 10.0)
    told(core, 20.0, allocation({("a",): {"k80": 1.0}}))
    plan(core, 2, 360.0)
    events = emitted(told(core, 366.0, stopped("r1-0", "a", "completed", steps=1000.0)))
    assert [(type(event).__name__, getattr(event, "revoked", None)) for event in events] == [
        ("JobCompleted", None),
        ("LeasesChanged", ("r2-0",)),
    ]
    again = stopped("r2-0", "a", "completed", steps=1000.0)
    assert told(core, 380.0, again) == []


def test_the_scheduler_was_away_longer_than_the_lease() -> None:
    """What the worker reported meanwhile counts once, though the plan comes a round late."""
    core = running("a", "b")
    first = plan(core, 1, 10.0)
    told(core, 200.0, stopped("r1-0", "a", "completed", steps=1000.0))
    told(core, 370.0, progress(1))
    late = first.ends_at_s + 1.5 * ROUND_S
    events = emitted(told(core, late, timer("round/2", 360.0)))
    assert isinstance(events[0], RoundScheduled)
    assert [each.tasks[0].job_id for each in events[0].granted] == ["b"]
    assert told(core, late, stopped("r1-0", "a", "completed", steps=1000.0)) == []


# --- rounds that end with their last task --------------------------------------------------------


def test_the_round_is_due_once_all_services_have_reported() -> None:
    """``last_task``: report, RoundDue, timer, plan; so the policy comes in between."""
    core = MechanismCore()
    told(core, 0.0, LAST_TASK, worker("w", reporter="worker.a"), worker("x", reporter="worker.b"))
    told(core, 0.0, ON_V100)
    assert told(core, 0.0, job("a"), job("b"))[1:2] == [Wake("due/1", 0.0)]
    assert told(core, 0.0, timer("due/1", 0.0)) == [Emit(RoundDue(round_id=1))]
    assert told(core, 0.0, RoundDue(round_id=1)) == [Wake("round/1", 0.0)]
    told(core, 0.0, allocation({("a",): {"v100": 1.0}, ("b",): {"v100": 1.0}}))
    assert len(plan(core, 1, 0.0).granted) == 2
    row = TaskProgress("r1-0", "a", 300.0, 300.0, 360.0)
    assert told(core, 360.0, progress(1, row, reporter="worker.a")) == []
    assert told(core, 365.0, progress(1, reporter="worker.b")) == [Emit(RoundDue(round_id=2))]


def test_a_round_that_ends_with_its_last_job_is_followed_by_silence() -> None:
    """``last_task``: with no job left, no round is due; a new job starts one at once."""
    core = running("a", config=LAST_TASK)
    told(core, 0.0, timer("due/1", 0.0), RoundDue(round_id=1))
    plan(core, 1, 0.0)
    told(core, 70.0, stopped("r1-0", "a", "completed", steps=1000.0))
    assert told(core, 70.0, progress(1)) == []
    assert told(core, 500.0, job("b"))[1:] == [Wake("due/2", 500.0)]


def test_jobs_that_come_while_a_round_runs_ask_for_nothing() -> None:
    """``last_task``: the reports to come will make the next round due."""
    core = running("a", count=2, config=LAST_TASK)
    told(core, 0.0, timer("due/1", 0.0), RoundDue(round_id=1))
    plan(core, 1, 0.0)
    assert told(core, 100.0, job("b"))[1:] == []

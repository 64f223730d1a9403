"""What becomes of jobs: progress, failures and back-off, cancellation, false reports."""

from __future__ import annotations

from schemas.decisions import Emit, Wake
from schemas.domain import PairThroughput, TaskProgress
from schemas.events import (
    AnyEvent,
    CancelRequested,
    ClusterConfigured,
    JobAdmitted,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobRequeued,
    LeasesChanged,
)
from services.mechanism.core import MechanismCore
from tests.mechanism.events import (
    STEPS,
    allocation,
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

ROUND_S, LEAD_S = 360.0, 10.0
ON_V100 = estimate({"v100": 1.0})


def running(*jobs: str, count: int = 1, max_attempts: int = 3) -> MechanismCore:
    """A core that has planned round 1, from 10 s to 370 s; leases r1-0, r1-1 ... in job order."""
    core = MechanismCore()
    told(core, 0.0, *workers(count), ON_V100)
    told(core, 0.0, *(job(name, max_attempts=max_attempts) for name in jobs))
    plan(core, 1, LEAD_S)
    return core


def sharing() -> MechanismCore:
    """A core whose jobs a and b run on one worker, under the lease r1-0."""
    core = MechanismCore()
    both = estimate({"v100": 1.0}, beside=[PairThroughput("v100", "m", 0.6, 0.6)])
    told(core, 0.0, worker("w"), both, job("a"), job("b"))
    told(core, 0.0, allocation({("a", "b"): {"v100": 1.0}}))
    assert plan(core, 1, LEAD_S).granted == (lease("r1-0", ["a", "b"], ["w"], priority=1.0),)
    return core


# --- ids -----------------------------------------------------------------------------------------


def test_an_id_is_free_again_once_its_end_is_on_the_log() -> None:
    """Until then others know the job as running, and could make nothing of an admission."""
    core = running("a")
    ended = JobCompleted(job_id="a", steps=STEPS)
    assert told(core, 100.0, stopped("r1-0", "a", "completed", steps=STEPS)) == [Emit(ended)]
    assert told(core, 100.0, job("a")) == []
    assert told(core, 100.0, ended, job("a"))[0] == Emit(JobAdmitted(job_id="a"))


def test_nor_is_the_id_of_a_job_refused() -> None:
    """A worker that registers meanwhile would have it admitted, and then rejected on the log."""
    core = MechanismCore()
    told(core, 0.0, worker("v100-0"), ON_V100)
    (refused,) = told(core, 0.0, job("a", scale_factor=2))
    assert isinstance(refused, Emit)
    assert told(core, 0.0, worker("v100-1"), job("a", scale_factor=2)) == []
    assert told(core, 0.0, refused.event, job("a"))[0] == Emit(JobAdmitted(job_id="a"))


# --- failures ------------------------------------------------------------------------------------


def test_a_failed_task_waits_and_goes_on_from_its_checkpoint() -> None:
    """Ten seconds after the first failure it may run again, from the steps last saved."""
    core = running("a")
    told(core, 370.0, progress(1, TaskProgress("r1-0", "a", 350.0, 340.0, 360.0)))
    assert told(core, 380.0, stopped("r1-0", "a", "failed", exit_code=3)) == [
        Emit(
            JobRequeued(
                job_id="a",
                steps=340.0,
                attempt=1,
                not_before_s=390.0,
                reason="task failed with exit code 3",
            )
        ),
        Wake("retry/a/390.0", 390.0),
    ]


def test_each_failure_in_a_row_doubles_the_wait() -> None:
    """10, 20, 40 ... seconds, at most a round; then it has failed, with the last reason."""
    attempts = 8
    core = running("a", max_attempts=attempts)
    waits = []
    at, round_id = LEAD_S, 1
    for attempt in range(1, attempts):
        decisions = told(core, at, stopped(f"r{round_id}-0", "a", "failed"))
        requeued = decisions[0]
        assert isinstance(requeued, Emit)
        assert isinstance(requeued.event, JobRequeued)
        assert requeued.event.attempt == attempt
        waits.append(requeued.event.not_before_s - at)
        at += 2 * ROUND_S
        round_id = _next_plan(core, round_id + 1, at)
    assert waits == [min(10.0 * 2**i, ROUND_S) for i in range(attempts - 1)]
    assert told(core, at, stopped(f"r{round_id}-0", "a", "failed", exit_code=1)) == [
        Emit(JobFailed(job_id="a", attempts=attempts, reason="task failed with exit code 1"))
    ]


def _next_plan(core: MechanismCore, round_id: int, at: float) -> int:
    """Let the core plan the round; its number, which is larger where boundaries were missed."""
    planned = plan(core, round_id, at)
    assert [each.tasks[0].job_id for each in planned.granted] == ["a"]
    return planned.round_id


def test_progress_makes_failures_count_anew() -> None:
    """A job that gets on between failures never uses up its attempts."""
    core = running("a", max_attempts=2)
    at, round_id = LEAD_S, 1
    for saved in (100.0, 200.0, 300.0):
        row = TaskProgress(f"r{round_id}-0", "a", saved, saved, 50.0)
        told(core, at, progress(round_id, row))
        decisions = told(core, at, stopped(f"r{round_id}-0", "a", "failed"))
        requeued = decisions[0]
        assert isinstance(requeued, Emit)
        assert isinstance(requeued.event, JobRequeued)
        assert (requeued.event.attempt, requeued.event.steps) == (1, saved)
        at += 2 * ROUND_S
        round_id = _next_plan(core, round_id + 1, at)


def test_a_job_whose_start_always_fails_leaves_the_others_alone() -> None:
    """The other job's lease is renewed round after round while one fails to its end."""
    core = running("bad", "good", count=2)
    told(core, 11.0, stopped("r1-0", "bad", "failed"))
    at, outcomes = ROUND_S, []
    for round_id in range(2, 7):
        planned = plan(core, round_id, at)
        assert planned.renewed == ("r1-1",)
        for granted in planned.granted:
            failed = told(core, planned.starts_at_s, stopped(granted.lease_id, "bad", "failed"))
            outcomes += [
                type(decision.event).__name__ for decision in failed if isinstance(decision, Emit)
            ]
        at += ROUND_S
    assert outcomes == ["JobRequeued", "JobFailed"]


# --- reports not to be believed ------------------------------------------------------------------


def test_reports_under_leases_that_are_not_out_are_ignored_and_counted() -> None:
    """Unknown leases, other jobs' leases, other services' leases: no effect, each counted."""
    core = running("a", "b", count=2)
    nonsense: list[AnyEvent] = [
        stopped("r9-0", "a", "completed", steps=1000.0),
        stopped("r1-1", "a", "completed", steps=1000.0),
        stopped("r1-0", "nobody", "completed", steps=1000.0),
        progress(1, TaskProgress("r1-0", "a", 900.0, 900.0, 10.0), reporter="worker.other"),
    ]
    assert told(core, 20.0, *nonsense) == []
    assert core._leases.ignored == len(nonsense)
    assert told(core, 30.0, stopped("r1-0", "a", "failed"))[0] == Emit(
        JobRequeued(job_id="a", steps=0.0, attempt=1, not_before_s=40.0, reason="task failed")
    )


def test_steps_never_go_back() -> None:
    """A report that comes late, with fewer steps, takes nothing away."""
    core = running("a")
    for saved in (300.0, 200.0):
        told(core, 370.0, progress(1, TaskProgress("r1-0", "a", saved, saved, 360.0)))
    requeued = told(core, 380.0, stopped("r1-0", "a", "failed"))[0]
    assert isinstance(requeued, Emit)
    assert isinstance(requeued.event, JobRequeued)
    assert requeued.event.steps == 300.0


def test_a_lease_is_off_the_books_once_its_last_round_is_reported() -> None:
    """After the report of a round that it was not renewed for, its reports are ignored."""
    core = MechanismCore()
    told(core, 0.0, worker("v"), worker("k", "k80"), estimate({"k80": 1.0, "v100": 1.0}), job("a"))
    told(core, 0.0, allocation({("a",): {"v100": 1.0}}))
    plan(core, 1, 10.0)
    told(core, 20.0, allocation({("a",): {"k80": 1.0}}))
    plan(core, 2, 360.0)
    assert told(core, 370.0, progress(1, TaskProgress("r1-0", "a", 360.0, 360.0, 360.0))) == []
    assert core._leases.ignored == 0
    assert told(core, 371.0, stopped("r1-0", "a", "completed", steps=1000.0)) == []
    assert core._leases.ignored == 1


# --- cancelled -----------------------------------------------------------------------------------


def test_a_waiting_job_is_cancelled_without_more_ado() -> None:
    """It holds no lease, so none is revoked; a second request, or one for nobody, is no news."""
    core = running("a", "b")
    assert told(core, 20.0, CancelRequested(job_id="b")) == [Emit(JobCancelled(job_id="b"))]
    assert told(core, 21.0, CancelRequested(job_id="b"), CancelRequested(job_id="?")) == []
    assert plan(core, 2, 360.0).renewed == ("r1-0",)


def test_a_running_job_loses_its_lease_at_once() -> None:
    """Its lease is revoked, its later reports are ignored, its worker goes to the next."""
    core = running("a", "b")
    assert told(core, 20.0, CancelRequested(job_id="a")) == [
        Emit(JobCancelled(job_id="a")),
        Emit(LeasesChanged(round_id=1, revoked=("r1-0",), reason="the job was cancelled")),
    ]
    assert told(core, 21.0, stopped("r1-0", "a", "cancelled")) == []
    second = plan(core, 2, 360.0)
    assert second.granted == (lease("r2-0", ["b"], ["v100-0"], priority=1.0),)
    assert second.ended == ()


def test_a_job_that_shares_its_worker_leaves_the_other_running() -> None:
    """The lease stays for the other; only the next plan parts it from what both held."""
    core = sharing()
    assert told(core, 20.0, CancelRequested(job_id="a")) == [Emit(JobCancelled(job_id="a"))]
    second = plan(core, 2, 360.0)
    assert [[task.job_id for task in each.tasks] for each in second.granted] == [["b"]]
    assert second.ended == ("r1-0",)


def test_of_two_that_share_each_completes_by_itself() -> None:
    """The first completion leaves the lease to the other; the second ends it."""
    core = sharing()
    done = [stopped("r1-0", name, "completed", steps=1000.0) for name in ("b", "a")]
    assert told(core, 100.0, done[0]) == [Emit(JobCompleted(job_id="b", steps=1000.0))]
    assert told(core, 200.0, done[1]) == [Emit(JobCompleted(job_id="a", steps=1000.0))]
    assert core._leases.held == {}


def test_one_that_has_left_a_lease_it_shared_comes_back_with_a_new_one() -> None:
    """Renewed, the lease would be held for it without its ever starting again."""
    core = sharing()
    told(core, 100.0, stopped("r1-0", "a", "failed", exit_code=1))
    second = plan(core, 2, 360.0)
    assert (second.ended, second.renewed) == (("r1-0",), ())
    (again,) = second.granted
    assert [task.job_id for task in again.tasks] == ["a", "b"]
    # Both run: that is one lease from here on.
    told(core, 370.0, progress(1))
    assert plan(core, 3, 720.0).renewed == (again.lease_id,)


def test_a_job_cancelled_after_the_plan_loses_the_lease_renewed_by_it() -> None:
    """In the lead before a boundary, the renewed lease is revoked for both rounds."""
    core = running("a")
    plan(core, 2, 360.0)
    assert told(core, 365.0, CancelRequested(job_id="a")) == [
        Emit(JobCancelled(job_id="a")),
        Emit(LeasesChanged(round_id=2, revoked=("r1-0",), reason="the job was cancelled")),
    ]


# --- settings ------------------------------------------------------------------------------------


def test_new_jobs_wait_for_a_solve_where_they_are_told_to() -> None:
    """``new_jobs = wait``: no share, no lease, until an allocation knows the job."""
    core = MechanismCore()
    told(core, 0.0, ClusterConfigured(new_jobs="wait"), worker("w"), ON_V100, job("a"))
    assert told(core, 10.0, timer("round/1", 10.0)) == []
    assert told(core, 20.0, allocation({("a",): {"v100": 1.0}})) == [Wake("round/1", 30.0)]
    assert len(plan(core, 1, 30.0).granted) == 1

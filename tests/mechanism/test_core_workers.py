"""Workers that go missing, come back, are lost, or are to be emptied."""

from __future__ import annotations

from schemas.decisions import Decision, Emit, Wake
from schemas.domain import TaskProgress
from schemas.events import (
    ClusterConfigured,
    DrainRequested,
    JobRequeued,
    LeasesChanged,
    WorkerDisappeared,
    WorkerDrained,
    WorkerLost,
    WorkerReturned,
    WorkerUnreachable,
)
from services.mechanism.core import MechanismCore
from tests.mechanism.events import (
    REPORTER,
    allocation,
    estimate,
    job,
    lease,
    plan,
    progress,
    timer,
    told,
    worker,
    workers,
)

#: Seconds after which an unreachable worker is lost, and between boundary and plan.
LOST_AFTER_S, ROUND_S, LEAD_S = 120.0, 360.0, 10.0


def running(count: int, jobs: str, *, scale_factor: int = 1, attempts: int = 3) -> MechanismCore:
    """A core that has planned round 1, from 10 s to 370 s; leases r1-0, ... in job order."""
    core = MechanismCore()
    told(core, 0.0, ClusterConfigured(worker_lost_after_s=LOST_AFTER_S), *workers(count))
    told(core, 0.0, estimate({"v100": 1.0}, scale_factor))
    told(core, 0.0, *(job(name, scale_factor, max_attempts=attempts) for name in jobs))
    plan(core, 1, LEAD_S)
    return core


def miss(core: MechanismCore, worker_id: str, at: float) -> list[Decision]:
    """The worker has been unreachable since now."""
    return told(core, at, WorkerUnreachable(worker_id=worker_id, since_s=at))


def is_back(core: MechanismCore, worker_id: str, at: float) -> list[Decision]:
    """The worker says that it is back."""
    return told(core, at, WorkerReturned(worker_id=worker_id, reporter=REPORTER))


def test_a_worker_missing_for_too_long_is_lost_and_its_job_goes_on_elsewhere() -> None:
    """Unreachable, timer, lost: lease revoked, job requeued from its checkpoint, then placed."""
    core = running(2, "a")
    told(core, 20.0, progress(1, TaskProgress("r1-0", "a", 15.0, 5.0, 10.0)))
    assert miss(core, "v100-0", 30.0) == [Wake("lost/v100-0/30.0", 30.0 + LOST_AFTER_S)]
    assert told(core, 150.0, timer("lost/v100-0/30.0", 150.0)) == [
        Emit(WorkerLost(worker_id="v100-0", since_s=30.0)),
        Emit(LeasesChanged(round_id=1, revoked=("r1-0",), reason="worker v100-0 is lost")),
        Emit(
            JobRequeued(
                job_id="a", steps=5.0, attempt=0, not_before_s=150.0, reason="worker v100-0 is lost"
            )
        ),
    ]
    second = plan(core, 2, 360.0)
    assert second.granted == (
        lease("r2-0", ["a"], ["v100-1"], priority=second.granted[0].priority, resume_from="r1-0"),
    )


def test_who_is_back_in_time_has_lost_nothing() -> None:
    """The timer of a worker that returned is void; its job keeps its lease."""
    core = running(2, "a")
    miss(core, "v100-0", 30.0)
    assert is_back(core, "v100-0", 140.0) == []
    assert told(core, 150.0, timer("lost/v100-0/30.0", 150.0)) == []
    assert plan(core, 2, 360.0).renewed == ("r1-0",)


def test_a_worker_that_comes_and_goes_moves_its_job_once_at_most() -> None:
    """25 times unreachable for 30 s: nothing is lost, the job is granted anew at most once."""
    core = running(2, "a")
    at, round_id, moves = 20.0, 2, 0
    boundary = LEAD_S + ROUND_S
    for _ in range(25):
        since = at
        miss(core, "v100-0", since)
        if boundary - LEAD_S < at + 30.0:
            moves += len(plan(core, round_id, boundary - LEAD_S).granted)
            told(core, boundary, progress(round_id - 1))
            round_id, boundary = round_id + 1, boundary + ROUND_S
        assert is_back(core, "v100-0", at + 30.0) == []
        lost = f"lost/v100-0/{since}"
        assert told(core, since + LOST_AFTER_S, timer(lost, since + LOST_AFTER_S)) == []
        at += 60.0
    assert round_id > 3
    assert moves <= 1


def test_missed_again_before_it_is_back_it_is_lost_no_later() -> None:
    """What counts is when the worker was first missed, however often that is said."""
    core = running(1, "a")
    miss(core, "v100-0", 30.0)
    assert miss(core, "v100-0", 100.0) == []
    lost = told(core, 150.0, timer("lost/v100-0/30.0", 150.0))
    assert lost[0] == Emit(WorkerLost(worker_id="v100-0", since_s=30.0))
    assert miss(core, "v100-0", 200.0) == []


def test_a_worker_that_has_disappeared_is_lost_at_once() -> None:
    """By its own service's word only, and once; it is leased no more until it returns."""
    core = running(2, "a")
    stranger = WorkerDisappeared(worker_id="v100-0", reporter="worker.stranger")
    assert told(core, 20.0, stranger) == []
    gone = WorkerDisappeared(worker_id="v100-0", reporter=REPORTER)
    assert told(core, 30.0, gone) == [
        Emit(WorkerLost(worker_id="v100-0", since_s=30.0)),
        Emit(LeasesChanged(round_id=1, revoked=("r1-0",), reason="worker v100-0 is lost")),
        Emit(
            JobRequeued(
                job_id="a", steps=0.0, attempt=0, not_before_s=30.0, reason="worker v100-0 is lost"
            )
        ),
    ]
    assert told(core, 31.0, gone) == []
    assert plan(core, 2, 360.0).granted[0].worker_ids == ("v100-1",)
    told(core, 370.0, progress(1))
    told(core, 380.0, job("b"))
    is_back(core, "v100-0", 400.0)
    assert plan(core, 3, 720.0).granted[0].worker_ids == ("v100-0",)


def test_a_missed_worker_that_has_disappeared_is_not_lost_twice() -> None:
    """The timer of its absence is void."""
    core = running(1, "a")
    miss(core, "v100-0", 30.0)
    gone = told(core, 40.0, WorkerDisappeared(worker_id="v100-0", reporter=REPORTER))
    assert gone[0] == Emit(WorkerLost(worker_id="v100-0", since_s=40.0))
    assert told(core, 150.0, timer("lost/v100-0/30.0", 150.0)) == []


def test_unknown_workers_are_not_missed() -> None:
    """A worker that never registered cannot be lost."""
    assert miss(running(1, "a"), "nobody", 30.0) == []


def test_a_gang_that_loses_one_worker_loses_its_lease_whole() -> None:
    """All workers of a job or none: the others are free for the next plan."""
    core = running(3, "a", scale_factor=2)
    miss(core, "v100-1", 30.0)
    lost = told(core, 150.0, timer("lost/v100-1/30.0", 150.0))
    revoked = LeasesChanged(round_id=1, revoked=("r1-0",), reason="worker v100-1 is lost")
    assert Emit(revoked) in lost
    assert plan(core, 2, 360.0).granted[0].worker_ids == ("v100-0", "v100-2")


def test_a_job_that_was_moved_off_before_is_not_requeued() -> None:
    """Its old lease was still unreported when the worker was lost; its new one is healthy."""
    core = running(2, "a")
    miss(core, "v100-0", 300.0)
    assert plan(core, 2, 360.0).granted[0].worker_ids == ("v100-1",)
    assert told(core, 420.0, timer("lost/v100-0/300.0", 420.0)) == [
        Emit(WorkerLost(worker_id="v100-0", since_s=300.0)),
        Emit(LeasesChanged(round_id=2, revoked=("r1-0",), reason="worker v100-0 is lost")),
    ]
    assert plan(core, 3, 720.0).renewed == ("r2-0",)


def test_a_job_whose_two_leases_name_one_lost_worker_is_requeued_once() -> None:
    """A running and a coming lease are lost together; and it is no failure of the job's own."""
    core = running(3, "a", scale_factor=2, attempts=1)
    miss(core, "v100-1", 100.0)
    assert plan(core, 2, 360.0).granted[0].worker_ids == ("v100-0", "v100-2")
    miss(core, "v100-0", 361.0)
    lost = told(core, 481.0, timer("lost/v100-0/361.0", 481.0))
    assert [type(d.event).__name__ for d in lost if isinstance(d, Emit)] == [
        "WorkerLost",
        "LeasesChanged",
        "JobRequeued",
    ]


def test_a_cluster_without_workers_left_waits_for_one() -> None:
    """With its only worker missing nothing is granted; when it is back, rounds go on.

    Credit is not forgotten meanwhile: of two equal jobs, the one that has not run is next.
    """
    core = running(1, "ab")
    miss(core, "v100-0", 300.0)
    second = plan(core, 2, 360.0)
    assert (second.granted, second.renewed, second.ended) == ((), (), ("r1-0",))
    assert is_back(core, "v100-0", 390.0) == [Wake("round/3", 730.0 - LEAD_S)]
    assert [each.tasks[0].job_id for each in plan(core, 3, 720.0).granted] == ["b"]


# --- drained -------------------------------------------------------------------------------------


def test_a_drained_worker_is_said_to_be_empty_once() -> None:
    """Its job runs to the round's end and moves; the report of that round empties it."""
    core = running(2, "a")
    assert told(core, 20.0, DrainRequested(worker_id="v100-0")) == []
    second = plan(core, 2, 360.0)
    assert second.granted[0].worker_ids == ("v100-1",)
    assert second.ended == ("r1-0",)
    emptied = [Emit(WorkerDrained(worker_id="v100-0"))]
    assert told(core, 370.0, progress(1, TaskProgress("r1-0", "a", 9.0, 9.0, 360.0))) == emptied
    assert told(core, 730.0, progress(2, TaskProgress("r2-0", "a", 99.0, 9.0, 360.0))) == []
    assert told(core, 740.0, DrainRequested(worker_id="v100-0")) == []


def test_draining_a_server_drains_its_workers_and_no_other() -> None:
    """Idle workers are empty at once."""
    core = MechanismCore()
    told(core, 0.0, worker("a", server="s0"), worker("b", server="s0"), worker("c", server="s1"))
    assert told(core, 1.0, DrainRequested(server_id="s0")) == [
        Emit(WorkerDrained(worker_id="a")),
        Emit(WorkerDrained(worker_id="b")),
    ]


def test_a_drained_worker_that_goes_missing_and_returns_stays_drained() -> None:
    """Coming back is no reason to be leased again; registering anew is."""
    core = MechanismCore()
    told(core, 0.0, ClusterConfigured(), *workers(1), estimate({"v100": 1.0}))
    told(core, 1.0, DrainRequested(worker_id="v100-0"))
    miss(core, "v100-0", 2.0)
    is_back(core, "v100-0", 3.0)
    told(core, 4.0, job("a"), allocation({("a",): {"v100": 1.0}}))
    assert told(core, 14.0, timer("round/1", 14.0)) == []
    assert told(core, 20.0, *workers(1)) == [Wake("round/1", 30.0)]
    assert len(plan(core, 1, 30.0).granted) == 1


def test_a_draining_worker_can_still_be_lost() -> None:
    """To be drained and to be missing are two things; its job is requeued all the same."""
    core = running(1, "a")
    miss(core, "v100-0", 30.0)
    told(core, 40.0, DrainRequested(worker_id="v100-0"))
    lost = told(core, 150.0, timer("lost/v100-0/30.0", 150.0))
    assert [type(d.event).__name__ for d in lost if isinstance(d, Emit)] == [
        "WorkerLost",
        "LeasesChanged",
        "JobRequeued",
    ]


def test_a_worker_that_is_of_another_type_now_is_not_held_on_to() -> None:
    """Its lease was for what it was; it ends with the round, and the job goes on elsewhere."""
    core = running(2, "a")
    told(core, 20.0, worker("v100-0", "k80"))
    second = plan(core, 2, 360.0)
    assert (second.renewed, second.ended) == ((), ("r1-0",))
    assert [each.worker_ids for each in second.granted] == [("v100-1",)]

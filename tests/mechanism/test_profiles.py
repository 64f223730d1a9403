"""Profiles as leases: whose workers they get, when, and what becomes of those that never return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from schemas.decisions import Decision
from schemas.domain import UNCONSOLIDATED, Lease, ProfileCell
from schemas.events import (
    AnyEvent,
    CancelRequested,
    ClusterConfigured,
    DrainRequested,
    LeasesChanged,
    ProfileRequested,
    RoundScheduled,
    ThroughputMeasured,
    TimerFired,
    WorkerDisappeared,
    WorkerDrained,
    WorkerRegistered,
    WorkerReturned,
    WorkerUnreachable,
)
from services.mechanism.core import MechanismCore
from services.mechanism.profiles import PATIENCE_S
from tests.mechanism.events import REPORTER, emitted, estimate, job, told, worker, workers

SECONDS = 30.0


def kept(worker_id: str, worker_type: str = "v100") -> WorkerRegistered:
    """A worker for profiles only."""
    return msgspec.structs.replace(worker(worker_id, worker_type), profiles_only=True)


def asked(job_id: str, *cells: tuple[str, str]) -> ProfileRequested:
    """Profiles of a job."""
    found = tuple(ProfileCell(worker_type, beside) for worker_type, beside in cells)
    return ProfileRequested(job_id=job_id, cells=found, seconds=SECONDS)


def returned(lease_id: str) -> ThroughputMeasured:
    """A profile is over."""
    return ThroughputMeasured(
        reporter=REPORTER, lease_id=lease_id, job_id="a", worker_type="v100", steps_per_s=1.0
    )


def changes(decisions: Sequence[Decision]) -> list[LeasesChanged]:
    """Leases granted and revoked inside a round."""
    return [event for event in emitted(decisions) if isinstance(event, LeasesChanged)]


def granted(decisions: Sequence[Decision]) -> list[Lease]:
    """Profiles among the decisions."""
    return [lease for change in changes(decisions) for lease in change.granted]


def standing(*events: AnyEvent, **settings: Any) -> MechanismCore:
    """A core with one job, which can run on v100."""
    core = MechanismCore()
    config = ClusterConfigured(
        round_duration_s=100.0, plan_lead_s=0.0, estimator="learned", **settings
    )
    told(core, 0.0, config, *events, job("a"), estimate({"v100": 1.0, "k80": 1.0}))
    return core


def test_workers_kept_for_profiles_run_no_jobs_and_wait_for_no_round() -> None:
    """A profile starts at once; a round's plan does not see its workers."""
    core = standing(kept("p"), *workers(1))
    (change,) = changes(told(core, 5.0, asked("a", ("v100", "m"))))
    (lease,) = change.granted
    assert (change.starts_at_s, change.ends_at_s) == (5.0, 5.0 + SECONDS)
    assert (lease.worker_ids, lease.profile) == (("p",), True)
    assert [(task.job_id, task.job_type) for task in lease.tasks] == [("a", "m"), ("", "m")]
    plan = told(core, 6.0, TimerFired(timer="round/1", due_s=6.0))
    (scheduled,) = (event for event in emitted(plan) if isinstance(event, RoundScheduled))
    assert [each.worker_ids for each in scheduled.granted] == [("v100-0",)]


def test_a_worker_kept_for_profiles_from_now_on_ends_its_round_first() -> None:
    """The job on it has a lease until then; the profile takes a worker that is idle."""
    core = standing(*workers(2))
    told(core, 0.0, TimerFired(timer="round/1", due_s=0.0))
    told(core, 5.0, kept("v100-0"))
    profiles = granted(told(core, 5.0, asked("a", ("v100", ""))))
    assert [each.worker_ids for each in profiles] == [("v100-1",)]


def test_only_profile_workers_is_no_cluster() -> None:
    """A job is not refused, nor planned, on the strength of them."""
    core = standing(kept("p"))
    assert told(core, 0.0, TimerFired(timer="round/1", due_s=0.0)) == []


def test_a_profile_gets_what_the_next_gives_back() -> None:
    """First asked, first served; types with no worker free are passed over, not waited for."""
    core = standing(kept("p"), kept("q", "k80"))
    first = granted(told(core, 0.0, asked("a", ("v100", ""), ("v100", "m"), ("k80", ""))))
    assert [lease.worker_ids for lease in first] == [("p",), ("q",)]
    (second,) = granted(told(core, SECONDS, returned(first[0].lease_id)))
    assert (second.worker_ids, len(second.tasks)) == (("p",), 2)


def test_workers_that_a_round_leaves_idle_are_profiled_on_within_it() -> None:
    """From the round's start, again when the first is back, and never past the round's end."""
    core = standing(*workers(2))
    assert granted(told(core, 0.0, asked("a", *[("v100", "")] * 9))) == []
    (change,) = changes(told(core, 10.0, TimerFired(timer="round/1", due_s=10.0)))
    (lease,) = change.granted
    assert lease.worker_ids == ("v100-1",)
    assert (change.starts_at_s, change.ends_at_s) == (10.0, 10.0 + SECONDS)
    for now in (40.0, 70.0):
        (lease,) = granted(told(core, now, returned(lease.lease_id)))
    # 100 to 130 s would reach past the round, which ends at 110 s.
    assert granted(told(core, 100.0, returned(lease.lease_id))) == []


def test_rounds_without_an_end_leave_nobody_idle() -> None:
    """Rounds that end with their last task: when a profile would be in the way nobody knows."""
    core = standing(*workers(2), round_end="last_task")
    told(core, 0.0, asked("a", ("v100", "")))
    assert granted(told(core, 0.0, TimerFired(timer="due/1", due_s=0.0))) == []


def test_a_gang_is_profiled_as_a_gang() -> None:
    """As many workers as the job has ranks, or none."""
    core = standing(kept("p"))
    told(core, 0.0, *workers(2), job("b", 2), estimate({"v100": 2.0}, 2))
    assert granted(told(core, 0.0, asked("b", ("v100", "")))) == []
    (lease,) = granted(told(core, 0.0, kept("q")))
    assert lease.worker_ids == ("p", "q")


def test_a_gang_is_profiled_on_no_more_servers_than_need_be() -> None:
    """Two idle workers far apart will not do: the type would look slower than it is."""
    core = standing(*(worker(f"v100-{i}", server=f"s{i // 2}") for i in range(6)))
    told(core, 0.0, CancelRequested(job_id="a"), job("b", 2), estimate({"v100": 2.0}, 2))
    told(core, 0.0, *(DrainRequested(worker_id=f"v100-{i}") for i in (0, 2)))
    told(core, 0.0, asked("b", ("v100", "")))
    plan = told(core, 0.0, TimerFired(timer="round/1", due_s=0.0))
    (scheduled,) = (event for event in emitted(plan) if isinstance(event, RoundScheduled))
    assert [each.worker_ids for each in scheduled.granted] == [("v100-4", "v100-5")]
    assert granted(plan) == []
    (lease,) = granted(told(core, 1.0, worker("v100-0", server="s0")))
    assert lease.worker_ids == ("v100-0", "v100-1")


def test_a_gang_s_looser_way_is_profiled_on_more_servers_than_need_be() -> None:
    """And only there: idle workers of one server will not do for it."""
    way = "v100" + UNCONSOLIDATED
    core = standing(*(worker(f"v100-{i}", server=f"s{i // 2}") for i in range(6)))
    told(core, 0.0, CancelRequested(job_id="a"), job("b", 2), estimate({"v100": 2.0}, 2))
    told(core, 0.0, *(DrainRequested(worker_id=f"v100-{i}") for i in (2, 3)))
    told(core, 0.0, asked("b", (way, "")))
    plan = told(core, 0.0, TimerFired(timer="round/1", due_s=0.0))
    assert granted(plan) == []
    (lease,) = granted(told(core, 1.0, worker("v100-2", server="s1")))
    assert (lease.worker_type, lease.unconsolidated) == ("v100", True)
    assert len({int(worker_id[-1]) // 2 for worker_id in lease.worker_ids}) == 2


def test_a_profile_on_a_worker_that_is_lost_finds_nothing() -> None:
    """It is revoked at once, and the next is granted elsewhere; others are left alone."""
    core = standing(kept("p"), kept("q"))
    one, two = granted(told(core, 0.0, asked("a", ("v100", ""), ("v100", "m"))))
    said = told(core, 1.0, WorkerDisappeared(worker_id="p", reporter=REPORTER))
    (change,) = changes(said)
    assert (change.revoked, change.granted) == ((one.lease_id,), ())
    assert granted(told(core, 1.0, asked("a", ("v100", "")))) == []
    (third,) = granted(told(core, SECONDS, returned(two.lease_id)))
    assert third.worker_ids == ("q",)


def test_a_profile_without_word_is_revoked() -> None:
    """Its worker is free again; a word that comes after all changes nothing."""
    core = standing(kept("p"))
    (lost,) = granted(told(core, 0.0, asked("a", ("v100", ""), ("v100", "m"))))
    timer = TimerFired(timer=f"profile/{lost.lease_id}", due_s=SECONDS + PATIENCE_S)
    over, again = changes(told(core, SECONDS + PATIENCE_S, timer))
    assert over.revoked == (lost.lease_id,)
    assert [lease.worker_ids for lease in again.granted] == [("p",)]
    assert granted(told(core, 99.0, returned(lost.lease_id))) == []


def test_a_profile_that_returned_is_not_revoked() -> None:
    """Its timer fires all the same."""
    core = standing(kept("p"))
    (lease,) = granted(told(core, 0.0, asked("a", ("v100", ""))))
    told(core, SECONDS, returned(lease.lease_id))
    timer = TimerFired(timer=f"profile/{lease.lease_id}", due_s=SECONDS + PATIENCE_S)
    assert told(core, SECONDS + PATIENCE_S, timer) == []


def test_a_job_that_is_over_is_profiled_no_more() -> None:
    """What had not begun never does."""
    core = standing(kept("p"))
    (lease,) = granted(told(core, 0.0, asked("a", ("v100", ""), ("v100", "m"))))
    told(core, 1.0, CancelRequested(job_id="a"))
    assert granted(told(core, SECONDS, returned(lease.lease_id))) == []
    assert granted(told(core, SECONDS, asked("a", ("v100", "")))) == []


def test_a_draining_worker_is_not_profiled_on() -> None:
    """It is to be emptied, whatever it was for."""
    core = standing(kept("p"))
    told(core, 0.0, DrainRequested(worker_id="p"))
    assert granted(told(core, 0.0, asked("a", ("v100", "")))) == []


def test_a_draining_worker_is_empty_once_its_profile_is_over() -> None:
    """It has returned, or there will be no word of it."""
    core = standing(kept("p"), kept("q"))
    first, _ = granted(told(core, 0.0, asked("a", ("v100", ""), ("v100", "m"))))
    drain = [DrainRequested(worker_id=worker_id) for worker_id in ("p", "q")]
    assert told(core, 1.0, *drain) == []
    assert emitted(told(core, SECONDS, returned(first.lease_id))) == [WorkerDrained(worker_id="p")]
    over_s = SECONDS + PATIENCE_S
    revoked, empty = emitted(told(core, over_s, TimerFired(timer="profile/p0", due_s=over_s)))
    assert isinstance(revoked, LeasesChanged)
    assert empty == WorkerDrained(worker_id="q")


def test_a_worker_that_is_back_is_profiled_on_at_once() -> None:
    """Where no job runs, nothing else may happen that could bring the profile about."""
    core = standing(kept("p"))
    told(core, 0.0, WorkerUnreachable(worker_id="p", since_s=0.0))
    assert granted(told(core, 1.0, asked("a", ("v100", "")))) == []
    back = told(core, 2.0, WorkerReturned(worker_id="p", reporter=REPORTER))
    assert [lease.worker_ids for lease in granted(back)] == [("p",)]

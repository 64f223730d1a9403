"""Explain: what it says of a job is what the log has, and what it foresees is what then happens."""

from __future__ import annotations

import math

import msgspec
import pytest

from replay.cluster import Failure
from replay.explain.history import Histories
from replay.modes import MODES
from replay.simulate import WORKER
from replay.whatif.answer import what_if
from replay.whatif.change import Change
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    AnyEvent,
    CancelRequested,
    DrainRequested,
    JobRequeued,
    JobSubmitted,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    ThroughputEstimated,
    WorkerDisappeared,
    WorkerLost,
    WorkerRegistered,
    WorkerReturned,
    WorkerUnreachable,
)
from schemas.record import Record
from services.policy.core import Solve
from services.policy.solve import carry_out
from tests.replay.explained import at, codes, contention, job, run, run_failing, said
from tests.simulation.scenario import contended, records_of


@pytest.mark.parametrize("time_s", [700.0, 2000.0, 4321.0, 9000.0])
def test_numbers_are_those_of_the_log(time_s: float) -> None:
    """Share, time promised and received, holders and the next plan's priorities."""
    before = [record for record in contention() if record.at <= time_s]
    plan = next(
        record.event
        for record in contention()
        if record.at > time_s and isinstance(record.event, RoundScheduled)
    )
    solved = [r.event for r in before if isinstance(r.event, AllocationComputed)][-1]
    out = {
        lease.lease_id: lease
        for record in contention()
        if isinstance(record.event, RoundScheduled) and record.at <= plan.starts_at_s
        for lease in record.event.granted
    }
    given = {lease.lease_id: lease.priority for lease in plan.granted}
    given |= dict(zip(plan.renewed, plan.renewed_priorities, strict=True))
    for number in range(8):
        name = f"j{number}"
        found = at(contention(), time_s, name)
        shares = {
            worker_type: share
            for row in solved.rows
            if (name,) in row.combinations
            for worker_type, share in row.shares.items()
        }
        if found.status in ("waiting", "running"):
            assert {t.worker_type: t.share for t in found.types if t.share} == shares
        for on in found.types:
            priorities = [p for i, p in given.items() if out[i].worker_type == on.worker_type]
            assert on.last_priority is None or on.last_priority in priorities
            served = [out[i] for i in given if out[i].worker_type == on.worker_type]
            assert on.served == any(name == task.job_id for x in served for task in x.tasks)
            assert on.left_idle == on.workers - len(served)


def test_time_promised_is_the_share_over_time_and_time_received_what_was_held() -> None:
    """Of a job alone on the cluster: both are all of its time, but for the first plan's lead."""
    records = run([job("alone", 2.0)], cluster={"v100": 1})
    found = at(records, 3600.0, "alone")
    (on,) = found.types
    assert on.entitled_s == pytest.approx(3600.0)
    assert on.received_s == pytest.approx(3600.0 - 10.0)
    assert codes(found)[:2] == ["running.entitled", "note.all-its-time"]


# --- what it foresees is what happens ------------------------------------------------------------


@pytest.mark.parametrize("time_s", [650.0, 1234.0, 3000.0, 7777.0])
def test_what_is_likely_is_what_happens_if_nothing_else_comes(time_s: float) -> None:
    """Every job's next start and its end, to the last bit."""
    whole = Histories()
    for record in contention():
        whole.take(record)
    for name, history in whole.jobs.items():
        found = at(contention(), time_s, name)
        if found.status not in ("waiting", "running"):
            continue
        assert found.likely is not None
        assert found.likely.ends_s == history.ended_s
        if found.status == "waiting":
            starts = [s.starts_s for s in history.stretches if s.starts_s > found.at_s]
            assert found.likely.starts_s == min(starts)


def test_what_helps_is_what_a_what_if_says() -> None:
    """One more V100 lets the job start earlier by what simulating the change gives."""
    waiting = next(
        name
        for name in (f"j{n}" for n in range(8))
        if at(contention(), 1500.0, name).status == "waiting"
    )
    found = at(contention(), 1500.0, waiting)
    (help_,) = [each for each in found.helps if each.change == "one more v100"]
    starts: list[float] = []

    def observe(record: Record) -> None:
        if isinstance(record.event, RoundScheduled) and record.seq > found.seq:
            jobs = {task.job_id for lease in record.event.granted for task in lease.tasks}
            starts.extend([record.event.starts_at_s] * (waiting in jobs))

    first = Change(cluster={"v100": 1})
    what_if(lambda: iter(contention()[: found.seq]), first, found.seq, observe)
    unchanged_first = found.likely.starts_s if found.likely is not None else None
    assert unchanged_first is not None
    assert help_.earlier_s is not None
    assert help_.earlier_s > 0
    assert unchanged_first - help_.earlier_s in starts


# --- reasons -------------------------------------------------------------------------------------


def test_a_job_that_fits_nowhere_is_told_so_with_the_numbers() -> None:
    """Rejected at submission, and still answered."""
    records = run([job("big", 1.0, scale_factor=4), job("small", 1.0)])
    found = at(records, math.inf, "big")
    assert codes(found) == ["never.rejected"]
    assert said(found, "never.rejected") == (
        "asks for 4 workers of one type; there are k80: 2, v100: 2"
    )
    assert found.status == "rejected"


def test_a_job_behind_others_is_told_who_is_served_last_and_by_what() -> None:
    """Its own priority, how many come first, and the last one served on each type."""
    names = [f"j{n}" for n in range(8)]
    found = next(
        each
        for each in (at(contention(), 1500.0, name) for name in names)
        if "wait.behind" in codes(each)
    )
    text = said(found, "wait.behind")
    for on in found.types:
        assert f"on {on.worker_type} (workers: {on.workers}) its priority is" in text
        assert f"has {on.last_priority:g}" in text
        assert on.holders


def test_the_next_round_s_lease_is_told() -> None:
    """Between plan and boundary it is certain."""
    records = run([job("first", 1.0)], cluster={"v100": 1})
    found = at(records, 5.0, "first")
    assert codes(found)[0] == "wait.next-round"
    assert said(found, "wait.next-round").startswith("in 5.0 s it will have v100-0")


def test_a_gang_is_told_that_too_few_are_left_together() -> None:
    """Two workers are free at no time together as long as single jobs take turns on them."""
    jobs = [job(f"s{n}", 3.0) for n in range(5)]
    gang = job("gang", 1.0, scale_factor=2, arrival_s=400.0, allowed_worker_types=("v100",))
    records = run([*jobs, gang], cluster={"v100": 2})
    found = [at(records, 450.0 + 360.0 * n, "gang") for n in range(6)]
    waiting = [each for each in found if each.status == "waiting"]
    assert waiting
    assert all("note.types" in codes(each) for each in waiting)
    assert any(set(codes(each)) & {"wait.gang", "wait.behind"} for each in waiting)


def test_idle_workers_that_are_too_few_for_a_gang_are_counted() -> None:
    """One of two V100 is held for long; the gang needs both."""
    one = job("one", 3.0, allowed_worker_types=("v100",), priority_weight=100.0)
    gang = job("gang", 1.0, scale_factor=2, arrival_s=400.0, allowed_worker_types=("v100",))
    records = run([one, gang], cluster={"v100": 2})
    found = at(records, 500.0, "gang")
    assert codes(found)[0] == "wait.gang"
    assert said(found, "wait.gang") == "the next round leaves 1 of 2 v100 idle; it needs 2 at once"


def test_drained_and_lost_workers_are_counted() -> None:
    """With no worker left that it can use, a job is held; who is away is listed."""
    drains = [(500.0, "operator", DrainRequested(worker_id=f"v100-{n}")) for n in range(2)]
    lost = (600.0, "mechanism", WorkerUnreachable(worker_id="k80-0", since_s=600.0))
    jobs = [job("v", 1.0, arrival_s=700.0, allowed_worker_types=("v100",)), job("k", 2.0)]
    records = run(jobs, [*drains, lost])
    found = at(records, 900.0, "v")
    assert codes(found)[0] == "held.no-workers"
    assert said(found, "held.no-workers") == "it needs 1 at once; can be leased now: v100: 0 of 2"
    text = said(found, "note.away")
    assert text.startswith("3 of 4 workers: k80-0 (")
    assert "v100-0 (drained), v100-1 (drained)" in text


@pytest.mark.parametrize("lost_after_s", [30.0, 1000.0])
def test_a_job_whose_host_is_dead_runs_where_it_was_moved_to(lost_after_s: float) -> None:
    """Nothing is heard of its old lease, which was revoked, or ended by a plan before that."""
    missed = (1000.0, "mechanism", WorkerUnreachable(worker_id="v100-0", since_s=1000.0))
    config = MODES["default"]("las", 360.0)
    config = msgspec.structs.replace(config, worker_lost_after_s=lost_after_s)
    whole = run([job("a", 1.0)], [missed], cluster={"v100": 1, "k80": 1}, config=config)
    first, moved = (
        record.event
        for record in whole
        if isinstance(record.event, RoundScheduled) and record.event.granted
    )
    assert isinstance(first, RoundScheduled)
    assert isinstance(moved, RoundScheduled)
    (old,), (new,) = first.granted, moved.granted
    assert (old.worker_ids, new.worker_ids) == (("v100-0",), ("k80-0",))
    dead = msgspec.structs.replace(old, reporters=("worker.dead",))
    granted = msgspec.structs.replace(first, granted=(dead,))
    records = [
        msgspec.structs.replace(r, event=granted) if r.event is first else r
        for r in whole
        if not is_told_of(r, old.lease_id)
    ]
    lost_s = next(r.at for r in records if isinstance(r.event, WorkerLost))
    if lost_s < moved.starts_at_s:
        assert at(records, lost_s, "a").status == "waiting"
    found = at(records, moved.ends_at_s + 1.0, "a")
    assert (found.status, found.since_s) == ("running", moved.starts_at_s)
    assert "on k80-0" in found.reasons[0].text


def is_told_of(record: Record, lease_id: str) -> bool:
    """Whether a worker service says something of a lease."""
    event = record.event
    rows = event.rows if isinstance(event, ProgressReported) else ()
    rows = (event.task,) if isinstance(event, TaskStopped) else rows
    return any(row.lease_id == lease_id for row in rows)


def test_who_is_away_is_who_the_mechanism_does_not_lease() -> None:
    """News older than a worker's return is none; nor is one away that is for profiles only."""
    own = WorkerRegistered(
        worker_id="profile-v100-0",
        worker_type="v100",
        server_id="p",
        reporter=WORKER,
        profiles_only=True,
    )
    said_of: list[tuple[float, str, AnyEvent]] = [
        (300.0, WORKER, own),
        (400.0, "mechanism", WorkerUnreachable(worker_id="v100-0", since_s=400.0)),
        (410.0, WORKER, WorkerReturned(worker_id="v100-0", reporter=WORKER)),
        (411.0, "mechanism", WorkerUnreachable(worker_id="v100-0", since_s=405.0)),
        (420.0, "operator", DrainRequested(worker_id="profile-v100-0")),
    ]
    found = at(run([job("a", 1.0)], said_of), 500.0, "a")
    assert said(found, "note.away") == "1 of 5 workers: profile-v100-0 (drained)"
    assert {on.worker_type: (on.workers, on.registered) for on in found.types} == {
        "v100": (2, 2),
        "k80": (2, 2),
    }


def test_a_policy_that_fails_is_quoted() -> None:
    """In the words of its solver."""

    def solve(effect: Solve) -> AllocationComputed | AllocationFailed:
        names = [name for each in effect.problem.classes for name in each.job_ids]
        if "b" in names:
            return AllocationFailed(policy="las", reason="it is too late")
        return carry_out(effect)

    late = job("b", 1.0, arrival_s=400.0)
    waits = msgspec.structs.replace(MODES["default"]("las", 360.0), new_jobs="wait")
    records = run([job("a", 2.0), late], config=waits, solver=solve)
    found = at(records, 700.0, "b")
    assert codes(found)[0] == "held.policy-fails"
    assert said(found, "held.policy-fails") == "las: it is too late"


def test_a_deadline_that_will_be_missed_is_told_beforehand() -> None:
    """By how much."""
    jobs = [job("late", 2.0, slo_s=3600.0), *(job(f"j{n}", 2.0) for n in range(5))]
    found = at(run(jobs), 700.0, "late")
    assert said(found, "note.slo").startswith("due in ")


def test_a_pair_is_told_with_whom() -> None:
    """Two jobs on one worker."""
    simulation = contended(12, num_jobs=30, policy="las:ss").simulation()
    simulation.run()
    records = records_of(simulation.driver)
    time_s, pair = next(
        (record.event.starts_at_s, [task.job_id for task in lease.tasks])
        for record in records
        if isinstance(record.event, RoundScheduled)
        for lease in record.event.granted
        if len(lease.tasks) == 2
    )
    assert said(at(records, time_s, pair[0]), "note.shared") == f"with job {pair[1]}"


def test_a_job_whose_tasks_fail_waits_and_says_why_and_for_how_long() -> None:
    """Then, with its attempts used up, it has failed for good, in the words of its last task."""
    failures = {"a": [Failure(60.0 + n, "failed", 3, "no such file") for n in range(3)]}
    records = run_failing([job(name, 1.0) for name in "ab"], failures, {"v100": 2})
    first = next(r.at for r in records if isinstance(r.event, JobRequeued))
    found = at(records, first + 4.0, "a")
    assert codes(found)[0] == "held.back-off"
    assert said(found, "held.back-off") == (
        "not for another 6.0 s: task failed with exit code 3: no such file (failure 1, at most 3 "
        "in a row)"
    )
    found = at(records, math.inf, "a")
    assert codes(found) == ["ended.failed"]
    assert "failed after 3 attempts: task failed with exit code 3" in said(found, "ended.failed")


def test_a_job_that_nobody_has_looked_at_says_so() -> None:
    """Submitted, and the mechanism has not answered; admitted, and nothing known of its speed."""
    records = contention()
    submitted = next(n for n, r in enumerate(records) if isinstance(r.event, JobSubmitted))
    found = at(records[: submitted + 1], math.inf, "j0")
    assert codes(found)[0] == "held.not-admitted"
    admitted = [r for r in records[: submitted + 3] if not isinstance(r.event, ThroughputEstimated)]
    found = at(admitted, math.inf, "j0")
    assert codes(found)[0] == "held.no-estimate"


def test_a_job_without_a_share_fills_what_is_left() -> None:
    """FIFO gives the second nothing of the V100; it runs where nobody is entitled to."""
    config = MODES["default"]("fifo", 360.0)
    jobs = [job("first", 2.0), job("second", 2.0), job("third", 2.0)]
    records = run(jobs, config=config, cluster={"v100": 1, "k80": 1})
    found = at(records, 1000.0, "third")
    assert found.status == "waiting"
    assert "wait.no-share" in codes(found)
    assert all(on.share == 0 for on in found.types)


def test_a_newer_job_than_the_allocation_waits_for_the_next() -> None:
    """Where jobs wait for a solve, and solves have a least gap."""
    config = msgspec.structs.replace(
        MODES["default"]("las", 360.0), new_jobs="wait", resolve_min_gap_s=3000.0
    )
    records = run([job("a", 2.0), job("b", 1.0, arrival_s=400.0)], config=config)
    assert codes(at(records, 900.0, "b"))[0] == "held.next-allocation"


def test_a_job_that_fits_no_more_is_told_what_there_is() -> None:
    """All workers of the one type that it may use have disappeared."""
    only = job("a", 1.0, allowed_worker_types=("v100",), arrival_s=100.0)
    gone = [
        (300.0, WORKER, WorkerDisappeared(worker_id=f"v100-{n}", reporter=WORKER)) for n in range(2)
    ]
    records = run([only, job("b", 3.0)], gone)
    found = at(records, 700.0, "a")
    assert codes(found) == ["never.as-is"]
    assert said(found, "never.as-is") == "asks for 1 workers of one type; there are v100: 0"


def test_a_cancelled_job_says_so() -> None:
    """And nothing else."""
    cancel = (1000.0, "client.a", CancelRequested(job_id="a"))
    found = at(run([job("a", 5.0), job("b", 1.0)], [cancel]), math.inf, "a")
    assert codes(found) == ["ended.cancelled"]

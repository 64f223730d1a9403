"""Reasons with stable codes: each is brought about, and the numbers in it are those of the log."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from replay.cluster import Failure
from replay.explain.reasons import CODES
from replay.modes import MODES
from replay.simulate import build_workers
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    DrainRequested,
    JobRequeued,
    RoundScheduled,
    ThroughputEstimated,
)
from schemas.record import Record
from services.policy.core import Solve
from services.policy.solve import carry_out
from tests.replay.explained import CLUSTER, at, codes, contention, job, run, run_failing, said


def test_every_code_is_asserted_somewhere() -> None:
    """A code that no test of explain names may be one that nothing brings about."""
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_explain*.py"))
    assert [code for code in CODES if f'"{code}"' not in tests] == []


def solved(records: tuple[Record, ...], time_s: float) -> AllocationComputed:
    """The newest allocation at a time."""
    events = [r.event for r in records if r.at <= time_s]
    return [event for event in events if isinstance(event, AllocationComputed)][-1]


# --- running -------------------------------------------------------------------------------------


def test_a_job_on_workers_that_nobody_is_entitled_to_fills() -> None:
    """FIFO keeps the second V100 for the gang, which does not fit yet: the job behind has it."""
    jobs = [
        job("first", 1.0, allowed_worker_types=("v100",)),
        job("gang", 1.0, scale_factor=2, allowed_worker_types=("v100",)),
        job("small", 1.0, allowed_worker_types=("v100",)),
    ]
    records = run(jobs, config=MODES["default"]("fifo", 360.0))
    found = at(records, 200.0, "small")
    assert codes(found)[0] == "running.filling"
    assert said(found, "running.filling") == (
        "on v100-1 for another 170.0 s or longer; it had no share there when that was planned"
    )


def test_a_job_that_has_lost_its_share_was_entitled_to_what_it_holds() -> None:
    """All workers are drained: the newest allocation gives nothing, the lease goes on."""
    drains = [
        (500.0, "operator", DrainRequested(worker_id=worker.worker_id))
        for worker in build_workers(CLUSTER, {}, {})
    ]
    records = run([job(f"j{n}", 2.0) for n in range(5)], drains)
    before = at(records, 490.0, "j1")
    (held,) = [on for on in before.types if on.served]
    assert held.share > 0
    found = at(records, 520.0, "j1")
    assert said(found, "running.entitled").endswith(
        f"its share there is 0.000, and was {held.share:.3f} when that was planned"
    )
    assert "note.set-aside" in codes(found)


# --- waiting -------------------------------------------------------------------------------------


def test_a_gang_that_must_be_together_is_told_that_idle_workers_are_not() -> None:
    """Two gangs on servers of three leave one worker on each, of no use to the third."""
    records = run(
        [job(f"g{n}", 3.0, scale_factor=2) for n in range(3)],
        cluster={"v100": 6},
        config=MODES["default"]("las:placement", 360.0),
        per_server=3,
    )
    found = at(records, 5.0, "g2")
    assert codes(found)[0] == "wait.placement"
    assert said(found, "wait.placement") == (
        "the next round leaves 2 of 6 v100 idle, but no 2 of them on as few servers as they could "
        "be"
    )


def test_a_gang_whose_workers_go_to_jobs_behind_it_is_told_how_many_were_left() -> None:
    """The wide gang comes second, and finds one of two; a single job takes that."""
    jobs = [
        job("one", 3.0, priority_weight=4.0, allowed_worker_types=("v100",)),
        job("gang", 3.0, scale_factor=2, priority_weight=2.0, allowed_worker_types=("v100",)),
        job("two", 3.0, allowed_worker_types=("v100",)),
    ]
    records = run(jobs, cluster={"v100": 2})
    texts = [
        said(found, "wait.gang")
        for found in (at(records, 15.0 + 360.0 * n, "gang") for n in range(12))
        if "wait.gang" in codes(found)
    ]
    assert texts
    assert set(texts) == {
        "1 of 2 v100 are left when its turn comes, before job two's; it needs 2 at once"
    }


def test_a_job_behind_an_equal_one_is_told_so() -> None:
    """Two jobs alike that come at once: the first submitted goes first."""
    records = run([job("x", 1.0), job("y", 1.0)], cluster={"v100": 1})
    assert said(at(records, 5.0, "y"), "wait.behind") == (
        "on v100 (workers: 1) its priority is 0 and 1 claim comes first; the last served, job x, "
        "has 0, and goes first of equals"
    )


def test_where_idle_workers_are_not_filled_no_share_means_no_workers() -> None:
    """In paper mode, under FIFO."""
    jobs = [job(f"j{n}", 2.0) for n in range(5)]
    found = at(run(jobs, config=MODES["paper"]("fifo", 360.0)), 500.0, "j4")
    assert codes(found)[0] == "wait.no-share"
    assert said(found, "wait.no-share") == "X is 0 on every type; only those with X > 0 run"
    assert all(on.priority is None for on in found.types)


def test_failures_in_a_row_are_counted_as_the_mechanism_counts() -> None:
    """Progress that is saved starts the count anew; the plan made 2 s later changes nothing."""
    failures = {"a": [Failure(348.0, "failed", 3), Failure(1500.0, "failed", 3)]}
    records = run_failing([job("a", 2.0), job("b", 2.0)], failures, {"v100": 1, "k80": 1})
    requeued = [record for record in records if isinstance(record.event, JobRequeued)]
    assert len(requeued) == 2
    for record in requeued:
        found = at(records, record.at + 3.0, "a")
        assert codes(found)[0] == "held.back-off"
        assert said(found, "held.back-off") == (
            "not for another 7.0 s: task failed with exit code 3 (failure 1, at most 3 in a row)"
        )


# --- what the policy says ------------------------------------------------------------------------


def test_prices_and_bottlenecked_jobs_are_those_of_the_allocation() -> None:
    """Las names both."""
    allocation = solved(contention(), 1500.0)
    assert allocation.bottlenecked
    prices = ", ".join(f"{t}: {allocation.prices[t]:.4g}" for t in ("k80", "v100"))
    for name in (f"j{n}" for n in range(8)):
        found = at(contention(), 1500.0, name)
        assert ("note.bottlenecked" in codes(found)) == (name in allocation.bottlenecked)
        assert said(found, "note.price") == f"in units of las's objective: {prices}"


def test_a_job_that_the_policy_sets_aside_is_told_why() -> None:
    """With one of two V100 drained there is nothing for a gang of two."""
    v100 = {"allowed_worker_types": ("v100",)}
    jobs = [job("one", 3.0, **v100), job("gang", 1.0, scale_factor=2, arrival_s=400.0, **v100)]
    drain = (500.0, "operator", DrainRequested(worker_id="v100-1"))
    found = at(run(jobs, [drain]), 1500.0, "gang")
    assert codes(found)[0] == "held.no-workers"
    assert said(found, "held.no-workers") == "it needs 2 at once; can be leased now: v100: 1 of 2"
    assert "v100: 7.92205 steps/s, 1 workers" in said(found, "note.set-aside")


def test_a_demand_that_cannot_be_met_is_told_with_what_is_missing() -> None:
    """Two jobs that both need all of the one V100 to be in time."""
    config = MODES["default"]("cost-slo", 360.0)
    jobs = [job(name, 2.0, slo_s=2.5 * 3600) for name in "ab"]
    records = run(jobs, cluster={"v100": 1}, config=config)
    allocation = solved(records, 100.0)
    assert allocation.unmet
    for name, why in allocation.unmet.items():
        text = said(at(records, 100.0, name), "note.unmet")
        assert text == why
        assert "missing" in text


@pytest.mark.parametrize("hours", [3.0, 300.0])
def test_a_deadline_that_has_passed_is_told_however_long_the_job_still_takes(hours: float) -> None:
    """Also where its end is further than is simulated."""
    jobs = [job("late", hours, slo_s=600.0), *(job(f"j{n}", hours) for n in range(6))]
    text = said(at(run(jobs), 5000.0, "late"), "note.slo")
    assert text.startswith("due 1.22 h ago, and ")


def test_a_provisional_estimate_is_told_as_such() -> None:
    """Until the job has been profiled; then by how sure its class is."""
    config = msgspec.structs.replace(
        MODES["default"]("las", 360.0), estimator="learned", trust_job_types=False
    )
    records = run([job("a", 1.0), job("b", 1.0, arrival_s=100.0)], config=config)
    of_b = [
        (r.at, r.event)
        for r in records
        if isinstance(r.event, ThroughputEstimated) and r.event.job_id == "b"
    ]
    assert [event.source for _, event in of_b][:2] == ["provisional", "learned"]
    for time_s, event in of_b[:2]:
        text = said(at(records, time_s, "b"), "note.estimate")
        assert text == f"{event.source}, confidence {event.confidence:.0%}"


@pytest.mark.parametrize(
    ("slo_s", "expected"), [(4000.0, "385.0 s before"), (3200.0, "415.0 s after")]
)
def test_a_complete_job_is_told_whether_it_was_in_time(slo_s: float, expected: str) -> None:
    """An hour's steps, 10 s until the first round, and 5 s to load."""
    found = at(run([job("a", 1.0, slo_s=slo_s)]), math.inf, "a")
    assert codes(found) == ["ended.completed"]
    assert said(found, "ended.completed").endswith(f"; {expected} its deadline")


# --- no allocation, or an old one ----------------------------------------------------------------


def test_a_job_newer_than_the_allocation_has_its_equal_share() -> None:
    """Two workers of a type for five jobs: 0.4 of each, and a claim as good as any."""
    config = msgspec.structs.replace(MODES["default"]("las", 360.0), resolve_min_gap_s=3000.0)
    jobs = [*(job(f"a{n}", 2.0) for n in range(4)), job("b", 2.0, arrival_s=400.0)]
    records = run(jobs, config=config)
    waiting = at(records, 900.0, "b")
    assert codes(waiting)[0] == "wait.behind"
    assert said(waiting, "note.equal-share") == "k80: 0.400, v100: 0.400"
    start = next(
        r.event.starts_at_s
        for r in records
        if isinstance(r.event, RoundScheduled)
        for lease in r.event.granted
        if any(task.job_id == "b" for task in lease.tasks)
    )
    running = at(records, start + 60.0, "b")
    assert codes(running)[0] == "running.entitled"
    assert said(running, "running.entitled").endswith("its share there is 0.400")


def test_an_equal_share_is_told_as_it_is_now_and_was() -> None:
    """Up to the solve at 3000 s, whose FIFO then gives the job nothing; the lease goes on."""
    config = msgspec.structs.replace(MODES["default"]("fifo", 360.0), resolve_min_gap_s=3000.0)
    jobs = [*(job(f"a{n}", 2.0) for n in range(5)), job("b", 2.0, arrival_s=400.0)]
    records = run(jobs, config=config)
    for time_s, expected in (
        (2990.0, "its share there is 0.333"),
        (3001.0, "its share there is 0.000, and was an equal one when that was planned"),
    ):
        assert said(at(records, time_s, "b"), "running.entitled").endswith(f"; {expected}")


def test_a_policy_that_fails_holds_nobody_who_need_not_wait_for_it() -> None:
    """The new job has an equal share, the others what they had."""

    def solve(effect: Solve) -> AllocationComputed | AllocationFailed:
        if any("b" in each.job_ids for each in effect.problem.classes):
            return AllocationFailed(policy="las", reason="it is too late")
        return carry_out(effect)

    jobs = [*(job(f"a{n}", 2.0) for n in range(4)), job("b", 2.0, arrival_s=400.0)]
    records = run(jobs, solver=solve)
    for name, decides in (("b", "wait.behind"), ("a0", "running.entitled")):
        found = at(records, 900.0, name)
        assert codes(found)[0] == decides
        assert said(found, "note.policy-fails") == "las: it is too late"
    assert math.isclose(sum(on.share for on in at(records, 900.0, "b").types), 0.8)

"""Numbers of an explanation beside those of the log, in odd cases and under either mode."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from replay.explain.explanation import Explanation
from replay.explain.history import Histories
from replay.explain.scan import scan
from replay.modes import MODES
from replay.simulate import WORKER, build_workers
from schemas.events import (
    AnyEvent,
    DrainRequested,
    RoundScheduled,
    TaskStopped,
    WorkerDisappeared,
    WorkerUnreachable,
)
from schemas.record import Record
from tests.live.shells import export
from tests.replay.command import flat, gavel
from tests.replay.explained import CLUSTER, at, codes, contention, job, run, said
from tests.simulation.scenario import contended, records_of

EIGHT = [job(f"j{n}", 1.0 + n / 3, arrival_s=75.0 * n) for n in range(8)]
DRAINED: list[tuple[float, str, AnyEvent]] = [
    (500.0, "operator", DrainRequested(worker_id=worker.worker_id))
    for worker in build_workers(CLUSTER, {}, {})
]


def plans(records: tuple[Record, ...]) -> list[RoundScheduled]:
    """Those of a log."""
    return [r.event for r in records if isinstance(r.event, RoundScheduled)]


# --- who runs, and who waits ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("policy", ["las", "fifo"])
def test_who_holds_workers_by_the_plan_runs_and_nobody_else(policy: str, mode: str) -> None:
    """In the middle of every sixth round; leases that were renewed included."""
    records = run(EIGHT, config=MODES[mode](policy, 360.0))
    leases = {lease.lease_id: lease for plan in plans(records) for lease in plan.granted}
    renewed = 0
    for plan in plans(records)[2:16:6]:
        time_s = plan.starts_at_s + 100.0
        ended = {
            r.event.task.job_id
            for r in records
            if isinstance(r.event, TaskStopped) and r.at <= time_s
        }
        holds = {
            task.job_id: lease
            for lease in (*plan.granted, *(leases[i] for i in plan.renewed))
            for task in lease.tasks
            if task.job_id not in ended
        }
        renewed += len(plan.renewed)
        for name in {f"j{n}" for n in range(8)} - ended:
            found = at(records, time_s, name)
            assert (found.status == "running") == (name in holds)
            if name in holds:
                ids = ", ".join(holds[name].worker_ids)
                assert found.reasons[0].text.startswith(f"on {ids} for another 260.0 s or longer")
            else:
                assert not found.reasons[0].code.startswith(("note.", "running."))
    assert renewed


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_who_waits_behind_others_has_as_many_claims_before_it_as_there_are_workers(
    mode: str,
) -> None:
    """Each worker is given to a claim that comes first; and the plan has their priorities."""
    records = run(EIGHT, config=MODES[mode]("las", 360.0))
    behind = 0
    for plan in plans(records)[6:20:7]:
        for n in range(8):
            found = at(records, plan.starts_at_s + 30.0, f"j{n}")
            if "wait.behind" not in codes(found):
                continue
            behind += 1
            for on in found.types:
                assert on.left == 0
                assert on.before_it is not None
                assert on.before_it >= on.workers
                assert on.priority is not None
                assert on.last_priority is not None
                assert on.last_priority >= on.priority
    assert behind


def test_time_received_has_the_round_that_runs() -> None:
    """To the second, though the round is reported at its end."""
    for name in (f"j{n}" for n in range(8)):
        time_s = 4000.0
        found = at(contention(), time_s, name)
        history = Histories()
        for record in contention():
            history.take(record)
        held: dict[str, float] = {}
        for stretch in history.jobs[name].stretches:
            within = min(stretch.ends_s, time_s) - stretch.starts_s
            held[stretch.way] = held.get(stretch.way, 0.0) + max(0.0, within)
        assert {on.worker_type: on.received_s for on in found.types} == pytest.approx(
            {on.worker_type: held.get(on.worker_type, 0.0) for on in found.types}
        )


def test_who_is_left_alone_by_a_partner_shares_no_more() -> None:
    """The lease names both as long as it is out."""
    simulation = contended(12, num_jobs=30, policy="las:ss").simulation()
    simulation.run()
    records = records_of(simulation.driver)
    leases = {lease.lease_id: lease for plan in plans(tuple(records)) for lease in plan.granted}
    time_s, stopped = next(
        (r.at, r.event.task)
        for r in records
        if isinstance(r.event, TaskStopped) and len(leases[r.event.task.lease_id].tasks) == 2
    )
    lease = leases[stopped.lease_id]
    (other,) = [task.job_id for task in lease.tasks if task.job_id != stopped.job_id]
    before, after = at(records, time_s - 0.5, other), at(records, time_s, other)
    assert said(before, "note.shared") == f"with job {stopped.job_id}"
    assert after.status == "running"
    assert "note.shared" not in codes(after)
    holders = at(records, time_s, "j0" if other != "j0" else "j1").types
    named = [each.job_ids for on in holders for each in on.holders]
    assert (other,) in named


# --- what will come, and what would help ---------------------------------------------------------


def helps(found: Explanation) -> dict[str, float | None]:
    """{change: when it would start, or end}."""
    return {each.change: each.at_s for each in found.helps}


def test_a_job_that_nothing_will_start_is_told_so_and_what_would(tmp_path: Path) -> None:
    """Of a drained cluster: never, as it is; with one more worker, when."""
    records = run([job(f"j{n}", 1.0) for n in range(5)], DRAINED)
    found = at(records, math.inf, "j4")
    assert codes(found)[0] == "held.no-workers"
    assert found.likely is not None
    assert found.likely.is_over
    assert found.likely.starts_s is found.likely.ends_s is None
    assert helps(found).keys() == {"one more k80", "one more v100"}
    assert all(when is not None and when > found.at_s for when in helps(found).values())
    log = export(list(records), tmp_path / "drained.jsonl")
    told = flat(gavel("explain", "j4", "--log", log).stdout)
    assert "likely, if nothing else comes: never starts" in told
    assert "one more v100: starts in " in told


def test_between_plan_and_boundary_more_workers_are_said_to_change_the_end() -> None:
    """The start is settled: the lease is granted."""
    plan, found = next(
        (plan, found)
        for plan in plans(contention())[8:]
        for lease in plan.granted
        if (found := at(contention(), plan.starts_at_s - 1.0, lease.tasks[0].job_id)).status
        == "waiting"
    )
    assert codes(found)[0] == "wait.next-round"
    assert found.likely is not None
    assert found.likely.starts_s == plan.starts_at_s
    assert {each.of for each in found.helps} == {"end"}
    assert any((each.earlier_s or 0) > 0 for each in found.helps)


def test_of_a_gang_over_two_services_the_one_that_counts_its_steps_is_believed() -> None:
    """The other says first that the gang is done: the history is as if it had said nothing."""
    records = run([job("gang", 1.0, scale_factor=2, allowed_worker_types=("v100",))])
    alone, both = Histories(), Histories()
    for record in records:
        event = record.event
        if isinstance(event, RoundScheduled):
            services = tuple(
                msgspec.structs.replace(lease, reporters=(*lease.reporters, "worker.other"))
                for lease in event.granted
            )
            event = msgspec.structs.replace(event, granted=services)
        if isinstance(event, TaskStopped):
            other = msgspec.structs.replace(event, reporter="worker.other")
            both.take(msgspec.structs.replace(record, event=other))
        alone.take(record)
        both.take(msgspec.structs.replace(record, event=event))
    assert both.jobs["gang"].stretches
    assert both.jobs["gang"] == alone.jobs["gang"]


# --- others --------------------------------------------------------------------------------------


def test_how_long_a_worker_is_unreachable_is_told() -> None:
    """In seconds, not as a time of the log."""
    missed = (1000.0, "mechanism", WorkerUnreachable(worker_id="v100-0", since_s=990.0))
    found = at(run([job("a", 1.0)], [missed]), 1050.0, "a")
    assert said(found, "note.away") == "1 of 4 workers: v100-0 (unreachable for 60.0 s)"


def test_workers_that_have_disappeared_are_counted_among_those_there_were() -> None:
    """Two of four are gone, not two of two."""
    gone = [
        (300.0, WORKER, WorkerDisappeared(worker_id=f"v100-{n}", reporter=WORKER)) for n in range(2)
    ]
    found = at(run([job("a", 3.0)], gone), 700.0, "a")
    assert said(found, "note.away") == "2 of 4 workers: v100-0 (lost), v100-1 (lost)"


@pytest.mark.parametrize(("policy", "mode"), [("las:ss", "default"), ("fifo", "paper")])
def test_a_log_read_for_one_job_gives_the_history_that_the_whole_log_gives(
    policy: str, mode: str, tmp_path: Path
) -> None:
    """Lines that are passed by say nothing of the job."""
    simulation = contended(9, num_jobs=20, policy=policy, mode=mode).simulation()
    simulation.run()
    records = records_of(simulation.driver)
    log = export(list(records), tmp_path / "run.jsonl")
    for time_s in (100.0, 300.0, 1500.0):
        whole = Histories()
        for record in records:
            if record.at <= time_s:
                whole.take(record)
        for name, history in whole.jobs.items():
            found, world = scan(log, name, time_s)
            assert found == history
            assert world.now == min(time_s, records[-1].at)

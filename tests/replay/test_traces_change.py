"""What a trace asks for, and traces made of others: cut, moved, injected, as event lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from replay.modes import MODES
from replay.simulate import Simulation, build_workers
from replay.traces.change import at_load, cut, injected, renamed, scaled
from replay.traces.churn import Churn, befall
from replay.traces.errors import TraceError
from replay.traces.events import write_events
from replay.traces.measure import stats, work
from replay.traces.reader import Trace, parse_trace, read_trace
from replay.traces.rows import TimedEvent
from replay.traces.tables import builtin_table
from replay.traces.workload import Workload, draw
from schemas.domain import JobSpec
from schemas.events import CancelRequested, JobCancelled, JobSubmitted, RoundScheduled, WorkerLost
from schemas.record import Record
from services.estimator.tables import parse_csv
from services.runtime.file_log import FileLog
from services.runtime.log import MemoryLog

TABLE = builtin_table()
SMALL = parse_csv(
    "job_type,scale_factor,worker_type,steps_per_s\nA,1,v100,4\nA,1,k80,1\nA,2,v100,6\n", "small"
)
CLUSTER = {"v100": 8, "k80": 8}


def job(
    job_id: str, arrival_s: float = 0.0, steps: float = 400.0, scale_factor: int = 1
) -> JobSpec:
    """A job of type A."""
    return JobSpec(
        job_id=job_id,
        job_type="A",
        scale_factor=scale_factor,
        total_steps=steps,
        arrival_s=arrival_s,
    )


def trace_of(*jobs: JobSpec, events: tuple[TimedEvent, ...] = ()) -> Trace:
    """A trace of these."""
    return Trace("t", list(jobs), {}, {}, events=events)


def cancel(at_s: float, job_id: str) -> TimedEvent:
    """A cancellation."""
    return TimedEvent(at_s, f"client.{job_id}.cancel", CancelRequested(job_id=job_id))


# --- figures -------------------------------------------------------------------------------------


def test_figures_of_a_small_trace() -> None:
    """Each by hand: two jobs of 100 s on one v100, one of 100 s on two, in 1000 s."""
    jobs = [job("a"), job("b", 400.0), job("c", 1000.0, steps=600.0, scale_factor=2)]
    found = stats(jobs, SMALL, "v100", {"v100": 3, "k80": 1})
    assert (found.jobs, found.span_s, found.peak_per_h) == (3, 1000.0, 3)
    assert found.arrivals_per_h == pytest.approx(10.8)
    assert found.mean_duration_s == pytest.approx(100.0)
    assert found.scale_factors == {1: 2, 2: 1}
    assert found.worker_hours == pytest.approx((100 + 100 + 200) / 3600)
    # At equal shares A makes (3*4 + 1*1)/4 steps/s on one worker, 3*6/4 on two: no two k80.
    work_s = 2 * 400 / 3.25 + 2 * 600 / 4.5
    assert found.load == pytest.approx(work_s / (1000 * 4))
    assert found.off_cluster == found.off_reference == 0


def test_jobs_that_do_not_fit_are_told() -> None:
    """Off the reference type, or off the whole cluster: counted, and in no figure."""
    found = stats([job("a"), job("b", 9.0, scale_factor=2)], SMALL, "k80", {"k80": 4})
    assert (found.off_reference, found.off_cluster) == (1, 1)
    assert stats([job("a")], SMALL, "v100", {"v100": 1}).load is None


def test_what_one_job_declares_is_nobody_elses() -> None:
    """Two jobs of a class, one with a speed of its own: the load is that of each by itself."""
    declared = structs.replace(job("b"), declared_throughputs={"p100": 2.0})
    cluster = {"v100": 1, "p100": 1}
    for jobs in ([job("a"), declared], [declared, job("a")]):
        alone_s = [work([each], SMALL, cluster)[0] for each in jobs]
        assert alone_s[0] != alone_s[1]
        assert work(jobs, SMALL, cluster)[0] == pytest.approx(sum(alone_s))


@given(st.integers(0, 1000), st.floats(0.05, 3.0))
def test_a_load_that_is_asked_for_is_had(seed: int, load: float) -> None:
    """Arrivals are moved, nothing else."""
    jobs, _ = draw(Workload(num_jobs=30, mean_gap_s=50.0, seed=seed), TABLE)
    moved = at_load(trace_of(*jobs), load, TABLE, CLUSTER)
    assert stats(moved.jobs, TABLE, "v100", CLUSTER).load == pytest.approx(load)
    assert [each.total_steps for each in moved.jobs] == [each.total_steps for each in jobs]


def test_a_load_that_cannot_be_had_is_refused() -> None:
    """Jobs that arrive together have none, whatever they are moved to."""
    with pytest.raises(TraceError, match="its jobs arrive together"):
        at_load(trace_of(job("a"), job("b")), 0.7, SMALL, CLUSTER)
    with pytest.raises(TraceError, match="none of its jobs runs"):
        at_load(trace_of(job("a"), job("b", 1.0)), 0.7, SMALL, {})


# --- traces of traces ----------------------------------------------------------------------------


def test_cutting_and_moving_take_the_events_along() -> None:
    """The first job of a cut is at 0; a cancellation goes with its job."""
    whole = trace_of(
        *(job(str(i), 100.0 * i) for i in range(5)), events=(cancel(50.0, "0"), cancel(950.0, "3"))
    )
    part = cut(whole, 2, 4)
    assert [(each.job_id, each.arrival_s) for each in part.jobs] == [("2", 0.0), ("3", 100.0)]
    assert part.events == [cancel(750.0, "3")]
    late = scaled(part, 3.0)
    assert [each.arrival_s for each in late.jobs] == [0.0, 300.0]
    assert late.events == [cancel(950.0, "3")]


def test_injecting_keeps_both() -> None:
    """The other's jobs and events come so much later, under ids of their own, in order."""
    into = trace_of(job("0"), job("1", 500.0), events=(cancel(700.0, "1"),))
    other = trace_of(job("0", 10.0), events=(cancel(20.0, "0"),))
    both = injected(into, other, at_s=100.0, prefix="x-")
    assert [(each.job_id, each.arrival_s) for each in both.jobs] == [
        ("0", 0.0),
        ("x-0", 110.0),
        ("1", 500.0),
    ]
    assert both.events == [cancel(120.0, "x-0"), cancel(700.0, "1")]


def test_ids_that_clash_or_are_unsafe_are_refused() -> None:
    """Nothing is renamed unasked, and no prefix gets into a subject that may not be there."""
    with pytest.raises(TraceError, match="job_id: '0'; expected an id that t does not have"):
        injected(trace_of(job("0")), trace_of(job("0")))
    for prefix in ("a.b", "a>", "x" * 64):
        with pytest.raises(TraceError, match="1 to 64 of the characters"):
            renamed(trace_of(job("0")), prefix)


# --- event lines ---------------------------------------------------------------------------------


def submitted(at_s: float, job_id: str, **changes: object) -> str:
    """An event line."""
    event = {"kind": "JobSubmitted", "job": {"job_id": job_id, "job_type": "A", **changes}}
    return json.dumps({"at": at_s, "actor": f"client.{job_id}", "event": event}) + "\n"


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (submitted(1.0, "b"), "total_steps, duration_s"),
        (submitted(1.0, "b", total_steps=-1.0), "total_steps"),
        (submitted(1.0, "a", total_steps=1.0), "job_id"),
        (submitted(-1.0, "b", total_steps=1.0), "at"),
        ('{"at": 1.0, "actor": "x", "event": {"kind": "JobSubmitted"}}\n', "event"),
        ('{"at": 1.0}\n', "event"),
        ("what?\n", "event"),
    ],
)
def test_a_bad_event_line_is_named(line: str, field: str) -> None:
    """With line and field; nothing of the file is used."""
    with pytest.raises(TraceError) as caught:
        parse_trace(submitted(0.0, "a", total_steps=1.0) + line, "t", SMALL)
    assert [(fault.line, fault.field) for fault in caught.value.faults] == [(2, field)]


def test_who_may_not_write_an_event_is_not_believed() -> None:
    """An outage that a client tells of is left out, and so is what services decide."""
    lost = '{"at": 1.0, "actor": "client.x", "event": {"kind": "WorkerUnreachable", '
    lost += '"worker_id": "w", "since_s": 1.0}}\n'
    due = '{"at": 1.0, "actor": "mechanism", "event": {"kind": "RoundDue", "round_id": 1}}\n'
    newer = '{"seq": 3, "at": 1.0, "actor": "mechanism", "digest": "", "event": {"kind": "New"}}\n'
    trace = parse_trace(submitted(0.0, "a", total_steps=1.0) + lost + due + newer, "t", SMALL)
    assert not trace.events
    assert sum(trace.refused.values()) == 3


def run(trace: Trace, log: MemoryLog | FileLog, cluster: dict[str, int]) -> list[Record]:
    """Simulate; all records."""
    simulation = Simulation(
        log,
        MODES["default"]("las", 360.0),
        build_workers(cluster, {}, {}),
        TABLE,
        trace.jobs,
        events=trace.events,
    )
    records: list[Record] = []
    simulation.run()
    records.extend(log.read())
    return records


def test_a_log_is_a_trace(tmp_path: Path) -> None:
    """What was submitted, cancelled and lost in a log happens again, and comes to the same."""
    jobs, cancels = draw(Workload(num_jobs=30, mean_gap_s=900.0, cancelled=0.3), TABLE)
    workers = build_workers(CLUSTER, {}, {})
    churn = befall(workers, jobs[-1].arrival_s, Churn(up_s=2e4, away_s=5e3))
    trace = trace_of(*jobs, events=tuple(sorted([*cancels, *churn], key=lambda e: e.at_s)))
    path = tmp_path / "log.jsonl.zst"
    log = FileLog(path)
    first = run(trace, log, CLUSTER)
    log.close()
    read = read_trace(path, TABLE)
    assert read.format == "events"
    assert read.jobs == [e.event.job for e in first if isinstance(e.event, JobSubmitted)]
    again = run(read, MemoryLog(), CLUSTER)
    for kind in (JobCancelled, WorkerLost):
        happened = [(r.at, r.event) for r in first if isinstance(r.event, kind)]
        assert happened
        assert happened == [(r.at, r.event) for r in again if isinstance(r.event, kind)]
    assert [r.event for r in first] == [r.event for r in again]


def test_a_log_cut_off_in_mid_record_is_read_to_there() -> None:
    """A killed writer's last line, begun and not finished, is counted; the jobs before are kept."""
    jobs, _ = draw(Workload(num_jobs=3, mean_gap_s=10.0), TABLE)
    text = write_events(jobs, ())
    trace = parse_trace(text[:-40], "t", TABLE)
    assert trace.kept == 2
    assert trace.refused == {"begun and not finished: its writer was stopped": 1}


def test_a_month_without_jobs_costs_nothing() -> None:
    """No round, no solve, no record while there is nothing to run."""
    month_s = 30 * 86_400.0
    text = "".join(
        submitted(at_s, f"j{n}", total_steps=400.0) for n, at_s in enumerate((0, month_s))
    )
    gap, none = (
        parse_trace(each, "t", SMALL) for each in (text, text.replace(str(month_s), "3600"))
    )
    records = []
    for trace in (gap, none):
        log = MemoryLog()
        simulation = Simulation(
            log,
            MODES["default"]("las", 360.0),
            build_workers({"v100": 1}, {}, {}),
            SMALL,
            trace.jobs,
        )
        simulation.run()
        records.append(list(log.read()))
    with_gap, without = records
    assert len(with_gap) == len(without)
    assert with_gap[-1].at > month_s
    assert sum(isinstance(r.event, RoundScheduled) for r in with_gap) < 10

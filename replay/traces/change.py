"""Traces made of traces: one injected into another, cut, or with arrivals further apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from replay.traces.errors import Fault, TraceError
from replay.traces.measure import work
from replay.traces.reader import Trace
from replay.traces.rows import TimedEvent
from replay.traces.rules import MAX_S
from schemas.domain import JobSpec
from schemas.events import CancelRequested
from schemas.subjects import is_safe_name
from services.estimator.tables import ThroughputTable


def scaled(trace: Trace, factor: float) -> Trace:
    """The same jobs, arriving ``factor`` times as late; each cancelled as long after as before.

    What happens to workers happens when it did.
    """
    if trace.jobs and trace.jobs[-1].arrival_s * factor > MAX_S:
        raise TraceError(trace.source, f"arrivals {factor:g} times as late go beyond {MAX_S:g} s")
    jobs = [msgspec.structs.replace(job, arrival_s=job.arrival_s * factor) for job in trace.jobs]
    later_s = {
        old.job_id: new.arrival_s - old.arrival_s for old, new in zip(trace.jobs, jobs, strict=True)
    }
    events = [
        event._replace(at_s=event.at_s + later_s.get(getattr(event.event, "job_id", ""), 0.0))
        for event in trace.events
    ]
    return replace(trace, jobs=jobs, events=sorted(events, key=lambda event: event.at_s))


def at_load(trace: Trace, load: float, table: ThroughputTable, cluster: Mapping[str, int]) -> Trace:
    """The trace with arrivals scaled so that it asks for ``load`` of the cluster (``measure``).

    Raises
    ------
    TraceError
        All jobs arrive together, or none can run on the cluster.
    """
    span_s = trace.jobs[-1].arrival_s - trace.jobs[0].arrival_s
    work_s, _ = work(trace.jobs, table, cluster)
    if span_s <= 0 or work_s <= 0:
        why = "its jobs arrive together" if span_s <= 0 else "none of its jobs runs on the cluster"
        raise TraceError(trace.source, f"cannot be brought to a load: {why}")
    return scaled(trace, work_s / (sum(cluster.values()) * load) / span_s)


def cut(trace: Trace, first: int, last: int) -> Trace:
    """Jobs ``first`` to ``last`` - 1 by arrival, the first of them at 0, and the events between."""
    jobs = trace.jobs[first:last]
    start_s, end_s = jobs[0].arrival_s, jobs[-1].arrival_s
    kept = {job.job_id for job in jobs}
    return replace(
        trace,
        jobs=[msgspec.structs.replace(job, arrival_s=job.arrival_s - start_s) for job in jobs],
        events=[
            event._replace(at_s=event.at_s - start_s)
            for event in trace.events
            if (
                event.event.job_id in kept
                if isinstance(event.event, CancelRequested)
                else start_s <= event.at_s <= end_s
            )
        ],
    )


def renamed(trace: Trace, prefix: str) -> Trace:
    """The trace with ``prefix`` before every job id.

    Raises
    ------
    TraceError
        An id would not be safe in a subject or a path, or would be too long.
    """
    if not prefix:
        return trace
    jobs = [msgspec.structs.replace(job, job_id=prefix + job.job_id) for job in trace.jobs]
    for job in jobs:
        if not is_safe_name(job.job_id):
            expected = "a prefix that leaves 1 to 64 of the characters A-Z a-z 0-9 _ -"
            raise TraceError(trace.source, "no id", [Fault(0, "job_id", job.job_id, expected)])
    return replace(trace, jobs=jobs, events=[_renamed(event, prefix) for event in trace.events])


def injected(into: Trace, other: Trace, at_s: float = 0.0, prefix: str = "") -> Trace:
    """Both traces in one: what ``other`` has happens ``at_s`` seconds later than it says.

    Raises
    ------
    TraceError
        Both have a job of the same id, or something would happen too late.
    """
    other = renamed(other, prefix)
    taken = {job.job_id for job in into.jobs}
    for job in other.jobs:
        if job.job_id in taken:
            expected = f"an id that {into.source} does not have (inject it with a --prefix)"
            raise TraceError(other.source, "no new job", [Fault(0, "job_id", job.job_id, expected)])
    if other.jobs and other.jobs[-1].arrival_s + at_s > MAX_S:
        raise TraceError(other.source, f"its jobs would arrive after {MAX_S:g} s")
    later = [_later(job, at_s) for job in other.jobs]
    events = [event._replace(at_s=event.at_s + at_s) for event in other.events]
    return replace(
        into,
        source=f"{into.source} and {other.source}",
        jobs=sorted([*into.jobs, *later], key=lambda job: job.arrival_s),
        repaired=_summed(into.repaired, other.repaired),
        refused=_summed(into.refused, other.refused),
        lines={**other.lines, **into.lines},
        events=sorted([*into.events, *events], key=lambda event: event.at_s),
    )


def _later(job: JobSpec, seconds: float) -> JobSpec:
    return msgspec.structs.replace(job, arrival_s=job.arrival_s + seconds)


def _renamed(event: TimedEvent, prefix: str) -> TimedEvent:
    if not isinstance(event.event, CancelRequested):
        return event
    job_id = prefix + event.event.job_id
    return TimedEvent(event.at_s, cancelling(job_id), CancelRequested(job_id=job_id))


def cancelling(job_id: str) -> str:
    """The writer that cancels a job of a trace: one of its own, as each job has one."""
    return f"client.{job_id}.cancel"


def _summed(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {why: one.get(why, 0) + other.get(why, 0) for why in sorted({*one, *other})}

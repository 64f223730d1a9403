"""What must hold in any log of any run, read off its records alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.domain import Lease, TaskProgress
from schemas.events import (
    ClusterConfigured,
    JobAdmitted,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobRejected,
    JobSubmitted,
    LeasesChanged,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
)
from schemas.record import Record

_ENDS = (JobCompleted, JobCancelled, JobFailed, JobRejected)
#: Relative rounding error of steps summed over many rounds.
_ROUNDING = 1e-9


@dataclass
class _Interval:
    lease: Lease
    starts_at_s: float
    ends_at_s: float


def violations(records: Sequence[Record]) -> list[str]:
    """Everything that is wrong with a finished run; each line names the record it shows at."""
    return [*_ends(records), *_leases(records), *_steps(records)]


def _ends(records: Iterable[Record]) -> Iterable[str]:
    """Every job ends exactly once, and nothing is granted to it, or admitted, afterwards."""
    submitted: dict[str, float] = {}
    ended: dict[str, str] = {}
    for record in records:
        event = record.event
        if isinstance(event, JobSubmitted):
            total_steps = event.job.total_steps
            assert total_steps is not None
            submitted[event.job.job_id] = total_steps
        elif isinstance(event, _ENDS):
            kind = type(event).__name__
            if event.job_id in ended:
                yield f"{record.seq}: {kind} of {event.job_id} after {ended[event.job_id]}"
            ended[event.job_id] = kind
            if isinstance(event, JobCompleted) and event.steps != submitted[event.job_id]:
                yield f"{record.seq}: {event.job_id} complete at {event.steps} steps"
        elif isinstance(event, JobAdmitted) and event.job_id in ended:
            yield f"{record.seq}: {event.job_id} admitted after its end"
        elif isinstance(event, RoundScheduled):
            for lease in event.granted:
                for task in lease.tasks:
                    if task.job_id in ended:
                        yield f"{record.seq}: {lease.lease_id} for {task.job_id} after its end"
    for job_id in submitted:
        if job_id not in ended:
            yield f"the end: {job_id} never ended"


def _leases(records: Iterable[Record]) -> Iterable[str]:
    """No worker is under two leases, and no job under two leases, at once.

    On the grid a lease ends with its round, with ``last_task`` when its round has been reported.
    """
    intervals: dict[str, _Interval] = {}
    last_task = False
    running: list[_Interval] = []
    for record in records:
        event = record.event
        if isinstance(event, ClusterConfigured):
            last_task = event.round_end == "last_task"
        elif isinstance(event, RoundScheduled):
            ends_at_s = math.inf if last_task else event.ends_at_s
            for lease in event.granted:
                if lease.lease_id in intervals:
                    yield f"{record.seq}: lease {lease.lease_id} granted twice"
                intervals[lease.lease_id] = _Interval(lease, event.starts_at_s, ends_at_s)
            for lease_id in event.renewed:
                if not last_task and intervals[lease_id].ends_at_s != event.starts_at_s:
                    yield f"{record.seq}: {lease_id} renewed though it does not run until then"
                if last_task and intervals[lease_id].ends_at_s > event.starts_at_s:
                    yield f"{record.seq}: {lease_id} renewed though not reported"
                intervals[lease_id].ends_at_s = ends_at_s
            in_round = [lease.lease_id for lease in event.granted] + list(event.renewed)
            running = [intervals[lease_id] for lease_id in in_round]
        elif isinstance(event, ProgressReported) and last_task:
            for interval in running:
                interval.ends_at_s = min(interval.ends_at_s, record.at)
        elif isinstance(event, LeasesChanged):
            for lease_id in event.revoked:
                interval = intervals[lease_id]
                interval.ends_at_s = min(interval.ends_at_s, record.at)
    yield from _overlaps(intervals.values())


def _overlaps(intervals: Iterable[_Interval]) -> Iterable[str]:
    until: dict[str, _Interval] = {}
    for interval in sorted(intervals, key=lambda each: (each.starts_at_s, each.ends_at_s)):
        if interval.ends_at_s <= interval.starts_at_s:
            continue
        holders = list(interval.lease.worker_ids)
        holders += [f"job {task.job_id}" for task in interval.lease.tasks]
        for holder in holders:
            before = until.get(holder)
            if before is not None and before.ends_at_s > interval.starts_at_s:
                yield (
                    f"{holder} is under {before.lease.lease_id} until {before.ends_at_s} "
                    f"and under {interval.lease.lease_id} from {interval.starts_at_s}"
                )
            until[holder] = interval


def _steps(records: Iterable[Record]) -> Iterable[str]:
    """Checkpointed steps never go down; steps never exceed the total; nothing is lost beyond a
    checkpoint: a lease starts from the newest checkpoint on the log."""
    totals: dict[str, float] = {}
    checkpointed: dict[str, float] = {}
    #: {(lease, job): steps last reported under it}
    under: dict[tuple[str, str], float] = {}
    for record in records:
        event = record.event
        if isinstance(event, JobSubmitted):
            totals[event.job.job_id] = event.job.total_steps or 0.0
            checkpointed[event.job.job_id] = 0.0
        elif isinstance(event, ProgressReported | TaskStopped):
            rows = event.rows if isinstance(event, ProgressReported) else (event.task,)
            for row in rows:
                yield from _row(record, row, totals, checkpointed, under)


def _row(
    record: Record,
    row: TaskProgress,
    totals: dict[str, float],
    checkpointed: dict[str, float],
    under: dict[tuple[str, str], float],
) -> Iterable[str]:
    job_id = row.job_id
    key = (row.lease_id, job_id)
    total = totals[job_id]
    if row.steps > total * (1 + _ROUNDING):
        yield f"{record.seq}: {job_id} at {row.steps} of {total} steps"
    if row.steps < under.get(key, checkpointed[job_id]):
        yield f"{record.seq}: {job_id} back at {row.steps} steps under {row.lease_id}"
    if row.checkpointed_steps < checkpointed[job_id]:
        yield f"{record.seq}: {job_id} checkpointed at {row.checkpointed_steps}, less than before"
    if row.checkpointed_steps > row.steps:
        yield f"{record.seq}: {job_id} checkpointed more steps than it has"
    under[key] = row.steps
    checkpointed[job_id] = max(checkpointed[job_id], row.checkpointed_steps)

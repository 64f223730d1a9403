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
    #: A profile runs copies of its jobs, which may run elsewhere meanwhile.
    copies: bool = False


def violations(records: Sequence[Record]) -> list[str]:
    """Everything that is wrong with a finished run; each line names the record it shows at."""
    checks = (_ends, _nothing_after_the_end, _completions, _leases, _steps)
    return [violation for check in checks for violation in check(records)]


def _ends(records: Iterable[Record]) -> Iterable[str]:
    """Every job ends exactly once, completed at its total steps or otherwise."""
    total_steps: dict[str, float | None] = {}
    ended: dict[str, str] = {}
    for record in records:
        event = record.event
        if isinstance(event, JobSubmitted):
            total_steps[event.job.job_id] = event.job.total_steps
        elif isinstance(event, _ENDS):
            kind = type(event).__name__
            if event.job_id in ended:
                yield f"{record.seq}: {kind} of {event.job_id} after {ended[event.job_id]}"
            ended[event.job_id] = kind
            if isinstance(event, JobCompleted) and event.steps != total_steps[event.job_id]:
                yield f"{record.seq}: {event.job_id} complete at {event.steps} steps"
    for job_id in total_steps:
        if job_id not in ended:
            yield f"the end: {job_id} never ended"


def _nothing_after_the_end(records: Iterable[Record]) -> Iterable[str]:
    """Once a job's end is on the log, it is not admitted, nor granted anything."""
    ended: set[str] = set()
    for record in records:
        event = record.event
        begun: list[str] = []
        if isinstance(event, _ENDS):
            ended.add(event.job_id)
        elif isinstance(event, JobAdmitted):
            begun = [event.job_id]
        elif isinstance(event, RoundScheduled):
            begun = [task.job_id for lease in event.granted for task in lease.tasks]
        for job_id in begun:
            if job_id in ended:
                yield f"{record.seq}: {type(event).__name__} of {job_id} after its end"


def _completions(records: Iterable[Record]) -> Iterable[str]:
    """The first report that a job is complete counts, unless its lease was being revoked."""
    #: {job: (record, lease) of the first report that it is complete}
    first: dict[str, tuple[int, str]] = {}
    revoked: set[str] = set()
    for record in records:
        event = record.event
        if isinstance(event, TaskStopped) and event.reason == "completed":
            first.setdefault(event.task.job_id, (record.seq, event.task.lease_id))
        elif isinstance(event, LeasesChanged):
            revoked |= set(event.revoked)
        elif isinstance(event, JobCompleted):
            seq, lease_id = first.get(event.job_id, (0, ""))
            if record.cause != seq and lease_id not in revoked:
                yield f"{record.seq}: {event.job_id} complete on {record.cause}, not yet on {seq}"


def _leases(records: Iterable[Record]) -> Iterable[str]:
    """No worker is under two leases, and no job under two leases, at once.

    On the grid a lease ends with its round, with ``last_task`` when its round has been reported.
    """
    book = _Book()
    for record in records:
        event = record.event
        if isinstance(event, ClusterConfigured):
            book.last_task = event.round_end == "last_task"
        elif isinstance(event, RoundScheduled):
            yield from book.plan(record.seq, event)
        elif isinstance(event, ProgressReported) and book.last_task:
            book.cut(book.running, record.at)
        elif isinstance(event, LeasesChanged):
            book.cut(event.revoked, record.at)
            for lease in event.granted:
                interval = _Interval(lease, event.starts_at_s, event.ends_at_s, copies=True)
                book.intervals[lease.lease_id] = interval
    yield from _overlaps(book.intervals.values())


class _Book:
    """Leases, from when until when."""

    def __init__(self) -> None:
        self.last_task = False
        self.intervals: dict[str, _Interval] = {}
        #: Leases of the newest round.
        self.running: list[str] = []

    def plan(self, seq: int, event: RoundScheduled) -> Iterable[str]:
        ends_at_s = math.inf if self.last_task else event.ends_at_s
        for lease in event.granted:
            if lease.lease_id in self.intervals:
                yield f"{seq}: lease {lease.lease_id} granted twice"
            self.intervals[lease.lease_id] = _Interval(lease, event.starts_at_s, ends_at_s)
        for lease_id in event.renewed:
            interval = self.intervals[lease_id]
            early = interval.ends_at_s < event.starts_at_s and not self.last_task
            if early or interval.ends_at_s > event.starts_at_s:
                yield f"{seq}: {lease_id} renewed though it runs until {interval.ends_at_s}"
            interval.ends_at_s = ends_at_s
        self.running = [lease.lease_id for lease in event.granted] + list(event.renewed)

    def cut(self, lease_ids: Iterable[str], at: float) -> None:
        for lease_id in lease_ids:
            interval = self.intervals[lease_id]
            interval.ends_at_s = min(interval.ends_at_s, at)


def _overlaps(intervals: Iterable[_Interval]) -> Iterable[str]:
    until: dict[str, _Interval] = {}
    for interval in sorted(intervals, key=lambda each: (each.starts_at_s, each.ends_at_s)):
        if interval.ends_at_s <= interval.starts_at_s:
            continue
        holders = list(interval.lease.worker_ids)
        if not interval.copies:
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
    """Steps never exceed the total, never go down under a lease, nor below a checkpoint."""
    totals: dict[str, float] = {}
    checkpointed: dict[str, float] = {}
    #: {(lease, job): steps last reported under it}
    under: dict[tuple[str, str], float] = {}
    #: {lease: the service that counts its steps}
    counts: dict[str, str] = {}
    for record in records:
        event = record.event
        if isinstance(event, RoundScheduled):
            counts |= {lease.lease_id: lease.reporters[0] for lease in event.granted}
        elif isinstance(event, JobSubmitted):
            totals[event.job.job_id] = event.job.total_steps or 0.0
            checkpointed[event.job.job_id] = 0.0
        elif isinstance(event, ProgressReported | TaskStopped):
            rows = event.rows if isinstance(event, ProgressReported) else (event.task,)
            for row in rows:
                if counts.get(row.lease_id, record.actor) == record.actor:
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

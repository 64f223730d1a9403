"""Our own event lines: jobs and whatever else befalls a cluster, as JSON; a log is such a file.

A line has ``at`` (s), ``actor`` and ``event``, as a record of a log has. What services wrote is
left out: they decide anew. Submissions become jobs that arrive then; outages, drains and
cancellations stay events.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from replay.traces.errors import Fault
from replay.traces.rows import Rows, TimedEvent, numbered_lines
from replay.traces.rules import RULES, wrong
from replay.traces.swf import DATES_S
from schemas.domain import JobSpec
from schemas.events import (
    AnyEvent,
    CancelRequested,
    DrainRequested,
    JobSubmitted,
    WorkerDisappeared,
    WorkerRegistered,
    WorkerReturned,
    WorkerUnreachable,
)
from schemas.record import MalformedRecordError, Record, decode
from schemas.subjects import may_write

#: Of events, those that can be made to happen.
OUTSIDE = (CancelRequested, DrainRequested, WorkerReturned, WorkerUnreachable)
_SEAL = '{"sealed":'


class _Line(msgspec.Struct, omit_defaults=True):
    at: float
    actor: str
    event: AnyEvent


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


def write_events(jobs: Iterable[JobSpec], events: Iterable[TimedEvent]) -> str:
    """Jobs and events as lines, in order of time; ``parse`` reads them back equal."""
    lines = [
        _Line(job.arrival_s, f"client.{job.job_id}", JobSubmitted(job=job)) for job in jobs
    ] + [_Line(*event) for event in events]
    lines.sort(key=lambda line: line.at)
    return "".join(f"{_encode(line).decode()}\n" for line in lines)


def recognises(line: str) -> bool:
    """Whether a first line is of this format."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return False
    return isinstance(found, dict) and {"at", "event"} <= found.keys()


def parse(text: str) -> Rows:
    """Jobs and events of the lines."""
    rows = Rows()
    seen: set[str] = set()
    first_s: float | None = None
    whole = text.endswith("\n")
    last = text.count("\n") + 1
    for number, line in numbered_lines(text):
        if line.startswith(_SEAL):
            continue
        try:
            found = _decode(line)
        except (msgspec.MsgspecError, UnicodeEncodeError) as error:
            if number == last and not whole:
                rows.refuse("begun and not finished: its writer was stopped", number)
            elif _is_newer(line):
                rows.refuse("an event of a kind that this release does not know", number)
            else:
                rows.faults.append(Fault(number, "event", line, f"an event: {error}"))
            continue
        if first_s is None:
            # A live log's times are dates.
            first_s = found.at if found.at > DATES_S else 0.0
        _take(found, found.at - first_s, number, seen, rows)
    return rows


def _take(line: _Line, at_s: float, number: int, seen: set[str], rows: Rows) -> None:
    event = line.event
    if not RULES["arrival_s"].holds(at_s):
        rows.faults.append(Fault(number, "at", line.at, RULES["arrival_s"].expected))
    elif isinstance(event, JobSubmitted):
        job = msgspec.structs.replace(event.job, arrival_s=at_s)
        faults = list(wrong(job))
        if job.job_id in seen:
            faults.append(("job_id", job.job_id, "another id: it was submitted before"))
        rows.faults.extend(Fault(number, *fault) for fault in faults)
        seen.add(job.job_id)
        rows.jobs.append(job)
        rows.lines.append(number)
    elif isinstance(event, OUTSIDE) and may_write(line.actor, event):
        rows.events.append(TimedEvent(at_s, line.actor, event))
    elif isinstance(event, WorkerRegistered | WorkerDisappeared):
        rows.refuse("workers of the log's own cluster: name the cluster to simulate", number)
    else:
        rows.refuse("settings and decisions: what is simulated makes its own", number)


def _is_newer(line: str) -> bool:
    """Whether a line is a record of a kind that this release does not know."""
    try:
        return isinstance(decode(line), Record)
    except MalformedRecordError:
        return False

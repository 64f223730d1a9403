"""Microsoft's Philly trace: its JSON job log, and the flat CSV that others have made of it.

Times are Pacific, written without a zone; daylight saving ends inside the trace. The JSON has a
list of attempts for each job: it ran for as long as they did together (the time between them is
queueing), on as many GPUs as the first that says. A job without attempts was never scheduled, so
nobody knows how many GPUs it wanted.
"""

from __future__ import annotations

import msgspec

from replay.traces.cells import BadCellError, Clock, is_missing, name, number, zone
from replay.traces.columns import read_rows
from replay.traces.errors import Fault
from replay.traces.fitting import How
from replay.traces.imported import Row
from replay.traces.rows import Rows

ZONE = "America/Los_Angeles"
COLUMNS = ("timestamp", "duration", "num_gpus")


class _Server(msgspec.Struct, gc=False):
    gpus: list[str] = []


class _Attempt(msgspec.Struct, gc=False):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Server] = []


class _Job(msgspec.Struct, gc=False):
    """What matters of an entry; any other key may be there."""

    jobid: str
    submitted_time: str | None = None
    status: str | None = None
    vc: str | None = None
    user: str | None = None
    attempts: list[_Attempt] = []


_split = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode = msgspec.json.Decoder(_Job).decode


def parse(text: str, rows: Rows, how: How) -> list[Row]:
    """Jobs of a ``cluster_job_log``."""
    try:
        entries = _split(text)
    except msgspec.MsgspecError as error:
        rows.faults.append(Fault(_last_line(text), "file", str(error), "a JSON list of jobs"))
        return []
    clock = Clock(zone(how.zone or ZONE))
    found = []
    start, end, line = 0, 0, 1
    for entry in entries:
        raw = bytes(entry).decode()
        before, start = start, text.index(raw, end)
        end = start + len(raw)
        line += text.count("\n", before, start)
        try:
            found.append(_row(_decode(raw), line, clock, rows))
        except BadCellError as bad:
            rows.refuse(str(bad), line)
        except msgspec.ValidationError as error:
            rows.refuse(f"not as a job of Philly's is: {error}", line)
    return found


def _row(job: _Job, line: int, clock: Clock, rows: Rows) -> Row:
    arrival_s = clock(job.submitted_time or "", "submitted_time")
    if not job.attempts:
        raise BadCellError("never scheduled: how many GPUs it wanted is not known")
    workers = next((n for a in job.attempts if (n := sum(len(s.gpus) for s in a.detail))), 0)
    if not workers:
        raise BadCellError("no attempt says which GPUs it had")
    duration_s, ended, put_back = 0.0, 0, False
    for attempt in job.attempts:
        start, end = attempt.start_time, attempt.end_time
        if start is None or end is None or is_missing(start) or is_missing(end):
            continue
        seconds, moved = clock.elapsed(start, end, ("start_time", "end_time"))
        duration_s += seconds
        ended += 1
        put_back |= moved
    if not ended:
        raise BadCellError("no attempt has both start and end: how long it runs is not known")
    if ended < len(job.attempts):
        rows.repaired["an attempt without start or end: the others count"] += 1
    elif ended > 1:
        rows.repaired["several attempts: their times added up"] += 1
    if put_back:
        rows.repaired["ended before it began, as clocks were put back: an hour later"] += 1
    return Row(
        line,
        job.jobid,
        arrival_s,
        workers,
        duration_s,
        user=name(job.user),
        entity=name(job.vc),
        status=name(job.status),
    )


def _last_line(text: str) -> int:
    return text.rstrip().count("\n") + 1


def parse_flat(text: str, rows: Rows, how: How) -> list[Row]:
    """Jobs of the CSV ``timestamp,duration,num_gpus,gpu_time,cluster``."""
    clock = Clock(zone(how.zone or ZONE))

    def read(line: int, arrived: str, duration: str, num_gpus: str, cluster: str) -> Row:
        arrival_s = clock(arrived, "timestamp")
        duration_s = number(duration, "duration", "seconds")
        workers = number(num_gpus, "num_gpus", "a number of GPUs")
        return Row(line, "", arrival_s, workers, duration_s, entity=name(cluster))

    return read_rows(text, rows, COLUMNS, read, optional=("cluster",))

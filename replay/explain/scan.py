"""What a log file says of one job, read for it alone: most lines are passed by unparsed.

What is about a job has its name, or that of a lease it has, in quotes in its line.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import zstandard

from replay.explain.history import Histories, JobHistory
from replay.world import World
from schemas.events import RoundScheduled
from schemas.record import MalformedRecordError, decode

#: Lines of these kinds are read whatever they name.
_ALWAYS = {
    b"ClusterConfigured",
    b"JobSubmitted",
    b"ThroughputEstimated",
    b"ThroughputTableImported",
    b"WorkerRegistered",
}
#: Lines of these kinds matter if they name the job, or a lease of it.
_IF_NAMED = {
    b"JobAdmitted",
    b"JobRejected",
    b"JobCancelled",
    b"JobCompleted",
    b"JobFailed",
    b"JobRequeued",
    b"AllocationComputed",
    b"RoundScheduled",
    b"LeasesChanged",
    b"ProgressReported",
    b"TaskStopped",
}
_KIND = re.compile(rb'"event":\{"kind":"([A-Za-z]+)"')
_AT = re.compile(rb'"at":([-+0-9.e]+)')
#: Where kind and time are found, in bytes from the line's beginning.
_HEAD = 400
#: Leases whose names are looked for; older ones are over.
_LEASES = 3


def scan(log: Path, job_id: str, until_s: float = math.inf) -> tuple[JobHistory | None, World]:
    """A job's history up to a time, None if it is not submitted by then; and its world.

    The world knows what decides how fast jobs may run, and which jobs there are, nothing else.
    Lines are not checked against each other: that is for whoever reads the whole log.
    """
    histories, world = Histories({job_id}), World()
    leases: list[bytes] = []
    named = _quoted(job_id)
    for line in _lines(log):
        kind = _KIND.search(line, 0, _HEAD)
        at = _AT.search(line, 0, _HEAD)
        if kind is None or at is None:
            continue
        if float(at[1]) > until_s:
            world.now = until_s
            break
        is_asked = kind[1] in _ALWAYS or (
            kind[1] in _IF_NAMED
            and (
                named in line
                or any(lease in line for lease in leases)
                or (kind[1] == b"RoundScheduled" and _waits_for_a_round(histories, job_id))
            )
        )
        world.now = max(world.now, float(at[1]))
        world.last_seq += 1
        if not is_asked:
            continue
        try:
            record = decode(line)
        except MalformedRecordError:
            # The torn end of a log that was cut off.
            break
        histories.take(record)
        if kind[1] in _ALWAYS:
            world.take(record)
        elif isinstance(record.event, RoundScheduled):
            for lease in record.event.granted:
                if any(task.job_id == job_id for task in lease.tasks):
                    leases = [*leases, _quoted(lease.lease_id)][-_LEASES:]
    return histories.jobs.get(job_id), world


def _waits_for_a_round(histories: Histories, job_id: str) -> bool:
    history = histories.jobs.get(job_id)
    return history is not None and history.first_round_s is None


def _quoted(name: str) -> bytes:
    return msgspec.json.encode(name)


@contextmanager
def _opened(log: Path) -> Iterator[io.BufferedIOBase]:
    with log.open("rb") as file:
        if log.suffix != ".zst":
            yield file
            return
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        yield io.BufferedReader(reader)


def _lines(log: Path) -> Iterator[bytes]:
    with _opened(log) as file:
        yield from file

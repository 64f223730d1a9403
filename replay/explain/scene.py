"""What an explanation is made from: a log up to when it is asked about, and jobs' histories."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from replay.explain.history import Histories, JobHistory
from replay.explain.scan import scan
from replay.index import LONG, Index
from replay.log_source import check, reader
from replay.moment import Moment, Read
from replay.options import InputError
from replay.point import log_time
from replay.views import progress_line
from schemas.events import JobSubmitted
from schemas.record import Record
from services.runtime.file_log import read_log


@dataclass(frozen=True)
class Scene:
    """A moment, and what had happened to jobs by then."""

    moment: Moment
    jobs: dict[str, JobHistory]
    #: When a job that is asked about, and had not been submitted by then, is: s into the log.
    comes_after_s: float | None = None


def scene(read: Read, at: str, jobs: Collection[str] | None) -> Scene:
    """Fold a log.

    Parameters
    ----------
    read : reads it
    at : when, as typed behind ``--at``; empty: at its end
    jobs : ids of the jobs whose histories are wanted; None: all

    Raises
    ------
    InputError
        The time makes no sense, or lies before the first record.
    """
    moment, histories = Moment(read), Histories(jobs)
    until_s = math.inf
    first_s, comes_after_s = 0.0, None
    records = read()
    for record in records:
        first_s = first_s if moment.world.last_seq else record.at
        if not moment.world.last_seq and at:
            until_s = log_time("--at", at, record.at)
        if record.at > until_s:
            moment.world.now = until_s
            comes_s = _submitted_s(
                chain((record,), records), set(jobs or ()) - histories.jobs.keys()
            )
            comes_after_s = None if comes_s is None else comes_s - first_s
            break
        moment.take(record)
        histories.take(record)
    if not moment.world.last_seq:
        raise InputError("the log has no records" + (" up to then" if at else ""))
    return Scene(moment, histories.jobs, comes_after_s)


def _submitted_s(records: Iterable[Record], jobs: Collection[str]) -> float | None:
    """When the first of these jobs comes; None: no more."""
    if not jobs:
        return None
    comes = (
        record.at
        for record in records
        if isinstance(record.event, JobSubmitted) and record.event.job.job_id in jobs
    )
    return next(comes, None)


def scene_of_file(log: Path, at: str, job_id: str) -> Scene:
    """The same of one job in a file: from the file's index, if there is one.

    Of a job that has ended, what the cores know is of no interest, and they fold nothing.

    Raises
    ------
    InputError, DamagedLogError, NewerSchemaError
        See above, and ``services.runtime.file_log.read_log``.
    """
    first = next(read_log(log, check=False), None)
    if first is None:
        raise InputError(f"{log} has no records")
    until_s = log_time("--at", at, first.at) if at else math.inf
    indexed = Index(log).moment(until_s=until_s)
    read = reader(log)
    if indexed is None:
        # Of a log whose index fits, this was done when that was made.
        check(log)
    history, world = scan(log, job_id, until_s)
    if history is None or history.ended_s is not None:
        moment = Moment(read)
        moment.world = world
        if history is not None:
            return Scene(moment, {job_id: history})
        later, _ = scan(log, job_id) if at else (None, None)
        return Scene(moment, {}, None if later is None else later.submitted_s - first.at)
    moment = indexed or Moment(read)
    if indexed is None and world.last_seq > LONG:
        progress_line(f"folding {world.last_seq:,} records; `gavel log index {log}` makes it quick")
    for record in Index(log).read(moment.world.last_seq):
        if record.at > until_s:
            moment.world.now = until_s
            break
        moment.take(record)
    return Scene(moment, {job_id: history})

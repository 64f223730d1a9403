"""``gavel trace inject`` into a running cluster: jobs of a trace, each submitted in its time."""

from __future__ import annotations

import asyncio
import json as json_module
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from replay.live.actions import OK, with_log
from replay.live.jobs import cannot_run, check_environment
from replay.live.picture import Picture
from replay.live.place import LiveError, append
from replay.options import OptionError, positive
from replay.traces.change import cancelling, renamed
from replay.traces.reader import Trace
from replay.traces.rows import TimedEvent
from schemas.domain import JobSpec
from schemas.events import AnyEvent, CancelRequested, DrainRequested, JobSubmitted
from services.runtime.jetstream import JetStreamLog

#: When, who, what.
_Due = tuple[float, str, AnyEvent]
#: Jobs that a refusal names.
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for."""

    trace: Trace
    #: All of it so much later, in seconds of the trace.
    at_s: float = 0.0
    #: Seconds of the trace to a second.
    speed: float = 1.0
    prefix: str = ""
    #: Run what the trace's jobs run; without it they are submitted without a command.
    commands: bool = False
    dry_run: bool = False


def inject(request: Request, nats: str, cluster: str, *, json: bool) -> int:
    """Check all jobs, then submit each in its time; jobs that are there already are left.

    Raises
    ------
    OptionError, TraceError
        What was asked makes no sense.
    JobFileError
        With ``commands``, a job's environment has what no job's may have.
    LiveError
        A job could never run, or its id is taken by another; or no cluster answers.
    KeyboardInterrupt
        Ctrl-C; the same command goes on where it was.
    """
    positive("--at", request.at_s, zero=True)
    positive("--speed", request.speed, "times")
    trace = renamed(request.trace, request.prefix)
    arrivals_s = [job.arrival_s for job in trace.jobs]
    jobs = [_live(job, commands=request.commands) for job in trace.jobs]
    trace = replace(trace, jobs=jobs)
    _check_events(trace)

    async def work(log: JetStreamLog) -> dict[str, int]:
        known = await _jobs_there(log)
        due: list[_Due] = [
            (at_s, f"client.{job.job_id}", JobSubmitted(job=job))
            for at_s, job in zip(arrivals_s, jobs, strict=True)
            if job.job_id not in known.jobs
        ]
        _check_jobs(trace, known)
        counts = {"submitted": 0, "events": 0, "there_already": trace.kept - len(due)}
        if request.dry_run:
            return {**counts, "checked": trace.kept}
        events = [(event.at_s, _writer(event), event.event) for event in trace.events]
        due += [event for event in events if event[1] not in known.writers]
        await _play(due, request, log, counts)
        return counts

    counts = with_log(work, nats, cluster)
    told = ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in counts.items() if n)
    print(json_module.dumps(counts) if json else told or "nothing to submit")
    return OK


@dataclass(frozen=True)
class _Known:
    """What is in the log: jobs by id, who has written, and the cluster."""

    jobs: Mapping[str, JobSpec]
    writers: frozenset[str]
    picture: Picture


async def _jobs_there(log: JetStreamLog) -> _Known:
    jobs: dict[str, JobSpec] = {}
    writers = set()
    picture = Picture()
    async for record in log.read():
        picture.take(record)
        if isinstance(record.event, JobSubmitted):
            jobs[record.event.job.job_id] = record.event.job
        elif isinstance(record.event, CancelRequested | DrainRequested):
            writers.add(record.actor)
    return _Known(jobs, frozenset(writers), picture)


def _writer(event: TimedEvent) -> str:
    """Who appends it: a writer of its own, as a job has one, and the same if it is injected again.

    The trace's is no help: a simulation has one operator for all.
    """
    if isinstance(event.event, CancelRequested):
        return cancelling(event.event.job_id)
    what = msgspec.json.encode((event.at_s, event.event))
    return f"operator.{zlib.crc32(what):08x}"


def _check_events(trace: Trace) -> None:
    """Only people's wishes can be injected; what workers do is up to them."""
    for event in trace.events:
        if not isinstance(event.event, CancelRequested | DrainRequested):
            what = type(event.event).__name__
            expected = (
                "jobs, cancellations and drains: workers of a live cluster fail by themselves "
                "(`gavel trace convert --jobs-only` leaves the others out)"
            )
            raise OptionError("FILE", f"{what} at {event.at_s:g} s", expected)


def _check_jobs(trace: Trace, known: _Known) -> None:
    """Refuse all if one could never run, or would be another job of an id that is taken."""
    wrong = []
    for job in trace.jobs:
        there = known.jobs.get(job.job_id)
        if there is None:
            reason = cannot_run(job, known.picture)
        else:
            reason = None if there == job else "its id is another job's (--prefix helps)"
        if reason is not None:
            wrong.append(f"job {job.job_id}: {reason}")
    if wrong:
        shown = "\n".join(f"  {line}" for line in wrong[:_NAMED])
        more = f"\n  ... and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
        raise LiveError(f"nothing was submitted:\n{shown}{more}")


def _live(job: JobSpec, *, commands: bool) -> JobSpec:
    """As a job is submitted live: it arrives when it does, and runs only what it is to run.

    Raises
    ------
    JobFileError
        Its environment has what no job's may have.
    """
    job = msgspec.structs.replace(job, arrival_s=0.0)
    if not commands:
        return msgspec.structs.replace(job, command="", workdir="", environment={})
    check_environment(job.environment, f"job {job.job_id}")
    return job


async def _play(
    due: list[_Due],
    request: Request,
    log: JetStreamLog,
    counts: dict[str, int],
) -> None:
    due.sort(key=lambda item: item[0])
    clock = asyncio.get_running_loop()
    began = clock.time()
    # Begun again, it goes on with what is next, not with waiting for what has been.
    first_s = due[0][0] if counts["there_already"] and due else 0.0
    try:
        for at_s, actor, event in due:
            wait_s = (at_s - first_s + request.at_s) / request.speed - (clock.time() - began)
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            await append(log, actor, event)
            counts["submitted" if isinstance(event, JobSubmitted) else "events"] += 1
    except asyncio.CancelledError:
        done = counts["submitted"] + counts["events"]
        text = f"gavel: {done} of {len(due)} submitted; the same command goes on from there"
        print(text, file=sys.stderr)
        raise

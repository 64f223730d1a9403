"""Carries out the commands of ``replay/cli/live.py`` about jobs; each returns the exit code."""

from __future__ import annotations

import asyncio
import json as json_module
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from replay import views
from replay.live import show
from replay.live.actions import FAILED, OK, look_now, tell, with_log
from replay.live.jobs import cannot_run, job_of
from replay.live.picture import COMPLETED, ENDED, JobLine, Picture
from replay.live.place import LiveError, append, home, look, record_of
from replay.options import one_of, positive
from schemas.domain import JobSpec
from schemas.events import CancelRequested, JobSubmitted
from services.runtime.jetstream import JetStreamLog

#: How long `submit` waits for the mechanism's word.
_ADMISSION_S = 2.0


@dataclass(frozen=True)
class Submission:
    """What was typed behind ``gavel submit``."""

    given: Mapping[str, Any]
    command: tuple[str, ...]
    file: Path | None
    dry_run: bool


def submit(request: Submission, nats: str, cluster: str, *, json: bool) -> int:
    """See ``replay.cli.live.submit``."""
    job = job_of(request.given, request.command, request.file, "submit")

    async def work(log: JetStreamLog) -> tuple[int, str]:
        picture = await look(log)
        if job.job_id in picture.jobs:
            raise LiveError(f"job {job.job_id} is in the log already: choose another id")
        reason = cannot_run(job, picture)
        if reason is not None:
            raise LiveError(f"job {job.job_id} can never run: {reason}")
        if request.dry_run:
            return OK, "checked"
        seq = await append(log, f"client.{job.job_id}", JobSubmitted(job=job))
        return await _admission(log, job, seq)

    code, what = with_log(work, nats, cluster)
    if json:
        print(json_module.dumps({"job_id": job.job_id, "status": what}))
    elif request.dry_run:
        views.print_json(job)
    else:
        print(f"{job.job_id}: {what}")
    return code


async def _admission(log: JetStreamLog, job: JobSpec, seq: int) -> tuple[int, str]:
    """What the mechanism says of a job that is stored."""
    picture = Picture()
    try:
        async with asyncio.timeout(_ADMISSION_S), aclosing(log.follow(seq - 1)) as deliveries:
            async for record, _ in deliveries:
                picture.take(record)
                line = picture.jobs[job.job_id]
                if line.status == "rejected":
                    raise LiveError(f"job {job.job_id} is rejected: {line.reason}")
                if line.status != "submitted":
                    return OK, "admitted"
    except TimeoutError:
        pass
    return OK, "stored; the mechanism is away, and admits it once it is back"


def jobs(nats: str, cluster: str, *, everything: bool, json: bool) -> int:
    """See ``replay.cli.live.jobs``."""
    picture = look_now(nats, cluster)
    lines = [job for job in picture.jobs.values() if everything or job.status not in ENDED]
    tell(json, lines, lambda: show.jobs(lines, picture.at_s))
    return OK


def job_show(job_id: str, nats: str, cluster: str, *, json: bool) -> int:
    """See ``replay.cli.live.job_show``."""
    picture = look_now(nats, cluster)
    job = _known(picture, job_id)
    content = msgspec.to_builtins(job) | {"estimate": msgspec.to_builtins(picture.estimate(job))}
    tell(json, content, lambda: show.job(job, picture))
    return OK


def cancel(job_id: str, nats: str, cluster: str, *, json: bool) -> int:
    """See ``replay.cli.live.cancel``."""

    async def work(log: JetStreamLog) -> JobLine:
        picture = await look(log)
        job = _known(picture, job_id)
        if job.status in ENDED:
            raise LiveError(f"job {job_id} has ended: {job.status}")
        actor = f"client.{job_id}"
        submitted = await record_of(log, actor)
        if submitted is None or not isinstance(submitted.event, CancelRequested):
            await append(log, actor, CancelRequested(job_id=job_id), after=submitted)
        return await _ended(log, job_id, _ADMISSION_S) or job

    job = with_log(work, nats, cluster)
    if json:
        print(msgspec.json.encode(job).decode())
    elif job.status in ENDED:
        print(f"{job_id}: {job.status}")
    else:
        print(f"{job_id}: to be cancelled; the mechanism is away")
    return OK


def wait(job_id: str, timeout_s: float | None, nats: str, cluster: str, *, json: bool) -> int:
    """See ``replay.cli.live.wait``."""
    if timeout_s is not None:
        positive("--timeout", timeout_s, zero=True)

    async def work(log: JetStreamLog) -> JobLine | None:
        _known(await look(log), job_id)
        return await _ended(log, job_id, timeout_s)

    job = with_log(work, nats, cluster)
    if job is None:
        raise LiveError(f"job {job_id} has not ended after {timeout_s:g} s")
    if json:
        print(msgspec.json.encode(job).decode())
    else:
        print(f"{job_id}: {job.status}{': ' if job.reason else ''}{job.reason}")
    return OK if job.status == COMPLETED else FAILED


async def _ended(log: JetStreamLog, job_id: str, timeout_s: float | None) -> JobLine | None:
    """The job, once it has ended; None if it takes longer."""
    picture = Picture()
    try:
        async with asyncio.timeout(timeout_s), aclosing(log.follow()) as deliveries:
            async for record, _ in deliveries:
                picture.take(record)
                job = picture.jobs.get(job_id)
                if job is not None and job.status in ENDED:
                    return job
    except TimeoutError:
        pass
    return None


def _known(picture: Picture, job_id: str) -> JobLine:
    return picture.jobs[one_of("JOB", job_id, picture.jobs)]


def logs(job_id: str, rank: int, lines: int) -> int:
    """See ``replay.cli.live.logs``."""
    folder = home() / "worker" / "jobs"
    known = [path.name for path in folder.glob("*")]
    one_of("JOB", job_id, known)
    found = sorted(
        (folder / job_id).glob(f"*/rank-{rank}.log"), key=lambda path: path.stat().st_mtime
    )
    if not found:
        raise LiveError(f"rank {rank} of job {job_id} has printed nothing on this machine")
    text = found[-1].read_text(errors="replace").splitlines()
    for line in text[-lines:] if lines else text:
        print(line)
    return OK

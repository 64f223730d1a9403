"""Carries out the commands of ``commands.py``; each returns the exit code."""

from __future__ import annotations

import asyncio
import json as json_module
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from replay import views
from replay.cli_options import OptionError, new_file, one_of
from replay.live import show
from replay.live import up as up_module
from replay.live.health import ask
from replay.live.jobs import build_job, cannot_run, read_job
from replay.live.picture import COMPLETED, ENDED, JobLine, Picture
from replay.live.place import (
    LiveError,
    append,
    connected,
    home,
    look,
    read_up,
    record_of,
)
from schemas.domain import JobSpec
from schemas.events import (
    CancelRequested,
    ClusterConfigured,
    DrainRequested,
    JobSubmitted,
    ThroughputTableImported,
)
from schemas.record import Draft
from services.estimator.tables import ThroughputTable
from services.policy.catalog import needs, resolve
from services.runtime.file_log import FileLog
from services.runtime.jetstream import JetStreamLog
from services.runtime.presence import NatsPresence

T = TypeVar("T")

OK, FAILED = 0, 1
#: How long `submit` waits for the mechanism's word.
_ADMISSION_S = 2.0
_DOWN_S = 60.0


def _with_log(work: Callable[[JetStreamLog], Awaitable[T]], nats: str, cluster: str) -> T:
    async def run() -> T:
        async with connected(nats, cluster) as log:
            return await work(log)

    return asyncio.run(run())


def _look(nats: str, cluster: str) -> Picture:
    return _with_log(look, nats, cluster)


def _print(json: bool, content: Any, table: Callable[[], Any]) -> None:  # noqa: FBT001 - as typed
    if json:
        print(msgspec.json.format(msgspec.json.encode(content)).decode())
    else:
        views.out().print(table())


# --- up, down, status -----------------------------------------------------------------------------


def up(options: up_module.Options, *, detach: bool) -> int:
    """See ``commands.up``."""
    table = up_module.check(options)
    if not detach:
        print(f"gavel: starting under {home()}; Ctrl-C stops it", file=sys.stderr)
        asyncio.run(up_module.run(options, table))
        return OK
    home().mkdir(parents=True, exist_ok=True)
    lines = home() / "up.log"
    with lines.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-P", "-m", "replay.cli", *_arguments(options)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    while True:
        found = read_up()
        if found is not None and found.pid == process.pid and found.ready:
            break
        if process.poll() is not None:
            raise LiveError(f"it did not come up: {lines.read_text().strip()[-500:]}")
        time.sleep(0.05)
    print(f"up, process {process.pid}: log at {found.url}, state under {home()}")
    return OK


def _arguments(options: up_module.Options) -> list[str]:
    arguments = ["up", "--server-size", str(options.server_size)]
    if options.emulate:
        arguments += ["--emulate", options.emulate]
    if options.in_process:
        arguments += ["--in-process"]
    if options.round_s is not None:
        arguments += ["--round", str(options.round_s)]
    if options.policy:
        arguments += ["--policy", options.policy]
    if options.throughputs is not None:
        arguments += ["--throughputs", str(options.throughputs.absolute())]
    return arguments


def down() -> int:
    """See ``commands.down``."""
    found = read_up()
    if found is None:
        raise LiveError(f"nothing is up under {home()}")
    descriptor = os.pidfd_open(found.pid)
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        ended, _, _ = select.select([descriptor], [], [], _DOWN_S)
    finally:
        os.close(descriptor)
    if not ended:
        raise LiveError(f"process {found.pid} has not stopped after {_DOWN_S:g} s")
    print("down")
    return OK


def status(nats: str, cluster: str, *, json: bool) -> int:
    """See ``commands.status``."""

    async def work(log: JetStreamLog) -> show.Status:
        picture = await look(log)
        usage = await log.usage()
        presence = NatsPresence(log.client, log.cluster)
        names = sorted({*up_module.SERVICES[:3], *picture.starts})
        leaders = await asyncio.gather(*(presence.leader(name) for name in names))
        own = read_up()
        services = []
        for name, leader in zip(names, leaders, strict=True):
            role = name.partition(".")[0]
            process = own.services.get(role) if own is not None and not nats else None
            said = await ask(process.health_port, "/status") if process is not None else None
            start = picture.starts.get(name)
            services.append(
                show.ServiceLine(
                    service=name,
                    leader=leader or "",
                    epoch=start.epoch if start else 0,
                    lag_records=said["lag_records"] if said else None,
                    open_decisions=said["open_decisions"] if said else None,
                )
            )
        return show.Status(
            cluster=log.cluster,
            services=services,
            records=usage.last_seq,
            log_bytes=usage.held_bytes,
            log_max_bytes=usage.max_bytes,
            jobs=show.job_counts(picture),
            workers=show.worker_counts(picture),
            last_round=picture.rounds[-1] if picture.rounds else None,
        )

    found = _with_log(work, nats, cluster)
    _print(json, found, lambda: show.status(found))
    return OK if all(service.leader for service in found.services) else FAILED


# --- jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submission:
    """What was typed behind ``gavel submit``."""

    given: Mapping[str, Any]
    command: tuple[str, ...]
    file: Path | None
    dry_run: bool


def submit(request: Submission, nats: str, cluster: str, *, json: bool) -> int:
    """See ``commands.submit``."""
    given = dict(read_job(request.file)) if request.file is not None else {}
    given |= request.given
    speeds = given.get("declared_throughputs", {})
    if isinstance(speeds, dict):
        given["declared_throughputs"] = {t: _rate(t, speed) for t, speed in speeds.items()}
    source = str(request.file) if request.file is not None else "submit"
    job = build_job(given, request.command, Path.cwd(), source)

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

    code, what = _with_log(work, nats, cluster)
    if json:
        print(json_module.dumps({"job_id": job.job_id, "status": what}))
    elif request.dry_run:
        print(msgspec.json.format(msgspec.json.encode(job)).decode())
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


def _rate(worker_type: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise OptionError("--throughput", f"{worker_type}={value}", "steps/s, a number") from None


def jobs(nats: str, cluster: str, *, everything: bool, json: bool) -> int:
    """See ``commands.jobs``."""
    picture = _look(nats, cluster)
    lines = [job for job in picture.jobs.values() if everything or job.status not in ENDED]
    _print(json, lines, lambda: show.jobs(lines, picture.at_s))
    return OK


def job_show(job_id: str, nats: str, cluster: str, *, json: bool) -> int:
    """See ``commands.job_show``."""
    picture = _look(nats, cluster)
    job = _known(picture, job_id)
    _print(json, job, lambda: show.job(job, picture))
    return OK


def cancel(job_id: str, nats: str, cluster: str, *, json: bool) -> int:
    """See ``commands.cancel``."""

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

    job = _with_log(work, nats, cluster)
    if json:
        print(msgspec.json.encode(job).decode())
    elif job.status in ENDED:
        print(f"{job_id}: {job.status}")
    else:
        print(f"{job_id}: to be cancelled; the mechanism is away")
    return OK


def wait(job_id: str, timeout_s: float | None, nats: str, cluster: str, *, json: bool) -> int:
    """See ``commands.wait``."""

    async def work(log: JetStreamLog) -> JobLine | None:
        _known(await look(log), job_id)
        return await _ended(log, job_id, timeout_s)

    job = _with_log(work, nats, cluster)
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
    """See ``commands.logs``."""
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


# --- workers, rounds, policy ----------------------------------------------------------------------


def workers(nats: str, cluster: str, *, json: bool) -> int:
    """See ``commands.workers``."""
    lines = list(_look(nats, cluster).workers.values())
    _print(json, lines, lambda: show.workers(lines))
    return OK


def allocation(nats: str, cluster: str, *, json: bool) -> int:
    """See ``commands.allocation``."""
    picture = _look(nats, cluster)
    if picture.allocation is None:
        raise LiveError("the policy has computed no allocation yet")
    found = picture.allocation
    _print(json, found, lambda: show.allocation(found, picture))
    return OK


def rounds(nats: str, cluster: str, number: int, *, json: bool) -> int:
    """See ``commands.rounds``."""
    picture = _look(nats, cluster)
    lines = list(picture.rounds)[-number:]
    _print(json, lines, lambda: show.rounds(lines, picture.at_s))
    return OK


def drain(worker: str, server: str, nats: str, cluster: str, *, json: bool) -> int:
    """See ``commands.drain``."""
    if bool(worker) == bool(server):
        raise OptionError("WORKER", worker, "a worker id, or --server, and not both")

    async def work(log: JetStreamLog) -> list[str]:
        picture = await look(log)
        if worker:
            one_of("WORKER", worker, picture.workers)
        else:
            one_of("--server", server, {w.server_id for w in picture.workers.values()})
        event = DrainRequested(worker_id=worker, server_id=server)
        await append(log, f"operator.{secrets.token_hex(4)}", event)
        return [
            w.worker_id
            for w in picture.workers.values()
            if worker == w.worker_id or (server and server == w.server_id)
        ]

    found = _with_log(work, nats, cluster)
    print(json_module.dumps({"draining": found}) if json else f"draining {', '.join(found)}")
    return OK


def import_throughputs(table: ThroughputTable, nats: str, cluster: str) -> int:
    """See ``replay.cli_throughputs.import_``."""

    async def work(log: JetStreamLog) -> None:
        config = (await look(log)).config or ClusterConfigured()
        rows = tuple(table.rows(pairs=needs(config.policy, "pairs")))
        event = ThroughputTableImported(source=table.source, rows=rows)
        await append(log, f"operator.{secrets.token_hex(4)}", event)

    _with_log(work, nats, cluster)
    print(f"{len(table.classes())} job classes imported from {table.source}")
    return OK


def policy_set(
    name: str, parameters: Mapping[str, str], nats: str, cluster: str, *, json: bool
) -> int:
    """See ``commands.policy_set``."""
    typed: dict[str, float | str] = {key: _number(text) for key, text in parameters.items()}
    resolve(name, typed)

    async def work(log: JetStreamLog) -> None:
        picture = await look(log)
        config = picture.config or ClusterConfigured()
        rows = picture.table.rows if picture.table is not None else ()
        if needs(name, "pairs") and not any(row.beside for row in rows):
            raise LiveError(f"{name} needs throughputs of pairs, and the imported table has none")
        config = msgspec.structs.replace(config, policy=name, policy_parameters=typed)
        await append(log, f"operator.{secrets.token_hex(4)}", config)

    _with_log(work, nats, cluster)
    print(json_module.dumps({"policy": name}) if json else f"policy {name}, from the next round on")
    return OK


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def configure(options: up_module.Options, nats: str, cluster: str, *, json: bool) -> int:
    """See ``commands.configure``."""
    table = up_module.check_settings(options)

    async def work(log: JetStreamLog) -> bool:
        return await up_module.configure(log, options, table)

    changed = _with_log(work, nats, cluster)
    said = "configured, from the next round on" if changed else "nothing to change"
    print(json_module.dumps({"changed": changed}) if json else said)
    return OK


def fetch(out: Path, nats: str, cluster: str, *, force: bool) -> int:
    """See ``commands.fetch``."""
    new_file("OUT", out, force=force)
    out.unlink(missing_ok=True)

    async def work(log: JetStreamLog) -> int:
        file = FileLog(out)
        async for record in log.read():
            actor, cause, index, n = record.record_id
            draft = Draft(actor, record.epoch, cause, index, n, record.event, record.digest)
            file.append(draft, record.at)
        file.close()
        return file.last_seq

    print(f"{out}: {_with_log(work, nats, cluster)} records")
    return OK

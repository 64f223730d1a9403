"""Carries out the commands of ``replay/cli/live.py``; each returns the exit code."""

from __future__ import annotations

import asyncio
import importlib
import json as json_module
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rich.live import Live

from replay import views
from replay.live import show
from replay.live import up as up_module
from replay.live.health import ask
from replay.live.picture import Picture
from replay.live.place import (
    LiveError,
    append,
    connected,
    home,
    look,
    read_up,
    write_log,
)
from replay.options import OptionError, new_file, one_of, put_when_whole
from schemas.events import (
    ClusterConfigured,
    DrainRequested,
    ThroughputTableImported,
)
from schemas.record import Record
from services.estimator.tables import ThroughputTable
from services.policy.catalog import needs, resolve
from services.runtime import config
from services.runtime.jetstream import JetStreamLog
from services.runtime.live_log import Usage
from services.runtime.presence import NatsPresence

T = TypeVar("T")

OK, FAILED = 0, 1
_DOWN_S = 60.0
#: Between two pictures of what has happened before `gavel top` was called.
_REFRESH_S = 0.5


def with_log(work: Callable[[JetStreamLog], Awaitable[T]], nats: str, cluster: str) -> T:
    """What comes of working with the log of the cluster that is meant."""

    async def run() -> T:
        async with connected(nats, cluster) as log:
            return await work(log)

    return asyncio.run(run())


def records_now(nats: str, cluster: str) -> list[Record]:
    """The records of the cluster's log as of now."""

    async def collect(log: JetStreamLog) -> list[Record]:
        return [record async for record in log.read()]

    return with_log(collect, nats, cluster)


def look_now(nats: str, cluster: str) -> Picture:
    """The cluster as of now."""
    return with_log(look, nats, cluster)


def tell(json: bool, content: Any, table: Callable[[], Any]) -> None:  # noqa: FBT001 - as typed
    """Print JSON, or a table."""
    if json:
        views.print_json(content)
    else:
        views.out().print(table())


# --- up, down, status -----------------------------------------------------------------------------


def up(options: up_module.Options, *, detach: bool) -> int:
    """See ``replay.cli.live.up``."""
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
    try:
        while True:
            found = read_up()
            if found is not None and found.pid == process.pid and found.ready:
                break
            if process.poll() is not None:
                raise LiveError(f"it did not come up: {lines.read_text().strip()[-500:]}")
            time.sleep(0.05)
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
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
    if options.estimator:
        arguments += ["--estimator", options.estimator]
    if options.throughputs is not None:
        arguments += ["--throughputs", str(options.throughputs.absolute())]
    return arguments


def down() -> int:
    """See ``replay.cli.live.down``."""
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
    """See ``replay.cli.live.status``."""

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

    found = with_log(work, nats, cluster)
    tell(json, found, lambda: show.status(found))
    return OK if all(service.leader for service in found.services) else FAILED


# --- workers, rounds, policy ----------------------------------------------------------------------


def workers(nats: str, cluster: str, *, json: bool) -> int:
    """See ``replay.cli.live.workers``."""
    lines = list(look_now(nats, cluster).workers.values())
    tell(json, lines, lambda: show.workers(lines))
    return OK


def allocation(nats: str, cluster: str, *, json: bool) -> int:
    """See ``replay.cli.live.allocation``."""
    picture = look_now(nats, cluster)
    if picture.allocation is None:
        raise LiveError("the policy has computed no allocation yet")
    found = picture.allocation
    tell(json, found, lambda: show.allocation(found, picture))
    return OK


def rounds(nats: str, cluster: str, number: int, *, json: bool) -> int:
    """See ``replay.cli.live.rounds``."""
    picture = look_now(nats, cluster)
    lines = list(picture.rounds)[-number:]
    tell(json, lines, lambda: show.rounds(lines, picture.at_s))
    return OK


def drain(worker: str, server: str, nats: str, cluster: str, *, json: bool) -> int:
    """See ``replay.cli.live.drain``."""
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

    found = with_log(work, nats, cluster)
    print(json_module.dumps({"draining": found}) if json else f"draining {', '.join(found)}")
    return OK


def import_throughputs(table: ThroughputTable, nats: str, cluster: str) -> int:
    """See ``replay.cli.throughputs.import_``."""

    async def work(log: JetStreamLog) -> None:
        config = (await look(log)).config or ClusterConfigured()
        rows = tuple(table.rows(pairs=needs(config.policy, "pairs")))
        event = ThroughputTableImported(source=table.source, rows=rows)
        await append(log, f"operator.{secrets.token_hex(4)}", event)

    with_log(work, nats, cluster)
    print(f"{len(table.classes())} job classes imported from {table.source}")
    return OK


def policy_set(
    name: str, parameters: Mapping[str, str], nats: str, cluster: str, *, json: bool
) -> int:
    """See ``replay.cli.live.policy_set``."""
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

    with_log(work, nats, cluster)
    print(json_module.dumps({"policy": name}) if json else f"policy {name}, from the next round on")
    return OK


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def configure(options: up_module.Options, nats: str, cluster: str, *, json: bool) -> int:
    """See ``replay.cli.live.configure``."""
    table = up_module.check_settings(options)

    async def work(log: JetStreamLog) -> bool:
        return await up_module.configure(log, options, table)

    changed = with_log(work, nats, cluster)
    said = "configured, from the next round on" if changed else "nothing to change"
    print(json_module.dumps({"changed": changed}) if json else said)
    return OK


def top(nats: str, cluster: str) -> int:
    """See ``replay.cli.live.top``."""

    async def work(log: JetStreamLog) -> None:
        picture = Picture()
        with Live(console=views.out(), screen=True, auto_refresh=False) as screen:
            shown_at = 0.0
            async with aclosing(log.follow()) as deliveries:
                async for record, live_at in deliveries:
                    picture.take(record)
                    now = time.monotonic()
                    # What is past goes by unseen, and what is new is not shown more often than so.
                    if live_at is not None or now - shown_at > _REFRESH_S:
                        shown_at = now
                        screen.update(show.top(picture), refresh=True)

    with suppress(KeyboardInterrupt):
        with_log(work, nats, cluster)
    return OK


def config_check(file: Path) -> int:
    """See ``replay.cli.live.config_check``."""
    settings = config.check(config.load(config.Settings, file, os.environ))
    views.print_json(settings)
    return OK


def service(name: str, file: Path | None) -> int:
    """See ``replay.cli.live.service``."""
    one_of("NAME", name, up_module.SERVICES)
    main: Callable[[], int] = importlib.import_module(f"services.{name}.__main__").main
    sys.argv = [f"gavel-{name}", *(["--config", str(file)] if file is not None else [])]
    return main()


def fetch(out: Path, nats: str, cluster: str, *, force: bool) -> int:
    """See ``replay.cli.live.fetch``."""
    new_file("OUT", out, force=force)
    with put_when_whole(out) as partial:

        async def work(log: JetStreamLog) -> int:
            return await write_log(log, partial)

        records = with_log(work, nats, cluster)
    print(f"{out}: {records} records")
    return OK


def resize(size_gb: float, nats: str, cluster: str) -> int:
    """See ``replay.cli.live.resize``."""

    async def work(log: JetStreamLog) -> Usage:
        await log.resize(round(size_gb * 1e9))
        return await log.usage()

    usage = with_log(work, nats, cluster)
    print(f"{usage.held_bytes / 1e6:.1f} MB of {usage.max_bytes / 1e6:.1f} MB used")
    return OK

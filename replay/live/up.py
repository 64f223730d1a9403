"""``gavel up``: a whole cluster on this machine, watched, and gone again when told to stop.

Under ``GAVEL_HOME``: ``nats/`` the log, ``snapshots/`` of what services have folded, ``worker/``
folders of tasks, ``checkpoints/``, ``logs/`` one file a process, and ``up.json`` while it runs.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from replay.live.health import ask
from replay.live.place import (
    LiveError,
    ServiceProcess,
    Up,
    append,
    connected,
    home,
    look,
    read_up,
    start_of,
    up_file,
)
from replay.options import OptionError, counts, one_of, round_length
from replay.traces.tables import builtin_table, read_table
from schemas.events import AnyEvent, ClusterConfigured, ThroughputTableImported
from services.estimator.tables import ThroughputTable
from services.policy.catalog import needs, resolve
from services.runtime.embedded import EmbeddedServer
from services.runtime.jetstream import JetStreamLog
from services.worker import devices

SERVICES = ("policy", "mechanism", "estimator", "worker")
_READY_S = 60.0
_LOOK_EVERY_S = 0.1
_STOP_S = 20.0
#: A service that ends is started again after so long, twice as long each time, up to the most.
_RESTART_S, _RESTART_MOST_S = 0.2, 10.0
#: One that has run for so long has started well.
_WELL_S = 30.0


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """What was asked for."""

    #: Folder of the cluster.
    home: Path = msgspec.field(default_factory=home)
    emulate: str = ""
    server_size: int = 0
    in_process: bool = False
    round_s: float | None = None
    policy: str = ""
    #: ``oracle``, ``declared`` or ``learned``; empty: as it was.
    estimator: str = ""
    throughputs: Path | None = None


def check(options: Options) -> ThroughputTable:
    """The throughput table to start with.

    Raises
    ------
    OptionError, PolicyError, TableError
        An option makes no sense.
    LiveError
        There is no accelerator here, or the cluster is up already.
    """
    table = check_settings(options)
    if options.emulate:
        for worker_type in counts("--emulate", options.emulate, least=1):
            one_of("--emulate", worker_type, table.worker_types())
    elif options.in_process:
        raise OptionError("--in-process", "given", "--emulate TYPE=COUNT beside it")
    else:
        try:
            devices.detected("worker.local", rack="", address="")
        except devices.DevicesError as error:
            raise LiveError(f"{error}; --emulate v100=2 imagines some") from None
    up = read_up(options.home)
    if up is not None:
        raise LiveError(
            f"a cluster is up already under {options.home} (process {up.pid}): `gavel down`"
        )
    return table


def check_settings(options: Options) -> ThroughputTable:
    """The throughput table; what is to be appended makes sense.

    Raises
    ------
    OptionError, PolicyError, TableError
        It does not.
    """
    if options.estimator:
        one_of("--estimator", options.estimator, ("oracle", "declared", "learned"))
    if options.round_s is not None:
        round_length(options.round_s)
    if options.policy:
        resolve(options.policy)
    return builtin_table() if options.throughputs is None else read_table(options.throughputs)


async def run(options: Options, table: ThroughputTable) -> None:
    """Run a cluster until told to stop (SIGINT, SIGTERM).

    Raises
    ------
    LiveError
        A service does not come up.
    EmbeddedServerError, LogError, OSError
        The log cannot be had.
    """
    with suppress(asyncio.CancelledError):
        end_when_told()
        async with running(options, table) as (_, parts):
            await first(*parts)


def end_when_told() -> None:
    """Have SIGINT and SIGTERM cancel the task that calls this, which ends things in order."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)


@asynccontextmanager
async def running(
    options: Options, table: ThroughputTable
) -> AsyncGenerator[tuple[Up, list[asyncio.Task[None]]], None]:
    """A cluster that is ready, gone after the block; a task of it that ends has failed.

    Raises
    ------
    LiveError, EmbeddedServerError, LogError, OSError
        See ``run``.
    """
    for folder in ("logs", "worker", "checkpoints"):
        (options.home / folder).mkdir(parents=True, exist_ok=True)
    with EmbeddedServer(options.home / "nats") as server:
        pid = os.getpid()
        up = Up(pid=pid, url=server.url, cluster="main", started=start_of(pid) or "")
        async with connected(server.url, up.cluster, make=True) as log:
            await configure(log, options, table)
        try:
            async with _services(up, options) as keepers:
                watch = asyncio.create_task(server.watch(lambda _: None))
                parts = [watch, *keepers]
                try:
                    await first(asyncio.create_task(_until_ready(up, options)), *parts)
                    up.ready = True
                    _write(up, options)
                    yield up, parts
                finally:
                    watch.cancel()
        finally:
            up_file(options.home).unlink(missing_ok=True)


async def first(*tasks: asyncio.Future[Any]) -> None:
    """Wait for the first; what it failed with is raised."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def configure(log: JetStreamLog, options: Options, table: ThroughputTable) -> bool:
    """Append what the log does not say already; whether that was anything."""
    picture = await look(log)
    config = picture.config or ClusterConfigured()
    if options.policy:
        config = msgspec.structs.replace(config, policy=options.policy, policy_parameters={})
    if options.round_s is not None:
        config = msgspec.structs.replace(config, round_duration_s=options.round_s)
    if options.estimator:
        config = msgspec.structs.replace(config, estimator=options.estimator)
    rows = tuple(table.rows(table.classes(), pairs=needs(config.policy, "pairs")))
    imported = ThroughputTableImported(source=table.source, rows=rows)
    events: list[AnyEvent] = []
    if config != picture.config:
        events.append(config)
    if imported != picture.table and (options.throughputs is not None or picture.table is None):
        events.append(imported)
    await append(log, f"operator.{secrets.token_hex(4)}", *events)
    return bool(events)


# --- processes ------------------------------------------------------------------------------------


@asynccontextmanager
async def _services(up: Up, options: Options) -> AsyncGenerator[list[asyncio.Task[None]], None]:
    """The services run, and run again when they end; all are gone in the end."""
    for name in SERVICES:
        up.services[name] = ServiceProcess(pid=0, health_port=_free_port())
    keepers = [asyncio.create_task(_keep(name, up, options)) for name in SERVICES]
    try:
        yield keepers
    finally:
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


async def _keep(name: str, up: Up, options: Options) -> None:
    """Start a service whenever it is not there."""
    wait_s = _RESTART_S
    while True:
        process = await _start(name, up, options)
        up.services[name].pid = process.pid
        _write(up, options)
        started = time.monotonic()
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                await _end(process)
        wait_s = _RESTART_S if time.monotonic() - started > _WELL_S else 2 * wait_s
        await asyncio.sleep(min(wait_s, _RESTART_MOST_S))


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _start(name: str, up: Up, options: Options) -> asyncio.subprocess.Process:
    own = {key: value for key, value in os.environ.items() if not key.startswith("GAVEL_")}
    # As this process finds them: installed, or in a checkout.
    own["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    settings = {
        "LOG_SERVERS": up.url,
        "LOG_CLUSTER": up.cluster,
        "SERVICE_HEALTH_PORT": str(up.services[name].health_port),
        "SERVICE_SNAPSHOT_FOLDER": str(options.home / "snapshots"),
        "SERVICE_END_WITH_PARENT": "true",
        "WORKER_NAME": "local",
        "WORKER_ADDRESS": "127.0.0.1",
        "WORKER_ACCELERATORS": options.emulate,
        "WORKER_TASKS": _tasks(options),
        "WORKER_SERVER_SIZE": str(options.server_size),
        "WORKER_FOLDER": str(options.home / "worker"),
        "WORKER_CHECKPOINT_ROOT": str(options.home / "checkpoints"),
        "WORKER_LEAVE_TASKS": "false",
    }
    with (options.home / "logs" / f"{name}.log").open("ab") as lines:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            f"services.{name}",
            env=own | {f"GAVEL_{key}": value for key, value in settings.items()},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=lines,
            stderr=lines,
            # Ctrl-C is for the one who started them, who stops them in order.
            start_new_session=True,
        )


def _tasks(options: Options) -> str:
    if options.in_process:
        return "in_process"
    return "emulated" if options.emulate else "real"


async def _until_ready(up: Up, options: Options) -> None:
    started = time.monotonic()
    for name, service in up.services.items():
        while not await ask(service.health_port, "/ready"):
            if time.monotonic() - started > _READY_S:
                raise LiveError(
                    f"the {name} service is not ready after {_READY_S:g} s; "
                    f"see {options.home / 'logs' / name}.log"
                )
            await asyncio.sleep(_LOOK_EVERY_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _write(up: Up, options: Options) -> None:
    path = up_file(options.home)
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.encode(up))
    partial.rename(path)

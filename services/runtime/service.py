"""One service as a process: its settings, its lines, the log, health, signals, a clean end.

What all four services share around their cores. A service's ``__main__`` says how its actor is
made (``wire``); everything else is here, so that they start, fail and stop alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structlog.typing import FilteringBoundLogger

from schemas.record import NewerSchemaError, Record
from services.runtime import config, logs
from services.runtime.actor import BEHAVIOUR, Actor
from services.runtime.clock import LogClock
from services.runtime.config import ConfigError, LogSettings, Settings
from services.runtime.health import serve_health
from services.runtime.jetstream import JetStreamLog
from services.runtime.lifeline import end_with_parent
from services.runtime.live_log import LogUnavailableError
from services.runtime.log import LogError
from services.runtime.presence import NatsPresence
from services.runtime.shell import Shell
from services.runtime.snapshot import Snapshots
from services.runtime.term import Executor

OK, FAILED, WRONG_USAGE = 0, 1, 2
_CONNECT_TRY_S = 5.0


@dataclass(frozen=True)
class Process:
    """What a service is made with."""

    settings: Settings
    log: JetStreamLog
    presence: NatsPresence
    clock: LogClock
    logger: FilteringBoundLogger


@dataclass(frozen=True)
class Service:
    """What makes a service of a process."""

    actor: Actor
    executor: Executor
    #: Whether it waits while another replica leads, or else refuses to run.
    stands_by: bool = True
    #: Shown every record, once the actor has folded it.
    observe: Callable[[Record], None] = lambda _: None
    #: What ``observe`` folds records into, to be kept in the actor's snapshots.
    folds: tuple[object, ...] = ()
    #: Called first, before anything is folded.
    open: Callable[[], Awaitable[None]] | None = None
    #: Runs beside the shell, until the service stops.
    beside: Callable[[Shell], Awaitable[None]] | None = None
    #: Called in the end.
    close: Callable[[], Awaitable[None]] | None = None


#: Makes the service. ``ConfigError`` if its settings make no sense.
Wire = Callable[[Process], Service]


class NoEffects:
    """Executor of a core that has none."""

    async def carry_out(self, effect: Any, report: Any) -> None:
        """See ``Executor``."""
        raise TypeError(f"no effect {type(effect).__name__} is expected here")


def main(name: str, wire: Wire, arguments: Sequence[str] | None = None) -> int:
    """Run a service until it is told to stop (SIGTERM, SIGINT); returns the exit code."""
    parser = argparse.ArgumentParser(
        prog=f"gavel-{name}",
        description=f"Gavel's {name} service. Settings: a TOML file, and over it environment "
        "variables such as GAVEL_LOG_SERVERS.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings, TOML")
    path: Path | None = parser.parse_args(arguments).config
    try:
        settings = config.check(config.load(Settings, path, os.environ))
    except ConfigError as error:
        parser.exit(WRONG_USAGE, f"gavel-{name}: {error}\n")
    logs.configure(level=settings.service.log_level, json=settings.service.log_json)
    logger = logs.logger(name)
    if settings.service.end_with_parent:
        end_with_parent()
    try:
        asyncio.run(_run(name, wire, settings, logger))
    except ConfigError as error:
        logger.error("wrong settings", detail=str(error))  # noqa: TRY400 - the user's, not a bug
        return WRONG_USAGE
    except (LogError, NewerSchemaError, OSError) as error:
        logger.error("stopped", detail=str(error))  # noqa: TRY400 - nor is this
        return FAILED
    return OK


def credentials(settings: LogSettings) -> dict[str, Any]:
    """How to be let in, as the client library takes it.

    Raises
    ------
    ConfigError
        A file cannot be read, or is not what it must be.
    """
    found: dict[str, Any] = {}
    if settings.user:
        found["user"] = settings.user
    if settings.password_file:
        with _of_file("log.password_file", settings.password_file):
            found["password"] = Path(settings.password_file).read_text().strip()
    if settings.nkeys_seed_file:
        found["nkeys_seed"] = settings.nkeys_seed_file
    if settings.ca_file or settings.certificate_file:
        with _of_file("log.ca_file", settings.ca_file, "the certificate of a CA"):
            found["tls"] = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.certificate_file:
            with _of_file(
                "log.certificate_file", settings.certificate_file, "a certificate and its key"
            ):
                found["tls"].load_cert_chain(settings.certificate_file)
    return found


@contextmanager
def _of_file(key: str, path: str, content: str = "text") -> Iterator[None]:
    """Name the setting, the file, and what it must have, if that goes wrong."""
    try:
        yield
    except ssl.SSLError as error:
        why = error.reason or str(error)
        raise ConfigError(f"{key}: {path} must have {content}, as PEM: {why}") from None
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror}") from None


async def connect(
    settings: LogSettings, name: str, logger: FilteringBoundLogger, **options: Any
) -> JetStreamLog:
    """Connect to the log, however long it takes for a server to be there."""
    while True:
        try:
            return await JetStreamLog.connect(
                settings.servers,
                settings.cluster,
                name=name,
                credentials=credentials(settings),
                max_bytes=settings.max_bytes,
                replicas=settings.replicas,
                monitor_url=settings.monitor_url,
                connect_timeout_s=_CONNECT_TRY_S,
                on_trouble=lambda text: logger.warning("connection", detail=text),
                **options,
            )
        except LogUnavailableError as error:
            logger.warning("waiting for the log", detail=str(error))
            await asyncio.sleep(1.0)


async def _run(name: str, wire: Wire, settings: Settings, logger: FilteringBoundLogger) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    connecting = asyncio.create_task(connect(settings.log, name, logger))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((connecting, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not connecting.done():
        connecting.cancel()
        await asyncio.wait((connecting,))
        return
    log = connecting.result()
    try:
        for warning in log.warnings:
            logger.warning("server", detail=warning)
        presence = NatsPresence(log.client, log.cluster)
        process = Process(settings, log, presence, LogClock(), logger)
        await _serve(process, wire(process), stopping)
    finally:
        await log.close()


def _snapshots(process: Process, service: Service) -> Snapshots | None:
    settings = process.settings.service
    if not settings.snapshot_folder:
        return None
    return Snapshots(
        Path(settings.snapshot_folder),
        process.log.cluster,
        service.actor,
        service.folds,
        every=settings.snapshot_every,
    )


async def _serve(process: Process, service: Service, stopping: asyncio.Task[bool]) -> None:
    settings = process.settings.service
    shell = Shell(
        service.actor,
        process.log,
        service.executor,
        process.presence,
        replica=settings.replica or socket.gethostname(),
        behaviour=BEHAVIOUR,
        clock=process.clock,
        logger=process.logger,
        stands_by=service.stands_by,
        observe=service.observe,
        snapshots=_snapshots(process, service),
    )
    if service.open is not None:
        await service.open()
    stopping.add_done_callback(lambda _: shell.stop())
    beside = asyncio.ensure_future(service.beside(shell)) if service.beside else None
    running = asyncio.create_task(shell.run())
    try:
        async with serve_health(
            lambda: shell.ready, shell.status, port=settings.health_port
        ) as port:
            process.logger.info("health", port=port)
            await asyncio.wait(
                [running, *([beside] if beside else [])], return_when=asyncio.FIRST_COMPLETED
            )
            if beside is not None and beside.done():
                beside.result()
            shell.stop()
            await running
    finally:
        running.cancel()
        if beside is not None:
            beside.cancel()
            with suppress(asyncio.CancelledError):
                await beside
        if service.close is not None:
            await service.close()

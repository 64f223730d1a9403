"""Where a cluster is: the one that runs under ``GAVEL_HOME``, or one that is named."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from replay.live.picture import Picture
from replay.options import one_of
from schemas.events import AnyEvent
from schemas.record import Draft, Record, digest_of
from services.runtime import config
from services.runtime.config import Settings
from services.runtime.connection import NoSuchClusterError, shown
from services.runtime.file_log import FileLog
from services.runtime.jetstream import JetStreamLog
from services.runtime.live_log import LogUnavailableError
from services.runtime.service import credentials

_CONNECT_S = 3.0
_PATIENCE_S = 10.0


class LiveError(Exception):
    """What was asked for cannot be done by the cluster, or the cluster is not there."""


class ServiceProcess(msgspec.Struct, kw_only=True):
    """A service that ``gavel up`` has started."""

    pid: int
    health_port: int


class Up(msgspec.Struct, kw_only=True):
    """What ``gavel up`` writes under its home while it runs."""

    pid: int
    url: str
    cluster: str
    #: See ``start_of``: another process may have the number by now.
    started: str = ""
    ready: bool = False
    services: dict[str, ServiceProcess] = {}


def home() -> Path:
    """Folder of the cluster on this machine: ``GAVEL_HOME``, or ``~/.gavel``."""
    return Path(os.environ.get("GAVEL_HOME") or Path.home() / ".gavel").absolute()


def up_file(folder: Path | None = None) -> Path:
    """Where ``gavel up`` writes about itself."""
    return (folder or home()) / "up.json"


def read_up(folder: Path | None = None) -> Up | None:
    """What runs under a folder, by default ``home()``; None if nothing does."""
    try:
        found = msgspec.json.decode(up_file(folder).read_bytes(), type=Up)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    return found if found.started == start_of(found.pid) else None


def start_of(pid: int) -> str | None:
    """When a process started, in clock ticks since the machine's own start; None if it is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


@asynccontextmanager
async def connected(
    nats: str = "", cluster: str = "", *, make: bool = False
) -> AsyncGenerator[JetStreamLog, None]:
    """The log of the cluster that is meant.

    Parameters
    ----------
    nats : URLs, or empty: what ``gavel up`` runs, else the settings in the environment
    cluster : its name, or empty
    make : whether its log is made if there is none

    Raises
    ------
    LiveError
        No cluster answers, or there is none yet.
    OptionError
        There are clusters, and none of that name.
    LogError, ConfigError
        It is not one that can be used, or the settings are wrong.
    """
    settings = config.check(config.load(Settings, None, os.environ)).log
    up = read_up()
    own = up is not None and not nats and "GAVEL_LOG_SERVERS" not in os.environ
    servers = [part for part in nats.split(",") if part] or list(settings.servers)
    name = cluster or settings.cluster
    if own and up is not None:
        servers, name = [up.url], cluster or up.cluster
    try:
        log = await JetStreamLog.connect(
            servers,
            name,
            name="cli",
            credentials=credentials(settings),
            max_bytes=settings.max_bytes,
            make=make,
            connect_timeout_s=_CONNECT_S,
            patience_s=_PATIENCE_S,
        )
    except LogUnavailableError as error:
        hint = "" if own or nats else "; `gavel up` starts a cluster on this machine"
        raise LiveError(f"{error}{hint}") from None
    except NoSuchClusterError as error:
        if error.known:
            one_of("--cluster-name" if cluster else "log.cluster", name, error.known)
        raise LiveError(
            f"{error}, at {shown(servers)}; `gavel up` or a mechanism service begins one"
        ) from None
    try:
        yield log
    finally:
        await log.close()


async def write_log(log: JetStreamLog, path: Path) -> int:
    """Write the whole log to a new file; how many records it has."""
    file = FileLog(path)
    async for record in log.read():
        actor, cause, index, n = record.record_id
        draft = Draft(actor, record.epoch, cause, index, n, record.event, record.digest)
        file.append(draft, record.at)
    file.close()
    return file.last_seq


async def look(log: JetStreamLog) -> Picture:
    """The cluster as of now."""
    picture = Picture()
    async for record in log.read():
        picture.take(record)
    return picture


async def append(
    log: JetStreamLog, actor: str, *events: AnyEvent, after: Record | None = None
) -> int:
    """Append what a client or the operator has to say, under a name of its own; the last place.

    Parameters
    ----------
    log : to append to
    actor : who says it; nobody else writes under this name
    events : one after the other
    after : the writer's record before these, if it has one
    """
    digest = after.digest if after is not None else ""
    index = after.index + 1 if after is not None else 0
    seq: int | None = 0
    for number, event in enumerate(events, index):
        draft = Draft(actor, 0, 0, number, 0, event, "")
        draft = msgspec.structs.replace(draft, digest=digest_of(digest, draft))
        seq, digest = await log.append(draft), draft.digest
    return seq or 0


async def record_of(log: JetStreamLog, actor: str) -> Record | None:
    """The newest record of a writer."""
    found = None
    async for record in log.read():
        if record.actor == actor:
            found = record
    return found

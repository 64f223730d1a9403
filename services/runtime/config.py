"""Settings of a process: a TOML file, and environment variables over it.

A key ``max_bytes`` under ``[log]`` is ``GAVEL_LOG_MAX_BYTES`` in the environment, and what is said
there counts. Every service reads the same file, and takes from it what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from schemas.subjects import is_safe_name
from services.runtime import connection
from services.runtime.logs import LEVELS
from services.runtime.toml_file import TomlError, TomlFile, hint

_PREFIX = "GAVEL"
#: A variable of ours as like as this to one that exists is a mistake; others may be anybody's.
_MISSPELT = 0.85


class ConfigError(Exception):
    """A setting is wrong; the message says where, and what would be right."""


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the cluster's log is."""

    #: URLs of the servers of one NATS cluster; at ``tls://`` nothing is said in the clear.
    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    #: Name of the Gavel cluster; one server can hold the logs of several.
    cluster: str = "main"
    user: str = ""
    password_file: str = ""
    nkeys_seed_file: str = ""
    #: PEM of the CA that signed the servers' certificates; by default those the machine trusts.
    ca_file: str = ""
    #: PEM of a certificate of ours and its key, for servers that ask for one.
    certificate_file: str = ""
    #: Of one server's monitoring (``http://127.0.0.1:8222``), to be asked at the start whether it
    #: syncs each write. Empty: it is not known, and nothing is said.
    monitor_url: str = ""
    #: Of the stream, if it has to be made.
    max_bytes: int = 4 << 30
    replicas: int = 1


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a service runs."""

    #: Name of this process among those of the same service; by default its host's.
    replica: str = ""
    #: Loopback port of its health; 0 for any.
    health_port: int = 0
    log_level: str = "info"
    #: By default, unless a terminal reads along.
    log_json: bool | None = None
    #: Where it keeps snapshots of what it has folded, so that a start reads only the log's tail;
    #: services may share it. Empty: nowhere, each start folds the whole log.
    snapshot_folder: str = ""
    #: Records between two snapshots.
    snapshot_every: int = 10_000
    #: Whether it stops when whoever started it is gone.
    end_with_parent: bool = False


class MechanismSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The mechanism's own."""

    #: Seconds without an answer after which a worker service counts as unreachable.
    unreachable_after_s: float = 5.0


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A worker service's own."""

    #: Its name in the log, ``worker.<name>``; by default its host's.
    name: str = ""
    #: Accelerators as ``TYPE=COUNT,...``, or ``@FILE`` for a file that says so and is looked at
    #: again and again; by default those that NVML finds.
    accelerators: str = ""
    #: ``real``; ``emulated``: accelerators are imagined, processes and checkpoints are real;
    #: ``in_process``: neither is, tasks are arithmetic.
    tasks: str = "real"
    #: Workers to a server where accelerators are not real; 0: all on one.
    server_size: int = 0
    #: Where tasks have their folders and logs.
    folder: str = "gavel-worker"
    #: Where checkpoints lie: the same folder on every server.
    checkpoint_root: str = "gavel-checkpoints"
    #: NAME = value lines, for environment values that jobs write as ``secret:NAME``.
    secrets_file: str = ""
    #: How other servers reach this one, for gangs; by default its host's name.
    address: str = ""
    #: Where ranks on several hosts meet, from the first port to before the second: those that a
    #: firewall between hosts lets through. By default 20000 to 29999.
    ports: tuple[int, ...] = ()
    rack: str = ""
    #: From the request to save until SIGTERM, and from there until SIGKILL.
    checkpoint_grace_s: float = 10.0
    terminate_grace_s: float = 2.0
    #: Whether tasks go on, to the ends of their leases, when the service is told to stop.
    leave_tasks: bool = True
    #: Whether its workers are there to profile jobs nobody knows, and never to run any.
    profiles_only: bool = False
    #: ``"JOB TYPE" = "command"`` lines: how to start the reference jobs of the throughput table,
    #: so that others can be profiled beside them.
    references_file: str = ""
    #: Imagined accelerators: how many times as fast as the log's table says they are in truth,
    #: as ``TYPE=FACTOR,...``.
    pace: str = ""
    #: In-process tasks: seconds to load and to save a checkpoint.
    load_s: float = 0.0
    save_s: float = 0.0


#: What ``worker.tasks`` can be.
TASKS = ("real", "emulated", "in_process")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What all services are told: one file for a cluster, each takes from it what it needs."""

    log: LogSettings = LogSettings()
    service: ServiceSettings = ServiceSettings()
    mechanism: MechanismSettings = MechanismSettings()
    worker: WorkerSettings = WorkerSettings()


S = TypeVar("S", bound=msgspec.Struct)


def load(kind: type[S], path: Path | None, environment: Mapping[str, str]) -> S:
    """Settings of one kind, a struct of sections.

    Parameters
    ----------
    kind : the struct; each of its fields is a section, itself a struct of keys
    path : the TOML file, if there is one
    environment : names and values, as of the process

    Raises
    ------
    ConfigError
        The file is not there or is no TOML; a key does not exist; a value is not what it must be.
    """
    try:
        file = TomlFile("", "", {}) if path is None else TomlFile.read(path)
    except TomlError as error:
        raise ConfigError(str(error)) from None
    content = dict(file.content)
    sections = {field.name: field.type for field in msgspec.structs.fields(kind)}
    _check_names(content, list(sections), "section", file)
    known: dict[str, tuple[str, str]] = {}
    for section, struct in sections.items():
        keys = [field.name for field in msgspec.structs.fields(struct)]
        found = content.setdefault(section, {})
        if not isinstance(found, dict):
            raise ConfigError(f"{file.where(section)}: {section} must be a table, [{section}]")
        _check_names(found, keys, f"key of [{section}]", file)
        known |= {f"{_PREFIX}_{section}_{key}".upper(): (section, key) for key in keys}
    _check_variables(environment, known)
    values = {
        section: _section(section, struct, content[section], environment, file)
        for section, struct in sections.items()
    }
    return kind(**values)


def check(settings: Settings) -> Settings:
    """The settings, if their values make sense together.

    Raises
    ------
    ConfigError
        One does not.
    """
    log, service = settings.log, settings.service
    wrong = [
        (not is_safe_name(log.cluster), "log.cluster", log.cluster, "letters, digits, '_', '-'"),
        (not log.servers, "log.servers", log.servers, "one URL or more"),
        *(
            (not connection.is_url(url), "log.servers", connection.shown([url]), connection.URLS)
            for url in log.servers
        ),
        (
            not log.monitor_url.startswith(("http://", "https://")) and log.monitor_url != "",
            "log.monitor_url",
            log.monitor_url,
            "empty, or begin with http:// or https://",
        ),
        (log.max_bytes < 1 << 20, "log.max_bytes", log.max_bytes, "1048576 or more"),
        (log.replicas not in (1, 3, 5), "log.replicas", log.replicas, "1, 3 or 5"),
        (
            service.log_level not in LEVELS,
            "service.log_level",
            service.log_level,
            f"one of {', '.join(LEVELS)}",
        ),
        (
            not 0 <= service.health_port < 1 << 16,
            "service.health_port",
            service.health_port,
            "0 to 65535",
        ),
        (
            service.snapshot_every < 1,
            "service.snapshot_every",
            service.snapshot_every,
            "1 or more records",
        ),
        (
            not 0 < settings.mechanism.unreachable_after_s < 1e6,
            "mechanism.unreachable_after_s",
            settings.mechanism.unreachable_after_s,
            "seconds above 0",
        ),
        *_of_worker(settings.worker),
    ]
    for is_wrong, key, value, right in wrong:
        if is_wrong:
            raise ConfigError(f"{key} is {value!r}, must be {right}")
    return settings


def _of_worker(worker: WorkerSettings) -> list[tuple[bool, str, object, str]]:
    """(whether it is wrong, key, value, what would be right) of a worker service's settings."""
    return [
        (
            bool(worker.name) and not is_safe_name(worker.name),
            "worker.name",
            worker.name,
            "letters, digits, '_', '-'",
        ),
        (
            worker.ports != () and not _is_range(worker.ports),
            "worker.ports",
            worker.ports,
            "two ports, 1024 to 65535, the lower first",
        ),
        (worker.tasks not in TASKS, "worker.tasks", worker.tasks, f"one of {', '.join(TASKS)}"),
        (
            worker.tasks != "real" and not worker.accelerators,
            "worker.accelerators",
            worker.accelerators,
            "TYPE=COUNT, as in v100=2, where tasks are not real",
        ),
        (
            worker.tasks == "real" and bool(worker.pace),
            "worker.pace",
            worker.pace,
            "nothing where accelerators are real: they run at their own",
        ),
        *(
            (not 0 <= value < 1e6, f"worker.{key}", value, "0 or more")
            for key, value in (
                ("server_size", worker.server_size),
                ("checkpoint_grace_s", worker.checkpoint_grace_s),
                ("terminate_grace_s", worker.terminate_grace_s),
                ("load_s", worker.load_s),
                ("save_s", worker.save_s),
            )
        ),
    ]


def _is_range(ports: Sequence[int]) -> bool:
    return len(ports) == 2 and 1024 <= ports[0] < ports[1] <= 65535


def _check_names(found: Mapping[str, Any], right: list[str], what: str, file: TomlFile) -> None:
    for name in found:
        if name not in right:
            raise ConfigError(f"{file.where(name)}: {name!r} is no {what}; {hint(name, right)}")


def _check_variables(environment: Mapping[str, str], known: Mapping[str, Any]) -> None:
    for name in sorted(environment):
        if name.startswith(f"{_PREFIX}_") and name not in known:
            near = get_close_matches(name, known, n=1, cutoff=_MISSPELT)
            if near:
                raise ConfigError(f"{name} is no variable; did you mean {near[0]!r}?")


def _section(
    section: str,
    struct: type[msgspec.Struct],
    found: dict[str, Any],
    environment: Mapping[str, str],
    file: TomlFile,
) -> msgspec.Struct:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        variable = f"{_PREFIX}_{section}_{field.name}".upper()
        if variable in environment:
            place, strict = variable, False
            value: Any = environment[variable]
            if isinstance(field.default, tuple):
                value = [part.strip() for part in value.split(",") if part.strip()]
        elif field.name in found:
            place, strict = file.where(field.name), True
            value = found[field.name]
        else:
            continue
        try:
            values[field.name] = msgspec.convert(value, field.type, strict=strict)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"{place}: {section}.{field.name} is {value!r}: {_lowered(str(error))}"
            ) from None
    return struct(**values)


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]

"""The worker service: its hands, and the word that it is back.

``gavel-worker``, or ``python -P -m services.worker``. There is one of each name; a second is
refused.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from schemas.events import WorkerRegistered
from schemas.record import Record
from schemas.subjects import is_safe_name
from services.runtime.actor import Actor
from services.runtime.config import ConfigError, WorkerSettings
from services.runtime.service import Process, Service
from services.runtime.service import main as run
from services.runtime.shell import Shell
from services.runtime.toml_file import TomlError, TomlFile
from services.worker import devices
from services.worker import launch as launcher
from services.worker.core import WorkerCore
from services.worker.emulation import EmulatedHands
from services.worker.executor import WorkerExecutor
from services.worker.processes import ProcessHands
from services.worker.roll_call import RollCall
from services.worker.view import LogView

_PROGRESS_INTERVAL_S = 1.0


def wire(process: Process) -> Service:
    """The service around its core."""
    settings = process.settings.worker
    name = f"worker.{own_name(settings)}"
    try:
        view = LogView(name, devices.paces(settings.pace))
    except devices.DevicesError as error:
        raise ConfigError(f"worker.pace: {error}") from None
    try:
        accelerators = devices.Accelerators(partial(_find, name, settings))
    except devices.DevicesError as error:
        raise ConfigError(f"worker.accelerators: {error}") from None
    hands = _hands(settings, process, view, accelerators)
    executor = WorkerExecutor(
        name,
        hands,
        view,
        process.clock.now,
        graces_s=settings.checkpoint_grace_s + settings.terminate_grace_s,
    )
    roll_call = RollCall(name, accelerators, view, process.logger)

    def observe(record: Record) -> None:
        view.take(record)
        executor.observed()
        roll_call.observed()

    actor = Actor(name, WorkerCore(name))
    service = Service(actor, executor, stands_by=False, observe=observe, folds=(view,))
    if isinstance(hands, EmulatedHands):
        return replace(service, beside=lambda shell: roll_call.run(shell.report))

    async def beside(shell: Shell) -> None:
        await asyncio.gather(roll_call.run(shell.report), hands.rotate_logs())

    async def close() -> None:
        executor.close()
        await hands.close(leave_tasks=settings.leave_tasks)

    return replace(service, open=hands.open, beside=beside, close=close)


def own_name(settings: WorkerSettings) -> str:
    """The service's name: as set, or its host's.

    Raises
    ------
    ConfigError
        The host's name cannot stand in a subject.
    """
    host = socket.gethostname().partition(".")[0]
    name = settings.name or host
    if not is_safe_name(name):
        raise ConfigError(f"worker.name is not set, and the host's name {host!r} will not do")
    return name


def _hands(
    settings: WorkerSettings,
    process: Process,
    view: LogView,
    accelerators: devices.Accelerators,
) -> EmulatedHands | ProcessHands:
    now = process.clock.now
    if settings.tasks == "in_process":
        load_s, save_s = settings.load_s, settings.save_s
        return EmulatedHands(accelerators.workers, view, now, load_s=load_s, save_s=save_s)
    launch = launcher.Settings(
        folder=Path(settings.folder).absolute(),
        checkpoint_root=Path(settings.checkpoint_root).absolute(),
        secrets=_lines("secrets_file", settings.secrets_file),
        checkpoint_grace_s=settings.checkpoint_grace_s,
        terminate_grace_s=settings.terminate_grace_s,
        progress_interval_s=_PROGRESS_INTERVAL_S,
        emulated=settings.tasks == "emulated",
        references=_lines("references_file", settings.references_file),
    )
    return ProcessHands(accelerators, launch, view, now, process.logger)


def _find(name: str, settings: WorkerSettings) -> dict[str, tuple[WorkerRegistered, str]]:
    """The accelerators there are, by NVML or as told: see ``Accelerators``."""
    said = {"profiles_only": settings.profiles_only, "ports": settings.ports or None}
    return {
        worker_id: (msgspec.structs.replace(worker, **said), cuda_id)
        for worker_id, (worker, cuda_id) in _found(name, settings).items()
    }


def _found(name: str, settings: WorkerSettings) -> dict[str, tuple[WorkerRegistered, str]]:
    where = {"rack": settings.rack, "address": settings.address or socket.gethostname()}
    if not settings.accelerators:
        found = devices.detected(name, **where)
        return {worker.worker_id: (worker, cuda_id) for cuda_id, worker in found.items()}
    types = devices.told(settings.accelerators)
    workers = devices.imagined(name, types, server_size=settings.server_size, **where)
    real = settings.tasks == "real"
    return {w.worker_id: (w, str(i) if real else "") for i, w in enumerate(workers)}


def _lines(key: str, path: str) -> dict[str, str]:
    """``NAME = "value"`` lines of an operator's file, TOML."""
    if not path:
        return {}
    try:
        file = TomlFile.read(Path(path))
    except TomlError as error:
        raise ConfigError(f"worker.{key}: {error}") from None
    for name, value in file.content.items():
        if not isinstance(value, str):
            raise ConfigError(f"worker.{key}: {file.where(name)}: {name} must be text, in quotes")
    return file.content


def main() -> int:
    """Entry point of the console script."""
    return run("worker", wire)


if __name__ == "__main__":
    sys.exit(main())

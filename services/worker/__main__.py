"""The worker service: its hands, and the word that it is back.

``gavel-worker``, or ``python -P -m services.worker``. There is one of each name; a second is
refused.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from schemas.events import WorkerRegistered, WorkerReturned
from schemas.record import Record
from schemas.subjects import is_safe_name
from services.runtime.actor import Actor
from services.runtime.config import ConfigError, WorkerSettings
from services.runtime.service import Process, Service
from services.runtime.service import main as run
from services.runtime.shell import Shell
from services.worker import devices
from services.worker import launch as launcher
from services.worker.core import WorkerCore
from services.worker.emulation import EmulatedHands
from services.worker.executor import WorkerExecutor
from services.worker.processes import ProcessHands
from services.worker.view import LogView

_LOOK_EVERY_S = 1.0
_PROGRESS_INTERVAL_S = 1.0


class Presence:
    """Says that workers are back which the mechanism has missed: who reads this is here."""

    def __init__(self, name: str, view: LogView) -> None:
        self._name = name
        self._view = view
        self._changed = asyncio.Event()

    def observed(self) -> None:
        """The view has changed."""
        if self._view.missing:
            self._changed.set()

    async def run(self, shell: Shell) -> None:
        """Report each return once, for every time that it was missed."""
        told: set[str] = set()
        while True:
            # Also when nothing changes: what was missed before this process led is missed still.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._changed.wait()
            self._changed.clear()
            told &= self._view.missing
            for worker_id in sorted(self._view.missing - told):
                if shell.report(WorkerReturned(worker_id=worker_id, reporter=self._name)):
                    told.add(worker_id)


def wire(process: Process) -> Service:
    """The service around its core."""
    settings = process.settings.worker
    name = f"worker.{own_name(settings)}"
    view = LogView(name)
    hands = _hands(name, settings, process, view)
    executor = WorkerExecutor(
        name,
        hands,
        view,
        process.clock.now,
        graces_s=settings.checkpoint_grace_s + settings.terminate_grace_s,
    )
    presence = Presence(name, view)

    def observe(record: Record) -> None:
        view.take(record)
        executor.observed()
        presence.observed()

    actor = Actor(name, WorkerCore(name))
    service = Service(actor, executor, stands_by=False, observe=observe, folds=(view,))
    if isinstance(hands, EmulatedHands):
        return replace(service, beside=presence.run)

    async def beside(shell: Shell) -> None:
        await asyncio.gather(presence.run(shell), hands.rotate_logs())

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
    name: str, settings: WorkerSettings, process: Process, view: LogView
) -> EmulatedHands | ProcessHands:
    workers, cuda_ids = _accelerators(name, settings)
    now = process.clock.now
    if settings.tasks == "in_process":
        return EmulatedHands(workers, view, now, load_s=settings.load_s, save_s=settings.save_s)
    launch = launcher.Settings(
        folder=Path(settings.folder).absolute(),
        checkpoint_root=Path(settings.checkpoint_root).absolute(),
        secrets=_secrets(settings.secrets_file),
        checkpoint_grace_s=settings.checkpoint_grace_s,
        terminate_grace_s=settings.terminate_grace_s,
        progress_interval_s=_PROGRESS_INTERVAL_S,
        emulated=settings.tasks == "emulated",
    )
    return ProcessHands(workers, cuda_ids, launch, view, now, process.logger)


def _accelerators(
    name: str, settings: WorkerSettings
) -> tuple[list[WorkerRegistered], dict[str, str]]:
    """The workers, and what CUDA calls each that is real."""
    address = settings.address or socket.gethostname()
    try:
        if not settings.accelerators:
            found = devices.detected(name, rack=settings.rack, address=address)
            return list(found.values()), {w.worker_id: cuda for cuda, w in found.items()}
        types = devices.told(settings.accelerators)
    except devices.DevicesError as error:
        raise ConfigError(f"worker.accelerators: {error}") from None
    workers = devices.imagined(
        name, types, server_size=settings.server_size, rack=settings.rack, address=address
    )
    real = settings.tasks == "real"
    return workers, {w.worker_id: str(i) for i, w in enumerate(workers)} if real else {}


def _secrets(path: str) -> dict[str, str]:
    """``NAME = "value"`` lines of the operator's file, TOML."""
    if not path:
        return {}
    try:
        found = tomllib.loads(Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"worker.secrets_file {path}: {error}") from None
    return {name: str(value) for name, value in found.items()}


def main() -> int:
    """Entry point of the console script."""
    return run("worker", wire)


if __name__ == "__main__":
    sys.exit(main())

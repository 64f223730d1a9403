"""The worker service: its hands, and the word that it is back.

``gavel-worker``, or ``python -P -m services.worker``. There is one of each name; a second is
refused.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

from schemas.events import WorkerReturned
from schemas.record import Record
from schemas.subjects import is_safe_name
from services.runtime.actor import Actor
from services.runtime.config import ConfigError, WorkerSettings
from services.runtime.service import Process, Service
from services.runtime.service import main as run
from services.runtime.shell import Shell
from services.worker import devices
from services.worker.core import WorkerCore
from services.worker.emulation import EmulatedHands
from services.worker.executor import Hands, WorkerExecutor
from services.worker.view import LogView

_LOOK_EVERY_S = 1.0


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
    executor = WorkerExecutor(
        name,
        _hands(name, settings, process, view),
        view,
        process.clock.now,
        graces_s=settings.checkpoint_grace_s + settings.terminate_grace_s,
    )
    presence = Presence(name, view)

    def observe(record: Record) -> None:
        view.take(record)
        executor.observed()
        presence.observed()

    return Service(
        Actor(name, WorkerCore(name)),
        executor,
        stands_by=False,
        observe=observe,
        beside=presence.run,
    )


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


def _hands(name: str, settings: WorkerSettings, process: Process, view: LogView) -> Hands:
    try:
        types = devices.told(settings.accelerators) if settings.accelerators else []
    except devices.DevicesError as error:
        raise ConfigError(f"worker.accelerators: {error}") from None
    address = settings.address or socket.gethostname()
    workers = devices.imagined(
        name, types, server_size=settings.server_size, rack=settings.rack, address=address
    )
    return EmulatedHands(
        workers, view, process.clock.now, load_s=settings.load_s, save_s=settings.save_s
    )


def main() -> int:
    """Entry point of the console script."""
    return run("worker", wire)


if __name__ == "__main__":
    sys.exit(main())

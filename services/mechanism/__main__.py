"""The mechanism service, and its watch over the worker services.

``gavel-mechanism``, or ``python -P -m services.mechanism``. Whether a worker service is there is
nothing a core could see: this process asks, and appends ``WorkerUnreachable`` for the workers of
one that has not answered for a while. What follows from that is the core's decision.
"""

from __future__ import annotations

import asyncio
import sys
import time

from schemas.events import (
    WorkerLost,
    WorkerRegistered,
    WorkerReturned,
    WorkerUnreachable,
)
from schemas.record import Record
from services.mechanism.core import MechanismCore
from services.runtime.actor import Actor
from services.runtime.presence import UncertainError
from services.runtime.service import NoEffects, Process, Service
from services.runtime.service import main as run
from services.runtime.shell import Shell

_ASK_EVERY_S = 1.0


class Watch:
    """Asks worker services whether they are there; its state, of the log, is declared here."""

    #: {worker service: its workers, and whether each is known to be missing}
    _workers: dict[str, dict[str, bool]]

    def __init__(self, process: Process) -> None:
        self._process = process
        self._patience_s = process.settings.mechanism.unreachable_after_s
        self._workers = {}
        #: {worker service: monotonic time of its last answer, or of our first question}
        self._heard_at: dict[str, float] = {}
        #: {worker id: our start that has said it is missing}, until the log has it. What a start
        #: said that was superseded first, the log never has.
        self._said: dict[str, int] = {}

    def observe(self, record: Record) -> None:
        """Take note of workers that come and go."""
        event = record.event
        if isinstance(event, WorkerRegistered):
            for of_service in self._workers.values():
                of_service.pop(event.worker_id, None)
            self._workers.setdefault(event.reporter, {})[event.worker_id] = False
            self._said.pop(event.worker_id, None)
        elif isinstance(event, WorkerReturned | WorkerUnreachable | WorkerLost):
            for of_service in self._workers.values():
                if event.worker_id in of_service:
                    of_service[event.worker_id] = not isinstance(event, WorkerReturned)
            self._said.pop(event.worker_id, None)

    async def run(self, shell: Shell) -> None:
        """Ask, for ever; only a leader asks, as only a leader can report."""
        while True:
            if shell.leading:
                await asyncio.gather(*(self._ask(name, shell) for name in sorted(self._workers)))
            else:
                self._heard_at.clear()
            await asyncio.sleep(_ASK_EVERY_S)

    async def _ask(self, name: str, shell: Shell) -> None:
        try:
            there = await self._process.presence.leader(name) is not None
        except UncertainError:
            # Cut off ourselves: that is no fault of theirs.
            there = True
        now = time.monotonic()
        if there:
            self._heard_at[name] = now
        silent_s = now - self._heard_at.setdefault(name, now)
        if silent_s < self._patience_s:
            return
        self.miss(name, self._process.clock.now() - silent_s, shell)

    def miss(self, name: str, since_s: float, shell: Shell) -> None:
        """Report the service's workers, but for those that the log knows, or will know."""
        start = shell.actor.epoch
        for worker_id, missing in self._workers[name].items():
            if not missing and self._said.get(worker_id) != start:
                event = WorkerUnreachable(worker_id=worker_id, since_s=since_s)
                if shell.report(event):
                    self._said[worker_id] = start


def wire(process: Process) -> Service:
    """The service around its core."""
    watch = Watch(process)
    actor = Actor("mechanism", MechanismCore())
    return Service(actor, NoEffects(), observe=watch.observe, folds=(watch,), beside=watch.run)


def main() -> int:
    """Entry point of the console script."""
    return run("mechanism", wire)


if __name__ == "__main__":
    sys.exit(main())

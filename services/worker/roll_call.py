"""Which of a worker service's accelerators are there: looked at again and again, and said.

One that has gone is reported, so that what ran on it goes on elsewhere at once; a new one is
registered. One that the mechanism misses though it is there, or that is there again, is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from schemas.events import AnyEvent, WorkerDisappeared, WorkerReturned
from services.worker.devices import Accelerators, DevicesError
from services.worker.lease_socket import Logger
from services.worker.view import LogView

_LOOK_EVERY_S = 1.0


class RollCall:
    """Says who has gone, and who is back.

    Parameters
    ----------
    name : the service's, as reporter
    accelerators : looked at again and again
    view : fold of the log; ``observed`` tells when it has changed
    """

    def __init__(
        self, name: str, accelerators: Accelerators, view: LogView, logger: Logger
    ) -> None:
        self._name = name
        self._accelerators = accelerators
        #: Ids of those that are registered or on their way to be; of these, who is there.
        self._known = {worker.worker_id for worker in accelerators.workers}
        self._there = set(self._known)
        #: Said to be back, since they were last missed.
        self._told: set[str] = set()
        self._view = view
        self._logger = logger
        self._trouble = ""
        self._changed = asyncio.Event()

    def observed(self) -> None:
        """The view has changed, by one record: one may be back and missed again at the next."""
        self._told &= self._view.missing
        if self._view.missing:
            self._changed.set()

    async def run(self, report: Callable[[AnyEvent], bool]) -> None:
        """Look and report until cancelled; ``report`` is false while this process may not."""
        loop = asyncio.get_running_loop()
        look_at = loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(look_at):
                    await self._changed.wait()
            self._changed.clear()
            if loop.time() >= look_at:
                await self._call(report)
                look_at = loop.time() + _LOOK_EVERY_S
            self._say_who_is_back(report)

    async def _call(self, report: Callable[[AnyEvent], bool]) -> None:
        """Look who is there; where that cannot be said, all is as it was."""
        try:
            workers = await asyncio.to_thread(self._accelerators.look)
        except DevicesError as error:
            if str(error) != self._trouble:
                self._logger.warning("accelerators cannot be looked at", detail=str(error))
            self._trouble = str(error)
            return
        self._trouble = ""
        found = {worker.worker_id for worker in workers}
        for worker_id in sorted(self._there - found):
            if report(WorkerDisappeared(worker_id=worker_id, reporter=self._name)):
                self._there.remove(worker_id)
        for worker in workers:
            if worker.worker_id not in self._known and report(worker):
                self._known.add(worker.worker_id)
        self._there |= self._known & found

    def _say_who_is_back(self, report: Callable[[AnyEvent], bool]) -> None:
        """Also where nothing has changed: what was missed before this process led is missed yet."""
        for worker_id in sorted(self._view.missing & self._there - self._told):
            self._told.add(worker_id)
            if not report(WorkerReturned(worker_id=worker_id, reporter=self._name)):
                self._told.remove(worker_id)

"""Effects that compute: carried out one at a time, in a process of their own.

The loop of a service never waits for them, and neither their memory nor their end is its own.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from schemas.events import AnyEvent
from services.runtime.lifeline import end_with_parent
from services.runtime.term import Report

_TRIES = 2


class ComputingExecutor:
    """Executor of effects that have one result each.

    Parameters
    ----------
    compute : from effect to result; a module's function, as the other process imports it
    give_up : the result of an effect whose process ends again and again, given why
    """

    def __init__(
        self, compute: Callable[[Any], AnyEvent], give_up: Callable[[Any, str], AnyEvent]
    ) -> None:
        self._compute = compute
        self._give_up = give_up
        self._pool = _new_pool()

    async def open(self) -> None:
        """Start the process, which takes a second to import what it needs, before it is needed."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, _imported, self._compute)

    async def carry_out(self, effect: Any, report: Report) -> None:
        """See ``Executor``."""
        loop = asyncio.get_running_loop()
        reason = ""
        for _ in range(_TRIES):
            pool = self._pool
            try:
                event = await loop.run_in_executor(pool, self._compute, effect)
            except BrokenProcessPool as error:
                # Killed for its memory, say. Others may have found out before us.
                reason = f"the computing process ended: {error}"
                if self._pool is pool:
                    self._pool = _new_pool()
            else:
                report(0, event)
                return
        report(0, self._give_up(effect, reason))

    async def close(self) -> None:
        """End the process, whatever it is at."""
        processes = list((self._pool._processes or {}).values())  # noqa: SLF001 - no other way
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


def _new_pool() -> ProcessPoolExecutor:
    # Not forked: this process has threads and open connections.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=end_with_parent)


def _imported(compute: Callable[[Any], AnyEvent]) -> None:
    """Runs in the new process, which has imported all that the function needs."""

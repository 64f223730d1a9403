"""How a process fares: how long its loop keeps work waiting, and what memory it has."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from pathlib import Path

_EVERY_S = 0.01


class Pulse:
    """Beats beside the work of a loop.

    A beat that comes late was kept waiting, by this process as far as its thread has worked in the
    meantime. What the machine gave to others is not counted.
    """

    def __init__(self) -> None:
        #: Longest wait so far, seconds; it may have been longer by as much as a beat, 0.01 s.
        self.blocked_s = 0.0

    async def beat(self) -> None:
        """Beat, for ever."""
        while True:
            began_s, worked_s = time.monotonic(), time.thread_time()
            await asyncio.sleep(_EVERY_S)
            late_s = time.monotonic() - began_s - _EVERY_S
            self.blocked_s = max(self.blocked_s, min(late_s, time.thread_time() - worked_s))


def memory_bytes() -> int:
    """Memory that the process holds; where the system does not say, the most it ever has."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return pages * os.sysconf("SC_PAGE_SIZE")

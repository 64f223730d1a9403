"""How a task runs: the seam between rounds and leases (``executor.py``) and what carries them out.

``processes.py`` starts real processes, ``emulation.py`` does sums.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.domain import Lease, TaskSpec
from schemas.events import WorkerRegistered


@dataclass(frozen=True)
class Ending:
    """How a task ended: ``completed``, ``failed``, or ``stopped`` (saved, at its lease's end)."""

    reason: str
    at_s: float
    exit_code: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Counts:
    """How far a task is: whole-job steps, and seconds under its lease."""

    steps: float = 0.0
    saved_steps: float = 0.0
    load_s: float = 0.0
    save_s: float = 0.0


@dataclass(frozen=True)
class Profile:
    """What a profile has found: ``measured``, ``does_not_fit`` (its memory) or ``failed``."""

    outcome: str
    #: Steps/s of each of its tasks, if measured, and over how many seconds.
    speeds: tuple[float, ...] = ()
    seconds: float = 0.0
    #: Why nothing was measured.
    detail: str = ""


class Task(Protocol):
    """One job under one lease, on this service's workers."""

    #: Set once nothing of it runs any more.
    ending: asyncio.Future[Ending]

    def counts(self, now: float) -> Counts:
        """How far it is."""
        ...

    def renew(self, ends_at_s: float) -> None:
        """Its lease goes on."""
        ...

    def stop_lead_s(self) -> float:
        """How long before its lease's end it is best asked to stop, so as to have saved by then."""
        ...

    async def stop(self, propose: Callable[[int], None] | None = None) -> None:
        """Have it save and leave, by force in the end; ``ending`` is set after.

        ``propose``, given where other services run ranks of it too, is to be told an iteration
        that none here goes past; ``stop_at`` then says where all of them stop.
        """
        ...

    def stop_at(self, iteration: int) -> None:
        """Save and leave at this very iteration."""
        ...

    async def kill(self) -> None:
        """End it at once; ``ending`` is set after."""
        ...


class Hands(Protocol):
    """Starts tasks."""

    def start(
        self,
        lease: Lease,
        spec: TaskSpec,
        starts_at_s: float,
        ends_at_s: float,
        *,
        fresh: bool,
        after: Counts,
    ) -> Task:
        """Start a task, or take over the one that a dead process of this service has left.

        ``fresh``: the lease starts with this round. Without it, there must have been a task.
        ``after``: how far the job was when it was last heard of.
        """
        ...

    def detect(self) -> Sequence[WorkerRegistered]:
        """The workers there are."""
        ...

    async def measure(self, lease: Lease, starts_at_s: float, ends_at_s: float) -> Profile:
        """Run a profile, to its end if all goes well; its workers are free, and are so after."""
        ...

    async def end_strays(self, known: Callable[[str, str], bool]) -> None:
        """End what is left of tasks (lease id, job id) that are not known."""
        ...

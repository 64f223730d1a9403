"""The log: an append-only total order of records, behind one port.

``Log`` is the port, ``MemoryLog`` the log of a simulation; ``file_log.py`` keeps one in a file.
``tests/contracts`` holds every implementation to the same contract.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from schemas.record import Draft, Record


class LogError(Exception):
    """Base of what a log can refuse."""


class IdConflictError(LogError):
    """A record of this id but with other content is in the log already."""


class StaleEpochError(LogError):
    """The writer has been superseded: a later start of it leads."""


class Log(Protocol):
    """An append-only total order of records.

    Sequences are contiguous from 1. An append is idempotent by record id, and refused from a
    writer whose epoch is not the newest (``LeaderElected`` raises it by exactly one).
    """

    @property
    def last_seq(self) -> int:
        """Sequence of the newest record, 0 when empty."""
        ...

    def append(self, draft: Draft, at: float) -> Record | None:
        """Give the draft its place; None if its record is in the log already.

        Raises
        ------
        IdConflictError
            The log has other content under this id.
        StaleEpochError
            The writer's epoch is not the newest.
        """
        ...

    def read(self, after: int = 0) -> Iterator[Record]:
        """Records with ``seq > after``, in order, up to the newest at the time of asking."""
        ...

    def close(self) -> None:
        """Let go of what the log holds open; appends are refused afterwards."""
        ...

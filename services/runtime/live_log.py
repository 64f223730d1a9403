"""The port of a log that lies elsewhere: ``Log`` over a network, asynchronous, and followed.

The shell and the services' wiring know this port only; ``jetstream.py`` stands behind it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

from schemas.record import Draft, Record
from services.runtime.log import LogError


class LogUnavailableError(LogError):
    """The log does not answer. Whether it took the record is not known: append the same again."""


class LogFullError(LogError):
    """The log takes no more until it is given more room."""


class RecordTooLargeError(LogError):
    """The record is larger than the server takes."""


class Delivery(NamedTuple):
    """A record as it comes to one who follows the log."""

    record: Record
    #: Monotonic time of receipt, if it was appended while we followed; None: from the past.
    live_at: float | None


class Usage(NamedTuple):
    """How full the log is."""

    last_seq: int
    held_bytes: int
    max_bytes: int

    @property
    def fullness(self) -> float:
        """Fraction of the room that is used; 0 where it is not limited."""
        return self.held_bytes / self.max_bytes if self.max_bytes > 0 else 0.0


class LiveLog(Protocol):
    """``Log`` over a network: the same rules; the log itself gives the stamps."""

    async def last_seq(self) -> int:
        """See ``Log``."""
        ...

    async def usage(self) -> Usage:
        """How full the log is."""
        ...

    async def append(self, draft: Draft) -> int | None:
        """Sequence of the draft's place; None if its record is in the log already.

        Raises
        ------
        IdConflictError, StaleEpochError, LogClosedError
            See ``Log``.
        UnreadableRecordError, RecordTooLargeError, LogFullError, LogUnavailableError
            It cannot be stored.
        """
        ...

    async def append_all(self, drafts: Sequence[Draft]) -> None:
        """Append one writer's drafts in this order, at once where that is possible.

        Raises
        ------
        LogError
            See ``append``, of the first that cannot be stored; those before it are.
        """
        ...

    def read(self, after: int = 0) -> AsyncGenerator[Record, None]:
        """See ``Log``."""
        ...

    def follow(self, after: int = 0, digest: str = "") -> AsyncGenerator[Delivery, None]:
        """Records with ``seq > after`` in order, and for ever those that are appended.

        With ``digest``, record ``after`` is first checked to be the one of that digest.
        """
        ...

    async def close(self) -> None:
        """Let go of the connection: neither appends nor reads any more."""
        ...

"""The log: an append-only total order of records, behind one port.

``Log`` is the port, ``MemoryLog`` the log of a simulation; ``file_log.py`` keeps one in a file.
``tests/contracts`` holds every implementation to the same contract.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from schemas.events import LeaderElected
from schemas.record import Draft, Record, RecordId
from schemas.subjects import SERVICES, role


class LogError(Exception):
    """Base of what a log can refuse."""


class IdConflictError(LogError):
    """A record of this id but with other content is in the log already."""


class StaleEpochError(LogError):
    """The writer has been superseded: a later start of it leads."""


class LogClosedError(LogError):
    """The log takes no more records."""


class Log(Protocol):
    """An append-only total order of records.

    Sequences are contiguous from 1. An append is idempotent by record id, and fenced: a service's
    record must carry the service's newest epoch, 0 before its first start, and ``LeaderElected``
    exactly the next one. Clients and operators have no epochs and are not fenced.
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
        LogClosedError
            The log was closed.
        """
        ...

    def read(self, after: int = 0) -> Iterator[Record]:
        """Records with ``seq > after``, in order, up to the newest at the time of asking."""
        ...

    def close(self) -> None:
        """Let go of what the log holds open; appends are refused afterwards, reads are not."""
        ...


class Gate:
    """What a log must remember of its records to admit the next one rightly."""

    def __init__(self) -> None:
        #: {record id: digest}, of every record
        self._digests: dict[RecordId, str] = {}
        #: {actor: newest epoch}
        self._epochs: dict[str, int] = {}

    def is_new(self, draft: Draft) -> bool:
        """Whether the draft is to be appended; False where its very record is in the log.

        A superseded writer is told so even where its successor has taken the record's id: that
        two starts of a service decide alike is no conflict.

        Raises
        ------
        IdConflictError, StaleEpochError
            See ``Log.append``.
        """
        digest = self._digests.get(draft.record_id)
        if digest == draft.digest:
            return False
        self._check_epoch(draft)
        if digest is not None:
            raise IdConflictError(
                f"record {_name(draft)} is in the log with digest {digest}, not {draft.digest}: "
                "a retry must repeat the same record, and another record needs its own id"
            )
        return True

    def add(self, record: Record | Draft) -> None:
        """Remember a record of the log."""
        self._digests[record.record_id] = record.digest
        if type(record.event) is LeaderElected:
            self._epochs[record.actor] = record.epoch

    def _check_epoch(self, draft: Draft) -> None:
        if role(draft.actor) not in SERVICES:
            return
        newest = self._epochs.get(draft.actor, 0)
        if type(draft.event) is LeaderElected:
            if draft.epoch != newest + 1 or draft.event.epoch != draft.epoch:
                raise StaleEpochError(
                    f"{draft.actor} cannot start epoch {draft.event.epoch} with a record of epoch "
                    f"{draft.epoch}: its newest epoch is {newest}, so both must be {newest + 1}"
                )
        elif draft.epoch != newest:
            raise StaleEpochError(
                f"record {_name(draft)} is of epoch {draft.epoch}, but the newest epoch of "
                f"{draft.actor} is {newest}: fold the log and start anew"
            )


class MemoryLog:
    """A log that lives as long as its process."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._gate = Gate()
        self._closed = False

    @property
    def last_seq(self) -> int:
        """See ``Log``."""
        return len(self._records)

    def append(self, draft: Draft, at: float) -> Record | None:
        """See ``Log``."""
        if self._closed:
            raise LogClosedError("the log is closed: append before closing, or use a new one")
        if not self._gate.is_new(draft):
            return None
        record = place(draft, len(self._records) + 1, at)
        self._gate.add(draft)
        self._records.append(record)
        return record

    def read(self, after: int = 0) -> Iterator[Record]:
        """See ``Log``."""
        return islice(self._records, after, len(self._records))

    def close(self) -> None:
        """See ``Log``."""
        self._closed = True


def place(draft: Draft, seq: int, at: float) -> Record:
    """The record that a draft becomes."""
    return Record(
        seq=seq,
        at=at,
        actor=draft.actor,
        epoch=draft.epoch,
        cause=draft.cause,
        index=draft.index,
        n=draft.n,
        digest=draft.digest,
        event=draft.event,
    )


def _name(draft: Draft) -> str:
    """``actor:cause:index:n``, as people write a record's id."""
    return ":".join(map(str, draft.record_id))

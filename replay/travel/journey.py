"""From record to record through a log, forwards and back."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from replay.index import LONG, Index
from replay.log_source import reader
from replay.moment import Cores
from replay.options import InputError, OptionError
from replay.places import lines_in
from replay.point import log_time
from replay.views import record_progress
from schemas.decisions import Decision
from schemas.record import Record
from schemas.subjects import MECHANISM
from services.runtime.file_log import DamagedLogError
from services.runtime.snapshot import UnfitSnapshotError


@dataclass(frozen=True)
class Target:
    """A place in a log: a record, or the last one up to a time; neither: the end."""

    option: str = ""
    text: str = ""
    seq: int | None = None
    until_s: float | None = None

    def is_past(self, record: Record) -> bool:
        """Whether the record is later than the time."""
        return self.until_s is not None and record.at > self.until_s


@dataclass(frozen=True)
class Step:
    """One record, and what services decided on it: {service: decisions}."""

    record: Record
    decided: dict[str, Sequence[Decision]]


class Source(Protocol):
    """A log that can be read again and again."""

    def read(self, after: int = 0) -> Iterator[Record]:
        """The records after one."""
        ...

    def cores(self, target: Target, only: Collection[str] | None) -> Cores:
        """Cores no later than the target, as near to it as they can be had."""
        ...


class LogFile:
    """A log in a file: an index beside it makes far jumps short, and is made for the first one.

    Parameters
    ----------
    path : the file
    may_index : whether to make one
    """

    def __init__(self, path: Path, *, may_index: bool = True) -> None:
        self._path = path
        self._may_index = may_index
        self._index = Index(path)
        self._read = reader(path)

    def read(self, after: int = 0) -> Iterator[Record]:
        """See ``Source``; from the first record on, lines are checked against each other."""
        return self._index.read(after) if after else self._read()

    def cores(self, target: Target, only: Collection[str] | None) -> Cores:
        """See ``Source``."""
        found = self._index.cores(target.seq, target.until_s, only)
        if self._is_far(target, found, only):
            self._write_index()
            found = self._index.cores(target.seq, target.until_s, only)
        return found or Cores(self._read, only)

    def _is_far(self, target: Target, found: Cores | None, only: Collection[str] | None) -> bool:
        """Whether an index is worth making: the mechanism's plans are what takes long."""
        if not self._may_index or (only is not None and MECHANISM not in only):
            return False
        if found is not None and target.seq is None:
            return False
        last = lines_in(self._path)
        begin = found.last_seq if found is not None else 0
        wanted = last if target.seq is None else target.seq
        return wanted - begin > LONG and wanted <= last

    def _write_index(self) -> None:
        print(f"gavel: indexing {self._path}, once, into {self._path}.snapshots", file=sys.stderr)
        self._may_index = False
        try:
            with record_progress(lines_in(self._path), "indexing") as progress:
                self._index.write(progress)
        except OSError as error:
            print(f"gavel: no index: {error.filename}: {error.strerror}", file=sys.stderr)
        except (DamagedLogError, UnfitSnapshotError) as error:
            # What lies before the damage can be gone to.
            print(f"gavel: no index: {error}", file=sys.stderr)


class Records:
    """A log in memory."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def read(self, after: int = 0) -> Iterator[Record]:
        """See ``Source``."""
        return iter(self._records[after:])

    def cores(self, target: Target, only: Collection[str] | None) -> Cores:
        """See ``Source``."""
        return Cores(self.read, only)


class Journey:
    """Stands behind some record of a log.

    Parameters
    ----------
    source : the log
    only : the services that are wanted; None: all
    """

    def __init__(self, source: Source, only: Collection[str] | None = None) -> None:
        self._source = source
        self._only = only
        self.cores = Cores(source.read, only)
        self._coming = source.read()
        #: Read, and not folded: a time is known to be past only by the record behind it.
        self._next: Record | None = None

    def go(self, target: Target) -> None:
        """Go to a place, forwards or back.

        Raises
        ------
        InputError
            The log has no such place; the message says which it has. One stays where one was.
        DamagedLogError, NewerSchemaError
            See ``services.runtime.file_log.read_log``.
        """
        cores = self._source.cores(target, self._only)
        coming = self._source.read(cores.last_seq)
        later: Record | None = None
        with record_progress(target.seq, "replaying") as progress:
            while target.seq is None or cores.last_seq < target.seq:
                record = next(coming, None)
                if record is None or target.is_past(record):
                    later = record
                    break
                cores.take(record)
                progress(record.seq)
        self._check(target, cores, is_end=later is None)
        self.cores, self._coming, self._next = cores, coming, later

    def step(self) -> Step | None:
        """Fold the next record; None at the end."""
        record = self._next or next(self._coming, None)
        self._next = None
        return None if record is None else Step(record, self.cores.take(record))

    def _check(self, target: Target, cores: Cores, *, is_end: bool) -> None:
        """Whether the target was there to be reached."""
        first = next(self._source.read(), None)
        if first is None:
            raise InputError("the log has no records")
        option, text, last = target.option, target.text, cores.last_seq
        if target.seq is not None and target.seq != last:
            raise OptionError(option, text, f"one of the log's records, 1 to {last}")
        if target.until_s is None:
            return
        if target.until_s < first.at:
            raise OptionError(option, text, "a time after the first record's")
        if is_end and target.until_s > cores.now:
            span_s = cores.now - first.at
            raise OptionError(option, text, f"a time in the log, 0 to {span_s:.2f} s")


def target_of(option: str, text: str, source: Source) -> Target:
    """Read ``4000`` (a record), ``90m``, ``1.5h``, ``5400s`` or a date; empty: the end.

    Raises
    ------
    OptionError
        It is none of these.
    """
    if not text:
        return Target()
    if text.isdecimal():
        if int(text) < 1:
            raise OptionError(option, text, "a record's number, from 1")
        return Target(option, text, seq=int(text))
    first = next(source.read(), None)
    try:
        until_s = log_time(option, text, first.at if first is not None else 0.0)
    except OptionError:
        expected = "a record's number as in 4000, a time since the first as in 90m or 1.5h"
        raise OptionError(option, text, f"{expected}, or a date as in 2026-12-01T10:00") from None
    return Target(option, text, until_s=until_s)

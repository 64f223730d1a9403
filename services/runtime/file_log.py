"""A log in a file: one record a line, so that ``grep``, ``jq`` and a diff work on it.

The format
----------
A line is a record's JSON with one more field at its end, the file's chain::

    {"seq":7,"at":3.5, ... ,"chain":"<16 hex digits over the chain before and the record>"}

A clean close seals the file, so that lines missing at its end are noticed as well::

    {"sealed":{"records":7,"chain":"<that of record 7>"}}

A line altered, dropped, inserted or moved breaks the chain, and reading says where. A file without
a seal is that of a writer still at work, or killed: legal, and reported as unsealed. What such a
writer had begun to write and not finished (a line without its end) is left out by readers, and cut
off when the file is opened for append.

A name that ends in ``.zst`` is compressed, one zstd frame a flush: ``zstdcat`` reads it too.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from io import FileIO
from itertools import islice
from pathlib import Path

import msgspec
import zstandard

from schemas.record import (
    Draft,
    MalformedRecordError,
    NewerSchemaError,
    Record,
    chain,
    decode,
    encode,
)
from services.runtime.log import Gate, LogClosedError, LogError, place

#: Length of ``,"chain":"0123456789abcdef"}``.
_CHAIN_LENGTH = 28
_SEAL_START = b'{"sealed":'
_PIECE_BYTES = 1 << 16


class DamagedLogError(LogError):
    """The file is not what was written; the message names the line and what is wrong with it."""


class LogInUseError(LogError):
    """Another process appends to the file."""


class UnreadableRecordError(LogError):
    """The record would not be read back as it is; nothing was appended."""


class Ending(msgspec.Struct, frozen=True):
    """How a file ends, known once it is read."""

    records: int
    #: Of the last record; empty when there is none, or when it was not checked.
    chain: str
    #: Whether its writer closed it. If not, it is still at work, or was killed.
    sealed: bool
    #: Whether something unfinished stands at the end, and was left out.
    torn: bool


def read_log(
    path: Path | str,
    *,
    after: int = 0,
    check: bool = True,
    on_end: Callable[[Ending], None] | None = None,
) -> Iterator[Record]:
    """Records of a log file with ``seq > after``, holding none of them.

    Parameters
    ----------
    path
        The file; ``.zst`` at its end means compressed.
    after
        Leave out records up to this one. Their lines are still chained, but not parsed.
    check
        Verify chain and seal; without it, only that lines parse and sequences have no gap.
    on_end
        Told how the file ends, once everything has been read.

    Raises
    ------
    DamagedLogError
        A line is not what was written.
    NewerSchemaError
        A record must not be read by this release.
    """
    reader = _Reader(Path(path), check=check)
    with reader.path.open("rb", buffering=0) as file:
        yield from reader.read(file, after)
    if on_end is not None:
        on_end(reader.ending())


class FileLog:
    """A log in a file; see the module for its format.

    Parameters
    ----------
    path
        Created if absent; otherwise checked from its first line on, and continued.
    flush_every
        Records that may wait in memory; a killed process loses no others.
    sync
        Have each flush reach the disk, so that losing power is no worse than being killed.

    Raises
    ------
    DamagedLogError, NewerSchemaError
        See ``read_log``.
    LogInUseError
        Another process appends to the file.
    """

    def __init__(self, path: Path | str, *, flush_every: int = 4096, sync: bool = False) -> None:
        self.path = Path(path)
        self._flush_every = flush_every
        self._sync = sync
        self._compress = _compressor() if _is_compressed(self.path) else None
        self._lines: list[bytes] = []
        self._gate = Gate()
        self._last_seq = 0
        self._chain = ""
        #: Up to here the file is whole.
        self._size = 0
        self._file = _open_for_append(self.path)
        try:
            self._continue()
        except BaseException:
            self._file.close()
            raise

    @property
    def last_seq(self) -> int:
        """See ``Log``."""
        return self._last_seq

    def append(self, draft: Draft, at: float) -> Record | None:
        """See ``Log``.

        Raises
        ------
        UnreadableRecordError
            The record has no JSON that reads back the same (a NaN, say).
        OSError
            The file cannot be written. The log is then closed, and ends with the last flush.
        """
        if self._file.closed:
            raise LogClosedError(f"{self.path} is closed: open it anew to append")
        if not self._gate.is_new(draft):
            return None
        record = place(draft, self._last_seq + 1, at)
        content = _encode(record)
        self._gate.add(draft)
        self._last_seq = record.seq
        self._chain = chain(self._chain, content)
        self._lines.append(b'%b,"chain":"%b"}\n' % (content[:-1], self._chain.encode()))
        if len(self._lines) >= self._flush_every:
            self.flush()
        return record

    def flush(self) -> None:
        """Hand what waits in memory to the file, where readers see it."""
        if self._lines:
            self._write(b"".join(self._lines))
            self._lines.clear()

    def read(self, after: int = 0) -> Iterator[Record]:
        """See ``Log``; flushes first."""
        if not self._file.closed:
            self.flush()
        return islice(read_log(self.path, after=after), max(0, self._last_seq - after))

    def close(self) -> None:
        """See ``Log``; seals the file."""
        if self._file.closed:
            return
        self.flush()
        self._write(_seal(self._last_seq, self._chain) + b"\n")
        self._file.close()

    def _continue(self) -> None:
        """Fold the file, cut off its seal or torn end, and stand where its records end."""
        reader = _Reader(self.path, check=True)
        for record in reader.read(self._file):
            self._gate.add(record)
        self._last_seq = reader.records
        self._chain = reader.chain
        self._size, rest = _cut(self._file, self.path, reader.record_bytes)
        self._file.truncate(self._size)
        if rest:
            self._write(rest)

    def _write(self, text: bytes) -> None:
        """Write all of the text, or leave the file as it was and take no more."""
        data = memoryview(self._compress(text) if self._compress else text)
        try:
            while data:
                data = data[self._file.write(data) :]
            if self._sync:
                os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(self._size)
            self._file.close()
            raise
        self._size = self._file.tell()


class _Reader:
    """Reads one file, line by line; knows how far it has come."""

    def __init__(self, path: Path, *, check: bool) -> None:
        self.path = path
        self.check = check
        self.records = 0
        self.chain = ""
        self.sealed = False
        self.torn = False
        #: Where the lines of records end, in uncompressed bytes.
        self.record_bytes = 0

    def read(self, file: FileIO, after: int = 0) -> Iterator[Record]:
        """Records with ``seq > after``."""
        try:
            for line in self._lines(file):
                if self.sealed:
                    raise self._damaged("there is a line after the seal")
                if line.startswith(_SEAL_START):
                    self._take_seal(line)
                    continue
                if self.check:
                    self._take_chain(line)
                record = self._parse(line) if self.records >= after else None
                self.records += 1
                self.record_bytes += len(line) + 1
                if record is not None:
                    yield record
        except zstandard.ZstdError as error:
            raise self._damaged(f"cannot be decompressed ({error})") from None

    def ending(self) -> Ending:
        """How the file ends; to be asked after its last line."""
        return Ending(
            records=self.records,
            chain=self.chain,
            sealed=self.sealed and not self.torn,
            torn=self.torn,
        )

    def _lines(self, file: FileIO) -> Iterator[bytes]:
        """Whole lines, without their ends."""
        rest = b""
        torn_frame = False
        for piece, boundary in _pieces(file, compressed=_is_compressed(self.path)):
            torn_frame = boundary is None
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            yield from lines
        self.torn = torn_frame or bool(rest)

    def _parse(self, line: bytes) -> Record:
        try:
            record = decode(line)
        except MalformedRecordError as error:
            raise self._damaged(f"is no record: {error}") from None
        except NewerSchemaError as error:
            raise NewerSchemaError(f"{self.path}, line {self.records + 1}: {error}") from None
        if record.seq != self.records + 1:
            raise self._damaged(f"has seq {record.seq}, expected {self.records + 1}")
        return record

    def _take_chain(self, line: bytes) -> None:
        if not self.records and not line.startswith(b'{"seq":'):
            raise self._damaged(f"is {_shown(line[:_CHAIN_LENGTH])}, which is no record of a log")
        self.chain = chain(self.chain, line[:-_CHAIN_LENGTH] + b"}")
        expected = b',"chain":"%b"}' % self.chain.encode()
        if not line.endswith(expected):
            raise self._damaged(
                f"ends in {_shown(line[-_CHAIN_LENGTH:])}, expected {_shown(expected)}: "
                "it was altered, or lines before it were dropped, inserted or moved"
            )

    def _take_seal(self, line: bytes) -> None:
        expected = _seal(self.records, self.chain)
        if self.check and line != expected:
            raise self._damaged(
                f"is the seal {_shown(line)}, expected {_shown(expected)}: "
                "it was altered, or lines before it were dropped or inserted"
            )
        self.sealed = True

    def _damaged(self, what: str) -> DamagedLogError:
        number = self.records + 1 + self.sealed
        sound = "Lines before it are sound; for the others, restore" if number > 1 else "Restore"
        return DamagedLogError(f"{self.path}, line {number} {what}. {sound} the file from a copy")


def _pieces(file: FileIO, *, compressed: bool) -> Iterator[tuple[bytes, int | None]]:
    """Text of a file; with each piece, the offset behind it, if the file can be cut there."""
    file.seek(0)
    if compressed:
        yield from _frame_pieces(file)
        return
    while data := file.read(_PIECE_BYTES):
        yield data, file.tell()


def _frame_pieces(file: FileIO) -> Iterator[tuple[bytes, int | None]]:
    frame = zstandard.ZstdDecompressor().decompressobj()
    frame_start = offset = 0
    while data := file.read(_PIECE_BYTES):
        offset += len(data)
        while data:
            piece = frame.decompress(data)
            if frame.eof:
                data = frame.unused_data
                frame = zstandard.ZstdDecompressor().decompressobj()
                frame_start = offset - len(data)
                yield piece, frame_start
            else:
                data = b""
                yield piece, None
    # A damaged length can swallow the frames behind it, which is not the torn end it looks like.
    file.seek(frame_start)
    if zstandard.FRAME_HEADER in file.read(offset - frame_start)[1:]:
        raise zstandard.ZstdError("a frame is longer than it was written")


def _cut(file: FileIO, path: Path, text_bytes: int) -> tuple[int, bytes]:
    """Where to cut a file down to its first ``text_bytes`` of text, and what to write again.

    A zstd frame is kept whole or not at all; the text wanted of the first one not kept is the rest.
    """
    if not _is_compressed(path):
        return text_bytes, b""
    offset, rest = 0, bytearray()
    for piece, boundary in _pieces(file, compressed=True):
        rest += piece
        if len(rest) > text_bytes:
            break
        if boundary is not None:
            offset = boundary
            text_bytes -= len(rest)
            rest.clear()
    return offset, bytes(rest[:text_bytes])


def _open_for_append(path: Path) -> FileIO:
    file = path.open("a+b", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise LogInUseError(f"{path}: another process appends to it; one at a time may") from None
    return file


def _encode(record: Record) -> bytes:
    """The record's JSON, if it is one that reads back the same."""
    try:
        content = encode(record)
        # A number that JSON lacks is written as null, which nothing else in a record is.
        if b"null" in content and encode(decode(content)) != content:
            raise MalformedRecordError("it has a NaN or an infinity")
    except (MalformedRecordError, UnicodeEncodeError, OverflowError) as error:
        raise UnreadableRecordError(
            f"record {record.seq} ({type(record.event).__name__} of {record.actor}) cannot be "
            f"read back: {error}; every number must be finite and every text valid Unicode"
        ) from None
    return content


def _seal(records: int, last_chain: str) -> bytes:
    return msgspec.json.encode({"sealed": {"records": records, "chain": last_chain}})


def _is_compressed(path: Path) -> bool:
    return path.suffix == ".zst"


def _compressor() -> Callable[[bytes], bytes]:
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress


def _shown(text: bytes) -> str:
    """Bytes of anybody's file, so that a terminal only shows them."""
    shown = text.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)

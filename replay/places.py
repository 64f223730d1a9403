"""Where records stand in a log file, so that reading can begin in its middle."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import zstandard

from schemas.record import Record, decode

_PIECE_BYTES = 1 << 20


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a record's line begins."""

    seq: int
    #: Byte at which to begin reading; in a compressed file that of a zstd frame.
    offset: int
    #: Bytes of text between there and the line.
    skip: int


def places(path: Path, seqs: Collection[int]) -> dict[int, Place]:
    """Where these records are; those that the file does not have are left out."""
    wanted = iter(sorted(seqs))
    seq = next(wanted, None)
    found: dict[int, Place] = {}
    if seq == 1:
        found[1] = Place(1, 0, 0)
        seq = next(wanted, None)
    line = 1
    for piece, offset, before in _pieces(path):
        lines = piece.count(b"\n")
        at = 0
        while seq is not None and line + lines >= seq:
            for _ in range(seq - line):
                at = piece.index(b"\n", at) + 1
            lines -= seq - line
            line = seq
            found[seq] = Place(seq, offset, before + at)
            seq = next(wanted, None)
        if seq is None:
            break
        line += lines
    return found


def lines_in(path: Path) -> int:
    """How many whole lines a file has: its records, and a seal if it has one."""
    return sum(piece.count(b"\n") for piece, _, _ in _pieces(path))


def read_from(path: Path, place: Place) -> Iterator[Record]:
    """Records from a place on; ends at the seal, or where the file's whole lines end.

    Lines are not checked against each other: this is for who has read the file from its beginning
    once, and looks whether the first record is the one.

    Raises
    ------
    MalformedRecordError
        A line is no record.
    NewerSchemaError
        A record must not be read by this release.
    """
    rest, skip = b"", place.skip
    for piece, _, _ in _pieces(path, place.offset):
        lines = (rest + piece[skip:]).split(b"\n")
        skip = max(0, skip - len(piece))
        rest = lines.pop()
        for line in lines:
            if line.startswith(b'{"sealed":'):
                return
            yield decode(line)


def _pieces(path: Path, start: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """Text of a file; with each piece, a byte to begin at, and the bytes of text between.

    What cannot be decompressed is where the file ends, as far as one can read it.
    """
    with path.open("rb") as file:
        file.seek(start)
        if path.suffix != ".zst":
            offset = start
            while piece := file.read(_PIECE_BYTES):
                yield piece, offset, 0
                offset += len(piece)
            return
        frame = zstandard.ZstdDecompressor().decompressobj()
        frame_at = offset = start
        before = 0
        while data := file.read(_PIECE_BYTES):
            offset += len(data)
            while data:
                try:
                    piece = frame.decompress(data)
                except zstandard.ZstdError:
                    return
                yield piece, frame_at, before
                before += len(piece)
                data = frame.unused_data if frame.eof else b""
                if frame.eof:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                    frame_at, before = offset - len(data), 0

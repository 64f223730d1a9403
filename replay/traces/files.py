"""Trace files as text: plain, gzip or zstd, the standard input, or a folder of PAI's tables."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from pathlib import Path

import zstandard

from replay.traces.alibaba import JOB_TABLE, SEPARATOR, TASK_TABLE
from replay.traces.errors import Fault, TraceError

#: Stands for the standard input.
STDIN = Path("-")
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
#: {first bytes: what a file is that is no text}
_NO_TEXT = {
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive",
    b"version https://git-lfs": "a pointer to a file that Git LFS has not fetched",
}
_PICKLE = "text; reading a pickle runs what is in it, so convert it where it comes from"


def read_text(path: Path) -> str:
    """All text of a trace, without a byte order mark.

    Raises
    ------
    TraceError
        It is a pickle or another file that is no text, is damaged, or is not UTF-8; or the folder
        has no table of PAI's.
    OSError
        It cannot be read.
    """
    if path.is_dir():
        return _read_folder(path)
    content = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    return _text(content, str(path))


def _read_folder(folder: Path) -> str:
    """Both tables of the PAI trace, the one with the GPUs first."""
    texts = []
    for table in (TASK_TABLE, JOB_TABLE):
        found = [
            p for p in (folder / f"{table}{end}" for end in ("", ".gz", ".zst")) if p.is_file()
        ]
        if not found and table == TASK_TABLE:
            fault = Fault(0, "folder", str(folder), f"{TASK_TABLE} in it, and {JOB_TABLE}")
            raise TraceError(str(folder), "no trace", [fault])
        texts.append(_text(found[0].read_bytes(), str(found[0])) if found else "")
    return SEPARATOR.join(texts)


def _text(content: bytes, source: str) -> str:
    content = _unpacked(content, source)
    for start, what in _NO_TEXT.items():
        if content.startswith(start):
            expected = _PICKLE if what == "a pickle" else "text"
            raise TraceError(source, "not a text file", [Fault(1, "file", what, expected)])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fault = Fault(line, "text", content[error.start : error.end], "UTF-8")
        raise TraceError(source, "not a text file", [fault]) from None


def _unpacked(content: bytes, source: str) -> bytes:
    """The content, decompressed if its first bytes say that it is compressed."""
    try:
        if content.startswith(_GZIP):
            return gzip.decompress(content)
        if content.startswith(_ZSTD):
            reader = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True)
            return io.BufferedReader(reader).read()
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        fault = Fault(1, "file", str(error), "a whole compressed file")
        raise TraceError(source, "cannot be decompressed", [fault]) from None
    return content

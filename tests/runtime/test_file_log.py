"""The file format: what a crash leaves is recovered, what anything else did to it is found."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from schemas.domain import JobSpec
from schemas.events import (
    AllocationComputed,
    AnyEvent,
    CancelRequested,
    JobSubmitted,
    UnknownEvent,
)
from schemas.record import SCHEMA, Draft, NewerSchemaError, Record, chain, digest_of, encode
from services.runtime.file_log import (
    DamagedLogError,
    Ending,
    FileLog,
    LogInUseError,
    UnreadableRecordError,
    read_log,
)
from services.runtime.log import IdConflictError, LogClosedError

SUFFIXES = pytest.mark.parametrize("suffix", ["jsonl", "jsonl.zst"])


def draft(index: int, job_type: str = "LSTM") -> Draft:
    """A client's draft; the same arguments, the same draft."""
    event = JobSubmitted(job=JobSpec(job_id=f"job-{index}", job_type=job_type, total_steps=1e4))
    bare = Draft("client.alice", 0, 0, index, 0, event, "")
    return Draft("client.alice", 0, 0, index, 0, event, digest_of("", bare))


def append(log: FileLog, indices: Iterable[int]) -> None:
    """Append one draft per index."""
    for index in indices:
        log.append(draft(index), at=index / 4)


def write(path: Path, count: int, flush_every: int = 4096) -> list[Record]:
    """A sealed log of so many records."""
    with closing(FileLog(path, flush_every=flush_every)) as log:
        append(log, range(1, count + 1))
        return list(log.read())


def read(path: Path) -> tuple[list[Record], Ending]:
    """All records of a file, and how it ends."""
    endings: list[Ending] = []
    records = list(read_log(path, on_end=endings.append))
    (ending,) = endings
    return records, ending


def chained(contents: Iterable[bytes]) -> bytes:
    """Lines with a right chain, whatever their content."""
    lines, digest = [], ""
    for content in contents:
        digest = chain(digest, content)
        lines.append(content[:-1] + f',"chain":"{digest}"}}\n'.encode())
    return b"".join(lines)


@cache
def sealed_bytes(suffix: str) -> bytes:
    """A sealed log of 6 records, three flushes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"log.{suffix}"
        write(path, 6, flush_every=2)
        return path.read_bytes()


@cache
def sealed_records() -> tuple[Record, ...]:
    """The records of ``sealed_bytes``."""
    with TemporaryDirectory() as folder:
        return tuple(write(Path(folder) / "log.jsonl", 6))


def test_a_line_is_a_record_and_its_chain(tmp_path: Path) -> None:
    """Any JSON tool reads the file; the chain covers each record's own bytes."""
    records = write(tmp_path / "log.jsonl", 3)
    lines = (tmp_path / "log.jsonl").read_bytes().splitlines(keepends=True)
    assert b"".join(lines[:-1]) == chained(map(encode, records))
    last = json.loads(lines[-2])
    assert json.loads(lines[-1]) == {"sealed": {"records": 3, "chain": last["chain"]}}


@SUFFIXES
def test_a_file_continues_where_it_was_closed(tmp_path: Path, suffix: str) -> None:
    """Closed and opened again and again, the records are those of one sitting, once each."""
    once, often = tmp_path / f"once.{suffix}", tmp_path / f"often.{suffix}"
    write(once, 9)
    for last in (0, 3, 3, 7, 9):
        with closing(FileLog(often)) as log:
            append(log, range(1, last + 1))
            assert log.last_seq == last
            if last:
                with pytest.raises(IdConflictError):
                    log.append(draft(last, job_type="A3C"), at=0.0)
    assert read(often) == read(once)
    assert read(once)[1].sealed


def test_a_compressed_file_is_ordinary_zstd(tmp_path: Path) -> None:
    """Decompressed by other means it is the plain file; a plain file compressed is read too."""
    write(tmp_path / "a.jsonl", 9)
    write(tmp_path / "a.jsonl.zst", 9, flush_every=2)
    text = (tmp_path / "a.jsonl").read_bytes()
    with zstandard.open(tmp_path / "a.jsonl.zst", "rb") as first_frame:
        assert text.startswith(first_frame.read())
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(text))
    assert read(tmp_path / "b.jsonl.zst") == read(tmp_path / "a.jsonl.zst")
    with closing(FileLog(tmp_path / "b.jsonl.zst")) as log:
        append(log, [10])
    assert read(tmp_path / "b.jsonl.zst")[1].records == 10


def test_equal_appends_give_equal_bytes(tmp_path: Path) -> None:
    """Neither the clock nor the place of a file is in it."""
    for name in ("a.jsonl.zst", "b.jsonl.zst"):
        write(tmp_path / name, 20, flush_every=7)
    assert (tmp_path / "a.jsonl.zst").read_bytes() == (tmp_path / "b.jsonl.zst").read_bytes()


def test_a_line_torn_at_any_byte_is_left_out_and_cut_off(tmp_path: Path) -> None:
    """Readers see the records before it; a writer goes on as if it had never been begun."""
    path = tmp_path / "log.jsonl"
    whole = sealed_bytes("jsonl")
    records = list(sealed_records())
    unsealed = whole[: whole.rindex(b'{"sealed"')]
    last_line = unsealed.rindex(b"\n", 0, -1) + 1
    for end in range(last_line, len(unsealed)):
        path.write_bytes(whole[:end])
        found, ending = read(path)
        assert found == records[:-1]
        assert (ending.sealed, ending.torn) == (False, end > last_line)
        with closing(FileLog(path)) as log:
            append(log, [6])
        assert path.read_bytes() == whole


def test_a_frame_torn_at_any_byte_leaves_the_records_before_it(tmp_path: Path) -> None:
    """However a compressed file is cut, no record of whole frames is lost, and writing goes on."""
    path = tmp_path / "log.jsonl.zst"
    whole = sealed_bytes("jsonl.zst")
    starts = [at for at in range(len(whole)) if whole.startswith(zstandard.FRAME_HEADER, at)]
    assert len(starts) == 4, "three flushes and the seal"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        found, ending = read(path)
        flushed = 2 * sum(start <= end for start in starts[1:])
        assert flushed <= len(found) <= 6
        assert found == list(sealed_records()[: len(found)])
        assert (ending.sealed, ending.torn) == (False, end not in {0, *starts})
        with closing(FileLog(path)) as log:
            append(log, range(1, 7))
        assert read(path)[0] == list(sealed_records())
        assert read(path)[1].sealed


@given(data=st.data())
def test_every_changed_byte_is_found(data: st.DataObject) -> None:
    """One byte changed anywhere before the seal is reported with the number of its line."""
    whole = sealed_bytes("jsonl")
    at = data.draw(st.integers(0, whole.rindex(b'{"sealed"') - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    line = whole.count(b"\n", 0, at) + 1
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
        with pytest.raises(DamagedLogError, match=rf"log\.jsonl, line {line} "):
            read(path)
        with pytest.raises(DamagedLogError):
            FileLog(path)


@SUFFIXES
@given(data=st.data())
def test_no_change_leaves_a_file_sealed_with_other_records(
    suffix: str, data: st.DataObject
) -> None:
    """Bytes changed, dropped or inserted anywhere: an error, or a missing seal, or no effect."""
    whole = sealed_bytes(suffix)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 3)))
    changed = whole[:start] + data.draw(st.binary(max_size=3)) + whole[end:]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"log.{suffix}"
        path.write_bytes(changed)
        try:
            records, ending = read(path)
        except DamagedLogError:
            return
    assert records == list(sealed_records()[: len(records)])
    assert not ending.sealed or len(records) == 6


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (lambda lines: lines[:2] + lines[3:], 3),
        (lambda lines: lines[:2] + lines[1:], 3),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
        (lambda lines: [*lines[:-2], lines[-1]], 6),
        (lambda lines: [*lines, lines[0]], 8),
        (lambda lines: [*lines, lines[-1]], 8),
        (lambda lines: [*lines[:3], b"\n", *lines[3:]], 4),
    ],
    ids=["dropped", "doubled", "swapped", "no last", "after the seal", "second seal", "blank"],
)
def test_lines_keep_their_place(
    tmp_path: Path, edit: Callable[[list[bytes]], list[bytes]], line: int
) -> None:
    """A line dropped, doubled, moved or added is reported where it is first noticed."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(edit(sealed_bytes("jsonl").splitlines(keepends=True))))
    with pytest.raises(DamagedLogError, match=rf"line {line} "):
        read(path)


def test_a_frame_whose_length_is_damaged_is_no_torn_end(tmp_path: Path) -> None:
    """A frame that seems to reach over the next ones must not have them cut off."""
    path = tmp_path / "log.jsonl.zst"
    write(path, 3000, flush_every=1500)
    whole = bytearray(path.read_bytes())
    second = whole.index(zstandard.FRAME_HEADER, 1)
    block = second + zstandard.frame_header_size(bytes(whole[second:]))
    whole[block + 2] |= 0x08  # 64 KiB more than the block has, and than the file
    path.write_bytes(whole)
    with pytest.raises(DamagedLogError, match="longer than it was written"):
        read(path)
    with pytest.raises(DamagedLogError):
        FileLog(path)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (encode(Record(seq=3, at=0.0, actor="client.a", digest="", event=UnknownEvent(
            unknown_kind="X"))), "has seq 3, expected 2"),
        (b'{"seq":2}', "is no record: .*`at`"),
        (b'{"seq":2,}', "is no record: JSON is malformed"),
        (b'{"seq":2,"at":NaN,"actor":"a","digest":""}', "is no record"),
    ],
)  # fmt: skip
def test_a_right_chain_makes_no_right_record(tmp_path: Path, content: bytes, message: str) -> None:
    """What a faulty writer chained is reported as well: gaps, and lines that are no records."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(chained([encode(sealed_records()[0]), content]))
    with pytest.raises(DamagedLogError, match=f"line 2 {message}"):
        read(path)


def test_an_unknown_kind_is_a_record(tmp_path: Path) -> None:
    """A file with events of a later release is read and continued; its lines stay as they are."""
    path = tmp_path / "log.jsonl"
    later = b'{"seq":1,"at":0.5,"actor":"policy","digest":"d","event":{"kind":"Later","x":[1]}}'
    path.write_bytes(chained([later]))
    assert [record.event for record in read_log(path)] == [UnknownEvent(unknown_kind="Later")]
    with closing(FileLog(path)) as log:
        append(log, [1])
    assert path.read_bytes().startswith(chained([later]))
    assert read(path)[1].records == 2


def test_a_newer_schema_stops_the_reader(tmp_path: Path) -> None:
    """The error names the line and both versions; a writer refuses the file as well."""
    path = tmp_path / "log.jsonl"
    newer = b'{"seq":1,"at":0.5,"schema":%d,"actor":"policy","digest":"d","event":{"kind":"X"}}'
    path.write_bytes(chained([newer % (SCHEMA + 1)]))
    message = rf"line 1: .*schema {SCHEMA + 1}; .*up to {SCHEMA}:"
    with pytest.raises(NewerSchemaError, match=message):
        list(read_log(path))
    with pytest.raises(NewerSchemaError, match=message):
        FileLog(path)


def test_a_read_may_skip_its_beginning_and_the_check(tmp_path: Path) -> None:
    """``after`` gives the same records as reading all; unchecked, an altered line passes."""
    path = tmp_path / "log.jsonl"
    records = write(path, 5)
    for after in range(7):
        assert list(read_log(path, after=after)) == records[after:]
    path.write_bytes(path.read_bytes().replace(b"job-2", b"job-7"))
    events = [record.event for record in read_log(path, check=False)]
    assert [event.job.job_id for event in events if isinstance(event, JobSubmitted)] == [
        "job-1", "job-7", "job-3", "job-4", "job-5",
    ]  # fmt: skip


@SUFFIXES
def test_readers_follow_a_writer_flush_by_flush(tmp_path: Path, suffix: str) -> None:
    """While it is written a file is unsealed, whole, and ends with the last flush."""
    path = tmp_path / f"log.{suffix}"
    with closing(FileLog(path, flush_every=3)) as log:
        for index, visible in [(1, 0), (2, 0), (3, 3), (4, 3)]:
            append(log, [index])
            records, ending = read(path)
            assert (len(records), ending.sealed, ending.torn) == (visible, False, False)
        log.flush()
        assert len(read(path)[0]) == 4
    assert read(path)[1].sealed


@SUFFIXES
def test_a_killed_writer_loses_what_it_had_not_flushed(tmp_path: Path, suffix: str) -> None:
    """Killed after 7 appends with a flush every 3, it leaves 6 records and no seal."""
    path = tmp_path / f"log.{suffix}"
    code = (
        "import os, signal, sys\n"
        "from schemas.events import CancelRequested\n"
        "from schemas.record import Draft\n"
        "from services.runtime.file_log import FileLog\n"
        "log = FileLog(sys.argv[1], flush_every=3, sync=True)\n"
        "for n in range(7):\n"
        "    log.append(Draft('client.a', 0, 0, n, 0, CancelRequested(job_id='j'), 'd'), 1.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    records, ending = read(path)
    assert (len(records), ending.sealed, ending.torn) == (6, False, False)
    with closing(FileLog(path)) as log:
        assert log.last_seq == 6


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second one is refused while the first is open, and welcome afterwards."""
    path = tmp_path / "log.jsonl"
    with closing(FileLog(path)), pytest.raises(LogInUseError, match=r"log\.jsonl"):
        FileLog(path)
    FileLog(path).close()


@SUFFIXES
def test_a_record_that_cannot_be_read_back_is_not_appended(tmp_path: Path, suffix: str) -> None:
    """NaN, infinity and broken Unicode are refused by name; the log goes on without them."""
    events: list[AnyEvent] = [
        AllocationComputed(policy="las", rows=(), objective=float("nan")),
        AllocationComputed(policy="las", rows=(), prices={"v100": float("inf")}),
        CancelRequested(job_id="\ud800"),
    ]
    path = tmp_path / f"log.{suffix}"
    with closing(FileLog(path)) as log:
        for index, event in enumerate(events):
            with pytest.raises(UnreadableRecordError, match=type(event).__name__):
                log.append(Draft("client.a", 0, 0, index, 0, event, f"{index}"), at=1.0)
        with pytest.raises(UnreadableRecordError):
            log.append(draft(1), at=float("nan"))
        assert log.last_seq == 0
        log.append(Draft("client.a", 0, 0, 0, 0, CancelRequested(job_id="null"), "d"), at=1.0)
    assert [record.event for record in read(path)[0]] == [CancelRequested(job_id="null")]


@SUFFIXES
def test_a_full_disk_leaves_whole_records(tmp_path: Path, suffix: str) -> None:
    """A write that fails half-way is undone; the log is closed and ends with the last flush."""
    path = tmp_path / f"log.{suffix}"
    log = FileLog(path)
    append(log, range(1, 9))
    log.flush()
    append(log, range(9, 200))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(LogClosedError):
        append(log, [200])
    records, ending = read(path)
    assert (len(records), ending.sealed, ending.torn) == (8, False, False)


def test_a_file_that_is_no_log_is_called_that(tmp_path: Path) -> None:
    """Nobody looks for a copy of what never was one."""
    path = tmp_path / "jobs.txt"
    path.write_text("hello\x1b[2J\n")
    said = r"line 1 is hello\\x1b\[2J, which is no record of a log\. Restore the file"
    with pytest.raises(DamagedLogError, match=said):
        list(read_log(path))

"""What a task prints is kept within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.worker.task_log import cut, last_line


def test_the_newest_part_is_kept_and_the_writer_goes_on(tmp_path: Path) -> None:
    """Cut once it is too much; what is printed next stands at the file's beginning."""
    log, earlier = tmp_path / "rank-0.log", tmp_path / "rank-0.log.1"
    with log.open("ab", buffering=0) as process:
        process.write(b"0123456789")
        cut(log, 10)
        assert not earlier.exists()
        process.write(b"abcdef")
        cut(log, 10)
        assert (log.read_bytes(), earlier.read_bytes()) == (b"", b"6789abcdef")
        process.write(b"next")
        cut(log, 10)
        assert (log.read_bytes(), earlier.read_bytes()) == (b"next", b"6789abcdef")


def test_what_cannot_be_kept_is_dropped(tmp_path: Path) -> None:
    """A full disk does not keep a log from being cut; a log that is gone is no matter."""
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"0123456789")
    (tmp_path / "rank-0.log.1").symlink_to("/dev/full")
    cut(log, 5)
    assert log.read_bytes() == b""
    assert [path.name for path in tmp_path.iterdir()] == ["rank-0.log"]
    cut(tmp_path / "rank-1.log", 5)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (b"", ""),
        (b"one\ntwo\n\n", "two"),
        (b"\xff\n", "\N{REPLACEMENT CHARACTER}"),
        (b"x" * 5000, "x" * 300),
    ],
)
def test_the_last_line_is_shown(tmp_path: Path, text: bytes, last: str) -> None:
    """Without blank ones, and no longer than can be shown."""
    log = tmp_path / "rank-0.log"
    assert last_line(log) == ""
    log.write_bytes(text)
    assert last_line(log) == last

"""Reading a log file from its middle gives what reading all of it gives."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from replay.places import Place, lines_in, places, read_from
from schemas.record import MalformedRecordError, Record
from services.runtime.file_log import FileLog, read_log
from tests.simulation.scenario import contended


@cache
def written(folder: Path, name: str) -> Path:
    """A log of some hundred records, in frames of a hundred where it is compressed."""
    path = folder / name
    log = FileLog(path, flush_every=100)
    contended(3, num_jobs=20).simulation(log).run()
    log.close()
    return path


@pytest.fixture(scope="module", params=["run.jsonl", "run.jsonl.zst"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log, plain and compressed."""
    return written(tmp_path_factory.mktemp("places"), request.param)


@pytest.mark.parametrize("piece_bytes", [1, 997, 1 << 20])
def test_from_any_place_on(log: Path, piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the file is cut into pieces, and wherever frames end."""
    monkeypatch.setattr("replay.places._PIECE_BYTES", piece_bytes)
    records = list(read_log(log))
    seqs = range(1, len(records) + 1, 1 if piece_bytes > 1 else 60)
    found = places(log, seqs)
    assert list(found) == list(seqs)
    for seq in (*list(seqs)[::60], seqs[-1]):
        assert list(read_from(log, found[seq])) == records[seq - 1 :]


def test_whole_lines_are_counted(log: Path) -> None:
    """Records and the seal; a line without its end does not count."""
    records = sum(1 for _ in read_log(log))
    assert lines_in(log) == records + 1


def test_what_is_not_there(log: Path, tmp_path: Path) -> None:
    """A record beyond the end has no place; what a place of another file gives is no record."""
    assert places(log, [10**6]) == {}
    other = tmp_path / log.name
    other.write_bytes(log.read_bytes()[:4000])
    if log.suffix != ".zst":
        with pytest.raises(MalformedRecordError):
            list(read_from(other, Place(9, 500, 3)))
    records: list[Record] = list(read_from(log, Place(1, 0, 0)))
    assert records == list(read_log(log))

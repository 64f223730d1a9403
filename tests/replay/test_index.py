"""The index of a log restores what folding comes to, and is never believed blindly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from replay import index
from replay.index import Index
from replay.moment import Moment
from schemas.record import Draft, Record
from services.runtime.file_log import FileLog, read_log
from tests.live.shells import export
from tests.simulation.scenario import contended, records_of

LIVE = Path(__file__).with_name("logs") / "live.jsonl"
#: What a fold makes anew in ``__init__``, or is kept beside it: no state, and so not declared.
MADE_ANEW = {"_takes", "speeds"}


@cache
def records(policy: str = "las:ss") -> Sequence[Record]:
    """A log with pairs, gangs, lost workers and retries."""
    simulation = contended(12, num_jobs=30, policy=policy).simulation()
    simulation.run()
    return tuple(records_of(simulation.driver))


def folded(log: Path, seq: int) -> Moment:
    """The log folded from its first record."""
    moment = Moment(lambda: read_log(log))
    for record in read_log(log):
        if record.seq <= seq:
            moment.take(record)
    return moment


def state(moment: Moment) -> dict[str, Any]:
    """All that the folds beside the cores know; the cores' own is held in test_snapshot.py."""
    return {
        f"{type(fold).__name__}.{name}": getattr(fold, name)
        for fold in moment.beside
        for name in type(fold).__annotations__
    } | {name: (actor.last_seq, actor.open) for name, actor in moment.actors.items()}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "EVERY", 40)


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.zst"])
def test_a_snapshot_is_what_folding_comes_to(tmp_path: Path, name: str) -> None:
    """At each of them, and of each fold's declared state."""
    log = export(list(records()), tmp_path / name)
    assert Index(log).write() == len(records())
    for seq in (40, 200, len(records())):
        moment = Index(log).moment(seq)
        assert moment is not None
        assert moment.world.last_seq == seq
        assert state(moment) == state(folded(log, seq))


def test_so_it_is_of_a_live_log(tmp_path: Path) -> None:
    """Worker services that start late included."""
    log = tmp_path / "live.jsonl"
    log.write_bytes(LIVE.read_bytes())
    Index(log).write()
    moment = Index(log).moment(85)
    assert moment is not None
    assert moment.world.last_seq == 80
    assert state(moment) == state(folded(log, 80))


def test_nothing_that_changes_is_left_out() -> None:
    """What a fold does not declare as its state no record ever changes."""
    moment = Moment()
    before = {}
    for fold in moment.beside:
        undeclared = vars(fold).keys() - type(fold).__annotations__.keys()
        assert undeclared <= MADE_ANEW, f"{type(fold).__name__} must declare {undeclared}"
        before[type(fold)] = {name: id(vars(fold)[name]) for name in undeclared}
    for record in records():
        moment.take(record)
    for fold in moment.beside:
        assert {name: id(vars(fold)[name]) for name in before[type(fold)]} == before[type(fold)]


def test_the_newest_no_later_than_asked_is_taken(tmp_path: Path) -> None:
    """By sequence or by time; before the first there is none."""
    log = export(list(records()), tmp_path / "run.jsonl")
    Index(log).write()
    by_seq = Index(log).moment(seq=119)
    assert by_seq is not None
    assert by_seq.world.last_seq == 80
    at = records()[119].at
    by_time = Index(log).moment(until_s=at)
    assert by_time is not None
    assert by_time.world.now <= at
    assert Index(log).moment(seq=39) is None
    assert Index(tmp_path / "other.jsonl").moment() is None


def test_what_was_altered_is_left_alone(tmp_path: Path) -> None:
    """A byte of a snapshot: then the one before it is taken."""
    log = export(list(records()), tmp_path / "run.jsonl")
    Index(log).write()
    (newest,) = (tmp_path / "run.jsonl.snapshots").glob(f"*.mechanism.{len(records())}.snapshot")
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    moment = Index(log).moment()
    assert moment is not None
    assert moment.world.last_seq == len(records()) // 40 * 40


def test_another_log_of_the_name_is_not_taken_for_it(tmp_path: Path) -> None:
    """The log was made anew since: its records are others."""
    log = export(list(records()), tmp_path / "run.jsonl")
    Index(log).write()
    log.unlink()
    export(list(records("las")), log)
    assert Index(log).moment() is None


def test_a_log_that_has_grown_since_begins_from_its_index(tmp_path: Path) -> None:
    """What was written afterwards is folded on top."""
    log = export(list(records()[:100]), tmp_path / "run.jsonl")
    Index(log).write()
    file = FileLog(log)
    for record in records()[100:]:
        actor, cause, number, n = record.record_id
        draft = Draft(actor, record.epoch, cause, number, n, record.event, record.digest)
        file.append(draft, record.at)
    file.close()
    moment = Index(log).moment()
    assert moment is not None
    assert moment.world.last_seq == 100
    for record in read_log(log, after=100):
        moment.take(record)
    assert state(moment) == state(folded(log, len(records())))

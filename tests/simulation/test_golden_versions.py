"""What every released version wrote, this one reads; see ``tests/golden/README.md``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replay.resolve import Resolved
from replay.travel.journey import Journey, LogFile, Target
from replay.travel.known import known
from replay.verify import verify_log
from schemas.events import UnknownEvent
from schemas.record import SCHEMA, NewerSchemaError, digest_of, encode
from services.runtime.actor import BEHAVIOUR
from services.runtime.file_log import Ending, read_log
from tests.golden.release import FOLDER, NEWER, RUN, fields_seen, fields_there_are

FILES = sorted(FOLDER.glob("*.jsonl"))
_VERSION = re.compile(r"schema-(\d+)-(behaviour|kinds)-(\d+)\.jsonl")
RUNS = [path for path in FILES if "-behaviour-" in path.name]
KINDS = [path for path in FILES if "-kinds-" in path.name]
HOW = "run `make golden` (ARGS=--again where this version is not released yet)"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_a_run_of_every_version_verifies(path: Path) -> None:
    """Decided anew where the behaviour is the present one; every service's state is restored."""
    resolved = Resolved()
    report = verify_log(path, on_result=resolved.take)
    assert report.divergence is None, f"if cores are to decide otherwise: {HOW}, or raise BEHAVIOUR"
    present = path == RUN
    assert present == (report.warnings == [])
    assert present == any(count.decided for count in report.actors.values())
    assert resolved.ok or not present
    travelled = Journey(LogFile(path, may_index=False))
    travelled.go(Target(seq=report.records // 2))
    assert all(known(travelled.cores, name).seq for name in travelled.cores.actors)


@pytest.mark.parametrize("path", KINDS, ids=lambda path: path.stem)
def test_every_field_ever_written_is_read(path: Path) -> None:
    """Each record is known, says what it said, and comes out the same to the byte."""
    endings: list[Ending] = []
    newest: dict[str, str] = {}
    lines = path.read_bytes().splitlines()
    for record, line in zip(read_log(path, on_end=endings.append), lines, strict=False):
        assert not isinstance(record.event, UnknownEvent)
        newest[record.actor] = digest_of(newest.get(record.actor, ""), record)
        assert newest[record.actor] == record.digest, "a default of old changed, or a field is gone"
        assert line.startswith(encode(record)[:-1])
    assert endings[0].sealed
    assert endings[0].records == len(lines) - 1


def test_the_present_version_has_its_logs() -> None:
    """A run under its schema and behaviour; every field of every kind; each schema before it."""
    assert RUN.exists(), HOW
    assert fields_there_are() <= fields_seen(), HOW
    versions = [_VERSION.fullmatch(path.name) for path in FILES if path != NEWER]
    assert all(versions), "a file whose name says no version"
    for kept in ("behaviour", "kinds"):
        schemas = {int(found[1]) for found in versions if found and found[2] == kept}
        assert schemas == set(range(1, SCHEMA + 1))
    behaviours = {int(found[3]) for found in versions if found and found[2] == "behaviour"}
    assert behaviours == set(range(1, BEHAVIOUR + 1))


def test_a_schema_to_come_is_refused() -> None:
    """By name, at the record that needs it; what stands before it is not taken for the whole."""
    with pytest.raises(NewerSchemaError, match=r"line 3: record 3 needs a reader of schema"):
        verify_log(NEWER)
    with pytest.raises(NewerSchemaError):
        Journey(LogFile(NEWER, may_index=False)).go(Target())

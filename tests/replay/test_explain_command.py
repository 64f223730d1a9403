"""``gavel explain``: words and JSON, from an index or not, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replay.explain.reasons import CODES
from replay.explain.scene import scene
from replay.explain.waterfall import PARTS
from replay.index import Index
from replay.log_source import reader
from tests.live.shells import export
from tests.replay.command import flat, gavel
from tests.replay.explained import RESNET, at, contention


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contended log as a file."""
    return export(list(contention()), tmp_path_factory.mktemp("log") / "run.jsonl")


@pytest.mark.parametrize("when", ["", "1500", "25m", "4321s", "2.5h"])
@pytest.mark.parametrize("name", ["j0", "j5", "j7"])
def test_from_an_index_it_says_the_same(log: Path, tmp_path: Path, name: str, when: str) -> None:
    """Word for word, whether the log is folded from its start or from a snapshot."""
    indexed = export(list(contention()), tmp_path / "run.jsonl")
    assert gavel("log", "index", indexed).exit_code == 0
    assert Index(indexed).moment() is not None
    options = ("--at", when) if when else ()
    plain = gavel("explain", name, "--log", log, "--json", *options)
    assert plain.exit_code == 0
    assert gavel("explain", name, "--log", indexed, "--json", *options).stdout == plain.stdout


def test_the_command_tells_it_in_words(log: Path) -> None:
    """What decides, the table, what is likely, what would help; of a done job, where time went."""
    told = flat(gavel("explain", "j7", "--log", log, "--at", "25m").stdout)
    found = at(contention(), 1500.0, "j7")
    assert told.startswith(f"job j7: {RESNET}, 1 worker; {found.status} for ")
    for reason in found.reasons:
        assert reason.code in told
    assert "likely, if nothing else comes:" in told
    assert "one more v100:" in told
    told = flat(gavel("explain", "j7", "--log", log).stdout)
    assert "ended.completed" in told
    assert "queue.preempted: between leases" in told
    assert "JCT" in told


def test_codes_are_listed() -> None:
    """All of them, and the parts of a waterfall."""
    told = gavel("explain", "--codes").stdout
    assert all(code in told for code in (*CODES, *PARTS))
    assert json.loads(gavel("explain", "--codes", "--json").stdout) == {**CODES, **PARTS}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("j77",), "JOB is 'j77'; expected one of j0, j1, j2, j3, j4, j5, j6, j7; perhaps j7"),
        (("j7", "--at", "5"), "--at is '5'; expected 525 or later, when job j7 is submitted"),
        (("j77", "--at", "5"), "JOB by --at 5 is 'j77'; expected one of j0"),
        (("j7", "--at", "noon"), "--at is 'noon'; expected a time since the log's first record"),
        ((), "JOB is ''; expected a job id"),
        (("j7", "--nats", "nats://x"), "expected none with --nats"),
    ],
)
def test_what_makes_no_sense_is_refused(
    log: Path, arguments: tuple[str, ...], expected: str
) -> None:
    """One line: what, and what would be right."""
    result = gavel("explain", *arguments, "--log", log)
    assert result.exit_code == 2
    assert expected in flat(result.stderr)


def test_of_a_running_cluster_a_time_before_the_submission_is_refused_alike(log: Path) -> None:
    """The log is then read record by record, and to its end."""
    assert scene(reader(log), "5", {"j7"}).comes_after_s == 525.0
    assert scene(reader(log), "5", {"j77"}).comes_after_s is None
    assert scene(reader(log), "600", {"j7"}).comes_after_s is None


def test_a_damaged_log_is_refused_and_a_torn_one_read(log: Path, tmp_path: Path) -> None:
    """The damage is found although most lines are not parsed."""
    lines = log.read_text().splitlines(keepends=True)
    harmed = tmp_path / "harmed.jsonl"
    harmed.write_text("".join([*lines[:50], *lines[51:]]))
    result = gavel("explain", "j0", "--log", harmed)
    assert result.exit_code == 2
    assert "line 51" in flat(result.stderr)
    torn = tmp_path / "torn.jsonl"
    torn.write_text("".join(lines[:200])[:-40])
    result = gavel("explain", "j0", "--log", torn)
    assert result.exit_code == 0
    assert "begun but not finished, is left out" in flat(result.stderr)

"""``gavel replay`` and ``gavel diff``: tables, JSON, record by record, and what they refuse."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from services.runtime.file_log import read_log
from tests.replay.command import gavel
from tests.simulation.forge import write_file

ROOT = Path(__file__).resolve().parents[2]
RUN = ("simulate", "--generate", "--jobs", "6", "--mean-gap", "60", "--cluster", "v100=2,k80=2")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a small run in which jobs wait and move."""
    path = tmp_path_factory.mktemp("replay") / "run.jsonl"
    assert gavel(*RUN, "--log", path).exit_code == 0
    return path


def test_tables_and_json_say_the_same(log: Path) -> None:
    """Jobs, workers, leases, shares: every name of the JSON stands in the tables."""
    found = json.loads(gavel("replay", log, "--to", 60, "--json").stdout)
    assert found["service"] == "mechanism"
    assert found["seq"] == 60
    tables = gavel("replay", log, "--to", 60, "--all").stdout
    assert found["jobs"]
    assert found["shares"]
    for job in found["jobs"]:
        assert job["job_type"] in tables
    for lease in found["leases"]:
        assert lease["lease_id"] in tables
    for worker in found["workers"]:
        assert worker["worker_id"] in tables
    assert found["state"].keys() >= {"jobs", "workers", "leases", "planner", "round"}


@pytest.mark.parametrize("service", ["policy", "estimator", "worker.simulated"])
def test_any_service(log: Path, service: str) -> None:
    """Each has its tables, and all that its core declares in the JSON."""
    found = json.loads(gavel("replay", log, "--service", service, "--json").stdout)
    assert found["service"] == service
    assert found["state"]
    assert gavel("replay", log, "--service", service).stdout.startswith(f"{service} after record")


def test_long_tables_are_cut_and_say_so(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless all is asked for."""
    monkeypatch.setattr("replay.travel.show.ROWS", 2)
    cut = gavel("replay", log, "--to", 60).stdout
    assert "the first 2 of 4; --all shows all" in cut
    assert "v100-1" not in cut
    assert "v100-1" in gavel("replay", log, "--to", 60, "--all").stdout


def test_record_by_record(log: Path) -> None:
    """As lines where nobody can be asked: each record, and under it what was decided on it."""
    lines = gavel("replay", log, "--to", 20, "--step", "--count", 30).stdout.splitlines()
    records = [line for line in lines if line.split()[0].isdecimal()]
    assert [int(line.split()[0]) for line in records] == list(range(21, 51))
    decisions = [line for line in lines if line not in records]
    assert any("mechanism: say RoundScheduled" in line for line in decisions)
    assert any("worker.simulated: run RunRound" in line for line in decisions)
    only = gavel("replay", log, "--to", 20, "--step", "--count", 30, "--service", "policy").stdout
    assert "policy: run Solve" in only
    assert "mechanism: say" not in only


def test_steps_as_json_are_the_log_and_its_decisions(log: Path) -> None:
    """One object a record; what a service decided stands under its name."""
    lines = gavel("replay", log, "--to", 1, "--step", "--count", 9999, "--json").stdout.splitlines()
    steps = [json.loads(line) for line in lines]
    assert [step["record"]["seq"] for step in steps] == [r.seq for r in read_log(log)][1:]
    asked = [n for n, step in enumerate(steps) for x in step["decided"].get("policy", ())]
    solved = [step for step in steps if step["record"]["event"]["kind"] == "AllocationComputed"]
    assert len(asked) == len(solved) > 0


def test_on_a_terminal_it_asks_where_to_go(log: Path) -> None:
    """Enter and n go on, a number jumps there and back, s shows the state, q ends it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "replay.cli", "replay", str(log), "--to", "20", "--step"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    heard = b""

    def hear(until: bytes) -> bytes:
        nonlocal heard
        while until not in heard:
            try:
                heard += os.read(ours, 4096)
            except OSError:
                pytest.fail(f"it ended: {heard.decode()}")
        said, _, heard = heard.partition(until)
        return said

    try:
        hear(b"[20] ")
        os.write(ours, b"\n")
        assert b"     21 " in hear(b"[21] ")
        os.write(ours, b"n\n")
        assert b"     22 " in hear(b"[22] ")
        os.write(ours, b"5\n")
        hear(b"[5] ")
        os.write(ours, b"s\n")
        assert b"mechanism after record 5," in hear(b"[5] ")
        os.write(ours, b"99999\n")
        assert b"expected one of the log's records" in hear(b"[5] ")
        os.write(ours, b"q\n")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_what_makes_no_sense_is_refused(log: Path, tmp_path: Path) -> None:
    """With what would be right, and exit code 2."""
    for arguments, expected in (
        (("replay", log, "--service", "polcy"), "perhaps policy"),
        (("replay", log, "--service", "worker.gpu1"), "worker.simulated"),
        (("replay", log, "--to", "99999"), "expected one of the log's records, 1 to"),
        (("replay", log, "--to", "soon"), "expected a record's number"),
        (("replay", log, "--count", "3"), "only with --step"),
        (("replay", log, "--cluster-name", "x"), "only with nats://"),
        (("replay", tmp_path / "none.jsonl"), "expected a log file, or nats://HOST:PORT"),
        (("replay", tmp_path), "it is no ordinary file"),
        (("diff", log, tmp_path / "none.jsonl"), "expected a log file, or nats://HOST:PORT"),
    ):
        result = gavel(*arguments)
        assert result.exit_code == 2, arguments
        assert expected in result.stderr, arguments


def test_a_log_without_records_is_refused(tmp_path: Path) -> None:
    """Sealed, and empty."""
    empty = tmp_path / "empty.jsonl"
    write_file(empty, [])
    result = gavel("replay", empty)
    assert result.exit_code == 2
    assert "the log has no records" in result.stderr


def test_diff(log: Path, tmp_path: Path) -> None:
    """Nothing for a log and its copy; for a shorter one, and for another, where they part."""
    copy, short = tmp_path / "copy.jsonl.zst", tmp_path / "short.jsonl"
    assert gavel("log", "export", log, copy).exit_code == 0
    same = gavel("diff", log, copy)
    assert same.exit_code == 0
    assert "are the same" in same.stdout
    short.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:40]))
    parted = gavel("diff", log, short)
    assert parted.exit_code == 1
    assert "the same up to record 40" in parted.stdout
    assert "where B ends; A goes on" in parted.stdout
    other = tmp_path / "other.jsonl"
    assert gavel(*RUN, "--policy", "fifo", "--log", other).exit_code == 0
    parted = gavel("diff", log, other, "--service", "policy")
    assert parted.exit_code == 1
    assert "event.policy" in parted.stdout
    assert "policy after record" in parted.stdout
    found = json.loads(gavel("diff", log, other, "--json").stdout)
    assert found["same"] is False
    assert {"path": "event.policy", "a": "las", "b": "fifo"} in found["fields"]


def test_diff_names_damage(log: Path, tmp_path: Path) -> None:
    """A line that is not what was written is no difference."""
    damaged = tmp_path / "damaged.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    damaged.write_bytes(b"".join(lines[:30] + lines[31:]))
    result = gavel("diff", log, damaged)
    assert result.exit_code == 2
    assert "line 31" in result.stderr

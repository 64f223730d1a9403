"""``gavel log`` and ``gavel verify``: what they say of a whole, a damaged and an unfinished log."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from replay.options import put_when_whole
from schemas.events import AnyEvent, JobSubmitted, RoundScheduled
from schemas.record import chain
from services.runtime.file_log import Ending, read_log
from tests.replay.command import gavel

ROOT = Path(__file__).resolve().parents[2]
GAVEL = (sys.executable, "-P", "-m", "replay.cli")
RUN = ("simulate", "--generate", "--jobs", "6", "--mean-gap", "60", "--cluster", "v100=2,k80=2")


def start(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    """Start a command as a process of its own."""
    return subprocess.Popen(
        [*GAVEL, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a small run in which jobs wait and move."""
    path = tmp_path_factory.mktemp("log") / "run.jsonl"
    assert gavel(*RUN, "--log", path).exit_code == 0
    return path


@pytest.fixture
def damaged(log: Path, tmp_path: Path) -> Path:
    """The log with one digit changed in the middle."""
    lines = log.read_text().splitlines(keepends=True)
    middle = len(lines) // 2
    lines[middle] = re.sub(r'"at":\d', '"at":9', lines[middle])
    path = tmp_path / "damaged.jsonl"
    path.write_text("".join(lines))
    assert path.read_text() != log.read_text()
    return path


# --- tail ----------------------------------------------------------------------------------------


def test_tail_prints_a_line_for_each_record(log: Path) -> None:
    """With -n 0, each record has its line under the heading, in order, by sequence."""
    heading, *lines = gavel("log", "tail", log, "-n", 0).stdout.splitlines()
    assert heading.split() == ["seq", "at", "(s)", "actor", "kind", "cause", "what"]
    records = list(read_log(log))
    assert [int(line.split()[0]) for line in lines] == [record.seq for record in records]
    assert [line.split()[3] for line in lines] == [type(r.event).__name__ for r in records]


def test_tail_filters_before_it_counts(log: Path) -> None:
    """The last three plans are three, however many records lie between them."""
    plans = [r.seq for r in read_log(log) if isinstance(r.event, RoundScheduled)]
    lines = gavel("log", "tail", log, "-n", 3, "--kind", "RoundScheduled").stdout.splitlines()
    assert [int(line.split()[0]) for line in lines[1:]] == plans[-3:]


def test_tail_of_a_job_is_about_that_job(log: Path) -> None:
    """Filtered by job and kind, one submission is left of six."""
    lines = gavel("log", "tail", log, "--job", 3, "--kind", "JobSubmitted").stdout.splitlines()
    assert len(lines) == 2
    assert "job 3:" in lines[1]


def test_unknown_names_are_refused(log: Path) -> None:
    """A kind or job that does not exist is no empty answer."""
    for arguments, expected in (
        (("tail", log, "--kind", "Roundscheduled"), "perhaps RoundScheduled"),
        (("tail", log, "--job", "33"), "--job is '33'; expected one of 0, 1, 2, 3, 4, 5"),
        (("story", log, "33"), "JOB is '33'"),
    ):
        result = gavel("log", *arguments)
        assert result.exit_code == 2
        assert expected in result.stderr


# --- story ---------------------------------------------------------------------------------------


def seqs_about(log: Path, job_id: str) -> set[int]:
    """Records whose line in the file names the job as an id, or one of its leases."""
    leases = {
        lease.lease_id
        for record in read_log(log)
        if isinstance(record.event, RoundScheduled)
        for lease in record.event.granted
        if job_id in [task.job_id for task in lease.tasks]
    }
    quoted = {f'"{name}"' for name in leases}
    named = f'"job_id":"{job_id}"'
    lines = log.read_text().splitlines()[:-1]
    return {
        number
        for number, line in enumerate(lines, 1)
        if named in line or any(lease in line for lease in quoted)
    }


def test_story_tells_all_there_is(log: Path) -> None:
    """Whatever names the job or one of its leases is told, and little else, each with its cause."""
    for record in read_log(log):
        if not isinstance(record.event, JobSubmitted):
            continue
        job_id = record.event.job.job_id
        lines = gavel("log", "story", log, job_id).stdout.splitlines()[1:]
        told = {int(line.split()[0]): line for line in lines}
        about = seqs_about(log, job_id)
        assert about <= told.keys()
        kinds = {told[seq].split()[3] for seq in told.keys() - about}
        assert kinds <= {"ThroughputEstimated", "AllocationComputed"}
        answered = [line for line in lines if line.split()[4].startswith("<")]
        assert all(re.search(r"\[answers \S+ \w+\]$", line) for line in answered)
        assert len(answered) == len(lines) - 1, "all but the submission answer a record"


def test_brief_story_leaves_out_what_goes_on(log: Path) -> None:
    """A brief story has every grant, end and outcome of the long one, and no renewal."""
    long, brief = (
        gavel("log", "story", log, "0", *more).stdout.splitlines() for more in ((), ("--brief",))
    )
    assert set(brief) < set(long)
    assert not any("renews" in line for line in brief)
    for word in ("grants", "ends", "JobCompleted"):
        assert [x for x in brief if word in x] == [x for x in long if word in x]


# --- export --------------------------------------------------------------------------------------


def test_export_there_and_back_is_the_same_to_the_byte(log: Path, tmp_path: Path) -> None:
    """Plain to .zst to plain gives the first file; the .zst one verifies."""
    packed, plain = tmp_path / "run.jsonl.zst", tmp_path / "again.jsonl"
    assert gavel("log", "export", log, packed).exit_code == 0
    assert gavel("log", "export", packed, plain).exit_code == 0
    assert plain.read_bytes() == log.read_bytes()
    assert packed.stat().st_size < log.stat().st_size / 2
    assert gavel("verify", packed).exit_code == 0


def test_export_makes_a_killed_log_whole(log: Path, tmp_path: Path) -> None:
    """A torn last line is left out, and said; the copy is sealed."""
    torn, whole = tmp_path / "torn.jsonl", tmp_path / "whole.jsonl"
    text = log.read_bytes()
    torn.write_bytes(text[: len(text) // 2])
    result = gavel("log", "export", torn, whole)
    assert result.exit_code == 0
    assert "not sealed" in result.stderr
    assert "left out" in result.stderr
    endings: list[Ending] = []
    records = list(read_log(whole, on_end=endings.append))
    assert endings[0].sealed
    assert len(records) == torn.read_bytes().count(b"\n")


def test_export_keeps_records_it_does_not_know(log: Path, tmp_path: Path) -> None:
    """An event kind of a later release is copied as it is, not as this release sees it."""
    strange, packed, again = (tmp_path / n for n in ("s.jsonl", "s.jsonl.zst", "again.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)[:4]
    strange.write_bytes(b"".join(lines))
    rechained(strange, b'"kind":"LeaderElected"', b'"kind":"CrownPassedOn"')
    assert gavel("log", "export", strange, packed).exit_code == 0
    assert gavel("log", "export", packed, again).exit_code == 0
    assert again.read_bytes().startswith(strange.read_bytes())
    assert "CrownPassedOn" in gavel("log", "tail", again).stdout


def rechained(path: Path, old: bytes, new: bytes) -> None:
    """Replace text in a log, and chain its lines anew."""
    link, lines = "", []
    for line in path.read_bytes().splitlines():
        content = line[: line.rindex(b',"chain"')].replace(old, new) + b"}"
        link = chain(link, content)
        lines.append(b'%b,"chain":"%b"}\n' % (content[:-1], link.encode()))
    path.write_bytes(b"".join(lines))


def test_export_refuses(log: Path, damaged: Path, tmp_path: Path) -> None:
    """A damaged log, the log itself and an existing file are refused; nothing is left behind."""
    out = tmp_path / "out.jsonl"
    assert "line" in gavel("log", "export", damaged, out).stderr
    assert not out.exists()
    assert gavel("log", "export", log, log, "--force").exit_code == 2
    out.write_text("dear")
    assert gavel("log", "export", log, out).exit_code == 2
    assert out.read_text() == "dear"


def test_what_was_there_stays_until_the_copy_is_whole(tmp_path: Path) -> None:
    """Stopped half way, a copy has replaced nothing and left nothing."""
    out = tmp_path / "out.jsonl"
    out.write_text("dear")
    with suppress(KeyboardInterrupt), put_when_whole(out) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert [(path, path.read_text()) for path in tmp_path.iterdir()] == [(out, "dear")]
    with put_when_whole(out) as partial:
        partial.write_text("whole")
    assert [(path, path.read_text()) for path in tmp_path.iterdir()] == [(out, "whole")]


# --- verify --------------------------------------------------------------------------------------


def test_a_run_verifies(log: Path) -> None:
    """What a simulation writes, verification accepts."""
    result = gavel("verify", log)
    assert result.exit_code == 0
    assert "verified" in result.stdout


def test_damage_is_found_by_all_commands(damaged: Path) -> None:
    """Verify fails with 1 and names the line; commands that need a sound log refuse with 2."""
    line = f"line {damaged.read_text().count(chr(10)) // 2 + 1}"
    result = gavel("verify", damaged)
    assert result.exit_code == 1
    assert "does not verify" in result.stdout
    assert line in result.stdout
    for arguments in (("tail", damaged), ("tail", damaged, "-n", 0), ("story", damaged, "0")):
        result = gavel("log", *arguments)
        assert result.exit_code == 2
        assert line in result.stderr


def test_no_log_at_all(tmp_path: Path) -> None:
    """A file that is not there, or is no log, is bad input."""
    assert gavel("verify", tmp_path / "none.jsonl").exit_code == 2
    other = tmp_path / "other.jsonl"
    other.write_text("Dear log,\n")
    assert gavel("log", "tail", other).exit_code == 2
    assert gavel("verify", other).exit_code == 1


# --- the process ---------------------------------------------------------------------------------


def test_ctrl_c_leaves_a_whole_log(tmp_path: Path) -> None:
    """SIGINT in mid-run: exit code 130, no traceback, a log that is sealed and verifies."""
    log = tmp_path / "run.jsonl"
    process = start(
        *("simulate", "--generate", "--jobs", "100000", "--mean-gap", "300", "--log", log),
        folder=tmp_path,
    )
    try:
        # The first flush: from here on the run is under way, and will be for long.
        while not (log.exists() and log.stat().st_size):
            assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    endings: list[Ending] = []
    assert sum(1 for _ in read_log(log, on_end=endings.append)) > 0
    assert endings[0].sealed


def test_a_process_tells_errors_in_one_line(tmp_path: Path) -> None:
    """A user's error is one line on stderr, and exit code 2, in a real process too."""
    process = start("simulate", "--trace", "none.trace", folder=tmp_path)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert output == ""
    assert errors == "gavel: Invalid value for '--trace': file 'none.trace' does not exist.\n"


def test_help_needs_no_numpy() -> None:
    """Starting up loads neither numpy nor a solver: ``gavel --help`` is quick."""
    script = (
        "import sys, replay.cli.__main__;"
        "print({'numpy', 'scipy', 'cvxpy', 'highspy'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_every_kind_has_words(log: Path) -> None:
    """Each kind of event a simulation writes is described in words, none by an empty text."""
    lines = gavel("log", "tail", log, "-n", 0).stdout.splitlines()[1:]
    assert all(len(line.split()) > 5 for line in lines)
    assert {line.split()[3] for line in lines} <= {kind.__name__ for kind in AnyEvent.__args__}

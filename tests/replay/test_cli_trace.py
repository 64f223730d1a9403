"""``gavel trace`` as its users meet it, and ``gavel simulate`` on what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from replay.traces.formats import FORMATS
from tests.replay.command import gavel

PHILLY = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-10-09 07:01:55,9000.0,1,9000.0,11cb48\n"
    "2017-10-09 06:13:03,2951.0,12,35412.0,6214e9\n"
    "2017-10-09 08:13:03,0.0,1,0.0,6214e9\n"
    "2017-10-09 09:13:03,2000.0,2,4000.0,6214e9\n\n"
)


def done(*arguments: object, stdin: str | None = None) -> Result:
    """Run a command that must succeed."""
    result = gavel(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments: object) -> str:
    """Run a command that must be refused, before anything is written; its message."""
    result = gavel(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("gavel: ")
    return result.stderr


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    """A small trace with a row of each kind."""
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)
    return path


def simulated(*arguments: object) -> Any:
    """Figures of a simulation on a small cluster."""
    cluster = ("--cluster", "v100=8,k80=8")
    return json.loads(done("simulate", *cluster, *arguments, "--json").stdout)


def test_formats_are_listed() -> None:
    """Each with what it is."""
    listed = done("trace", "formats").stdout
    assert [line.split()[0] for line in listed.splitlines()] == list(FORMATS)


def test_converting_says_what_became_of_the_rows(philly: Path, tmp_path: Path) -> None:
    """Kept, put right and left out, why and where; for people and for scripts."""
    out = tmp_path / "jobs.jsonl"
    told = done("trace", "convert", philly, "--out", out).stderr
    for words in ("3   kept", "put right   arrived before", "left out", "ran for 0 s (line 4)"):
        assert words in told
    account = json.loads(done("trace", "convert", philly, "--out", out, "--force", "--json").stdout)
    assert account["kept"] == account["written"] == 3
    assert account["refused"] == {"ran for 0 s": {"rows": 1, "first_lines": [4]}}
    assert account["format"] == "philly-csv"


def test_what_is_converted_is_simulated_as_the_original(philly: Path, tmp_path: Path) -> None:
    """Directly or by way of a file, packed or not, the same jobs at the same times."""
    out = tmp_path / "jobs.jsonl"
    done("trace", "convert", philly, "--out", out)
    written = out.read_text()
    assert done("trace", "convert", philly).stdout == written
    assert done("trace", "convert", "-", stdin=PHILLY).stdout == written
    assert done("trace", "convert", out).stdout == written
    direct, converted = simulated("--trace", philly), simulated("--trace", out)
    assert direct["jobs"] == 3
    for figure in ("average_jct_s", "makespan_s", "utilisation", "records"):
        assert direct[figure] == converted[figure]
    assert direct["trace"]["refused"] == {"ran for 0 s": 1}
    named = simulated("--trace", philly, "--format", "philly-csv")
    assert named["average_jct_s"] == direct["average_jct_s"]


def test_a_part_of_a_trace_at_a_load(philly: Path, tmp_path: Path) -> None:
    """``stats`` then finds that load, and only those jobs."""
    out = tmp_path / "jobs.jsonl"
    options = ("--only", "0:2", "--load", 0.7, "--cluster", "v100=8,k80=8")
    done("trace", "convert", philly, *options, "--out", out)
    found = json.loads(done("trace", "stats", out, "--cluster", "v100=8,k80=8", "--json").stdout)
    assert found["jobs"] == 2
    assert found["load"] == pytest.approx(0.7)
    shown = done("trace", "stats", out, "--cluster", "v100=8,k80=8").stdout
    for words in ("load on v100=8, k80=8", "70.0%", "entity", "6214e9", "worker-hours"):
        assert words in shown


def test_job_types_are_by_seed_or_chosen(philly: Path) -> None:
    """Equal seeds write equal bytes."""
    one, again, other = (
        done("trace", "convert", philly, "--seed", seed).stdout for seed in (1, 1, 2)
    )
    assert one == again != other
    chosen = done("trace", "convert", philly, "--job-types", "ResNet-18 (batch size 32)").stdout
    types = {json.loads(line)["job_type"] for line in chosen.splitlines()}
    assert types == {"ResNet-18 (batch size 32)"}


def test_generating_and_simulating_with_failures(tmp_path: Path) -> None:
    """Outages and cancellations happen in the simulation; equal arguments, equal bytes."""
    out = tmp_path / "events.jsonl"
    options = (
        *("--jobs", 40, "--mean-gap", 600, "--seed", 3, "--cancelled", 0.3),
        *("--cluster", "v100=8,k80=8", "--servers", "v100=4", "--up-hours", 3),
        *("--scale-factors", "1=3,2=1", "--arrivals", "bursty:4", "--slos", "none=1,2=1"),
    )
    done("trace", "generate", *options, "--out", out)
    assert done("trace", "generate", *options).stdout == out.read_text()
    log = tmp_path / "log.jsonl"
    found = simulated("--trace", out, "--servers", "v100=4", "--log", log)
    assert found["outcomes"]["cancelled"] > 0
    assert '"kind":"WorkerLost"' in log.read_text()
    done("verify", log)


def test_outages_of_workers_that_are_not_there_are_refused(tmp_path: Path) -> None:
    """With the name, and the remedy."""
    out = tmp_path / "events.jsonl"
    options = ("--cluster", "v100=80", "--up-hours", 1, "--jobs", 20)
    done("trace", "generate", *options, "--out", out)
    said = refused("simulate", "--trace", out, "--cluster", "v100=8")
    assert "expected a cluster that has it" in said
    jobs = tmp_path / "jobs.jsonl"
    done("trace", "convert", out, "--jobs-only", "--out", jobs)
    done("simulate", "--trace", jobs, "--cluster", "v100=8")


def test_injecting_into_a_trace_or_a_simulation(philly: Path, tmp_path: Path) -> None:
    """Both ways come to the same; ids that clash are refused, with the remedy."""
    jobs = tmp_path / "jobs.jsonl"
    done("trace", "generate", "--jobs", 3, "--out", jobs)
    both = tmp_path / "both.jsonl"
    inject = ("trace", "inject", philly, "--into", jobs, "--at", 500)
    assert "expected an id that" in refused(*inject)
    done(*inject, "--prefix", "p-", "--out", both)
    ids = [json.loads(line)["job_id"] for line in both.read_text().splitlines()]
    assert sorted(ids) == ["0", "1", "2", "p-0", "p-1", "p-3"]
    renamed = tmp_path / "renamed.jsonl"
    renamed.write_text(
        "".join(f"{line}\n" for line in both.read_text().splitlines() if "p-" in line)
    )
    one = simulated("--trace", both)
    other = simulated("--trace", jobs, "--inject", renamed)
    assert one["jobs"] == other["jobs"] == 6
    assert one["average_jct_s"] == other["average_jct_s"]
    later = simulated("--trace", jobs, "--inject", renamed, "--inject-at", 1e6)
    assert later["makespan_s"] > 1e6


def test_a_trace_of_jobs_that_can_never_run(tmp_path: Path) -> None:
    """All are rejected when they arrive, with numbers; nothing is solved, and it ends at once."""
    path = tmp_path / "wide.csv"
    path.write_text("job_id,num_gpu,submit_time,duration\n0,8,0,100\n1,8,2592000,100\n")
    result = gavel("simulate", "--trace", path, "--cluster", "v100=4", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["outcomes"] == {"rejected": 2}
    assert found["rounds"] == found["solves"] == 0
    assert "asks for 8 workers" in " ".join(found["notes"])


def test_a_trace_of_no_jobs_is_refused(tmp_path: Path) -> None:
    """By every command that reads one."""
    path = tmp_path / "empty.csv"
    for text, words in (("", "empty"), ("job_id,num_gpu,submit_time,duration\n", "no job is left")):
        path.write_text(text)
        for command in (("simulate", "--trace"), ("trace", "stats"), ("trace", "convert")):
            assert words in refused(*command, path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "phily"), "perhaps philly"),
        (("--unknown", "drop"), "expected one of auto, clamp, reject, skip"),
        (("--job-types", "ResNet-18 (batch size 33)"), "perhaps ResNet-18 (batch size 32)"),
        (("--type-names", "T4=h100"), "expected one of k80, p100, v100"),
        (("--reference-type", "v200"), "perhaps v100"),
        (("--throughputs", "nowhere"), "a file, or one of builtin, catalogue"),
        (("--zone", "Mars"), "expected a name of the tz database"),
        (("--only", "2:1"), "FIRST < LAST"),
        (("--load", "0"), "above 0"),
        (("--load", "0.5", "--stretch", "2"), "one of the two"),
        (("--load", "0.5", "--cluster", "v100"), "NAME=VALUE"),
        (("--json",), "--out FILE"),
    ],
)
def test_bad_options_of_convert(philly: Path, options: tuple[str, ...], words: str) -> None:
    """Each is named with its value and what would be right."""
    assert words in refused("trace", "convert", philly, *options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--arrivals", "daily"), "bursty, diurnal, poisson"),
        (("--arrivals", "bursty:0.5"), "1 or more jobs"),
        (("--arrivals", "diurnal:2"), "a part from 0 to 1"),
        (("--arrivals", "poisson:2"), "nothing behind poisson"),
        (("--durations", "lognormal:60"), "lognormal:MEDIAN:SIGMA"),
        (("--durations", "lognormal:-1:1"), "a median"),
        (("--scale-factors", "1.5=1"), "a whole number of workers"),
        (("--scale-factors", "3=1"), "no job type of"),
        (("--weights", "1=0"), "not all 0"),
        (("--weights", "0=1"), "a finite number above 0"),
        (("--slos", "none=x"), "a part, 0 or more"),
        (("--regime", "soon:rate=2"), "AT in seconds"),
        (("--regime", "9:length=0"), "a length above 0"),
        (("--regime", "9:rate=2", "--regime", "5:rate=1"), "in order of time"),
        (("--away-hours", "-1"), "--away-hours is -1.0; expected hours above 0"),
        (("--up-hours", "1", "--horizon-hours", "nan"), "is nan; expected hours above 0"),
        (("--up-hours", "1", "--mean-gap", "0"), "all jobs arrive at once"),
        (("--mean-gap", "nan"), "seconds from 0"),
        (("--jobs", "99999999999"), "1 to 10000000"),
    ],
)
def test_bad_options_of_generate(options: tuple[str, ...], words: str) -> None:
    """Each is named with its value and what would be right."""
    assert words in refused("trace", "generate", *options)


def test_files_are_not_overwritten_unasked(philly: Path, tmp_path: Path) -> None:
    """Neither one that exists, nor ever the one that is read."""
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    assert "--force replaces it" in refused("trace", "convert", philly, "--out", out)
    assert out.read_text() == "mine"
    same = ("trace", "convert", philly, "--out", philly, "--force")
    assert "a file that is not read here" in refused(*same)
    assert philly.read_text() == PHILLY

"""``gavel simulate`` as its users meet it: what it refuses, what it explains, what it returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.events import WorkerRegistered
from services.runtime.file_log import read_log
from tests.replay.command import gavel

FEW = ("simulate", "--generate", "--jobs", "4", "--cluster", "v100=4,k80=4")
JOB = {"job_id": "a", "job_type": "ResNet-50 (batch size 64)", "total_steps": 5000.0}


def refused(*arguments: object) -> str:
    """Run a command that must be refused; its one message."""
    result = gavel(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("gavel: ")
    return result.stderr


def figures(*arguments: object, exit_code: int = 0) -> dict[str, Any]:
    """Run a simulation; its figures."""
    result = gavel(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def trace_of(path: Path, *jobs: dict[str, object]) -> Path:
    """Write a trace of jobs, each ``JOB`` with some fields changed."""
    path.write_text("".join(json.dumps({**JOB, **job}) + "\n" for job in jobs))
    return path


def workers_of(log: Path) -> dict[str, list[str]]:
    """{server: its workers} as registered in a log."""
    found: dict[str, list[str]] = {}
    for record in read_log(log):
        if isinstance(record.event, WorkerRegistered):
            found.setdefault(record.event.server_id, []).append(record.event.worker_id)
    return found


# --- what it prints ------------------------------------------------------------------------------


def test_json_has_what_scripts_need() -> None:
    """The JSON object holds the figures, the settings that made them, and the trace's counts."""
    found = figures(*FEW)
    assert found.keys() >= {
        *("average_jct_s", "median_jct_s", "p99_jct_s", "makespan_s", "utilisation", "cost_usd"),
        *("rounds", "solves", "preemptions", "renewals", "wall_s", "solve_wall_s", "jobs"),
    }
    assert found["jobs"] == 4
    assert found["settings"]["policy"] == "las"
    assert found["settings"]["cluster"] == {"v100": 4, "k80": 4}
    assert found["trace"]["repaired"] == found["trace"]["refused"] == {}


def test_figures_are_those_of_the_jobs(tmp_path: Path) -> None:
    """Average JCT and outcomes follow from the per-job file; time spent adds up to the JCTs."""
    path = tmp_path / "jobs.json"
    found = figures(*FEW, "--checkpoint-seconds", "5,7", "--jobs-json", path)
    jobs = json.loads(path.read_text()).values()
    jcts = [job["completion_s"] - job["arrival_s"] for job in jobs]
    assert found["average_jct_s"] == pytest.approx(sum(jcts) / len(jcts))
    assert sum(found["time_spent_s"].values()) == pytest.approx(sum(jcts))
    assert found["time_spent_s"]["loading"] > 0
    assert all(job["arrival_s"] <= job["first_start_s"] < job["completion_s"] for job in jobs)


def test_table_names_the_settings() -> None:
    """The printed result says how it was got: the bundle of settings, the trace, the seed."""
    text = gavel(*FEW, "--mode", "paper", "--policy", "las:agnostic").stdout
    text = " ".join(text.split())
    for expected in ("average JCT", "waiting", "round_end=last_task", "priority=reset", "seed 0"):
        assert expected in text


def test_equal_arguments_write_equal_logs(tmp_path: Path) -> None:
    """Two runs write the same bytes; another lag seed writes others."""
    logs = [tmp_path / name for name in ("one.jsonl", "two.jsonl", "other.jsonl")]
    for log, seed in zip(logs, (1, 1, 2), strict=True):
        assert gavel(*FEW, "--lag", seed, "--log", log).exit_code == 0
    one, two, other = (log.read_bytes() for log in logs)
    assert one == two != other


def test_prices_decide_the_cost() -> None:
    """At ten times the built-in price of all types, the cost is ten times as high."""
    dear = figures(*FEW, "--prices", "v100=7.4,k80=1.35")
    assert dear["cost_usd"] == pytest.approx(10 * figures(*FEW)["cost_usd"])


def test_window_measures_its_jobs_only() -> None:
    """A window of two jobs measures two, with all the trace's jobs submitted before they end."""
    assert figures(*FEW, "--window", "1:3")["jobs"] == 2


# --- odd clusters --------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "servers"), [(6, [4, 2]), (2, [2]), (8, [4, 4])])
def test_no_worker_is_lost_to_the_last_server(
    tmp_path: Path, workers: int, servers: list[int]
) -> None:
    """Workers that do not fill a server are there all the same."""
    log = tmp_path / "run.jsonl"
    cluster = ("--cluster", f"v100={workers}", "--servers", "v100=4")
    figures("simulate", "--generate", "--jobs", "2", *cluster, "--log", log)
    assert [len(held) for held in workers_of(log).values()] == servers


def test_a_type_without_workers_is_said() -> None:
    """A worker type with 0 workers is legal, and noted."""
    found = figures(*FEW[:4], "--cluster", "v100=2,k80=0")
    assert found["jobs"] == 4
    assert "no workers of type k80" in found["notes"]


def test_no_workers_at_all() -> None:
    """Without workers nothing can finish: said plainly, exit code 1, no figure made up."""
    found = figures(*FEW[:4], "--cluster", "v100=0,k80=0", exit_code=1)
    assert found["average_jct_s"] is found["makespan_s"] is None
    assert found["outcomes"] == {"waiting": 4}
    assert any("no workers" in note for note in found["notes"])


def test_a_job_too_large_is_explained_and_disturbs_nobody(tmp_path: Path) -> None:
    """It is rejected with the numbers; the others' times are those of a run without it."""
    table = tmp_path / "rates.csv"
    table.write_text(
        "job_type,scale_factor,worker_type,steps_per_s\n"
        f"{JOB['job_type']},1,v100,4\n{JOB['job_type']},16,v100,50\n"
    )
    small = [{"job_id": f"s{i}", "arrival_s": 100.0 * i} for i in range(12)]
    large = {"job_id": "large", "scale_factor": 16, "arrival_s": 50.0}
    times = []
    for name, jobs in (("with", [small[0], large, *small[1:]]), ("without", small)):
        trace = trace_of(tmp_path / f"{name}.jsonl", *jobs)
        out = tmp_path / f"{name}.json"
        found = figures(
            *("simulate", "--trace", trace, "--throughputs", table, "--cluster", "v100=8"),
            *("--jobs-json", out),
        )
        assert found["outcomes"]["completed"] == len(small)
        times.append(json.loads(out.read_text()))
    rejected = times[0].pop("large")
    assert rejected["outcome"] == "rejected"
    assert "16 workers" in rejected["reason"]
    assert "v100: 8" in rejected["reason"]
    assert times[0] == times[1]


def test_only_jobs_that_can_never_run(tmp_path: Path) -> None:
    """When all jobs are rejected, none has finished: exit code 1, with the reason."""
    trace = trace_of(tmp_path / "t.jsonl", {"allowed_worker_types": ["p100"]})
    found = figures("simulate", "--trace", trace, "--cluster", "v100=2", exit_code=1)
    assert found["outcomes"] == {"rejected": 1}
    assert any("never run: 1" in note and "p100: 0" in note for note in found["notes"])


# --- bad traces ----------------------------------------------------------------------------------


def test_unknown_job_types(tmp_path: Path) -> None:
    """They are refused by line and value, or skipped and counted, as asked."""
    trace = trace_of(tmp_path / "t.jsonl", {}, {"job_id": "b", "job_type": "ResNet-5O"})
    message = refused("simulate", "--trace", trace)
    assert "line 2, job_type: 'ResNet-5O'" in message
    found = figures("simulate", "--trace", trace, "--unknown", "skip")
    assert found["jobs"] == 1
    assert sum(found["trace"]["refused"].values()) == 1


def test_declared_rates_are_no_oracle(tmp_path: Path) -> None:
    """A job of a class that the table lacks cannot be simulated, whatever it declares."""
    trace = trace_of(
        tmp_path / "t.jsonl", {"job_type": "new", "declared_throughputs": {"v100": 1.0}}
    )
    assert "--throughputs" in refused("simulate", "--trace", trace)


def test_empty_trace(tmp_path: Path) -> None:
    """An empty file is no trace."""
    path = tmp_path / "empty.trace"
    path.touch()
    assert f"{path}: the trace is empty; expected at least one job" in refused(
        "simulate", "--trace", path
    )


def test_bad_row(tmp_path: Path) -> None:
    """A bad value is named with file, line, field, and what would be right."""
    path = trace_of(tmp_path / "t.jsonl", {}, {"job_id": "b", "total_steps": -5})
    message = refused("simulate", "--trace", path)
    for expected in (str(path), "line 2", "total_steps", "-5", "a number above 0"):
        assert expected in message


# --- bad options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--round", "-360"], "--round is -360.0; expected seconds from 0.001"),
        (["--round", "nan"], "expected seconds from 0.001"),
        (["--round", "1e-320"], "expected seconds from 0.001"),
        (["--round", "soon"], "'--round'"),
        (["--window", "2:9"], "--window is '2:9'; expected FIRST:LAST with FIRST < LAST <= 4"),
        (["--window", "3:3"], "FIRST < LAST"),
        (["--window", "1-3"], "FIRST:LAST"),
        (["--window", "-1:3"], "FIRST:LAST"),
        (["--policy", "lass"], "did you mean 'las'"),
        (["--mode", "papr"], "one of default, paper; perhaps paper"),
        (["--servers", "h100=4"], "--servers is 'h100'; expected one of k80, v100"),
        (["--servers", "v100=0"], "a whole number of workers for v100, 1 to"),
        (["--prices", "p100=1"], "--prices is 'p100'; expected one of k80, v100"),
        (["--prices", "v100=-1"], "USD per hour for v100, 0 or more"),
        (["--cluster", "v100"], "NAME=VALUE"),
        (["--cluster", "v100=-1"], "a whole number of workers for v100, 0 to"),
        (["--cluster", "v100=2.5"], "a whole number of workers for v100"),
        (["--cluster", "v100=2,v100=3"], "v100 comes twice"),
        (["--cluster", "v200=2"], "expected one of k80, p100, v100; perhaps v100"),
        (["--checkpoint-seconds", "1,2,3"], "LOAD,SAVE"),
        (["--checkpoint-seconds", "200"], "less than a round (360 s)"),
        (["--checkpoint-seconds", "5", "--mode", "paper"], "paper mode charges no time"),
        (["--jobs", "0"], "--jobs is 0; expected 1 to 10000000"),
        (["--jobs", "99999999999"], "expected 1 to 10000000"),
        (["--mean-gap", "-1"], "--mean-gap is -1.0; expected seconds from 0"),
        (["--reference-type", "h100"], "'h100'"),
        (["--format", "swf"], "it goes with --trace"),
        (["--job-types", "A3C"], "it goes with --trace"),
        (["--inject-at", "-1", "--inject", str(Path(__file__))], "seconds from 0"),
        (["--unknown", "ignore"], "one of auto, clamp, reject, skip"),
        (["--log", "no/such/folder/run.jsonl"], "a file in a folder that exists"),
        (["--log", "."], "an ordinary file"),
        (["--throughputs", "none.json"], "file 'none.json' does not exist"),
    ],
)
def test_a_bad_option_is_refused(options: list[str], expected: str) -> None:
    """The message names the option, the value and what would be right; exit code 2."""
    assert expected in refused(*FEW, *options)


def test_jobs_come_from_one_place(tmp_path: Path) -> None:
    """A trace or a generator, not both, not neither, and no generator's options with a trace."""
    trace = trace_of(tmp_path / "t.jsonl", {})
    assert "neither" in refused("simulate")
    assert "both" in refused("simulate", "--generate", "--trace", trace)
    assert "--mean-gap" in refused("simulate", "--trace", trace, "--mean-gap", "5")
    assert "does not exist" in refused("simulate", "--trace", tmp_path / "none.trace")


@pytest.mark.parametrize("option", ["--log", "--jobs-json"])
def test_a_file_is_replaced_only_by_force(tmp_path: Path, option: str) -> None:
    """An existing file is refused and left as it is; with --force it is replaced."""
    path = tmp_path / "out"
    path.write_text("dear")
    assert "--force replaces it" in refused(*FEW, option, path)
    assert path.read_text() == "dear"
    assert gavel(*FEW, option, path, "--force").exit_code == 0
    assert path.read_text().startswith("{")


def test_input_is_never_overwritten(tmp_path: Path) -> None:
    """Not even --force lets a run write over its own trace, or two outputs into one file."""
    trace = trace_of(tmp_path / "t.jsonl", {})
    before = trace.read_bytes()
    assert "no other option" in refused("simulate", "--trace", trace, "--log", trace, "--force")
    assert trace.read_bytes() == before
    both = tmp_path / "both"
    assert "no other option" in refused(*FEW, "--log", both, "--jobs-json", both)


def test_a_refused_run_leaves_nothing(tmp_path: Path) -> None:
    """Options are checked before the first file is made."""
    refused(*FEW, "--log", tmp_path / "run.jsonl", "--window", "9:1")
    assert not list(tmp_path.iterdir())


def test_help_teaches() -> None:
    """The help text has examples, and names the options."""
    text = gavel("simulate", "--help").stdout
    assert "Examples:" in text
    for option in ("--trace", "--window", "--checkpoint-seconds", "--unknown", "--force"):
        assert option in text

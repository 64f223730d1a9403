"""``gavel trace inject`` into a cluster that runs: jobs in their time, each once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.test_services_cli import TYPE, Gavel

pytestmark = pytest.mark.live

Jobs = tuple[dict[str, object], ...]


@pytest.fixture(scope="module")
def gavel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gavel]:
    """A cluster of three imagined accelerators whose tasks are sums."""
    command = Gavel(tmp_path_factory.mktemp("inject") / "home")
    command("up", "--emulate", "v100=2,k80=1", "--in-process", "--round", "1", "--detach")
    yield command
    command("down")


def trace_of(path: Path, *jobs: dict[str, object]) -> str:
    """Write a trace of short jobs, each with some fields given."""
    base = {"job_type": TYPE, "total_steps": 20.0}
    path.write_text("".join(json.dumps(base | job) + "\n" for job in jobs))
    return str(path)


def submitted_at(gavel: Gavel, folder: Path) -> dict[str, float]:
    """{job id: seconds of the log at which it was submitted}."""
    log = folder / "log.jsonl"
    gavel("log", "fetch", str(log), "--force")
    found = {}
    for line in log.read_text().splitlines():
        record = json.loads(line)
        if record.get("event", {}).get("kind") == "JobSubmitted":
            found[record["event"]["job"]["job_id"]] = record["at"]
    return found


def test_jobs_come_in_their_time_and_once(gavel: Gavel, tmp_path: Path) -> None:
    """At trace times over the speed, under the prefix; injected again, they are there already."""
    jobs: Jobs = (
        {"job_id": "a"},
        {"job_id": "b", "arrival_s": 90.0},
        {"job_id": "c", "arrival_s": 180.0},
    )
    path = trace_of(tmp_path / "jobs.jsonl", *jobs)
    inject = ("trace", "inject", path, "--speed", "60", "--prefix", "once-")
    assert gavel.json(*inject, "--dry-run") == {
        "submitted": 0,
        "events": 0,
        "there_already": 0,
        "checked": 3,
    }
    assert gavel.json(*inject) == {"submitted": 3, "events": 0, "there_already": 0}
    assert gavel.json(*inject) == {"submitted": 0, "events": 0, "there_already": 3}
    at_s = submitted_at(gavel, tmp_path)
    assert [job_id for job_id in at_s if job_id.startswith("once-")] == [
        "once-a",
        "once-b",
        "once-c",
    ]
    # 1.5 s apart, or more where the machine is busy; less by what it was late with the first.
    assert at_s["once-b"] - at_s["once-a"] > 0.5
    assert at_s["once-c"] - at_s["once-a"] > 2.0
    assert gavel.json("wait", "once-c")["status"] == "completed"


def test_nothing_is_submitted_if_one_job_cannot_be(gavel: Gavel, tmp_path: Path) -> None:
    """Too wide, or under an id of another job: named, and the good ones wait outside too."""
    wide = trace_of(
        tmp_path / "wide.jsonl", {"job_id": "fits"}, {"job_id": "wide", "scale_factor": 8}
    )
    said = gavel("trace", "inject", wide, code=1)
    assert "nothing was submitted" in said
    assert "job wide: asks for 8 workers" in said
    taken = trace_of(tmp_path / "taken.jsonl", {"job_id": "taken"})
    gavel("trace", "inject", taken)
    other = trace_of(tmp_path / "other.jsonl", {"job_id": "taken", "total_steps": 21.0})
    assert "its id is another job's" in gavel("trace", "inject", other, code=1)
    assert "fits" not in submitted_at(gavel, tmp_path)


def test_commands_are_not_run_unasked(gavel: Gavel, tmp_path: Path) -> None:
    """A trace is somebody else's file: what its jobs run is left out, secrets are refused."""
    job: dict[str, object] = {"job_id": "quiet", "command": "touch owned"}
    gavel("trace", "inject", trace_of(tmp_path / "quiet.jsonl", job))
    (found,) = [j for j in gavel.json("jobs", "--all") if j["job_id"] == "quiet"]
    assert "owned" not in json.dumps(found)
    secret = job | {"job_id": "loud", "environment": {"API_KEY": "x"}}
    path = trace_of(tmp_path / "loud.jsonl", secret)
    assert "looks like a secret" in gavel("trace", "inject", path, "--commands", code=2)


def test_outages_are_for_simulations(gavel: Gavel, tmp_path: Path) -> None:
    """A live cluster's workers fail by themselves; cancellations are injected."""
    path = str(tmp_path / "events.jsonl")
    gavel(
        "trace",
        "generate",
        "--jobs",
        "2",
        "--cluster",
        "v100=1",
        "--up-hours",
        "0.1",
        "--out",
        path,
    )
    assert "workers of a live cluster fail by themselves" in gavel("trace", "inject", path, code=2)
    event = {"kind": "CancelRequested", "job_id": "long"}
    job = {"job_id": "long", "job_type": TYPE, "total_steps": 1e7}
    lines = (
        {"at": 0.0, "actor": "client.long", "event": {"kind": "JobSubmitted", "job": job}},
        {"at": 0.5, "actor": "client.long.cancel", "event": event},
    )
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert gavel.json("trace", "inject", path)["events"] == 1
    assert "cancelled" in gavel("wait", "long", code=1)


def test_an_interrupted_injection_goes_on(gavel: Gavel, tmp_path: Path) -> None:
    """Ctrl-C says how far it was; the same command submits the rest, without the wait before it."""
    jobs: Jobs = ({"job_id": "now"}, {"job_id": "later", "arrival_s": 1e6})
    path = trace_of(tmp_path / "jobs.jsonl", *jobs)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "replay.cli", "trace", "inject", path],
        env=gavel.environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while "now" not in submitted_at(gavel, tmp_path):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert "1 of 2 submitted; the same command goes on from there" in errors
    assert process.returncode == 130
    assert gavel.json("trace", "inject", path) == {"submitted": 1, "events": 0, "there_already": 1}
    assert gavel.json("wait", "later")["status"] == "completed"


def test_drains_are_injected_each_once(gavel: Gavel, tmp_path: Path) -> None:
    """A trace has one operator for all of them; the log has each. Last here: workers are gone."""
    path = tmp_path / "drains.jsonl"
    job = {"job_id": "drained", "job_type": TYPE, "total_steps": 20.0}
    lines = (
        {"at": 0.0, "actor": "client.drained", "event": {"kind": "JobSubmitted", "job": job}},
        *(
            {
                "at": 0.1,
                "actor": "operator",
                "event": {"kind": "DrainRequested", "worker_id": f"local-v100-{n}"},
            }
            for n in range(2)
        ),
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    injected = gavel.json("trace", "inject", str(path))
    assert injected == {"submitted": 1, "events": 2, "there_already": 0}
    again = gavel.json("trace", "inject", str(path))
    assert again == {"submitted": 0, "events": 0, "there_already": 1}
    states = {each["worker_id"]: each["state"] for each in gavel.json("workers")}
    draining = {worker_id for worker_id, state in states.items() if state != "ready"}
    assert draining == {"local-v100-0", "local-v100-1"}

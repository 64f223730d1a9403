"""``gavel plan``: what it says of a job before it is submitted is what then happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from replay.explain.history import Histories
from schemas.events import (
    JobSubmitted,
)
from tests.live.shells import export
from tests.replay.command import flat, gavel
from tests.replay.explained import RESNET, contention, job, run


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contended log as a file."""
    return export(list(contention()), tmp_path_factory.mktemp("log") / "run.jsonl")


def planned(log: Path, *options: object) -> Any:
    """What `plan` says of a job of an hour, 1700 s into the log."""
    steps = job("new", 1.0).total_steps
    common = ("--at", "1700", "--type", RESNET, "--steps", steps, "--id", "new", "--json")
    result = gavel("plan", "--log", log, *common, *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_plan_is_what_then_happens(log: Path) -> None:
    """The job submitted at that time starts, ends and delays others as was said."""
    found = planned(log)
    arrival_s = 1700.0
    jobs = [job(f"j{n}", 1.0 + n / 3, arrival_s=75.0 * n) for n in range(8)]
    submitted = (arrival_s, "client.new", JobSubmitted(job=job("new", 1.0)))
    with_it, without = Histories(), Histories()
    for record in run(jobs, [submitted]):
        with_it.take(record)
    for record in contention():
        without.take(record)
    history = with_it.jobs["new"]
    assert found["starts_s"] == history.stretches[0].starts_s
    assert found["ends_s"] == history.ended_s
    assert found["held_s"] == pytest.approx(history.received_s())
    delays = {
        name: (with_it.jobs[name].ended_s or 0) - (each.ended_s or 0)
        for name, each in without.jobs.items()
        if each.ended_s is not None and each.ended_s > arrival_s
    }
    late = {name: delay for name, delay in delays.items() if abs(delay) > 1}
    assert found["delays_s"] == pytest.approx(late)
    hours = {worker_type: s / 3600 for worker_type, s in history.received_s().items()}
    cost = 0.74 * hours.get("v100", 0.0) + 0.135 * hours.get("k80", 0.0)
    assert found["cost_usd"] == pytest.approx(cost)


def test_a_plan_under_another_policy_is_another(log: Path) -> None:
    """First in, first out: it comes after all who are there."""
    assert planned(log, "--policy", "fifo")["starts_s"] > planned(log)["starts_s"]


def test_a_plan_of_a_job_that_can_never_run_says_why(log: Path) -> None:
    """Exit code 1, with the numbers."""
    result = gavel("plan", "--log", log, "--type", RESNET, "--steps", 9, "--workers", 4)
    assert result.exit_code == 1
    assert "can never run: asks for 4 workers of one type; there are k80: 2, v100: 2" in flat(
        result.stdout
    )


def test_a_plan_of_a_job_of_no_known_type_needs_its_speed(log: Path) -> None:
    """Declared, it is planned; undeclared, it is told that nothing is known."""
    options = ("--log", log, "--type", "mine", "--steps", 3600)
    assert "no throughput of job type 'mine' is known" in flat(gavel("plan", *options).stdout)
    told = flat(gavel("plan", *options, "--throughput", "v100=1").stdout)
    assert "starts in" in told
    assert "on v100 for" in told


def test_a_plan_says_whom_it_delays_in_words(log: Path) -> None:
    """When, where, at what cost, at whose cost."""
    steps = job("new", 1.0).total_steps
    told = flat(
        gavel("plan", "--log", log, "--at", "30m", "--type", RESNET, "--steps", steps).stdout
    )
    for words in ("starts in", "ends in", "cost", "USD", "delays", "most of all"):
        assert words in told


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--id", "j0"), "--id is 'j0'; expected a name that no job of the log has"),
        (("--policy", "lass"), "policy 'lass' is not known; did you mean 'las'"),
        (("--throughput", "v100=fast"), "--throughput is 'v100=fast'; expected steps/s, a number"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(
    log: Path, options: tuple[str, ...], expected: str
) -> None:
    """One line: the option, the value, what would be right."""
    result = gavel("plan", "--log", log, "--type", RESNET, "--steps", 9, *options)
    assert result.exit_code == 2
    assert expected in flat(result.stderr)

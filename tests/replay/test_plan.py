"""``gavel plan``: what it says of a job before it is submitted is what then happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import replay.explain.planned as planned_module
from replay.explain.history import Histories
from replay.modes import MODES
from schemas.events import DrainRequested, JobSubmitted
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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--type", "ResNet-50"), "job type 'ResNet-50' is known; did you mean 'ResNet-50 (batch"),
        (("--type", RESNET, "--workers", 2, "--at", "5"), "starts in "),
        (("--type", RESNET, "--at", "5"), "beside 1 job that is there"),
    ],
)
def test_a_plan_by_the_name_of_a_job_type(
    log: Path, options: tuple[object, ...], expected: str
) -> None:
    """A wrong one is told the nearest; of the built-in table any number of workers is known."""
    assert expected in flat(gavel("plan", "--log", log, "--steps", 20000, *options).stdout)


def test_a_plan_on_a_cluster_that_leases_nothing_is_never(tmp_path: Path) -> None:
    """Two are drained: nothing is left to happen, and exit code 1 says so."""
    drains = [(500.0, "operator", DrainRequested(worker_id=f"v100-{n}")) for n in range(2)]
    records = run([job("a", 1.0), job("b", 1.0)], drains, cluster={"v100": 2})
    drained = export(list(records), tmp_path / "drained.jsonl")
    result = gavel("plan", "--log", drained, "--type", RESNET, "--steps", 9)
    assert result.exit_code == 1
    told = flat(result.stdout)
    assert "starts never, as things are" in told
    assert "delays nobody; not seen to end, with it or without it: 2 of 2" in told
    assert "cost" not in told


def test_a_plan_of_a_job_without_end_has_the_cost_of_what_was_simulated(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held time and cost are of that part only, and say so; its cost is that of the hours."""
    monkeypatch.setattr(planned_module, "_AT_MOST", 2000)
    options = ("plan", "--log", log, "--type", RESNET, "--steps", 1e15)
    found = json.loads(gavel(*options, "--json").stdout)
    assert found["ends_s"] is None
    assert not found["is_over"]
    assert found["cost_usd"] == pytest.approx(0.74 * found["held_s"]["v100"] / 3600)
    told = flat(gavel(*options).stdout)
    assert "ends not within what was simulated" in told
    assert told.count("as far as was simulated") == 2


def test_a_plan_on_a_cluster_that_learns_needs_a_first_guess(tmp_path: Path) -> None:
    """Of a type nobody knows there is nothing to simulate by; declared, there is."""
    config = msgspec.structs.replace(
        MODES["default"]("las", 360.0), estimator="learned", trust_job_types=False
    )
    records = run([job("a", 2.0)], config=config)
    learned = export(list(records), tmp_path / "learned.jsonl")
    options = ("plan", "--log", learned, "--at", "5m", "--type", "mine", "--steps", 3600)
    result = gavel(*options)
    assert result.exit_code == 2
    assert "no throughput of job type 'mine' is known: declare it" in flat(result.stderr)
    assert "starts in" in flat(gavel(*options, "--throughput", "v100=1").stdout)


def test_a_plan_under_a_policy_without_an_answer_says_so(log: Path, tmp_path: Path) -> None:
    """In its words; the jobs then have equal shares."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from services.policy.problem import PolicyError\n"
        "class Never:\n"
        "    needs_progress = False\n"
        "    def solve(self, problem):\n"
        "        raise PolicyError('out of ideas')\n"
    )
    options = ("--at", "20m", "--type", RESNET, "--steps", 9, "--policy", f"{path}:Never")
    told = flat(gavel("plan", "--log", log, *options).stdout)
    assert "starts in" in told
    assert "note the policy has no answer: out of ideas" in told


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

"""What-if: unchanged it is the recorded outcome, changed what a simulation would have been."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import msgspec
import pytest

from replay.cluster import Failure
from replay.modes import MODES
from replay.moment import Moment, Onward
from replay.simulate import WORKER, Simulation, build_workers, table_rates
from replay.summary import Summary
from replay.traces.tables import builtin_table
from replay.whatif.answer import Answer, what_if
from replay.whatif.change import Change, WhatIfError
from replay.world import Outside
from schemas.domain import Entity, JobSpec
from schemas.events import (
    ClusterConfigured,
    DrainRequested,
    JobCompleted,
    JobSubmitted,
    TaskStopped,
    ThroughputTableImported,
    WorkerDisappeared,
)
from schemas.record import Record
from services.runtime.log import MemoryLog
from tests.live.shells import export
from tests.replay.command import flat, gavel
from tests.simulation.scenario import contended, records_of

CLUSTER = {"v100": 2, "p100": 1, "k80": 2}
ENTITIES = (
    Entity(entity_id="lab"),
    Entity(entity_id="vision", parent="lab"),
    Entity(entity_id="shop", weight=2.0),
)


def jobs() -> tuple[JobSpec, ...]:
    """Jobs of three entities, more than the workers can do at once."""
    given = contended(3, num_jobs=14).jobs
    names = ("vision", "shop", "lab")
    kept = [job for job in given if job.scale_factor <= 2]
    return tuple(
        msgspec.structs.replace(job, entity=names[n % 3], total_steps=(job.total_steps or 0) * 9)
        for n, job in enumerate(kept)
    )


def simulated(
    config: ClusterConfigured,
    cluster: Mapping[str, int] = CLUSTER,
    submitted: tuple[JobSpec, ...] | None = None,
    noise: float = 0.0,
) -> tuple[Summary, tuple[Record, ...]]:
    """A simulation's summary and log."""
    load_s, save_s = (5.0, 2.5) if config.round_end == "grid" else (0.0, 0.0)
    simulation = Simulation(
        MemoryLog(),
        config,
        build_workers(cluster, {}, {"v100": 0.74}),
        builtin_table(),
        jobs() if submitted is None else submitted,
        load_s=load_s,
        save_s=save_s,
        noise=noise,
    )
    summary = simulation.run()
    return summary, tuple(records_of(simulation.driver))


def config(policy: str = "las", mode: str = "default", round_s: float = 40.0) -> ClusterConfigured:
    """How the clusters here are run."""
    made = MODES[mode](policy, round_s)
    return msgspec.structs.replace(made, entities=ENTITIES, reference_type="v100")


@cache
def log(mode: str = "default", policy: str = "las") -> tuple[Record, ...]:
    """The log that is asked about."""
    return simulated(config(policy, mode))[1]


def ask(change: Change, at: int = 0, records: tuple[Record, ...] | None = None) -> Answer:
    """Ask it of the log."""
    return what_if(lambda: iter(log() if records is None else records), change, at)


# --- nothing changed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "policy"),
    [("default", "las"), ("default", "ftf"), ("default", "las:ss"), ("paper", "las"),
     ("paper", "las:agnostic"), ("default", "hierarchical"), ("default", "gandiva")],
)  # fmt: skip
def test_unchanged_it_is_the_recorded_outcome(mode: str, policy: str) -> None:
    """To the last bit of every figure and of every job's times."""
    records = log(mode, policy)
    answer = ask(Change(), records=records)
    assert answer.unchanged.jobs == answer.recorded.jobs
    assert answer.unchanged.figures == answer.recorded.figures
    assert answer.off == 0.0


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_unchanged_from_a_record_on_it_is_the_recorded_outcome_too(share: float) -> None:
    """From the middle of the log as from its start."""
    answer = ask(Change(), at=int(share * len(log())))
    assert answer.unchanged.jobs == answer.recorded.jobs


def test_a_worker_that_disappears_and_is_back_does_so_again() -> None:
    """What services find out for themselves comes from outside as well."""
    simulation = Simulation(
        MemoryLog(), config(), build_workers(CLUSTER, {}, {}), builtin_table(), jobs(), load_s=5.0
    )
    gone = WorkerDisappeared(worker_id="v100-0", reporter=WORKER)
    simulation.driver.submit(130.0, WORKER, gone)
    back = next(w for w in build_workers(CLUSTER, {}, {}) if w.worker_id == "v100-0")
    simulation.driver.submit(410.0, WORKER, back)
    simulation.run()
    records = tuple(records_of(simulation.driver))
    assert any(isinstance(record.event, WorkerDisappeared) for record in records)
    for at in (0, len(records) // 4, len(records) // 2):
        answer = ask(Change(), at, records)
        assert answer.unchanged.jobs == answer.recorded.jobs


@cache
def failing() -> tuple[Record, ...]:
    """A log in which a job fails twice and another for good, as only live ones have them."""
    records: list[Record] = []
    first, second = jobs()[:2]
    crash = Failure(55.0, "failed", 1, "out of memory")
    failures = {
        first.job_id: [crash, Failure(90.0, "lost")],
        second.job_id: [Failure(30.0 + n, "failed", 2) for n in range(3)],
    }
    submitted = [Outside(0.0, 0, "operator", config()), Outside(0.0, 0, "operator", table())]
    submitted += [
        Outside(job.arrival_s, 0, f"client.{job.job_id}", JobSubmitted(job=job)) for job in jobs()
    ]
    onward = Onward(
        Moment(),
        table_rates(builtin_table()),
        load_s=5.0,
        save_s=2.5,
        outside=submitted,
        workers=build_workers(CLUSTER, {}, {}),
        failures=failures,
        observers=(records.append,),
    )
    onward.driver.run()
    return tuple(records)


def table() -> ThroughputTableImported:
    """The built-in table, as far as the jobs here go."""
    known = builtin_table()
    classes = sorted({(job.job_type, job.scale_factor) for job in jobs()})
    return ThroughputTableImported(source=known.source, rows=known.rows(classes, pairs=False))


def test_tasks_fail_again_when_their_jobs_have_held_workers_as_long() -> None:
    """From the start and from the middle; a job that failed for good does so again."""
    stops = [r.event for r in failing() if isinstance(r.event, TaskStopped)]
    assert [s.reason for s in stops].count("failed") == 4
    assert [s.reason for s in stops].count("lost") == 1
    for at in (0, len(failing()) // 5, len(failing()) // 2):
        answer = ask(Change(), at, failing())
        assert answer.unchanged.jobs == answer.recorded.jobs
        assert answer.unchanged.figures.outcomes["failed"] == 1
    more = ask(Change(cluster={"v100": 1}), records=failing())
    assert more.changed.figures.outcomes == more.recorded.figures.outcomes


def test_noise_comes_back_as_the_mean_that_was_measured() -> None:
    """What chance did to each lease is not on the log; what it came to on average is."""
    records = simulated(config(), noise=0.05)[1]
    assert abs(ask(Change(), records=records).off or 0.0) < 0.01


def test_a_log_that_was_cut_off_goes_on_to_the_end_of_its_jobs() -> None:
    """Jobs whose end is not on the log end all the same, as they would have."""
    answer = ask(Change(), records=log()[: len(log()) // 2])
    whole = ask(Change()).recorded.jobs
    assert all(job.completion_s is not None for job in answer.unchanged.jobs.values())
    assert answer.unchanged.jobs.keys() <= whole.keys()


# --- one thing changed ---------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["ftf", "las:ss", "las:agnostic", "fifo", "makespan"])
@pytest.mark.parametrize("mode", ["default", "paper"])
def test_another_policy_is_a_simulation_of_that_policy(mode: str, policy: str) -> None:
    """Pairs too, which a log of a policy that does not share workers leaves out."""
    answer = ask(Change(policy=policy), records=log(mode))
    assert answer.changed.jobs == simulated(config(policy, mode))[0].jobs


@pytest.mark.parametrize("more", [{"v100": 1}, {"k80": -1, "p100": 2}])
def test_another_cluster_is_a_simulation_of_that_cluster(more: dict[str, int]) -> None:
    """Workers more and fewer."""
    cluster = {name: number + more.get(name, 0) for name, number in CLUSTER.items()}
    answer = ask(Change(cluster=more))
    assert answer.changed.jobs == simulated(config(), cluster)[0].jobs


def test_other_rounds_are_a_simulation_of_such_rounds() -> None:
    """Rounds of 25 s instead of 40 s."""
    answer = ask(Change(round_s=25.0))
    assert answer.changed.jobs == simulated(config(round_s=25.0))[0].jobs


def test_without_an_entity_it_is_a_simulation_of_the_others() -> None:
    """The jobs of what lies below it are left out as well."""
    others = tuple(job for job in jobs() if job.entity == "shop")
    answer = ask(Change(without_entity="lab"))
    assert answer.changed.jobs == simulated(config(), submitted=others)[0].jobs
    assert answer.gains().keys() == {job.job_id for job in others}


@pytest.mark.parametrize(
    "change",
    [Change(policy="ftf"), Change(cluster={"v100": 1}), Change(cluster={"v100": -1}),
     Change(round_s=20.0), Change(without_entity="shop"), Change(policy="las:ss")],
)  # fmt: skip
def test_changed_from_a_record_on_what_was_before_stands(change: Change) -> None:
    """Jobs that were complete by then are complete when they were; the others are not alike."""
    at = len(log()) // 2
    done = {r.event.job_id for r in log()[:at] if isinstance(r.event, JobCompleted)}
    answer = ask(change, at)
    assert done
    assert all(answer.changed.jobs[j] == answer.recorded.jobs[j] for j in done)
    assert answer.changed.jobs != answer.unchanged.jobs
    assert answer.unchanged.jobs == answer.recorded.jobs


def test_workers_that_go_in_the_middle_are_drained() -> None:
    """As an operator would take them away: tasks go on to the end of the round."""
    seen: list[Record] = []
    what_if(lambda: iter(log()), Change(cluster={"v100": -1}), len(log()) // 2, seen.append)
    drains = [r.event for r in seen if isinstance(r.event, DrainRequested)]
    assert drains == [DrainRequested(worker_id="v100-1")]


# --- questions that make no sense ----------------------------------------------------------------


def test_a_policy_that_cannot_run_the_jobs_is_named_with_its_reason(tmp_path: Path) -> None:
    """In its own words, and nothing is reported of a run that is none."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "class Never:\n"
        "    needs_progress = False\n"
        "    def solve(self, problem):\n"
        "        raise ValueError('jobs must be red')\n"
    )
    result = gavel("whatif", written(tmp_path), "--policy", f"{mine}:Never")
    assert result.exit_code == 2
    assert "cannot run these jobs: ValueError: jobs must be red" in flat(result.stderr)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--policy", "ftff"), "policy 'ftff' is not known; did you mean 'ftf'"),
        (("--without-entity", "visoin"), "expected one of lab, shop, vision; perhaps vision"),
        (("--cluster", "v100=1"), "--cluster is 'v100=1'; expected +TYPE=N or -TYPE=N"),
        (("--cluster", "-v100=3"), "takes 3 v100 away; expected at most 2"),
        (("--cluster", "+h100=3"), "--cluster names 'h100'; expected one of k80, p100, v100"),
        (("--round", "5"), "--round is 5; expected more than 7.5 s"),
        (("--at", "100000"), "--at is 100000; expected at most"),
        (("--plot", "a.gif"), "expected a file ending in .png, .pdf, .html"),
        (("--parameters", "seed=2"), "policy 'las' has no parameter 'seed'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    """One line: the option, the value, what would be right; no file is made."""
    path = written(tmp_path)
    result = gavel("whatif", path, *options)
    assert result.exit_code == 2
    assert expected in flat(result.stderr)
    assert list(tmp_path.iterdir()) == [path]


def test_sharing_needs_throughputs_of_pairs_from_somewhere() -> None:
    """A log whose table is not built in says what is missing, and where to put it."""

    def foreign(record: Record) -> Record:
        source = getattr(record.event, "source", None)
        if type(record.event).__name__ != "ThroughputTableImported" or not source:
            return record
        event = msgspec.structs.replace(record.event, source="ours")
        return msgspec.structs.replace(record, event=event)

    records = tuple(map(foreign, log()))
    with pytest.raises(WhatIfError, match="give them by --throughputs"):
        ask(Change(policy="las:ss"), records=records)
    answer = ask(Change(policy="las:ss", table=builtin_table()), records=records)
    assert answer.changed.jobs == simulated(config("las:ss"))[0].jobs


def test_a_log_without_jobs_says_so() -> None:
    """There is nothing to ask about."""
    first_job = next(n for n, r in enumerate(log()) if r.actor.startswith("client"))
    with pytest.raises(WhatIfError, match="submits a job"):
        ask(Change(policy="ftf"), records=log()[:first_job])


# --- the command ---------------------------------------------------------------------------------


def written(folder: Path) -> Path:
    """The log as a file."""
    return export(list(log()), folder / "run.jsonl")


def test_the_command_tells_the_difference_per_job_and_in_all(tmp_path: Path) -> None:
    """As a table, as JSON, and as a picture in each format."""
    path = written(tmp_path)
    told = gavel("whatif", path, "--policy", "ftf").stdout
    assert re.search(r"average JCT .* [+-]\d+\.\d%", told)
    assert "come back exactly" in flat(told)
    found = json.loads(gavel("whatif", path, "--policy", "ftf", "--json").stdout)
    expected = simulated(config("ftf"))[0]
    assert found["off"] == 0.0
    assert found["change"] == {"--policy": "ftf"}
    assert {j: line["changed_jct_s"] for j, line in found["jobs"].items()} == {
        job_id: job.jct_s for job_id, job in expected.jobs.items()
    }
    starts: dict[str, Callable[[bytes], bool]] = {
        "png": lambda content: content.startswith(b"\x89PNG"),
        "pdf": lambda content: content.startswith(b"%PDF"),
        "html": lambda content: b"policy ftf" in content and b"Plotly" in content,
    }
    for suffix, is_right in starts.items():
        plot = tmp_path / f"plot.{suffix}"
        assert gavel("whatif", path, "--policy", "ftf", "--plot", plot).exit_code == 0
        assert is_right(plot.read_bytes())


@pytest.mark.parametrize(
    ("harm", "expected"),
    [
        (lambda lines: [*lines[:40], *lines[41:]], "line 41"),
        (lambda lines: [*lines[:-1], *lines[:-1]], "was altered, or lines before it"),
        (lambda lines: [*lines[:30], lines[30].replace('"at":', '"at":1'), *lines[31:]], "line 31"),
    ],
    ids=["a record is missing", "two logs in one file", "a record was altered"],
)
def test_a_log_that_is_not_as_it_was_written_is_refused(
    tmp_path: Path, harm: Callable[[list[str]], list[str]], expected: str
) -> None:
    """The line is named; nothing is concluded from what is left."""
    path = written(tmp_path)
    path.write_text("".join(harm(path.read_text().splitlines(keepends=True))))
    result = gavel("whatif", path)
    assert result.exit_code == 2
    assert expected in flat(result.stderr)


def test_a_log_cut_in_mid_record_is_read_up_to_there(tmp_path: Path) -> None:
    """Its writer was killed: what it had begun to write is left out, and it is said."""
    path = written(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: content.rindex(b'{"seq"') + 30])
    result = gavel("whatif", path)
    assert result.exit_code == 0
    assert "begun but not finished, is left out" in flat(result.stderr)
    assert result.stderr.count("not sealed") == 1

"""`gavel paper`: every target regenerates, and what its figures stand on is right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from replay.cli import paper
from replay.cli.__main__ import app
from replay.paper import (
    catalog,
    continuous,
    estimation,
    fluid,
    hierarchy,
    rounds,
    scaling,
    static,
    tables,
)
from replay.paper.blind_fifo import BlindFifo
from replay.paper.overhead import Overheads
from replay.paper.result import PaperError, Setup
from replay.paper.workload import TYPES, capacity_jobs_per_h, cluster_of, mean_duration_s
from replay.request import Request
from replay.run import carry_out, check
from replay.traces.generate import generate
from replay.traces.tables import builtin_table
from schemas.domain import JobSpec
from services.estimator.tables import ThroughputTable, parse_csv
from services.policy.problem import JobClass, Problem
from services.runtime.file_log import FileLog
from services.runtime.log import MemoryLog
from tests.policy.problems import violation


def table(*rows: tuple[str, float, float, float]) -> ThroughputTable:
    """Throughputs of (job type, steps/s on k80, p100, v100)."""
    lines = ["job_type,scale_factor,worker_type,steps_per_s"]
    lines += [
        f"{name},1,{worker_type},{speed}"
        for name, *speeds in rows
        for worker_type, speed in zip(TYPES, speeds, strict=True)
    ]
    return parse_csv("\n".join(lines), "a test")


# --- what the figures stand on -------------------------------------------------------------------


def test_the_mean_length_is_that_of_the_jobs_drawn() -> None:
    """The closed form agrees with the generator, to the error of a large sample."""
    jobs = generate(40_000, 1.0, multi_gpu=False, seed=0, table=table(("a", 1.0, 1.0, 1.0)))
    lengths = np.array([job.total_steps for job in jobs])
    error = lengths.std() / len(lengths) ** 0.5
    assert abs(lengths.mean() - mean_duration_s()) < 4 * error


@given(st.lists(st.floats(0.5, 20), min_size=3, max_size=3))
@settings(max_examples=20)
def test_with_one_job_type_nobody_is_blind(speeds: list[float]) -> None:
    """Where all jobs are alike, to know types gains nothing; capacity is work over speed."""
    one = table(("a", *map(float, (f"{v:.3f}" for v in speeds))))  # type: ignore[arg-type] # mypy counts no stars
    rates = [one.alone("a", 1, name) or 0.0 for name in TYPES]
    aware, blind = (capacity_jobs_per_h(one, 4, multi_gpu=False, aware=a) for a in (True, False))
    assert aware == pytest.approx(3600 * 4 * sum(rates) / (mean_duration_s() * rates[2]))
    assert blind == pytest.approx(aware)


def test_who_knows_types_serves_more() -> None:
    """Of the built-in jobs; and twice the workers serve twice the jobs."""
    known = builtin_table()
    for multi_gpu in (False, True):
        aware, twice = (
            capacity_jobs_per_h(known, each, multi_gpu=multi_gpu, aware=True) for each in (12, 24)
        )
        assert twice == pytest.approx(2 * aware)
        assert aware > 1.1 * capacity_jobs_per_h(known, 12, multi_gpu=multi_gpu, aware=False)


def test_the_ideal_mechanism_gives_what_the_allocation_says() -> None:
    """Two equal jobs on one worker: both done after twice the time; alone again, full speed."""
    one = table(("a", 0.0, 0.0, 2.0))
    workers = {"k80": 0, "p100": 0, "v100": 1}
    jobs = [
        JobSpec(job_id=str(n), job_type="a", total_steps=steps, arrival_s=0.0)
        for n, steps in enumerate((200.0, 600.0))
    ]
    found = fluid.jcts_s("las", jobs, workers, one, ["0", "1"])
    # Until 200 s both at half speed; then the second has 400 steps left, at 2 steps/s.
    assert found == pytest.approx({"0": 200.0, "1": 400.0})


def test_short_rounds_come_near_the_ideal() -> None:
    """With rounds of a minute the mechanism is within 5 % of the allocation's own promise."""
    request = Request(generate=True, jobs=25, mean_gap=2400.0, seed=1, round=60.0)
    plan = check(replace(request, cluster=cluster_of(2)))
    measured = [job.job_id for job in plan.trace.jobs]
    ideal = fluid.jcts_s("las", plan.trace.jobs, plan.cluster, plan.table, measured)
    ours = carry_out(plan, MemoryLog()).figures.average_jct_s
    assert ours == pytest.approx(float(np.mean(list(ideal.values()))), rel=0.05)


def test_overheads_are_the_runs() -> None:
    """By job type, summed, they are what the run itself tells."""
    request = Request(generate=True, jobs=20, mean_gap=600.0, cluster=cluster_of(2))
    overheads = Overheads()
    done = carry_out(check(replace(request, checkpoint_seconds="5")), MemoryLog(), overheads.take)
    (use,) = overheads.by(lambda _: "all").values()
    figures = done.figures
    assert (use.starts, use.renewals) == (figures.starts, figures.renewals)
    assert use.run_s == pytest.approx(figures.run_s)
    assert use.overhead == pytest.approx((figures.load_s + figures.save_s) / figures.run_s)
    assert use.overhead_without_renewals > use.overhead


def test_blind_fifo_is_first_in_first_out() -> None:
    """Whoever runs came before whoever waits; no type has more than its workers."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        classes = tuple(
            JobClass(
                job_type=str(n),
                scale_factor=int(rng.choice([1, 2, 4])),
                throughputs=(1.0, 2.0, float(rng.integers(0, 3))),
                job_ids=(str(n),),
                arrival_ranks=(n,),
            )
            for n in range(12)
        )
        asked = Problem(worker_types=TYPES, num_workers=(4, 4, 4), classes=classes)
        given_ = BlindFifo().solve(asked)
        served = [int(row.combinations[0][0]) for row in given_.rows]
        assert served == list(range(len(served)))
        assert violation(asked, given_) <= 0


def test_a_static_partition_loses_nothing_where_all_jobs_are_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Figure 11 shows comes from jobs that differ, and from nothing else."""
    monkeypatch.setattr(hierarchy, "_DRAWS", 1)
    path = tmp_path / "alike.csv"
    path.write_text("job_type,scale_factor,worker_type,steps_per_s\n" + "".join(
        f"{name},1,{worker_type},{speed}\n"
        for name in ("a", "b") for worker_type, speed in zip(TYPES, (1, 2, 4), strict=True)
    ))  # fmt: skip
    alike = hierarchy.figure11(Setup(throughputs=path))
    assert alike.claims[1].ours == "0%"
    assert alike.claims[0].ours == "0.17 : 0.33 : 0.50"


# --- the targets ---------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every target on a handful of workers and jobs."""
    for module, name, value in (
        (continuous, "_EACH", 2),
        (continuous, "_JOBS", 8),
        (continuous, "_WINDOW", "2:6"),
        (continuous, "_SHARES", (0.3, 0.9)),
        (rounds, "_ROUNDS_S", (360.0, 2880.0)),
        (rounds, "_SCALED_DOWN", (2, 8, "2:6")),
        (estimation, "_SCALED_DOWN", (8, "2:6")),
        (scaling, "_SIZES", (32, 512, 2048)),
        (tables, "_DRAWN_JOBS", 12),
        (estimation, "_SHARES", (0.5,)),
        (hierarchy, "_DRAWS", 2),
        (static, "_DAYS", (0.05, 0.1)),
    ):
        monkeypatch.setattr(module, name, value)


def test_all_targets_are_offered() -> None:
    """What the command lists is what there is."""
    assert set(paper.TARGETS) == set(catalog.TARGETS)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "target", ["figure8", "figure10", "figure11", "figure12", "figure13", "estimation", "table4"]
)
def test_a_target_regenerates(target: str, tmp_path: Path) -> None:
    """The paper's number stands beside ours, and pictures are drawn."""
    command = ["paper", target, "--out", str(tmp_path), "--seeds", "1", "--processes", "1"]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["claims"]
    assert all(claim["paper"] and claim["ours"] for claim in told["claims"])
    assert (tmp_path / target / "index.html").read_text().count('class="picture"') > 0


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("target", ["table3", "cost"])
def test_a_second_time_nothing_is_simulated(target: str, tmp_path: Path) -> None:
    """Results are kept; people are told what scripts are."""
    command = ["paper", target, "--out", str(tmp_path), "--seeds", "1", "--processes", "1"]
    first = CliRunner().invoke(app, [*command, "--json"])
    assert first.exit_code == 0, first.output
    cells = {file: file.stat().st_mtime_ns for file in (tmp_path / "cells").glob("*.parquet")}
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0, again.output
    for claim in json.loads(first.stdout)["claims"]:
        assert claim["paper"].split()[0] in again.stdout
        assert claim["ours"].split()[0] in again.stdout
    after = {file: file.stat().st_mtime_ns for file in (tmp_path / "cells").glob("*.parquet")}
    assert cells
    assert after == cells


def test_an_unknown_target_is_named() -> None:
    """With the nearest one."""
    done = CliRunner().invoke(app, ["paper", "figure7"])
    assert done.exit_code == 2
    assert "TARGET is 'figure7'" in done.output


def test_the_artifacts_traces_are_found_or_named(tmp_path: Path) -> None:
    """By how their names end, wherever they lie; a folder without them is refused."""
    with pytest.raises(PaperError, match=r"expected a folder with a file \.\.\.a_b\.trace"):
        Setup(artifact=tmp_path).trace("a_b")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "physical__a_b.trace").touch()
    assert Setup(artifact=tmp_path).trace("a_b") == tmp_path / "deep" / "physical__a_b.trace"
    assert Setup().trace("a_b") is None


def test_table_4_of_a_log(tmp_path: Path) -> None:
    """As measured where the log comes from; refused where no job ran, or with another target."""
    log, empty = tmp_path / "run.jsonl", tmp_path / "empty.jsonl"
    simulate = "simulate --generate --jobs 5 --cluster v100=1 --checkpoint-seconds 5 --log"
    assert CliRunner().invoke(app, [*simulate.split(), str(log)]).exit_code == 0
    done = CliRunner().invoke(app, ["paper", "table4", "--log", str(log)])
    assert done.exit_code == 0, done.output
    assert "of a log" in done.stdout
    FileLog(empty).close()
    for arguments, said in (
        (["table4", "--log", str(empty)], "expected a log in which a job ran"),
        (["figure8", "--log", str(log)], "none but with table4"),
    ):
        refused = CliRunner().invoke(app, ["paper", *arguments])
        assert refused.exit_code == 2
        assert said in refused.output

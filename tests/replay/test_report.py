"""`gavel report`, `gavel export`: what pictures say is what the log says, and files are whole."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from replay.cli.__main__ import app
from replay.modes import default_mode
from replay.report import log_pictures, page, printed, results_pictures
from replay.report.charts import Bars, Chart, Picture, Report, Timeline, cdf, log_ticks
from replay.report.fairness import isolated_jct_s, isolated_steps_per_s, present
from replay.report.log_fold import LogFold
from replay.report.perfetto import events
from replay.request import Request
from replay.run import check
from replay.simulate import Simulation
from replay.summary import Figures
from replay.sweep.cell import run_cell
from replay.sweep.store import Results
from schemas.record import Record
from services.runtime.file_log import FileLog, read_log
from services.runtime.log import MemoryLog

_REQUEST = Request(
    generate=True,
    jobs=30,
    mean_gap=900.0,
    multi_gpu=True,
    seed=2,
    cluster="v100=8,p100=8,k80=8",
    servers="v100=4,p100=4,k80=4",
)


_GOLDEN = Path(__file__).parents[1] / "golden"


def simulated(request: Request, load_s: float = 5.0) -> tuple[LogFold, Figures]:
    """The log of a run, folded, and the run's own figures."""
    plan = check(request)
    log = MemoryLog()
    config = msgspec.structs.replace(plan.config, policy=request.policy)
    simulation = Simulation(
        log, config, plan.workers, plan.table, plan.trace.jobs, load_s=load_s, save_s=load_s
    )
    figures = simulation.run().figures()
    return log_pictures.fold(log.read()), figures


@pytest.fixture(scope="module")
def run() -> tuple[LogFold, Figures]:
    """A small run with gangs."""
    return simulated(_REQUEST)


def by_key(pictures: list[Picture]) -> dict[str, Picture]:
    """Pictures by key; each key is there once."""
    found = {picture.key: picture for picture in pictures}
    assert len(found) == len(pictures)
    return found


@pytest.mark.parametrize("policy", ["las", "las:ss", "fifo"])
def test_the_causes_of_waiting_sum_to_the_waiting(policy: str) -> None:
    """JCT is waiting and time on workers; nothing is counted twice or left out."""
    folded, figures = simulated(replace(_REQUEST, policy=policy))
    waited_s = sum(sum(causes.values()) for causes in folded.waited_s.values())
    assert waited_s == pytest.approx(figures.time_spent_s["waiting"], abs=1e-3)


def test_utilisation_and_cost_are_the_runs(run: tuple[LogFold, Figures]) -> None:
    """The curves' averages and ends are the figures that the run itself told."""
    folded, figures = run
    pictures = by_key(list(log_pictures.report_of(folded, "run").pictures))
    cost = pictures["cost"]
    assert isinstance(cost, Chart)
    assert sum(line.y[-1] for line in cost.lines) == pytest.approx(figures.cost_usd, rel=0.01)
    used = pictures["utilisation"]
    assert isinstance(used, Chart)
    for line, (name, whole) in zip(used.lines, figures.utilisation_by_type.items(), strict=True):
        assert line.name.startswith(name)
        assert np.mean(line.y) * folded.at == pytest.approx(
            whole * (figures.makespan_s or 0.0), rel=0.02
        )
        assert max(line.y) <= 1 + 1e-9


def test_no_worker_is_held_twice(run: tuple[LogFold, Figures]) -> None:
    """On the timeline, a worker's bars follow one another."""
    folded, _ = run
    timeline = log_pictures.report_of(folded, "run").pictures[0]
    assert isinstance(timeline, Timeline)
    for row in range(len(timeline.rows)):
        bars = sorted((s.start, s.end) for s in timeline.spans if s.row == row)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(bars))


def test_jobs_that_take_turns_receive_what_was_promised() -> None:
    """Three equal jobs on one worker: each is promised a third of the time, and gets it."""
    lone = Request(generate=True, jobs=3, mean_gap=0.0, seed=0, cluster="v100=1")
    folded, _ = simulated(lone, load_s=0.0)
    received = by_key(list(log_pictures.report_of(folded, "run").pictures))["received"]
    assert isinstance(received, Chart)
    (jobs,) = received.lines
    assert jobs.x == pytest.approx(jobs.y, abs=0.2)


def test_a_long_log_shows_the_first_leases(
    run: tuple[LogFold, Figures], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More bars than can be seen are cut, and the picture says so."""
    monkeypatch.setattr(log_pictures, "_SPANS", 20)
    timeline = log_pictures.report_of(run[0], "run").pictures[0]
    assert isinstance(timeline, Timeline)
    assert 0 < len(timeline.spans) < 40
    assert "The first" in timeline.note


def test_alone_in_the_cluster_a_job_is_isolated() -> None:
    """With n = 1 the isolated share is the whole cluster, so rho is 1 but for rounds."""
    lone = Request(generate=True, jobs=1, seed=1, cluster="v100=1")
    folded, _ = simulated(lone, load_s=0.0)
    fairness = by_key(list(log_pictures.report_of(folded, "run").pictures))["fairness"]
    assert isinstance(fairness, Chart)
    assert fairness.lines[0].x[-1] == pytest.approx(1.0, abs=0.01)


@given(
    st.lists(st.floats(0, 1e4), min_size=1, max_size=6),
    st.floats(0.1, 50),
    st.floats(1, 1e5),
)
def test_isolated_time_is_that_of_doing_it_step_by_step(
    gaps: list[float], speed: float, steps: float
) -> None:
    """The closed form over intervals equals a walk through them."""
    times = np.cumsum([0.0, *gaps])
    speeds = speed / np.arange(1, len(times) + 1)
    found = isolated_jct_s(0.0, steps, times, speeds)
    left, at = steps, 0.0
    for start, end, rate in zip(times, [*times[1:], np.inf], speeds, strict=True):
        if left <= rate * (end - start):
            at = start + left / rate
            break
        left -= rate * (end - start)
    assert found == pytest.approx(at, rel=1e-6, abs=1e-6)


def test_an_isolated_share_is_at_most_all_of_the_time() -> None:
    """Two jobs on 2 + 2 workers: half of its time on each; alone, no more than that."""
    speeds, workers = {"k80": 1.0, "v100": 4.0}, {"k80": 2, "v100": 2}
    rates = isolated_steps_per_s(speeds, 1, workers, np.array([1.0, 2.0, 8.0]))
    assert rates.tolist() == pytest.approx([2.5, 2.5, 1.25])
    assert isolated_jct_s(0.0, 10.0, np.array([0.0]), np.array([0.0])) is None


def test_present_counts() -> None:
    """Changes at one moment are one."""
    times, numbers = present([(1.0, 1), (3.0, -1), (1.0, 1), (2.0, 1), (2.0, -1)])
    assert times.tolist() == [1.0, 2.0, 3.0]
    assert numbers.tolist() == [2.0, 2.0, 1.0]


def test_a_cdf_is_the_share_at_most_x() -> None:
    """Steps from 0 to 1; what is not known does not count."""
    line = cdf("x", [3.0, float("nan"), 1.0])
    assert line.x == [1.0, 1.0, 3.0]
    assert line.y == [0.0, 0.5, 1.0]
    assert cdf("none", []).x == []


@given(st.lists(st.floats(1e-3, 1e6), min_size=1))
def test_log_ticks_are_few_and_near(values: list[float]) -> None:
    """Never so many that they run into one another."""
    ticks = log_ticks(values)
    assert len(ticks) <= 11
    assert all(0.7 * min(values) <= tick <= 1.4 * max(values) for tick in ticks)


def test_the_command_writes_a_page_and_figures(tmp_path: Path) -> None:
    """A log in; one page that names no other place, and a file for each picture and format."""
    log, out, folder = tmp_path / "run.jsonl.zst", tmp_path / "run.html", tmp_path / "figures"
    simulate = "simulate --generate --jobs 8 --mean-gap 900 --cluster v100=2,k80=1 --log"
    assert CliRunner().invoke(app, [*simulate.split(), str(log)]).exit_code == 0
    command = ["report", str(log), "--out", str(out), "--figures", str(folder)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    text = out.read_text()
    assert "default-src 'none'" in text
    assert "<link" not in text
    assert " src=" not in text.partition("<script>")[0]
    pictures = text.count('class="picture"')
    assert pictures >= 8
    assert len(list(folder.glob("*.pdf"))) == len(list(folder.glob("*.png"))) == pictures
    assert all(file.read_bytes().startswith(b"%PDF") for file in folder.glob("*.pdf"))

    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2
    assert "--force replaces it" in again.output


def test_equal_pictures_are_equal_files(run: tuple[LogFold, Figures], tmp_path: Path) -> None:
    """Nothing of the moment gets into a figure."""
    pictures = log_pictures.report_of(run[0], "run").pictures[1:3]
    once = printed.write(pictures, tmp_path / "a", printed.FORMATS)
    again = printed.write(pictures, tmp_path / "b", printed.FORMATS)
    assert [f.read_bytes() for f in once] == [f.read_bytes() for f in again]


def test_names_are_text_and_never_markup() -> None:
    """What a user called a job cannot end the script, nor become an element."""
    evil = "</script><img src=x onerror=alert(1)>"
    bars = Bars(key="b", title=evil, y=evil, groups=[evil], parts={evil: [1.0]}, note=evil)
    text = page.render(
        Report(title=evil, subtitle=evil, figures=[(evil, evil)], pictures=[bars], notes=[evil])
    )
    assert "<img" not in text
    assert text.count("</script>") == 3


def test_a_log_of_nothing_is_refused(tmp_path: Path) -> None:
    """There is nothing to show, and no page is left behind."""
    log = tmp_path / "empty.jsonl"
    FileLog(log).close()
    done = CliRunner().invoke(app, ["report", str(log), "--out", str(tmp_path / "r.html")])
    assert done.exit_code == 2
    assert "no job: there is nothing to show" in done.output
    assert not (tmp_path / "r.html").exists()


def test_jobs_that_never_ran_are_shown_waiting() -> None:
    """No worker, no times; the queue is there all the same, and the page says what is missing."""
    folded, _ = simulated(replace(_REQUEST, cluster="v100=0", servers=""))
    report = log_pictures.report_of(folded, "run")
    assert "no job finished" in " ".join(report.notes)
    assert "jobs" in by_key(list(report.pictures))
    assert page.render(report)


@pytest.mark.parametrize("log", sorted(_GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_logs_of_bad_days_are_shown(log: Path) -> None:
    """Lost workers, restarts, revoked leases: no bar ends before it begins, or outlives the log."""
    folded = log_pictures.fold(read_log(log))
    pictures = by_key(list(log_pictures.report_of(folded, log.name).pictures))
    timeline = pictures["timeline"]
    assert isinstance(timeline, Timeline)
    assert all(0 <= span.start <= span.end <= folded.at / 3600 for span in timeline.spans)
    assert all(s >= 0 for causes in folded.waited_s.values() for s in causes.values())
    assert msgspec.json.encode([page.figure(picture) for picture in pictures.values()])


def test_a_wrong_format_is_named(tmp_path: Path) -> None:
    """Before anything is read."""
    log = tmp_path / "empty.jsonl"
    FileLog(log).close()
    done = CliRunner().invoke(app, ["report", str(log), "--format", "gif"])
    assert done.exit_code == 2
    assert "--format is 'gif'; expected some of pdf, png" in done.output


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A sweep over two policies, two loads and two seeds."""
    found = Results(tmp_path_factory.mktemp("results"))
    for policy in ("las", "isolated"):
        for gap in (600.0, 1800.0):
            for seed in (0, 1):
                small = replace(_REQUEST, policy=policy, mean_gap=gap, seed=seed, jobs=10)
                found.add(run_cell(small))
    return found


def test_results_against_load(results: Results, tmp_path: Path) -> None:
    """One line a policy, one point a load, with intervals over seeds; fairness by isolated."""
    out = tmp_path / "r.html"
    done = CliRunner().invoke(app, ["report", str(results.folder), "--out", str(out)])
    assert done.exit_code == 0, done.output
    rows = results.read()
    pictures = by_key(list(results_pictures.report_of(rows, "r").pictures))
    chart = pictures["load-jct"]
    assert isinstance(chart, Chart)
    assert {line.name for line in chart.lines} == {"las", "isolated"}
    for line in chart.lines:
        assert line.x == [2.0, 6.0]
        at = rows.filter((pl.col("policy") == line.name) & (pl.col("jobs_per_h") == 2.0))
        assert line.y[0] == pytest.approx(at["average_jct_s"].mean() / 3600)  # type: ignore[operator] # polars: a mean may be anything
        assert all(low < y < high for low, y, high in zip(line.low, line.y, line.high, strict=True))
    fairness = pictures["fairness"]
    assert isinstance(fairness, Chart)
    assert [line.name.split()[0] for line in fairness.lines] == ["las"]


def test_series_are_compared_where_all_were_run(results: Results) -> None:
    """A load that only one policy was run at is not the one that job times are shown at."""
    rows = results.read().filter((pl.col("policy") == "las") | (pl.col("jobs_per_h") == 2.0))
    jct = by_key(list(results_pictures.report_of(rows, "r").pictures))["jct"]
    assert isinstance(jct, Chart)
    assert jct.title.endswith("at 2 jobs/h")
    assert len(jct.lines) == 2


def test_where_time_goes_sums_to_the_jct(results: Results) -> None:
    """The parts of a bar are the average JCT."""
    rows = results.read().filter(pl.col("jobs_per_h") == 6.0)
    spent = by_key(list(results_pictures.report_of(rows, "r").pictures))["spent"]
    assert isinstance(spent, Bars)
    for number, policy in enumerate(spent.groups):
        whole = sum(sizes[number] for sizes in spent.parts.values())
        mean = rows.filter(pl.col("policy") == policy)["average_jct_s"].to_numpy().mean()
        assert whole == pytest.approx(mean / 3600)


def test_results_of_other_versions_are_left_out_and_counted(results: Results) -> None:
    """Figures of two versions of the code are never averaged."""
    rows = results.read()
    mixed = rows.with_columns(
        pl.when(pl.col("seed") == 0).then(pl.lit("older")).otherwise("version").alias("version")
    ).sort("seed")
    report = results_pictures.report_of(mixed, "r")
    assert any("other versions of the code, left out: 4" in note for note in report.notes)


def test_results_of_no_job_are_refused(tmp_path: Path) -> None:
    """Every cell failed: the first reason is told."""
    Results(tmp_path).add(run_cell(replace(_REQUEST, cluster="v100=0", servers="")))
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(tmp_path / "r.html")])
    assert done.exit_code == 2
    assert "no cell has a job that finished" in done.output
    assert "no measured job finished" in done.output


def test_perfetto_gets_what_the_log_holds(run: tuple[LogFold, Figures]) -> None:
    """A slice for each lease on each worker and each job; as many arrows out as in."""
    folded, _ = run
    told = list(events(folded))
    leases = [e for e in told if e["ph"] == "X" and e["cat"] == "lease"]
    assert len(leases) == sum(len(held.lease.worker_ids) for held in folded.held)
    assert all(e["dur"] >= 0 for e in leases)
    jobs = [e for e in told if e["ph"] == "X" and e["cat"] == "completed"]
    assert len(jobs) == len(folded.jobs)
    starts, ends = ({e["id"] for e in told if e["ph"] == ph} for ph in "sf")
    assert starts == ends
    threads = [(e["pid"], e["tid"]) for e in told if e.get("name") == "thread_name"]
    assert len(threads) == len(set(threads)) == len(folded.workers) + len(folded.jobs)
    held = [e["args"]["workers held"] for e in told if e["ph"] == "C" and "held" in e["name"]]
    assert max(held) <= len(folded.workers)
    assert held[-1] == 0


def test_export_writes_json(tmp_path: Path) -> None:
    """What ui.perfetto.dev opens: an object with trace events."""
    log, out = tmp_path / "run.jsonl", tmp_path / "run.trace.json"
    simulate = "simulate --generate --jobs 3 --cluster v100=1 --log"
    assert CliRunner().invoke(app, [*simulate.split(), str(log)]).exit_code == 0
    done = CliRunner().invoke(app, ["export", str(log), "--perfetto", str(out)])
    assert done.exit_code == 0, done.output
    assert {e["ph"] for e in json.loads(out.read_text())["traceEvents"]} >= {"M", "X", "C"}


def test_a_lease_revoked_before_its_round_is_held_by_nobody() -> None:
    """Planned ahead, a job may be done before its next lease begins: no worker is held for it."""
    from schemas.domain import JobSpec, Lease, TaskSpec  # noqa: PLC0415 - of this test only
    from schemas.events import (  # noqa: PLC0415 - as above
        AnyEvent,
        JobSubmitted,
        LeasesChanged,
        RoundScheduled,
        WorkerRegistered,
    )

    task = TaskSpec(job_id="a", job_type="A3C", scale_factor=1, total_steps=1.0)
    lease = Lease(
        lease_id="r1", tasks=(task,), worker_type="v100", worker_ids=("w",), reporters=("worker.x",)
    )
    worker = WorkerRegistered(worker_id="w", worker_type="v100", server_id="s", reporter="worker.x")
    listed: list[tuple[float, str, AnyEvent]] = [
        (0.0, "operator", default_mode("las", 360.0)),
        (0.0, "worker.x", worker),
        (0.0, "client.a", JobSubmitted(job=JobSpec(job_id="a", job_type="A3C", total_steps=1.0))),
        (
            350.0,
            "mechanism",
            RoundScheduled(round_id=1, starts_at_s=360, ends_at_s=720, granted=(lease,)),
        ),
        (355.0, "mechanism", LeasesChanged(round_id=0, revoked=("r1",), reason="done")),
        (720.0, "mechanism", RoundScheduled(round_id=2, starts_at_s=720.0, ends_at_s=1080.0)),
    ]
    records = [
        Record(seq=n, at=at, actor=actor, digest="0" * 16, event=event)
        for n, (at, actor, event) in enumerate(listed, start=1)
    ]
    assert log_pictures.fold(records).held == []

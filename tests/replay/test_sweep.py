"""`gavel sweep`: what an experiment file means, what is kept, and that nothing is run twice."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import joblib
import polars as pl
import pytest
from joblib._parallel_backends import SequentialBackend
from typer.testing import CliRunner

from replay.cli.__main__ import app
from replay.request import Request
from replay.sweep.cell import Row, code_version, key_of, run_cell
from replay.sweep.experiment import ExperimentError, read_experiment
from replay.sweep.run import carried_by, plan, run
from replay.sweep.store import COLUMNS, INPUTS, Results, ResultsError
from replay.sweep.tell import half_width

_SMALL = Request(generate=True, jobs=6, mean_gap=900.0, cluster="v100=2,k80=1")
_FILE = """\
# A comment, and a blank line.

policy = ["las", "fifo"]
seed = [0, 1]
jobs_per_h = 4
cluster = "v100=2,k80=1"
jobs = 6
"""


def written(folder: Path, text: str) -> Path:
    """An experiment file."""
    path = folder / "small.toml"
    path.write_text(text)
    return path


def test_every_combination_is_a_cell(tmp_path: Path) -> None:
    """Lists are multiplied, in the order of the file; a load is a mean gap in other words."""
    asked = read_experiment(written(tmp_path, _FILE))
    requests = list(asked.requests())
    assert [(r.policy, r.seed) for r in requests] == [
        ("las", 0), ("las", 1), ("fifo", 0), ("fifo", 1),
    ]  # fmt: skip
    assert {(r.mean_gap, r.jobs, r.generate) for r in requests} == {(900.0, 6, True)}
    assert asked.varied == ["policy", "seed"]


def test_each_value_is_tried_before_anything_is_run(tmp_path: Path) -> None:
    """The samples hold every value, and are a sum of lengths where the cells are a product."""
    asked = read_experiment(written(tmp_path, _FILE + "round = [60, 120, 180]\n"))
    samples = list(asked.samples())
    assert {r.policy for r in samples} == {"las", "fifo"}
    assert {r.round for r in samples} == {60.0, 120.0, 180.0}
    assert len(samples) == 1 + 1 + 1 + 2 < len(list(asked.requests()))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('polcy = "las"', "line 8: 'polcy' is no option of gavel simulate; did you mean 'policy'?"),
        ("rounds = [60]", "line 8: 'rounds' is no option of gavel simulate; did you mean 'round'?"),
        ("round = []", "line 8: round is [], must be one value or more"),
        ("window = true", "line 8: window is True: Expected `str`, got `bool`"),
        ('round = "long"', "line 8: round is 'long': Expected `float`, got `str`"),
        ("mean_gap = 5", "jobs_per_h and mean_gap say the same thing"),
        ("log = 'x'", "line 8: 'log' is no option"),
        ("round = = 5", "is no TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, line: str, said: str) -> None:
    """File, line, key, value, and what would be right."""
    path = written(tmp_path, _FILE + line + "\n")
    with pytest.raises(ExperimentError) as caught:
        read_experiment(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_empty_file_is_no_experiment(tmp_path: Path) -> None:
    """What was to be run is not guessed."""
    with pytest.raises(ExperimentError, match="has no key; expected some of"):
        read_experiment(written(tmp_path, "# nothing\n"))


@pytest.mark.parametrize("key", ["seed", "lag"])
def test_a_seed_below_0_is_refused(tmp_path: Path, key: str) -> None:
    """What the command line checks of an option, a file does not get past."""
    path = written(tmp_path, _FILE.replace("seed = [0, 1]", "") + f"{key} = [0, -1]\n")
    result = CliRunner().invoke(app, ["sweep", str(path)])
    assert (result.exit_code, f"--{key} is -1; expected" in result.stderr) == (2, True)


@pytest.mark.parametrize("load", ["0", "-1", "inf", "nan"])
def test_a_load_is_a_number_of_jobs(tmp_path: Path, load: str) -> None:
    """Nothing is divided by zero, and nothing arrives from the future."""
    path = written(tmp_path, _FILE.replace("jobs_per_h = 4", f"jobs_per_h = [{load}]"))
    with pytest.raises(ExperimentError, match="jobs per hour, above 0"):
        read_experiment(path)


def test_paths_are_meant_from_the_files_folder(tmp_path: Path) -> None:
    """So that an experiment can be moved with its traces."""
    (request,) = read_experiment(written(tmp_path, 'trace = "t.jsonl"')).requests()
    assert request.trace == tmp_path / "t.jsonl"
    assert not request.generate


def test_the_command_runs_keeps_and_resumes(tmp_path: Path) -> None:
    """The second time nothing is run; a row has the figures that the single run has."""
    path, out = written(tmp_path, _FILE), tmp_path / "results"
    command = ["sweep", str(path), "--out", str(out), "--processes", "1", "--json"]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    told = json.loads(first.stdout)
    assert (told["cells"], told["had"], told["failed"]) == (4, 0, 0)
    assert [row["policy"] for row in told["rows"]] == ["las", "fifo"]
    assert {row["seeds"] for row in told["rows"]} == {2}

    before = {file: file.stat().st_mtime_ns for file in out.iterdir()}
    again = json.loads(CliRunner().invoke(app, command).stdout)
    assert (again["cells"], again["had"]) == (4, 4)
    assert again["rows"] == told["rows"]
    assert before == {file: file.stat().st_mtime_ns for file in out.iterdir()}

    options = "--generate --jobs 6 --mean-gap 900 --cluster v100=2,k80=1 --seed 1 --policy fifo"
    alone = CliRunner().invoke(app, ["simulate", *options.split(), "--json"])
    figures = json.loads(alone.stdout)
    row = pl.read_parquet(out / "*.parquet").filter(policy="fifo", seed=1).to_dicts()[0]
    assert row["average_jct_s"] == figures["average_jct_s"]
    assert sum(row["jct_s"]) / 6 == pytest.approx(figures["average_jct_s"])


def test_a_cell_that_fails_is_listed_and_run_again(tmp_path: Path) -> None:
    """A failure is a row with an error; the other cells go on; the next sweep tries it anew."""
    far = replace(_SMALL, window="2:9")
    planned = plan(iter([_SMALL, far]), Results(tmp_path))
    rows: list[Row] = []
    run(planned, 1, rows.append)
    errors = {row["window"]: row["error"] for row in rows}
    assert errors[""] == ""
    assert "--window is '2:9'" in errors["2:9"]
    assert plan(iter([_SMALL, far]), Results(tmp_path)).left == {key_of(far): far}


def test_processes_change_nothing(tmp_path: Path) -> None:
    """Two at a time, each in a process of its own: the same rows but for the time they took."""
    code_version.cache_clear()
    requests = [_SMALL, replace(_SMALL, policy="fifo")]
    rows: list[list[Row]] = [[], []]
    for number in (1, 2):
        planned = plan(iter(requests), Results(tmp_path / str(number)))
        run(planned, number, rows[number - 1].append)
    one, two = (
        sorted((r | {"wall_s": 0, "solve_wall_s": 0} for r in each), key=lambda r: r["key"])
        for each in rows
    )
    assert one == two


def test_a_carrier_that_gives_back_all_at_once_is_given_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As is Ray's: what it has done is kept first, so that Ctrl-C loses no more than a few."""
    monkeypatch.setattr(SequentialBackend, "supports_return_generator", False)
    requests = [replace(_SMALL, seed=seed) for seed in range(6)]
    planned = plan(iter(requests), Results(tmp_path))
    seen: list[Row] = []

    def press(row: Row) -> None:
        seen.append(row)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with joblib.parallel_config(backend="sequential"):
        with pytest.raises(KeyboardInterrupt):
            run(planned, 1, press)
        left = plan(iter(requests), Results(tmp_path))
        assert list(left.left.values()) == requests[5:]
        run(left, 1, seen.append)
    assert [row["seed"] for row in seen] == list(range(6))


def test_a_sweep_that_is_stopped_goes_on(tmp_path: Path) -> None:
    """Ctrl-C after the first of three cells: that one is kept, the other two are left."""
    requests = [replace(_SMALL, seed=seed) for seed in range(3)]
    planned = plan(iter(requests), Results(tmp_path))

    def press(_: Row) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(planned, 1, press)
    left = plan(iter(requests), Results(tmp_path)).left
    assert list(left.values()) == requests[1:]


def test_a_key_is_what_was_run(tmp_path: Path) -> None:
    """Equal inputs have equal keys; another option, or another content of a file, another one."""
    assert key_of(_SMALL) == key_of(replace(_SMALL))
    assert key_of(_SMALL) != key_of(replace(_SMALL, seed=1))
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"job_type": "A3C", "total_steps": 9}\n')
    of_trace = replace(_SMALL, generate=False, jobs=None, trace=trace)
    before = key_of(of_trace)
    trace.write_text('{"job_type": "A3C", "total_steps": 10}\n')
    assert key_of(of_trace) != before


def test_another_version_of_the_code_fails_the_cell() -> None:
    """A machine of a pool that was not upgraded adds nothing to the results but its failure."""
    row = run_cell(_SMALL, key="of other code")
    assert row["key"] == "of other code"
    assert "not those of who asked" in row["error"]
    assert run_cell(_SMALL, key=key_of(_SMALL))["error"] == ""


def test_no_job_finishing_is_a_failure() -> None:
    """A cluster without workers completes nothing, and says so."""
    row = run_cell(replace(_SMALL, cluster="v100=0"))
    assert "no measured job finished" in row["error"]
    assert row["average_jct_s"] is None


def test_every_column_has_its_place() -> None:
    """What a cell comes to is what is kept: no column is lost, and none is always empty."""
    row = run_cell(_SMALL)
    assert row.keys() == COLUMNS.keys()
    assert all(row[name] is not None for name in COLUMNS if name not in INPUTS)


def test_results_of_another_kind_are_refused(tmp_path: Path) -> None:
    """An empty folder, a file that is no Parquet, another format, somebody else's table."""
    with pytest.raises(ResultsError, match="holds no results"):
        Results(tmp_path).read()
    file = tmp_path / "a.parquet"
    file.write_text("no table")
    with pytest.raises(ResultsError, match="is no Parquet file"):
        Results(tmp_path).read()
    pl.DataFrame({"key": ["a"]}).write_parquet(file)
    with pytest.raises(ResultsError, match="has no column"):
        Results(tmp_path).read()
    Results(tmp_path).add(run_cell(_SMALL) | {"key": "a", "results_format": 99})
    with pytest.raises(ResultsError, match="this release reads"):
        Results(tmp_path).read()


def test_results_without_a_newer_option_are_read(tmp_path: Path) -> None:
    """An option that came later is empty there."""
    row = run_cell(_SMALL)
    Results(tmp_path).add(row)
    file = tmp_path / f"{row['key']}.parquet"
    pl.read_parquet(file).drop("noise").write_parquet(file)
    assert Results(tmp_path).read()["noise"].to_list() == [None]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra is not installed, one line says what to install."""
    for module in [name for name in sys.modules if name.startswith("replay.sweep")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "polars", None)
    done = CliRunner().invoke(app, ["sweep", str(written(tmp_path, _FILE))])
    assert done.exit_code == 2
    assert "this needs polars: pip install 'gavel-scheduler[research]'" in done.output


def test_a_carrier_that_is_not_there_is_named() -> None:
    """Before anything is run."""
    for where, said in (("moon", "expected local, ray, or dask"), ("dask", "dask=ADDRESS")):
        with pytest.raises(Exception, match=said), carried_by(where):
            pytest.fail("nothing is to be run")


def test_intervals_are_students() -> None:
    """Of one value there is none; else t as tables print it."""
    assert half_width(None, 1) is None
    for count, t in ((2, 12.706), (11, 2.228), (12, 2.201), (31, 2.042), (101, 1.984)):
        assert half_width(1.0, count) == pytest.approx(t / count**0.5, rel=5e-4)

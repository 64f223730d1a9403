"""``gavel throughputs``, and what ``gavel simulate`` lets the estimator know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from replay.cli.__main__ import app
from schemas.events import ThroughputEstimated, ThroughputTableImported, WorkerRegistered
from services.runtime.file_log import read_log

FEW = ("simulate", "--generate", "--jobs", "4", "--cluster", "v100=2,k80=2", "--policy", "las:ss")


def gavel(*arguments: object, code: int = 0) -> Result:
    """Run a command, which must end with this exit code."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    return result


def cells(*arguments: object) -> list[dict[str, Any]]:
    """Cells that ``show`` prints."""
    found: list[dict[str, Any]] = json.loads(
        gavel("throughputs", "show", *arguments, "--json").stdout
    )
    return found


def test_show_lists_isolated_rates_and_of_one_job_type_its_pairs() -> None:
    """Whichever of the two has the pair in its row."""
    assert not any("other_job_type" in cell for cell in cells("builtin"))
    pairs = [c for c in cells("builtin", "--job-type", "A3C") if "other_job_type" in c]
    types = {cell["job_type"] for cell in cells("builtin") if cell["scale_factor"] == 1}
    assert {pair["other_job_type"] for pair in pairs} == types


def test_show_says_what_a_worker_costs() -> None:
    """Where the catalogue knows."""
    assert "USD per worker and hour" in gavel("throughputs", "show", "catalogue").stdout


def test_show_says_whose_figures_the_catalogue_has() -> None:
    """With their licences, and which of these nobody has confirmed; other tables have no such."""
    shown = gavel("throughputs", "show", "catalogue").stdout
    assert (
        "from mlcommons/training_results_v5.0 (licence: Apache License 2.0; UNCONFIRMED)" in shown
    )
    assert "licence" not in gavel("throughputs", "show", "builtin").stdout


def test_a_table_survives_its_way_through_our_csv(tmp_path: Path) -> None:
    """Imported to CSV, it is the table it was; a changed cell is found, if beyond tolerance."""
    path = tmp_path / "rates.csv"
    gavel("throughputs", "import", "builtin", "--to", path)
    assert "no difference" in gavel("throughputs", "diff", "builtin", path).stdout
    lines = path.read_text().splitlines()
    first = lines[1].split(",")
    first[3] = str(float(first[3]) * 1.04)
    path.write_text("\n".join([lines[0], ",".join(first), *lines[2:]]))
    found = json.loads(gavel("throughputs", "diff", "builtin", path, "--json", code=1).stdout)
    assert [(cell["job_type"], cell["worker_type"]) for cell in found] == [(first[0], first[2])]
    gavel("throughputs", "diff", "builtin", path, "--tolerance", 0.05)


def test_the_artifact_s_table_is_read(reference_data: Path, tmp_path: Path) -> None:
    """Converted to CSV, every cell is there."""
    source = reference_data / "throughputs" / "simulation_throughputs.json"
    path = tmp_path / "rates.csv"
    gavel("throughputs", "import", source, "--to", path)
    gavel("throughputs", "diff", source, path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nothing.csv"), "TABLE is 'nothing.csv'; expected a file, or one of builtin"),
        (("show", "builtin", "--job-type", "A3D"), "--job-type is 'A3D'; expected one of A3C"),
        (("import", "builtin", "--to", "no/such/folder.csv"), "a file in a folder that exists"),
    ],
)
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    """Naming what was typed and what would be right."""
    assert message in gavel("throughputs", *arguments, code=2).stderr


def test_a_cell_that_is_no_number_is_named(tmp_path: Path) -> None:
    """With file, line and column."""
    path = tmp_path / "bad.csv"
    path.write_text("job_type,scale_factor,worker_type,steps_per_s\nm,1,v100,nan\n")
    message = f"{path}: line 2: steps_per_s is 'nan'; expected a finite number"
    assert message in gavel("throughputs", "show", path, code=2).stderr


# --- gavel simulate --estimator ------------------------------------------------------------------


def test_learned_finds_out_what_the_oracle_knows(tmp_path: Path) -> None:
    """Jobs are profiled on workers kept for it, matched, and done; the log says how."""
    log = tmp_path / "run.jsonl"
    options = ("--estimator", "learned", "--profile-fraction", 0.2, "--profile-workers", 3)
    gavel(*FEW, *options, "--log", log)
    events = [record.event for record in read_log(log)]
    kept = [e for e in events if isinstance(e, WorkerRegistered) and e.profiles_only]
    assert sorted(worker.worker_type for worker in kept) == ["k80", "k80", "v100"]
    sources = {e.source for e in events if isinstance(e, ThroughputEstimated)}
    assert {"provisional", "learned"} <= sources
    gavel("verify", log)


def test_references_cut_the_estimator_s_table_and_not_the_truth(tmp_path: Path) -> None:
    """Three job types are told of; jobs of all types are done."""
    log = tmp_path / "run.jsonl"
    found = gavel(
        *FEW, "--estimator", "learned", "--references", 3, "--noise", 0.05, "--log", log, "--json"
    )
    assert json.loads(found.stdout)["outcomes"] == {"completed": 4}
    (table,) = (r.event for r in read_log(log) if isinstance(r.event, ThroughputTableImported))
    assert len({row.job_type for row in table.rows}) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--estimator", "magic"), "--estimator is 'magic'; expected one of declared, learned"),
        (("--profile-workers", 3), "--profile-workers is 3; expected none with --estimator oracle"),
        (("--claims", "check"), "--claims is 'check'; expected none with --estimator oracle"),
        (("--estimator", "learned", "--profile-fraction", 2), "a share of all pairs, 0 to 1"),
        (("--estimator", "learned", "--references", 0), "1 to 12, the table's job types"),
        (("--estimator", "declared", "--claims", "no"), "expected one of believe, cap, check"),
        (("--noise", "nan"), "--noise is nan; expected a relative deviation, 0 to 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: tuple[object, ...], message: str) -> None:
    """Nothing is passed over in silence."""
    assert message in gavel(*FEW, *options, code=2).stderr

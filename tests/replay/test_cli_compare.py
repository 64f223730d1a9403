"""`gavel compare`: several policies, one trace, one table."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from replay.cli.__main__ import app

_JOBS = ["--generate", "--jobs", "12", "--mean-gap", "900", "--cluster", "v100=2,p100=1,k80=1"]


def test_each_policy_gets_the_figures_it_has_alone() -> None:
    """A comparison is nothing but the single runs, side by side and in the order asked for."""
    done = CliRunner().invoke(app, ["compare", "--policies", "las,fifo", "--json", *_JOBS])
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert list(told) == ["las", "fifo"]
    for name, outcome in told.items():
        alone = CliRunner().invoke(app, ["simulate", "--policy", name, "--json", *_JOBS])
        assert outcome["figures"]["average_jct_s"] == json.loads(alone.stdout)["average_jct_s"]


def test_one_line_a_policy() -> None:
    """People get a table."""
    done = CliRunner().invoke(app, ["compare", "--policies", "las,isolated", *_JOBS])
    assert done.exit_code == 0
    lines = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert lines[0] == "policy"
    assert lines[2:] == ["las", "isolated"]


def test_a_policy_that_does_not_exist_stops_all() -> None:
    """Nothing is run when one of the names is wrong; the nearest right one is named."""
    done = CliRunner().invoke(app, ["compare", "--policies", "las,fifoo", *_JOBS])
    assert done.exit_code == 2
    assert "did you mean 'fifo'" in done.output
    none = CliRunner().invoke(app, ["compare", "--policies", " , ", *_JOBS])
    assert none.exit_code == 2


def test_the_standard_input_cannot_be_read_by_many() -> None:
    """Each run reads the trace anew, so it must be a file."""
    result = CliRunner().invoke(app, ["compare", "--policies", "las,fifo", "--trace", "-"])
    assert result.exit_code == 2
    assert "expected a file: each run reads it anew" in result.stderr

"""A policy in a file of one's own, as a researcher writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from replay.cli.__main__ import app

_README = (Path(__file__).parents[2] / "README.md").read_text()
#: The README's example, about twenty lines.
SHORTEST_FIRST = _README.partition("```python\n")[2].partition("```")[0]
_JOBS = ["--generate", "--jobs", "12", "--mean-gap", "600", "--cluster", "v100=2,p100=1,k80=1"]


def test_the_readme_lists_the_policies_there_are() -> None:
    """Its table is what `gavel policies --markdown` prints."""
    printed = CliRunner().invoke(app, ["policies", "--markdown"]).stdout.strip()
    table = _README.partition("<!-- policies -->")[2].partition("<!-- /policies -->")[0].strip()
    assert table == printed


def _simulate(policy: str, *more: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["simulate", "--policy", policy, *_JOBS, *more])
    return done.exit_code, done.output


def _write(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text)
    return path


def test_a_policy_of_ones_own_runs_and_its_log_verifies(tmp_path: Path) -> None:
    """FILE.py:CLASS is simulated like any other; what it decided is on the log as a fact."""
    path, log = _write(tmp_path, SHORTEST_FIRST), tmp_path / "run.jsonl"
    code, output = _simulate(f"{path}:ShortestFirst", "--json", "--log", str(log))
    assert code == 0
    told = json.loads(output)
    assert told["jobs"] == 12
    assert told["failed_solves"] == 0
    assert CliRunner().invoke(app, ["verify", str(log)]).exit_code == 0


def test_a_policy_of_ones_own_is_compared_in_processes_of_their_own(tmp_path: Path) -> None:
    """`compare` takes it too, though each run is another process."""
    path = _write(tmp_path, SHORTEST_FIRST)
    arguments = ["compare", "--policies", f"sjf,{path}:ShortestFirst", "--json", *_JOBS]
    told = json.loads(CliRunner().invoke(app, arguments).stdout)
    jcts = [outcome["figures"]["average_jct_s"] for outcome in told.values()]
    assert jcts[1] == pytest.approx(jcts[0], rel=0.2)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("mine.py:Nobody", SHORTEST_FIRST, "has no class 'Nobody'"),
        ("mine.py:Problem", SHORTEST_FIRST, "is no policy"),
        ("mine.py:Mine", "import nothing_of_the_kind", "does not load: ModuleNotFoundError"),
        ("other.py:Mine", SHORTEST_FIRST, "does not exist"),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, name: str, text: str, expected: str) -> None:
    """A wrong file, class or import is named; nothing runs."""
    _write(tmp_path, text)
    code, output = _simulate(str(tmp_path / name))
    assert code == 2
    assert expected in " ".join(output.split())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise ValueError('no idea')", "ValueError: no idea"),
        ("return everything(problem, float('nan'))", "a share of nan"),
        ("return everything(problem, 1.5)", "a share of 1.5"),
        ("return everything(problem, 1.0)", "workers of"),
        ("return None", "a NoneType, not an Allocation"),
    ],
)
def test_a_bad_answer_is_a_failed_allocation(tmp_path: Path, body: str, expected: str) -> None:
    """It is refused with the reason; the cluster goes on with equal shares, and jobs finish."""
    text = f"""
from schemas.domain import AllocationRow
from services.policy.problem import Allocation


def everything(problem, share):
    jobs = tuple((job,) for c in problem.classes for job in c.job_ids)
    return Allocation(rows=(AllocationRow(jobs, {{problem.worker_types[0]: share}}),))


class Mine:
    def solve(self, problem):
        if problem.num_jobs < 3:
            return Allocation(rows=())
        {body}
"""
    code, output = _simulate(f"{_write(tmp_path, text)}:Mine", "--json")
    told = json.loads(output)
    assert code == 0
    assert told["jobs"] == 12
    assert told["failed_solves"] > 0
    assert expected in told["last_solve_failure"]

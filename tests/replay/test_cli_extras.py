"""Who has installed a part of Gavel only is told what is missing, and never shown a traceback."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from replay.cli.__main__ import _BY_NAME, WRONG_USAGE
from tests.live.cluster import PATIENCE_S, ROOT
from tests.live.extras import environment

NO_FILE = ("simulate", "--trace", "none.jsonl", "--cluster", "v100=1")
NO_TYPE = ("simulate", "--generate", "--cluster", "v1000=1")
STATUS = ("status", "--nats", "nats://127.0.0.1:1")


@pytest.fixture(scope="module", params=["", "replay", "research"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with one extra."""
    return environment(tmp_path_factory.mktemp("environment"), request.param)


def gavel(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an environment."""
    return subprocess.run(
        [python, "-P", "-m", "replay.cli", *arguments],
        env={"PYTHONPATH": str(ROOT)},
        cwd=python.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("wrong", [NO_FILE, NO_TYPE, STATUS, ("log", "tail", "none.jsonl")])
def test_what_is_wrong_is_one_line(installed: Path, wrong: tuple[str, ...]) -> None:
    """Whatever is installed; what is not is wanted by the extra that brings it."""
    done = gavel(installed, *wrong)
    assert done.returncode == WRONG_USAGE
    (line,) = done.stderr.splitlines()
    assert line.startswith("gavel: ")


@pytest.mark.parametrize("name", sorted(_BY_NAME))
def test_errors_that_are_told_by_name_exist(name: str) -> None:
    """They have not been renamed."""
    module, _, kind = name.rpartition(".")
    assert issubclass(getattr(import_module(module), kind), Exception)

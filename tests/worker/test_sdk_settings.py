"""What the worker service sets is what the SDK reads, and what is wrong is named."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from services.worker.lease_socket import task_environment
from services.worker.ranks import LINE_LIMIT, PROTOCOL_VERSION
from services.worker.sdk.src.gavel_iterator import protocol, settings
from services.worker.sdk.src.gavel_iterator.errors import SettingsError
from tests.worker.lease_host import SDK, task


def environment(folder: Path) -> dict[str, str]:
    """What the worker service sets for rank 1 of 2."""
    spec = task(folder, steps=2.5, ranks=2, resume_from="a")
    return task_environment(folder / "s", "b", spec, 1, 0.5)


def test_the_two_sides_have_one_vocabulary(tmp_path: Path) -> None:
    """Every variable the worker sets is read back equal, and the SDK reads no other."""
    found = settings.read(environment(tmp_path))
    assert found == settings.Settings(
        socket_path=str(tmp_path / "s"),
        lease_id="b",
        job_id="j",
        rank=1,
        world_size=2,
        total_steps=2.5,
        checkpoint_dir=tmp_path,
        resume_from="a",
        progress_interval_s=0.5,
    )
    assert found is not None
    assert found.total_iterations == 2
    text = Path(settings.__file__).read_text()
    assert set(re.findall(r"GAVEL_[A-Z_]+", text)) == set(environment(tmp_path))
    assert (protocol.VERSION, protocol.LINE_LIMIT) == (PROTOCOL_VERSION, LINE_LIMIT)


def test_without_a_socket_nothing_is_read() -> None:
    """Outside the scheduler not even a wrong variable matters."""
    assert settings.read({"GAVEL_RANK": "none"}) is None


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("GAVEL_LEASE_ID", "", "is not set"),
        ("GAVEL_JOB_ID", "", "is not set"),
        ("GAVEL_RANK", "-1", "'-1': it must be a whole number of at least 0"),
        ("GAVEL_RANK", "one", "'one': it must be a whole number"),
        ("GAVEL_RANK", "2", "ranks count from 0 and stay below"),
        ("GAVEL_WORLD_SIZE", "0", "at least 1"),
        ("GAVEL_WORLD_SIZE", "2.0", "must be a whole number"),
        ("GAVEL_TOTAL_STEPS", "nan", "must be a number"),
        ("GAVEL_TOTAL_STEPS", "inf", "must be a number"),
        ("GAVEL_CHECKPOINT_DIR", "/nowhere/at/all", "is the checkpoint root mounted"),
        ("GAVEL_PROGRESS_INTERVAL_S", "0", "at least 0.05"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, name: str, value: str, why: str) -> None:
    """The error has the variable, its value and what would be right."""
    with pytest.raises(SettingsError, match=name) as caught:
        settings.read(environment(tmp_path) | {name: value})
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [b"nonsense", b"[1]", b'{"type": "stop"}', b'{"type": "lease", "ends_in_s": NaN}', b"\xff"],
)
def test_nonsense_from_the_worker_is_an_error_of_its_own(line: bytes) -> None:
    """A line that is no message is told from a lost connection only by its name."""
    with pytest.raises(protocol.ProtocolError):
        protocol.decode(line)


@pytest.mark.parametrize("path", sorted(SDK.rglob("*.py")), ids=lambda path: path.name)
def test_the_sdk_needs_python_3_9_and_no_library(path: Path) -> None:
    """Its syntax is that of Python 3.9, its imports are its own or the standard library's."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            continue
        assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names

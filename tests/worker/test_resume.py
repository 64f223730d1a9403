"""What a lease has left on disk is read, whatever a training process has written there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.worker.resume import newest_checkpoint


def written(folder: Path, name: str, content: str) -> None:
    """A checkpoint of the lease r1-0, of one rank."""
    part = folder / "lease-r1-0" / name / "rank-0"
    part.mkdir(parents=True)
    (part / "checkpoint.json").write_text(content)


def record(**changes: object) -> str:
    """What a checkpoint says of itself."""
    return json.dumps({"world_size": 1, "steps": 20.0, "complete": True} | changes)


@pytest.mark.parametrize(
    "content",
    [
        record(steps=float("nan")),
        record(steps=float("inf")),
        record(steps=-1.0),
        record(steps=10**400),
        record(steps=None),
        record(world_size=2),
        record(world_size=10**15),
        record(world_size=float("inf")),
        "[]",
        "{",
        "[" * 100_000,
    ],
    ids=lambda content: content[:40],
)
def test_a_checkpoint_that_makes_no_sense_is_passed_over(content: str, tmp_path: Path) -> None:
    """The one before it counts."""
    written(tmp_path, "1", record(steps=10.0, complete=False))
    written(tmp_path, "2", content)
    assert newest_checkpoint(tmp_path, "r1-0") == (10.0, False)


def test_the_newest_that_is_whole_counts(tmp_path: Path) -> None:
    """Without any, the lease has saved nothing."""
    assert newest_checkpoint(tmp_path, "r1-0") == (0.0, False)
    written(tmp_path, "1", record(steps=10.0, complete=False))
    written(tmp_path, "2", record())
    assert newest_checkpoint(tmp_path, "r1-0") == (20.0, True)

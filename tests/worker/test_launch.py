"""What starts a task, and what will not: a user's values are taken as they are, or refused."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from schemas.domain import Lease, TaskSpec
from services.runtime.actor import Writer
from services.runtime.config import WorkerSettings
from services.runtime.log import place
from services.worker.__main__ import _find
from services.worker.launch import Launcher, LaunchError, Settings
from services.worker.view import LogView

SPEC = TaskSpec(job_id="job", job_type="x", scale_factor=1, total_steps=9.0)
LEASE = Lease(
    lease_id="r1-0",
    tasks=(SPEC,),
    worker_type="v100",
    worker_ids=("w0",),
    reporters=("worker.a",),
)


def launcher(folder: Path, view: LogView | None = None) -> Launcher:
    """Starts tasks of one accelerator."""
    settings = Settings(
        folder=folder / "worker",
        checkpoint_root=folder / "checkpoints",
        secrets={"TOKEN": "it's a secret"},
        checkpoint_grace_s=1.0,
        terminate_grace_s=1.0,
        progress_interval_s=1.0,
        emulated=False,
    )
    settings.checkpoint_root.mkdir()
    ids = {"w0": "GPU-0"}
    return Launcher(settings, ids, view or LogView("worker.a"), folder / "socket")


def with_fields(**fields: object) -> TaskSpec:
    """The task, of other fields."""
    return msgspec.structs.replace(SPEC, **fields)


@pytest.mark.parametrize("name", ["", "a/b c", "*", "-rf", "line\nline", "\N{SNOWMAN}"])
def test_a_checkpoint_folder_is_below_the_operators(tmp_path: Path, name: str) -> None:
    """Whatever its name, the job's own if it has none."""
    found = launcher(tmp_path).with_checkpoint_dir(with_fields(checkpoint_dir=name))
    assert found.checkpoint_dir == str(tmp_path / "checkpoints" / (name or "job"))
    assert Path(found.checkpoint_dir).is_dir()


@pytest.mark.parametrize(
    "name", ["..", "/etc", "a/../..", ".", "out/x", "self/x", "file/x", "a\0b", "x" * 5000]
)
def test_a_checkpoint_folder_that_cannot_be_is_refused(tmp_path: Path, name: str) -> None:
    """Above the operator's, behind a link that leads out or to itself, or no folder's name."""
    tasks = launcher(tmp_path)
    root = tmp_path / "checkpoints"
    (root / "out").symlink_to(tmp_path)
    (root / "self").symlink_to("self")
    (root / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(LaunchError, match="checkpoint_dir"):
        tasks.with_checkpoint_dir(with_fields(checkpoint_dir=name))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "no command, and these accelerators are real"),
        ({"command": " "}, "command ' ' is empty"),
        ({"command": "a 'b"}, "No closing quotation"),
        ({"command": "a\0b"}, "null byte"),
        ({"command": "no-such-program"}, "no-such-program"),
        ({"command": "true", "workdir": "/no/such"}, "workdir '/no/such' is no folder"),
        ({"command": "true", "workdir": "a\0b"}, "is no folder"),
        ({"command": "true", "environment": {"A": "secret:B"}}, "has no 'B'"),
        ({"command": "true", "environment": {"A": "b\0"}}, "null byte"),
        ({"command": "true", "environment": {"A=B": "c"}}, "illegal environment variable name"),
    ],
)
def test_what_cannot_be_started_is_refused(
    tmp_path: Path, fields: dict[str, object], said: str
) -> None:
    """With the reason, by the one error that there is for it."""
    with pytest.raises(LaunchError, match=said):
        launcher(tmp_path).launch(LEASE, with_fields(**fields), 0, [0])


def test_a_users_values_reach_the_task_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell reads them; secrets are put in; the service's own variables stay with it."""
    monkeypatch.setenv("GAVEL_LOG_PASSWORD_FILE", "of the service")
    monkeypatch.setenv("AWS_SECRET", "of the service")
    spec = with_fields(
        command="sh -c 'env; echo \"$0\"' '$(touch here); *'",
        workdir=str(tmp_path),
        environment={"WHO": "$(id) `id` \N{SNOWMAN}", "KEY": "secret:TOKEN"},
    )
    tasks = launcher(tmp_path)
    os.waitpid(tasks.launch(LEASE, spec, 0, [0]), 0)
    printed = (tasks.folder("r1-0", "job") / "rank-0.log").read_text().splitlines()
    assert printed[-1] == "$(touch here); *"
    assert {"WHO=$(id) `id` \N{SNOWMAN}", "KEY=it's a secret"} <= set(printed)
    assert "CUDA_VISIBLE_DEVICES=GPU-0" in printed
    assert not any("of the service" in line for line in printed)
    assert not (tmp_path / "here").exists()


def test_ranks_meet_where_the_first_one_s_operator_lets_them(tmp_path: Path) -> None:
    """The range is a setting, is registered with the worker, and holds for every server."""
    found = _find(
        "worker.a", WorkerSettings(accelerators="v100=1", tasks="emulated", ports=(4000, 4002))
    )
    ((worker, _),) = found.values()
    view = LogView("worker.a")
    view.take(place(Writer("worker.a", 1).draft(0, 0, 0, worker), 1, 0.0))
    lease = msgspec.structs.replace(LEASE, worker_ids=(worker.worker_id, "elsewhere"))
    tasks = launcher(tmp_path, view)
    asked = {"command": "env", "workdir": str(tmp_path), "scale_factor": 2}
    os.waitpid(tasks.launch(lease, with_fields(**asked), 0, [0]), 0)
    printed = (tasks.folder("r1-0", "job") / "rank-0.log").read_text().splitlines()
    assert f"MASTER_ADDR={worker.address}" in printed
    assert {"MASTER_PORT=4000", "MASTER_PORT=4001"} & set(printed)

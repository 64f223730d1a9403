"""Starts one rank's process: command, environment, folder, log.

Whatever a user has named goes into arguments and variables as it is, never through a shell, and
into no path unless it is a safe name or stays below the folder that is meant for it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from schemas.domain import Lease, TaskSpec
from services.worker.lease_socket import task_environment
from services.worker.view import LogView

#: By its value the processes of a task are known, whoever started them.
FOLDER_VARIABLE = "GAVEL_TASK_FOLDER"
PACE_VARIABLE = "GAVEL_PACE_FILE"
#: What a task inherits of the service's own environment.
_INHERITED = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
)
_SDK = Path(__file__).parent / "sdk" / "src"
_PACED_JOB = Path(__file__).with_name("paced_job.py")
_SECRET = "secret:"  # noqa: S105 - what stands before the name of one
#: Where no range is known; below the range that the kernel hands out by itself.
_PORTS = (20000, 30000)


#: A profile is short, and its steps are all that is wanted of it.
_PROFILE_INTERVAL_S = 0.2


class LaunchError(Exception):
    """A task cannot be started; the message says why, and what would help."""


@dataclass(frozen=True)
class Settings:
    """How this service's tasks run."""

    folder: Path
    checkpoint_root: Path
    #: {name: value} of what jobs call ``secret:NAME``
    secrets: Mapping[str, str]
    checkpoint_grace_s: float
    terminate_grace_s: float
    progress_interval_s: float
    #: Whether accelerators are imagined: a job without a command then runs at the table's pace.
    emulated: bool
    #: {job type: command} of reference jobs, to profile others beside them
    references: Mapping[str, str] = field(default_factory=dict)


class Launcher:
    """Starts the processes of one worker service's tasks."""

    def __init__(
        self, settings: Settings, devices: Mapping[str, str], view: LogView, socket_path: Path
    ) -> None:
        self._settings = settings
        self._devices = devices
        self._view = view
        self._socket_path = socket_path

    def folder(self, lease_id: str, job_id: str) -> Path:
        """Where a task's logs lie; both names are safe."""
        return self._settings.folder.absolute() / "jobs" / job_id / lease_id

    def with_checkpoint_dir(self, spec: TaskSpec) -> TaskSpec:
        """The task with its checkpoint folder's full path; the folder is made.

        Raises
        ------
        LaunchError
            It would lie outside the operator's folder, or cannot be made.
        """
        root = self._settings.checkpoint_root.resolve()
        try:
            folder = (root / (spec.checkpoint_dir or spec.job_id)).resolve()
            if root not in folder.parents:
                raise LaunchError(
                    f"checkpoint_dir {spec.checkpoint_dir!r} is not below {root}: "
                    "name a folder relative to the operator's checkpoint_root"
                )
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError, RuntimeError) as error:
            # The latter two: it has a NUL, or is a link to itself.
            raise LaunchError(f"checkpoint_dir {spec.checkpoint_dir!r:.200}: {error}") from None
        return msgspec.structs.replace(spec, checkpoint_dir=str(folder))

    def set_pace(self, lease: Lease, tasks: Sequence[TaskSpec]) -> None:
        """Emulated: let the tasks that share a lease's workers run as fast as the table says."""
        if not self._settings.emulated:
            return
        for task, rate in zip(tasks, self._view.rates(tasks, lease.worker_type), strict=True):
            folder = self.folder(lease.lease_id, task.job_id)
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / "pace.partial"
            partial.write_text(repr(rate / task.scale_factor))
            partial.rename(folder / "pace")

    def launch(self, lease: Lease, spec: TaskSpec, rank: int, ranks: Sequence[int]) -> int:
        """Start a rank in a session of its own; its process id.

        Raises
        ------
        LaunchError
            The job's command, folder or environment will not do.
        OSError
            The system refuses.
        """
        arguments = self._arguments(spec)
        workdir = Path(spec.workdir or ".").absolute()
        if not workdir.is_dir():
            raise LaunchError(f"workdir {spec.workdir!r} is no folder on this server")
        environment = self._environment(lease, spec, rank, ranks)
        folder = self.folder(lease.lease_id, spec.job_id)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"rank-{rank}.log").open("ab") as log:
            try:
                process = subprocess.Popen(  # noqa: S603 - what its owner asked to be run
                    arguments,
                    cwd=workdir,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise LaunchError(
                    f"command {spec.command!r:.200} does not start: {error}"
                ) from None
        # Whoever watches it asks the kernel for its end, so that this object is of no more use.
        process.returncode = 0
        return process.pid

    def _arguments(self, spec: TaskSpec) -> list[str]:
        if not spec.command:
            if not self._settings.emulated:
                raise LaunchError("the job has no command, and these accelerators are real")
            return [sys.executable, "-P", str(_PACED_JOB)]
        try:
            arguments = shlex.split(spec.command)
        except ValueError as error:
            raise LaunchError(f"command {spec.command!r:.200}: {error}") from None
        if not arguments:
            raise LaunchError(f"command {spec.command!r} is empty")
        return arguments

    def _environment(
        self, lease: Lease, spec: TaskSpec, rank: int, ranks: Sequence[int]
    ) -> dict[str, str]:
        folder = self.folder(lease.lease_id, spec.job_id)
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        own = {name: self._value(name, value) for name, value in spec.environment.items()}
        if _SDK.is_dir():
            # A checkout: the SDK is a distribution of its own, installed or not.
            own["PYTHONPATH"] = os.pathsep.join(filter(None, (own.get("PYTHONPATH"), str(_SDK))))
        interval_s = _PROFILE_INTERVAL_S if lease.profile else self._settings.progress_interval_s
        told = task_environment(
            self._socket_path.absolute(), lease.lease_id, spec, rank, interval_s
        )
        here = [lease.worker_ids[local] for local in ranks]
        return {
            "PYTHONUNBUFFERED": "1",
            **inherited,
            **own,
            **told,
            **self._rendezvous(lease, spec, rank, ranks),
            "CUDA_VISIBLE_DEVICES": ",".join(self._devices.get(i, "") for i in here).strip(","),
            FOLDER_VARIABLE: str(folder),
            PACE_VARIABLE: str(folder / "pace"),
        }

    def _value(self, name: str, value: str) -> str:
        if not value.startswith(_SECRET):
            return value
        secret = value.removeprefix(_SECRET)
        if secret not in self._settings.secrets:
            raise LaunchError(
                f"environment {name} is {value!r}, and this server's secrets_file has no {secret!r}"
            )
        return self._settings.secrets[secret]

    def _rendezvous(
        self, lease: Lease, spec: TaskSpec, rank: int, ranks: Sequence[int]
    ) -> dict[str, str]:
        """The variables by which the ranks of a job find each other, named as torchrun does."""
        first = self._view.workers.get(lease.worker_ids[0])
        low, high = first.ports if first is not None and first.ports else _PORTS
        # The same on every server, without a word between them.
        chance = zlib.crc32(f"{lease.lease_id}/{spec.job_id}".encode())
        elsewhere = len(ranks) < len(lease.worker_ids)
        return {
            "MASTER_ADDR": first.address if elsewhere and first is not None else "127.0.0.1",
            "MASTER_PORT": str(low + chance % (high - low)),
            "WORLD_SIZE": str(len(lease.worker_ids)),
            "RANK": str(rank),
            "LOCAL_RANK": str(ranks.index(rank)),
            "LOCAL_WORLD_SIZE": str(len(ranks)),
        }

"""What the worker service tells a training process through its environment.

One function per variable. Without ``GAVEL_SOCKET`` there is no scheduler, and nothing else is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import SettingsError


@dataclass(frozen=True)
class Settings:
    """The environment, read and checked; each field has its function below."""

    socket_path: str
    lease_id: str
    job_id: str
    rank: int
    world_size: int
    total_steps: float
    checkpoint_dir: Path
    resume_from: str
    progress_interval_s: float

    @property
    def total_iterations(self) -> int:
        """Batches of each rank that make the job complete: ranks advance together."""
        return math.ceil(self.total_steps / self.world_size)


def read(environment: Mapping[str, str]) -> Settings | None:
    """The settings; None outside the scheduler.

    Raises
    ------
    SettingsError
        A variable is missing or wrong.
    """
    if not environment.get("GAVEL_SOCKET"):
        return None
    settings = Settings(
        socket_path=socket_path(environment),
        lease_id=lease_id(environment),
        job_id=job_id(environment),
        rank=rank(environment),
        world_size=world_size(environment),
        total_steps=total_steps(environment),
        checkpoint_dir=checkpoint_dir(environment),
        resume_from=resume_from(environment),
        progress_interval_s=progress_interval_s(environment),
    )
    if settings.rank >= settings.world_size:
        raise SettingsError(
            f"GAVEL_RANK is {settings.rank} and GAVEL_WORLD_SIZE {settings.world_size}: "
            "ranks count from 0 and stay below the world size"
        )
    return settings


def socket_path(environment: Mapping[str, str]) -> str:
    """``GAVEL_SOCKET``: path of the worker service's Unix socket."""
    return _text(environment, "GAVEL_SOCKET")


def lease_id(environment: Mapping[str, str]) -> str:
    """``GAVEL_LEASE_ID``: the lease this process runs under; checkpoints are filed under it."""
    return _text(environment, "GAVEL_LEASE_ID")


def job_id(environment: Mapping[str, str]) -> str:
    """``GAVEL_JOB_ID``: the job this process trains."""
    return _text(environment, "GAVEL_JOB_ID")


def rank(environment: Mapping[str, str]) -> int:
    """``GAVEL_RANK``: this process among those of the job, from 0, over all servers."""
    return int(_number(environment, "GAVEL_RANK", at_least=0, whole=True))


def world_size(environment: Mapping[str, str]) -> int:
    """``GAVEL_WORLD_SIZE``: how many processes train the job at once."""
    return int(_number(environment, "GAVEL_WORLD_SIZE", at_least=1, whole=True))


def total_steps(environment: Mapping[str, str]) -> float:
    """``GAVEL_TOTAL_STEPS``: steps that make the job complete, summed over all ranks."""
    return _number(environment, "GAVEL_TOTAL_STEPS", at_least=0)


def checkpoint_dir(environment: Mapping[str, str]) -> Path:
    """``GAVEL_CHECKPOINT_DIR``: existing folder of the job's checkpoints, seen by all servers."""
    folder = Path(_text(environment, "GAVEL_CHECKPOINT_DIR"))
    if not folder.is_dir():
        raise SettingsError(
            f"GAVEL_CHECKPOINT_DIR is {str(folder)!r}, where there is no folder: "
            "is the checkpoint root mounted on this server?"
        )
    return folder


def resume_from(environment: Mapping[str, str]) -> str:
    """``GAVEL_RESUME_FROM``: the lease whose checkpoint to load; unset or empty: a fresh start."""
    return environment.get("GAVEL_RESUME_FROM", "")


def progress_interval_s(environment: Mapping[str, str]) -> float:
    """``GAVEL_PROGRESS_INTERVAL_S``: seconds between two progress messages; unset: 10."""
    if not environment.get("GAVEL_PROGRESS_INTERVAL_S"):
        return 10.0
    return _number(environment, "GAVEL_PROGRESS_INTERVAL_S", at_least=0.05)


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise SettingsError(f"{name} is not set, but GAVEL_SOCKET is: the worker sets both")
    return value


def _number(
    environment: Mapping[str, str], name: str, *, at_least: float, whole: bool = False
) -> float:
    text = _text(environment, name)
    try:
        value = float(int(text)) if whole else float(text)
    except ValueError:
        value = math.nan
    if not at_least <= value < math.inf:
        kind = "a whole number" if whole else "a number"
        raise SettingsError(f"{name} is {text!r}: it must be {kind} of at least {at_least}")
    return value

"""Checkpoints on disk: whole and under their final name, or not there.

::

    <GAVEL_CHECKPOINT_DIR>/lease-<lease id>/<steps>/rank-<rank>/
        state              what the user's save wrote: a file or a folder
        checkpoint.json    steps, ranks, and the size of each file of state

Each rank writes its part as ``rank-<rank>.partial``, syncs it and renames it. A checkpoint is
usable once the parts of all ranks are there. Nothing is removed before what replaces it is
complete, and of the complete ones the newest and the one before it stay.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .errors import CheckpointError
from .settings import Settings

_FORMAT = 1
_STATE = "state"
_RECORD = "checkpoint.json"
_LONGEST_NAME = 200

_log = logging.getLogger("gavel_iterator")


class _UnusableError(Exception):
    """A checkpoint is not whole; the message says what is amiss."""


class _UnfinishedError(_UnusableError):
    """A rank never put its part in place: what came before is still what counts."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: parts of all ranks, at one step."""

    folder: Path
    #: Whole-job steps, over all ranks.
    steps: int

    def state(self, rank: int) -> Path:
        """What a rank loads: its own part, or rank 0's where it wrote none."""
        own = self.folder / f"rank-{rank}" / _STATE
        return own if own.exists() else self.folder / "rank-0" / _STATE


class CheckpointStore:
    """The checkpoints of one job, as one rank under one lease uses them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = settings.checkpoint_dir
        self._own = self._root / _folder_name(settings.lease_id)
        #: What was there at the start, in the order in which it would be loaded.
        self._earlier = self._find()
        self._spare: Path | None = None

    def load(self, read: Callable[[str], object]) -> int:
        """Let ``read`` load the newest usable checkpoint; the whole-job steps it stands for.

        0, without a call, where there is none.

        Raises
        ------
        CheckpointError
            There are checkpoints, and not one can be loaded.
        """
        failure: Exception | None = None
        for folder in self._earlier:
            try:
                found = self._check(folder)
                read(str(found.state(self._settings.rank)))
            except Exception as error:  # noqa: BLE001 - the user's code, which may raise anything
                _log.warning("skipping checkpoint %s: %s: %s", folder, type(error).__name__, error)
                if not isinstance(error, _UnfinishedError):
                    failure = error
                continue
            self._spare = folder
            return found.steps
        if failure is not None:
            raise CheckpointError(
                f"none of the checkpoints under {self._root} can be loaded, the last because of "
                f"{type(failure).__name__}: {failure}; remove them to train from the start"
            ) from failure
        return 0

    def save(self, write: Callable[[str], object], iteration: int) -> None:
        """Let ``write`` save this rank's part, and put it in its place.

        Raises
        ------
        CheckpointError
            It could not be written; what was there before is untouched.
        """
        steps = iteration * self._settings.world_size
        part = self._own / f"{steps:012d}" / f"rank-{self._settings.rank}"
        partial = part.with_name(f"{part.name}.partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            write(str(partial / _STATE))
            self._seal(partial, steps, iteration)
            shutil.rmtree(part, ignore_errors=True)
            partial.rename(part)
            for folder in (part.parent, self._own, self._root):
                _sync(folder)
        except Exception as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise CheckpointError(
                f"the checkpoint of step {steps} could not be saved: "
                f"{type(error).__name__}: {error}"
            ) from error
        if self._settings.rank == 0:
            self._prune()

    def _seal(self, partial: Path, steps: int, iteration: int) -> None:
        """Make the part durable, its record last."""
        state = partial / _STATE
        if self._settings.rank == 0 and not state.exists():
            others = sorted(path.name for path in partial.iterdir())
            raise CheckpointError(f"save wrote nothing at {state}, but {others or 'nothing else'}")
        record = {
            "format": _FORMAT,
            "job": self._settings.job_id,
            "lease": self._settings.lease_id,
            "rank": self._settings.rank,
            "world_size": self._settings.world_size,
            "iteration": iteration,
            "steps": steps,
            "complete": iteration >= self._settings.total_iterations,
            "files": _sizes(state),
        }
        (partial / _RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        for folder, _, names in os.walk(partial, topdown=False):
            for name in names:
                _sync(Path(folder, name))
            _sync(Path(folder))

    def _find(self) -> list[Path]:
        """Folders of checkpoints: this lease's, then the named one's, then all; newest first."""
        named = _folder_name(self._settings.resume_from) if self._settings.resume_from else ""
        if not (named or self._own.exists()):
            return []

        def precedence(folder: Path) -> tuple[bool, bool, int, str]:
            lease = folder.parent.name
            return lease == self._own.name, lease == named, int(folder.name), lease

        folders = (folder for folder in self._root.glob("lease-*/*") if folder.name.isdecimal())
        return sorted(folders, key=precedence, reverse=True)

    def _check(self, folder: Path) -> Checkpoint:
        """The checkpoint in a folder, all of whose parts are whole and of one step."""
        steps = int(folder.name)
        world_size = self._check_part(folder / "rank-0", steps)
        for rank in range(1, world_size):
            self._check_part(folder / f"rank-{rank}", steps)
        return Checkpoint(folder, steps)

    def _check_part(self, part: Path, steps: int) -> int:
        """The world size that a whole part tells."""
        if not part.is_dir():
            raise _UnfinishedError(f"{part} was never finished")
        try:
            record: dict[str, Any] = json.loads((part / _RECORD).read_text(encoding="utf-8"))
            said = (record["format"], record["job"], record["steps"])
            files, world_size = record["files"], int(record["world_size"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _UnusableError(f"{part / _RECORD}: {type(error).__name__}: {error}") from error
        if said != (_FORMAT, self._settings.job_id, steps):
            raise _UnusableError(
                f"{part / _RECORD} is of (format, job, steps) {said}, "
                f"not {(_FORMAT, self._settings.job_id, steps)}"
            )
        sizes = _sizes(part / _STATE)
        if sizes != files:
            wrong = sorted(name for name in {*sizes, *files} if sizes.get(name) != files.get(name))
            raise _UnusableError(
                f"{part / wrong[0]} has {sizes.get(wrong[0])} bytes, "
                f"not the {files.get(wrong[0])} that were saved"
            )
        return world_size

    def _prune(self) -> None:
        """Keep the newest complete checkpoint of this lease and the one before it."""
        mine = sorted((path for path in self._own.iterdir() if path.name.isdecimal()), reverse=True)
        complete = [path for path in mine if self._is_complete(path)]
        if not complete:
            return
        newest = complete[0]
        spare = complete[1] if len(complete) > 1 else self._spare
        for folder in [*(path for path in mine if path.name < newest.name), *self._earlier]:
            if folder not in (newest, spare):
                shutil.rmtree(folder, ignore_errors=True)
        for lease in {folder.parent for folder in self._earlier} - {self._own}:
            if lease.exists() and not any(lease.iterdir()):
                shutil.rmtree(lease, ignore_errors=True)

    def _is_complete(self, folder: Path) -> bool:
        try:
            self._check(folder)
        except _UnusableError:
            return False
        return True


def _folder_name(lease_id: str) -> str:
    name = "lease-" + quote(lease_id, safe="")
    if len(name) <= _LONGEST_NAME:
        return name
    return "lease-sha256-" + hashlib.sha256(lease_id.encode()).hexdigest()


def _sizes(state: Path) -> dict[str, int]:
    """{path relative to the part: bytes} of the files of a state; empty where there is none."""
    files: Iterator[Path] = state.rglob("*") if state.is_dir() else iter((state,))
    return {
        path.relative_to(state.parent).as_posix(): path.stat().st_size
        for path in files
        if path.is_file()
    }


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

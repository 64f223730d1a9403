"""What a profile's processes make of it: copies of a job, and of a reference beside it (§6).

A copy starts from nothing, has no end, and leaves nothing behind but the log of one that failed:
its checkpoint folder is its own and goes with it. Its speed is read off the steps it reports. What
comes before its first step is warm-up; of two that share workers, only the time counts in which
both train.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from schemas.domain import Lease, TaskSpec
from services.worker.hands import Ending, Profile
from services.worker.launch import Settings
from services.worker.lease_socket import LeaseSocket
from services.worker.view import LogView

#: (time s, whole-job steps) whenever a process was heard to have more steps than before.
Course = Sequence[tuple[float, float]]

#: Where copies have their checkpoints, below the operator's folder.
FOLDER = ".profiles"
#: More steps than any profile has time for.
_ENDLESS = 1e15
#: Speeds over less time than this are no speeds.
_LEAST_S = 1.0
#: What a process says, whatever it runs on, when its memory does not suffice.
_OUT_OF_MEMORY = "out of memory"


class Copy(Protocol):
    """A task that runs for a profile."""

    ending: asyncio.Future[Ending]

    @property
    def folder(self) -> Path:
        """Where its logs lie."""
        ...

    def abandon(self) -> None:
        """End it at once; nothing of it is wanted."""
        ...


class Profiler:
    """Runs the profiles of one worker service.

    Parameters
    ----------
    start : starts a copy under a lease that ends then
    now : log time, s
    """

    def __init__(
        self,
        settings: Settings,
        view: LogView,
        socket: LeaseSocket,
        start: Callable[[Lease, TaskSpec, float], Copy],
        now: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._view = view
        self._socket = socket
        self._start = start
        self._now = now
        #: {(lease id, job id): how far it was when}
        self._courses: dict[tuple[str, str], list[tuple[float, float]]] = {}

    def hear(self, key: tuple[str, str]) -> None:
        """A task has said something: if it is a copy, how far it is counts."""
        course = self._courses.get(key)
        said = self._socket.steps(*key) if course is not None else None
        if course is not None and said is not None and (not course or said.steps > course[-1][1]):
            course.append((asyncio.get_running_loop().time(), said.steps))

    async def measure(self, lease: Lease, ends_at_s: float) -> Profile:
        """See ``Hands``."""
        lease = copies(lease, self._settings.references)
        hindrance = self._hindrance(lease)
        if hindrance:
            return Profile("failed", detail=hindrance)
        keys = [(lease.lease_id, spec.job_id) for spec in lease.tasks]
        courses = [self._courses.setdefault(key, []) for key in keys]
        running: list[Copy] = []
        try:
            running += [self._start(lease, spec, ends_at_s) for spec in lease.tasks]
            endings = [copy.ending for copy in running]
            left_s = max(0.0, ends_at_s - self._now())
            await asyncio.wait(endings, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            early = [ending.result() if ending.done() else None for ending in endings]
        finally:
            for copy in running:
                copy.abandon()
            for key in keys:
                del self._courses[key]
        await asyncio.wait(endings)
        profile = found(courses, early)
        useless = [self._settings.checkpoint_root / FOLDER / lease.lease_id]
        if profile.outcome == "measured":
            # What a job has printed is looked for among its logs: a copy's are in the way there.
            useless += [copy.folder for copy in running]
        for folder in useless:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return profile

    def _hindrance(self, lease: Lease) -> str:
        """Why there is nothing to start, or nothing that would say anything; empty: there is."""
        silent = [spec.job_type for spec in lease.tasks if not spec.command]
        if silent and not self._settings.emulated:
            return f"no command is known for {silent[0]!r}: worker.references_file names them"
        if silent and self._view.known_rates(lease.tasks, lease.worker_type) is None:
            return f"no table says at what pace to imagine {silent[0]!r} here"
        return ""


def copies(lease: Lease, commands: Mapping[str, str]) -> Lease:
    """A profile's lease as its processes are started.

    Parameters
    ----------
    commands : {job type: command} of references, as the operator has said
    """
    job, *others = lease.tasks
    # What a reference is called must be another name than the job's, and a safe one.
    name = "reference" if job.job_id != "reference" else "the-reference"
    named = [job, *(msgspec.structs.replace(other, job_id=name) for other in others)]
    tasks = tuple(
        msgspec.structs.replace(
            task,
            total_steps=_ENDLESS,
            resume_from="",
            command=task.command or commands.get(task.job_type, ""),
            checkpoint_dir=f"{FOLDER}/{lease.lease_id}/{task.job_id}",
        )
        for task in named
    )
    return msgspec.structs.replace(lease, tasks=tasks)


def found(courses: Sequence[Course], endings: Sequence[Ending | None]) -> Profile:
    """What a profile has found.

    Parameters
    ----------
    courses : of its processes, in the order of its tasks
    endings : of those that ended before they were ended
    """
    for ending in endings:
        if ending is not None and ending.reason == "failed":
            fits = _OUT_OF_MEMORY not in ending.detail.lower()
            return Profile("failed" if fits else "does_not_fit", detail=ending.detail)
    # The first entry is where a process began, the second ends its first step.
    warm_at = max(course[1][0] if len(course) > 1 else float("inf") for course in courses)
    speeds, spans = [], []
    for course in courses:
        trained = [sample for sample in course if sample[0] >= warm_at]
        seconds = trained[-1][0] - trained[0][0] if trained else 0.0
        if seconds < _LEAST_S:
            heard = f"{seconds:.1f} s of training were heard of, at least {_LEAST_S:g} s are needed"
            return Profile("failed", detail=heard)
        speeds.append((trained[-1][1] - trained[0][1]) / seconds)
        spans.append(seconds)
    return Profile("measured", tuple(speeds), min(spans))

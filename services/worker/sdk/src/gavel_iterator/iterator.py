"""``GavelIterator``: a loader that ends early when the lease does.

The path of a step is a counter and a comparison; what can pause the loop is in ``course.py``.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, Generic, TypeVar

from .checkpoints import CheckpointStore
from .course import Course
from .errors import CheckpointError, GavelError, LeaseEnded, LoaderError
from .link import Link
from .settings import Settings, read

Batch = TypeVar("Batch")


class GavelIterator(Generic[Batch]):
    """Wraps the loader of a training loop; each ``for`` is one pass over it, as without.

    Under the scheduler a pass ends early once the job's steps are trained or the lease is over,
    after a checkpoint; outside, the loader is all there is, and ``load`` and ``save`` are unused.

    Parameters
    ----------
    loader
        Anything that can be iterated, once per epoch.
    load
        Called once, here, with the path of a checkpoint to load, if there is one.
    save
        Called with a path that does not exist, to write a file or make a folder there. Every
        rank is called, at the same step; rank 0 must write, the others may. A rank that wrote
        nothing loads what rank 0 wrote.

    Raises
    ------
    SettingsError, WorkerError, CheckpointError
        The scheduler's environment is wrong, its worker service absent, or no checkpoint loads.
    """

    def __init__(
        self,
        loader: Iterable[Batch],
        *,
        load: Callable[[str], object],
        save: Callable[[str], object],
    ) -> None:
        self.loader = loader
        #: Whether all of the job's steps are trained and saved; always false outside.
        self.done = False
        #: Whether the lease is over, so that no further batch will come.
        self.stopped = False
        self._save = save
        settings = read(os.environ)
        self._session = _Session(settings, load) if settings is not None else None
        if self._session is not None:
            atexit.register(self._close)
            os.register_at_fork(after_in_child=self._after_fork)

    @property
    def iteration(self) -> int:
        """Batches this rank has trained since the job's start; 0 outside the scheduler."""
        return self._session.course.iteration if self._session is not None else 0

    def __len__(self) -> int:
        """Batches of a whole pass, where the loader knows it."""
        return len(self.loader)  # type: ignore[arg-type] # a TypeError, as the loader's own would be

    def __iter__(self) -> Iterator[Batch]:
        """One pass over the loader.

        Raises
        ------
        LeaseEnded
            The lease is over already: uncaught, it ends the process with code 0.
        LoaderError
            The loader is exhausted, and the job is not complete.
        CheckpointError
            The last checkpoint of the lease, or of the job, could not be saved.
        """
        if self._session is None:
            return iter(self.loader)
        if self.stopped:
            raise LeaseEnded
        return self._batches(self._session)

    def _close(self) -> None:
        """Take leave of the worker service; called when the process ends."""
        if self._session is None:
            return
        atexit.unregister(self._close)
        self._session.leave(ended=self.done or self.stopped)
        self._session = None

    def _batches(self, session: _Session) -> Iterator[Batch]:
        course = session.course
        if self.done or (course.iteration >= course.halt_at and self._pause(session)):
            return
        empty = True
        for batch in self.loader:
            empty = False
            yield batch
            course.iteration += 1
            if course.iteration >= course.halt_at and self._pause(session):
                return
        if empty:
            raise LoaderError(
                f"the loader gave no batch after {course.iteration} of "
                f"{course.total_iterations}: a generator can be iterated only once; pass "
                "something that starts anew at every pass"
            )

    def _pause(self, session: _Session) -> bool:
        """Do what is due at this step; whether the pass ends here."""
        course = session.course
        course.hold()
        if course.complete:
            session.finish(self._save, "done")
            self.done = True
        elif course.stop_due:
            session.finish(self._save, "stopped")
            self.stopped = True
        elif course.checkpoint_due:
            session.checkpoint(self._save)
        return self.done or self.stopped

    def _after_fork(self) -> None:
        """In a loader's worker process: iterate, but neither report nor save."""
        if self._session is not None:
            atexit.unregister(self._close)
            self._session.forget()
            self._session = None


class _Session:
    """What there is under the scheduler only: the course, the checkpoints, the worker service."""

    _open: ClassVar[bool] = False

    def __init__(self, settings: Settings, load: Callable[[str], object]) -> None:
        if _Session._open:
            raise GavelError("one GavelIterator per process: wrap the training loader only")
        self.course = Course(settings.total_iterations)
        self._world_size = settings.world_size
        self._store = CheckpointStore(settings)
        self._link = Link(settings, self.course)
        self._link.start()
        _Session._open = True
        started = time.monotonic()
        try:
            steps = self._store.load(load)
        except CheckpointError as error:
            self._link.error(str(error))
            self._link.close()
            raise
        self.course.load_s = time.monotonic() - started if steps else 0.0
        self.course.iteration = self.course.checkpointed = steps // self._world_size
        self._link.loaded()

    def checkpoint(self, save: Callable[[str], object]) -> None:
        """Save because it was asked for; training goes on even if it fails."""
        self.course.begin_checkpoint()
        try:
            self._write(save)
        except CheckpointError as error:
            self._link.error(str(error))

    def finish(self, save: Callable[[str], object], kind: str) -> None:
        """Save what is not saved yet, and say the last word."""
        try:
            self._write(save)
        except CheckpointError as error:
            self._link.error(str(error))
            raise
        fields = {"iteration": self.course.iteration}
        if kind == "stopped":
            fields["checkpointed"] = self.course.checkpointed
        self._link.last_word(kind, fields)

    def leave(self, *, ended: bool) -> None:
        """End the link; say so if this is before the job or the lease has ended."""
        if not ended:
            raised = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
            what = f"{type(raised).__name__}: {raised}" if raised else "the loop was left early"
            self._link.error(
                f"{what} (after {self.course.iteration} of {self.course.total_iterations} batches)"
            )
        self._link.close()
        _Session._open = False

    def forget(self) -> None:
        """In a forked process: this session is the parent's."""
        self.course.abandon()
        self._link.forget()

    def _write(self, save: Callable[[str], object]) -> None:
        if self.course.iteration <= self.course.checkpointed:
            return
        started = time.monotonic()
        self._store.save(save, self.course.iteration)
        took_s = time.monotonic() - started
        self.course.save_s += took_s
        self.course.checkpointed = self.course.iteration
        self._link.checkpointed(took_s)

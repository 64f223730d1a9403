"""How far training is and where it must pause: what the loop and the link's thread share.

The loop writes ``iteration`` and compares it with ``halt_at``, nothing more; all else happens in
the thread, or at a pause. A rank that has proposed a step waits there for the agreed one, so that
no rank of a gang is ever past it.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque

#: A proposal is at least this much work ahead.
AHEAD_S = 2.0
#: How long a rank stands at its proposal before it takes the question as forgotten.
HOLD_S = 5.0
_SAMPLE_S = 0.25
_SAMPLES = 80
#: A pace is not judged by less.
_SHORTEST_S = 0.05


class Course:
    """The way to the job's last iteration, under one lease."""

    def __init__(self, total_iterations: int) -> None:
        self.total_iterations = total_iterations
        #: Batches trained since the job's first; written by the loop only.
        self.iteration = 0
        #: Newest iteration that is safe on disk.
        self.checkpointed = 0
        self.load_s = 0.0
        self.save_s = 0.0
        #: Where the loop next looks up from its work.
        self.halt_at = total_iterations
        #: Monotonic time of the lease's end; infinite until the worker has told it.
        self.lease_ends_at = math.inf
        self._changed = threading.Condition()
        self._stop_at: int | None = None
        self._checkpoint_at: int | None = None
        self._proposed: int | None = None
        #: (monotonic time, iteration), a few a second: what can be done in ``AHEAD_S``.
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)

    @property
    def complete(self) -> bool:
        """Whether all of the job's steps are trained."""
        return self.iteration >= self.total_iterations

    @property
    def stop_due(self) -> bool:
        """Whether the loop stands where it must stop."""
        return self._stop_at is not None and self.iteration >= self._stop_at

    @property
    def checkpoint_due(self) -> bool:
        """Whether the loop stands where a checkpoint was asked for."""
        return self._checkpoint_at is not None and self.iteration >= self._checkpoint_at

    def renew(self, ends_at: float) -> None:
        """The lease ends at this monotonic time."""
        with self._changed:
            self.lease_ends_at = ends_at

    def tick(self, now: float) -> None:
        """Take note of the pace, and of a lease that ended without a word.

        Whoever has asked for a proposal is about to say where to stop: to leave before would part
        the ranks of a gang.
        """
        with self._changed:
            if not self._samples or now - self._samples[-1][0] >= _SAMPLE_S:
                self._samples.append((now, self.iteration))
            asked = self._proposed is not None
            if now >= self.lease_ends_at and self._stop_at is None and not asked:
                self._stop_at = 0
                self._answered()

    def propose(self, now: float) -> int:
        """An iteration at least ``AHEAD_S`` of work ahead; the loop goes no further for now."""
        with self._changed:
            ahead = 1 + work_ahead([*self._samples, (now, self.iteration)])
            proposed = -1
            # Looked at again once it halts the loop, which may have been faster.
            while proposed <= self.iteration and proposed < self.total_iterations:
                proposed = min(self.iteration + ahead, self.total_iterations)
                self._proposed = proposed
                self._set_halt()
            return proposed

    def withdraw(self) -> None:
        """Whoever asked for a proposal is gone."""
        with self._changed:
            self._answered()

    def stop(self, at: int) -> None:
        """Stop at the iteration, or at the next step where it is passed."""
        with self._changed:
            self._stop_at = at
            self._answered()

    def checkpoint(self, at: int) -> None:
        """Save at the iteration, or at the next step where it is passed, and go on."""
        with self._changed:
            self._checkpoint_at = at
            self._answered()

    def begin_checkpoint(self) -> None:
        """The checkpoint that is due is taken in hand; one asked for meanwhile is another."""
        with self._changed:
            self._checkpoint_at = None
            self._set_halt()

    def hold(self) -> None:
        """Stand at the proposed step until the agreed one is known."""
        with self._changed:
            self._changed.wait_for(lambda: not self._at_proposal, HOLD_S)
            if self._at_proposal:
                self._answered()

    def abandon(self) -> None:
        """Never pause again: this is a copy in a forked process, not the one that trains."""
        self.halt_at = sys.maxsize

    @property
    def _at_proposal(self) -> bool:
        return self._proposed is not None and self._proposed <= self.iteration < (
            self.total_iterations
        )

    def _answered(self) -> None:
        self._proposed = None
        self._set_halt()
        self._changed.notify_all()

    def _set_halt(self) -> None:
        marks = (self._stop_at, self._checkpoint_at, self._proposed)
        self.halt_at = min([self.total_iterations, *(at for at in marks if at is not None)])


def work_ahead(samples: list[tuple[float, int]]) -> int:
    """Iterations that may fit into ``AHEAD_S``: the most that any such span of time has seen.

    Parameters
    ----------
    samples
        (seconds, iteration), in order of time.
    """
    if len(samples) < 2:
        return 0
    span_s = samples[-1][0] - samples[0][0]
    if span_s < AHEAD_S:
        trained = samples[-1][1] - samples[0][1]
        return math.ceil(trained * AHEAD_S / max(span_s, _SHORTEST_S))
    most, first = 0, 0
    for at, iteration in samples:
        while at - samples[first + 1][0] >= AHEAD_S:
            first += 1
        most = max(most, iteration - samples[first][1])
    return most

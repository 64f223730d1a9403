"""Log time on a host whose own clock may say anything.

Timers are due in log time, and the log's stamps come from its server. What a host has is a
monotonic clock, and for each record it received live, the record's stamp and the moment of
receipt. A record only ever arrives late, so of all their differences the largest is the best.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_RECENT_S = 60.0
_MOST_SAMPLES = 64
#: A difference off by more is not lateness but another clock.
_STEP_S = 0.1
#: Of these in a row: one alone is a record that was held up.
_LATE_SAMPLES = 3


class LogClock:
    """Log time = monotonic + max over recent live records of (stamp - monotonic at receipt).

    Parameters
    ----------
    monotonic : seconds since some moment, the same clock that stamps receipts
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        #: (moment of receipt, difference), oldest first
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MOST_SAMPLES)
        self._late: list[tuple[float, float]] = []
        self._offset = 0.0

    @property
    def is_set(self) -> bool:
        """Whether a live record was ever received; without one, log time is not known."""
        return bool(self._samples)

    def now(self) -> float:
        """Log time, seconds."""
        assert self.is_set, "whoever sets timers has received its own start"
        return self._monotonic() + self._offset

    def observe(self, at: float, received: float | None = None) -> bool:
        """Take note of a live record; True if log time has jumped by that.

        Parameters
        ----------
        at : the record's stamp, s
        received : monotonic time of its receipt, s; by default now
        """
        received = self._monotonic() if received is None else received
        sample = (received, at - received)
        difference = sample[1] - self._offset
        jumped = False
        if not self._samples or difference > _STEP_S:
            jumped = True
            self._samples.clear()
            self._late.clear()
        elif difference < -_STEP_S:
            self._late.append(sample)
            if len(self._late) < _LATE_SAMPLES:
                return False
            jumped = True
            self._samples.clear()
            self._samples.extend(self._late)
            self._late.clear()
        else:
            self._late.clear()
        if not self._samples or self._samples[-1] is not sample:
            self._samples.append(sample)
        while received - self._samples[0][0] > _RECENT_S:
            self._samples.popleft()
        self._offset = max(offset for _, offset in self._samples)
        return jumped

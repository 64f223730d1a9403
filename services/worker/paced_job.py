"""What an emulated accelerator runs for a job without a command: a real process, paced.

It trains nothing, through the SDK as any job does: as many iterations a second as the file named
by ``GAVEL_PACE_FILE`` says, looked at again now and then, as a neighbour may come or go. Run as a
script, in a task's environment; it imports nothing of the service.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from gavel_iterator import GavelIterator

#: How long it may work without looking at the clock, and at the pace.
_SLICE_S = 0.01
_LOOK_EVERY_S = 0.25


class PacedLoader:
    """Gives one number after the other, at the pace that a file says."""

    def __init__(self, pace_file: Path) -> None:
        self._pace_file = pace_file

    def __iter__(self) -> Iterator[int]:
        """Never ends."""
        number, due = 0, 0.0
        then = look_at = time.monotonic()
        rate = 0.0
        while True:
            now = time.monotonic()
            due += (now - then) * rate
            then = now
            if now >= look_at:
                rate = float(self._pace_file.read_text())
                look_at = now + _LOOK_EVERY_S
            while number + 1 <= due:
                yield number
                number += 1
            next_s = (number + 1 - due) / rate if rate > 0 else _LOOK_EVERY_S
            time.sleep(min(max(next_s, _SLICE_S), _LOOK_EVERY_S))


def main() -> None:
    """Train for as long as the lease lasts."""
    loader = PacedLoader(Path(os.environ["GAVEL_PACE_FILE"]))
    iterator = GavelIterator(
        loader, load=lambda path: Path(path).read_text(), save=lambda path: Path(path).touch()
    )
    for _ in iterator:
        pass


if __name__ == "__main__":
    main()

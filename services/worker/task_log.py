"""What a task prints, ``rank-<rank>.log``: kept within bounds, and its last word."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

MOST_BYTES = 16 << 20
_LAST_BYTES = 4096
_SHOWN = 300


def cut(log: Path, most_bytes: int = MOST_BYTES) -> None:
    """Once it is too much, keep the newest part, as ``rank-<rank>.log.1``, and begin anew.

    Parameters
    ----------
    log : the file; cut and not moved, as a process goes on writing to this very file
    most_bytes : that it may have, and that are kept of it
    """
    earlier = log.with_suffix(".log.1")
    with suppress(FileNotFoundError), log.open("r+b") as file:
        size = file.seek(0, 2)
        if size <= most_bytes:
            return
        file.seek(size - most_bytes)
        try:
            earlier.write_bytes(file.read(most_bytes))
        except OSError:
            # The disk is full: so it is all the more to be cut.
            earlier.unlink(missing_ok=True)
        file.truncate(0)


def last_line(log: Path) -> str:
    """The last line that a process has printed, cut to what can be shown."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][-_SHOWN:] if lines else ""

"""A log file as something that can be read again and again; checked the first time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from schemas.record import Record
from services.runtime.file_log import Ending, read_log


def reader(path: Path) -> Callable[[], Iterator[Record]]:
    """Reads the file from its first record on; the first time it is checked on the way.

    Raises, when read
    -----------------
    DamagedLogError, NewerSchemaError
        See ``services.runtime.file_log.read_log``.
    """
    is_checked = False

    def note(ending: Ending) -> None:
        nonlocal is_checked
        if not is_checked:
            _tell(path, ending)
        is_checked = True

    return lambda: read_log(path, check=not is_checked, on_end=note)


def check(path: Path) -> None:
    """Check a file's chain and seal, without parsing its records.

    Raises
    ------
    DamagedLogError
        See ``services.runtime.file_log.read_log``.
    """
    for _ in read_log(path, after=sys.maxsize, on_end=lambda ending: _tell(path, ending)):
        pass


def _tell(path: Path, ending: Ending) -> None:
    """Say on stderr if a file has no proper end."""
    if not ending.sealed:
        torn = "; its last line, begun but not finished, is left out" if ending.torn else ""
        text = f"gavel: {path} is not sealed: its writer is at work or was killed{torn}"
        print(text, file=sys.stderr)

"""A log file as something that can be read again and again; checked the first time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from schemas.record import Record
from services.runtime.file_log import Ending, read_log


def reader(path: Path) -> Callable[[], Iterator[Record]]:
    """Reads the file from its first record on; says on stderr, once, if it has no proper end.

    Raises, when read
    -----------------
    DamagedLogError, NewerSchemaError
        See ``services.runtime.file_log.read_log``.
    """
    checked = False

    def note(ending: Ending) -> None:
        nonlocal checked
        if not checked and not ending.sealed:
            torn = "; its last line, begun but not finished, is left out" if ending.torn else ""
            text = f"gavel: {path} is not sealed: its writer is at work or was killed{torn}"
            print(text, file=sys.stderr)
        checked = True

    return lambda: read_log(path, check=not checked, on_end=note)

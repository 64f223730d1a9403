"""What is wrong with a trace, told all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from replay.options import InputError

_SHOWN_FAULTS = 20


class Fault(NamedTuple):
    """One thing wrong in one row."""

    #: From 1; 0 for what is in no line.
    line: int
    #: Name of the column or key.
    field: str
    value: object
    #: What would be right.
    expected: str
    #: Position of the column, from 1; 0 where columns have none.
    column: int = 0

    def __str__(self) -> str:
        place = f"column {self.column} ({self.field})" if self.column else self.field
        line = f"line {self.line}, " if self.line else ""
        return f"{line}{place}: {self.value!r:.80}; expected {self.expected}"


class TraceError(InputError):
    """A trace that cannot be read; nothing of it was used."""

    def __init__(self, source: str, summary: str, faults: Sequence[Fault] = ()) -> None:
        self.source = source
        self.faults = tuple(faults)
        shown = [f"  {fault}" for fault in self.faults[:_SHOWN_FAULTS]]
        if len(self.faults) > _SHOWN_FAULTS:
            shown.append(f"  ... and {len(self.faults) - _SHOWN_FAULTS} more")
        super().__init__("\n".join([f"{source}: {summary}", *shown]))

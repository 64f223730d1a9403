"""What the readers of all formats hand on: jobs with their lines, and what is wrong with others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from replay.traces.errors import Fault
from schemas.domain import JobSpec
from schemas.events import AnyEvent

#: Lines that are kept of each reason for leaving rows out.
_LINES_SHOWN = 5


class TimedEvent(NamedTuple):
    """Something other than a job that a trace has happen: an outage, a drain, a cancellation."""

    at_s: float
    #: Who appends it (``schemas/subjects.py``).
    actor: str
    event: AnyEvent


@dataclass
class LeftOut:
    """Rows left out for one reason."""

    count: int = 0
    #: The first few.
    lines: list[int] = field(default_factory=list)


@dataclass
class Rows:
    """Rows of one trace file as they stand there: unsorted, steps and deadlines unresolved."""

    jobs: list[JobSpec] = field(default_factory=list)
    #: (jobs,) line of each job.
    lines: list[int] = field(default_factory=list)
    #: {index into ``jobs``: deadline as a multiple of the isolated duration}
    slo_multipliers: dict[int, float] = field(default_factory=dict)
    events: list[TimedEvent] = field(default_factory=list)
    #: {what was put right: in how many rows}
    repaired: Counter[str] = field(default_factory=Counter)
    #: {why: the rows left out for it}
    refused: dict[str, LeftOut] = field(default_factory=dict)
    #: What makes the whole file one that is not used.
    faults: list[Fault] = field(default_factory=list)

    def refuse(self, why: str, line: int) -> None:
        """Leave a row out; ``why`` is the same for all rows like it."""
        left_out = self.refused.setdefault(why, LeftOut())
        left_out.count += 1
        if len(left_out.lines) < _LINES_SHOWN:
            left_out.lines.append(line)


def first_line(text: str) -> tuple[int, str] | None:
    """The first line that is not blank, as ``numbered_lines`` gives it; None if there is none."""
    start = len(text) - len(text.lstrip())
    if start == len(text):
        return None
    begin, end = text.rfind("\n", 0, start) + 1, text.find("\n", start)
    line = text[begin:] if end < 0 else text[begin:end]
    return text.count("\n", 0, start) + 1, line.removesuffix("\r")


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1, without line ends (LF or CRLF)."""
    for number, line in enumerate(text.split("\n"), 1):
        if line and not line.isspace():
            yield number, line.removesuffix("\r")

"""What the readers of all formats hand on: jobs with their lines, and what is wrong with others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from replay.traces.errors import Fault
from schemas.domain import JobSpec


@dataclass
class Rows:
    """Rows of one trace file as they stand there: unsorted, steps and deadlines unresolved."""

    jobs: list[JobSpec] = field(default_factory=list)
    #: (jobs,) line of each job.
    lines: list[int] = field(default_factory=list)
    #: {index into ``jobs``: deadline as a multiple of the isolated duration}
    slo_multipliers: dict[int, float] = field(default_factory=dict)
    #: {what was put right: in how many rows}
    repaired: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1, without line ends (LF or CRLF)."""
    for number, line in enumerate(text.split("\n"), 1):
        if line and not line.isspace():
            yield number, line.removesuffix("\r")

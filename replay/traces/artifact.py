"""Reader of the tab-separated traces of the paper's artifact and of its descendant Shockwave.

Three layouts share one file extension and have no header; the number of columns tells them apart.
The command keeps its ``%s`` (the data folder) and gets the flag with the number of steps, which
these traces keep in a column of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from replay.traces.errors import Fault
from replay.traces.rows import Rows, numbered_lines
from replay.traces.rules import NAME, RULES, Rule, is_name
from schemas.domain import JobSpec

_JOB_TYPE, _COMMAND = 0, 1
_NO_SLO = -1.0
_MODES = {
    "static": "",
    "accordion": "batch size changes in training (accordion): kept at its first",
    "gns": "batch size changes in training (gns): kept at its first",
}
_NEEDS_DATA = Rule(lambda x: x in (0, 1), "0 or 1")
_SLO = Rule(
    lambda x: x == _NO_SLO or 0 < x < math.inf,
    "-1 for none, or a multiple of the isolated duration above 0",
)


class Layout(NamedTuple):
    """Where the columns of one format are, from 0."""

    steps_flag: int
    #: {field: (position, what numbers are right there)}
    numbers: Mapping[str, tuple[int, Rule]]
    workdir: int | None = None
    mode: int | None = None


def _numbers(**positions: int) -> dict[str, tuple[int, Rule]]:
    rules = {**RULES, "needs_data_dir": _NEEDS_DATA, "slo": _SLO}
    return {field: (position, rules[field]) for field, position in positions.items()}


LAYOUTS = {
    7: Layout(
        steps_flag=2,
        numbers=_numbers(needs_data_dir=3, total_steps=4, arrival_s=5, scale_factor=6),
    ),
    10: Layout(
        workdir=2,
        steps_flag=3,
        numbers=_numbers(
            needs_data_dir=4,
            total_steps=5,
            scale_factor=6,
            priority_weight=7,
            slo=8,
            arrival_s=9,
        ),
    ),
    12: Layout(
        workdir=2,
        steps_flag=3,
        mode=7,
        numbers=_numbers(
            needs_data_dir=4,
            total_steps=5,
            scale_factor=6,
            priority_weight=8,
            slo=9,
            duration_s=10,
            arrival_s=11,
        ),
    ),
}


def parse(text: str) -> Rows:
    """Read a tab-separated trace; a job's id is the position of its row, from 0.

    Bad rows become faults, one for each bad cell. The duration column is checked and left:
    the steps say how long a job is.
    """
    rows = Rows()
    width = 0
    for position, (number, line) in enumerate(numbered_lines(text)):
        cells = line.split("\t")
        width = width or (len(cells) if len(cells) in LAYOUTS else 0)
        if len(cells) != width:
            expected = f"{width}, as in the rows before" if width else "7, 10 or 12"
            rows.faults.append(Fault(number, "number of columns", len(cells), expected))
            continue
        _read_row(rows, LAYOUTS[width], str(position), number, cells)
    return rows


def _read_row(rows: Rows, layout: Layout, job_id: str, line: int, cells: list[str]) -> None:
    numbers: dict[str, float] = {}
    for field, (position, rule) in layout.numbers.items():
        try:
            value = float(cells[position])
        except ValueError:
            value = math.nan
        if rule.holds(value):
            numbers[field] = value
    mode = "static" if layout.mode is None else cells[layout.mode]
    job_type = cells[_JOB_TYPE]
    if len(numbers) < len(layout.numbers) or mode not in _MODES or not is_name(job_type):
        rows.faults.extend(_faults(layout, line, cells, numbers))
        return
    if _MODES[mode]:
        rows.repaired[_MODES[mode]] += 1
    multiplier = numbers.get("slo", _NO_SLO)
    if multiplier != _NO_SLO:
        rows.slo_multipliers[len(rows.jobs)] = multiplier
    steps = numbers["total_steps"]
    rows.lines.append(line)
    rows.jobs.append(
        JobSpec(
            job_id=job_id,
            job_type=job_type,
            scale_factor=int(numbers["scale_factor"]),
            total_steps=steps,
            priority_weight=numbers.get("priority_weight", 1.0),
            arrival_s=numbers["arrival_s"],
            command=f"{cells[_COMMAND]} {cells[layout.steps_flag]} {steps:.0f}",
            workdir="" if layout.workdir is None else cells[layout.workdir],
        )
    )


def _faults(
    layout: Layout, line: int, cells: list[str], numbers: Mapping[str, float]
) -> Iterator[Fault]:
    if not is_name(cells[_JOB_TYPE]):
        yield Fault(line, "job_type", cells[_JOB_TYPE], NAME, _JOB_TYPE + 1)
    for field, (position, rule) in layout.numbers.items():
        if field not in numbers:
            yield Fault(line, field, cells[position], rule.expected, position + 1)
    if layout.mode is not None and cells[layout.mode] not in _MODES:
        expected = f"one of {', '.join(_MODES)}"
        yield Fault(line, "mode", cells[layout.mode], expected, layout.mode + 1)

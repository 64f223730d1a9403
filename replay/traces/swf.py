"""The Standard Workload Format of the Parallel Workloads Archive, and what goes by its name.

Eighteen numbers a line, -1 for unknown, behind header lines that begin with ``;``. Real files have
more columns, tabs and a header in words, or dates for submit times: all of this is read. A
processor counts as a worker, or so many together as ``How.processors`` says; a group is an entity.
"""

from __future__ import annotations

from replay.traces.cells import BadCellError, number
from replay.traces.fitting import How
from replay.traces.imported import Row
from replay.traces.rows import Rows, numbered_lines

FIELDS = 18
#: Submit times above this are dates, not seconds from the start of a trace.
DATES_S = 1e8
_STATUSES = {
    "-1": "unknown",
    "0": "failed",
    "1": "completed",
    "2": "partial",
    "3": "partial",
    "4": "partial",
    "5": "cancelled",
}


def recognises(line: str) -> bool:
    """Whether a first line is one of this format."""
    if line.lstrip().startswith(";"):
        return True
    cells = line.split()
    return len(cells) >= FIELDS and (_is_header(cells) or all(_is_number(c) for c in cells[:12]))


def parse(text: str, rows: Rows, how: How) -> list[Row]:
    """Jobs of the file."""
    found = []
    for line, content in numbered_lines(text):
        if content.lstrip().startswith(";"):
            continue
        cells = content.split(maxsplit=FIELDS)
        if _is_header(cells):
            continue
        try:
            found.append(_row(line, cells, rows, how))
        except BadCellError as bad:
            rows.refuse(str(bad), line)
    first_s = min((row.arrival_s for row in found), default=0.0)
    if first_s > DATES_S:
        for row in found:
            row.arrival_s -= first_s
    return found


def _row(line: int, cells: list[str], rows: Rows, how: How) -> Row:
    if len(cells) < FIELDS:
        raise BadCellError(f"fewer than {FIELDS} columns: the line is cut off")
    run_s = number(cells[3], "run time (column 4)", "seconds")
    if run_s < 0:
        raise BadCellError("run time (column 4) is not known")
    used, asked = (number(cells[i], f"processors (column {i + 1})") for i in (4, 7))
    processors = asked if asked > 0 else used
    if processors <= 0:
        raise BadCellError("processors (columns 5 and 8) are not known")
    if asked > 0 and 0 < used != asked:
        rows.repaired["used other processors than asked for: those asked for count"] += 1
    return Row(
        line,
        cells[0],
        number(cells[1], "submit time (column 2)", "seconds"),
        processors / how.processors,
        run_s,
        user=_numbered("user", cells[11]),
        entity=_numbered("group", cells[12]),
        status=_STATUSES.get(cells[10], cells[10]),
    )


def _numbered(what: str, cell: str) -> str:
    return "" if cell == "-1" else f"{what}-{cell}"


def _is_header(cells: list[str]) -> bool:
    return [cell.lower() for cell in cells[:3]] == ["id", "submit", "wait"]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

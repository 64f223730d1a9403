"""Comma-separated traces with a header: which columns a format has, and a function for its rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from operator import itemgetter

from replay.traces.cells import BadCellError
from replay.traces.errors import Fault
from replay.traces.imported import Row
from replay.traces.rows import Rows

#: Makes a row of the cells of a format's columns, in their order.
ReadRow = Callable[..., Row]


def header_of(line: str) -> list[str]:
    """Names of the columns of a header; none if it is no comma-separated line."""
    try:
        return [cell.strip() for cell in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def read_rows(
    text: str, rows: Rows, columns: Sequence[str], read: ReadRow, optional: Sequence[str] = ()
) -> list[Row]:
    """Read all rows; what cannot be read is counted in ``rows``, and is a fault if all of it is.

    Parameters
    ----------
    text : of the file, header first
    rows : gets the counts
    columns : that there must be
    read : called with the line's number and the cells of ``columns`` and ``optional``; may raise
        ``BadCellError``
    optional : columns that a variant of the format lacks; cells are then empty
    """
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(([cell.strip() for cell in cells] for cells in reader if cells), [])
    missing = [column for column in columns if column not in header]
    if missing:
        expected = f"a column {missing[0]!r}"
        rows.faults.append(Fault(1, "header", ",".join(header), expected))
        return []
    width = len(header)
    # An extra empty cell at each row's end stands for the columns that are not there.
    places = [header.index(c) if c in header else width for c in (*columns, *optional)]
    pick = itemgetter(*places)
    found: list[Row] = []
    try:
        for cells in reader:
            if not cells or (len(cells) == 1 and not cells[0].strip()):
                continue
            if len(cells) != width:
                rows.refuse(f"not the {width} columns of the header", reader.line_num)
                continue
            cells.append("")
            try:
                found.append(read(reader.line_num, *pick(cells)))
            except BadCellError as bad:
                rows.refuse(str(bad), reader.line_num)
    except csv.Error as error:
        rows.faults.append(Fault(reader.line_num, "row", str(error), "comma-separated text"))
    return found

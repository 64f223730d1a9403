"""Throughput tables: how many steps per second each job class makes, alone and sharing (§3.1).

``ThroughputTable`` is what tables are in memory; the ``parse_*`` functions read them from text in
three formats and are the only way bad figures are kept out. Reading files is the caller's affair.

A rate of 0 is a fact ("it cannot run there"), an absent one is ignorance; both are ordinary. So is
an older accelerator that beats a newer one: measured tables do that, and are taken as they are.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain

from schemas.domain import PairThroughput, Throughput, ThroughputRow

#: Job class as tables know it: (job type, scale factor).
ClassKey = tuple[str, int]

#: {job class: {worker type: steps/s}}
Alone = Mapping[ClassKey, Mapping[str, float]]
#: {(job type a, job type b, scale factor), a <= b: {worker type: (steps/s of a, of b)}}
Beside = Mapping[tuple[str, str, int], Mapping[str, tuple[float, float]]]

#: More workers than any job has; a larger number is a slip.
MAX_SCALE_FACTOR = 1_000_000

_ISOLATED_KEY = "null"
_REQUIRED_COLUMNS = ("job_type", "scale_factor", "worker_type", "steps_per_s")
_PAIR_COLUMNS = ("other_job_type", "other_steps_per_s")
_COLUMNS = (*_REQUIRED_COLUMNS, *_PAIR_COLUMNS, "source")
_RATE = "a finite number of steps/s, 0 or more"


class TableError(Exception):
    """A throughput table that cannot be believed: where it fails, and what would be right."""

    def __init__(self, source: str, where: str, column: str, value: object, expected: str) -> None:
        self.source = source
        self.where = where
        self.column = column
        self.value = value
        self.expected = expected
        super().__init__(f"{source}: {where}: {column} is {value!r:.80}; expected {expected}")


class _BadCellError(Exception):
    """``TableError`` without its place, which only the parser knows."""

    def __init__(self, column: str, value: object, expected: str) -> None:
        super().__init__(column, value, expected)
        self.column, self.value, self.expected = column, value, expected

    def at(self, source: str, where: str) -> TableError:
        return TableError(source, where, self.column, self.value, self.expected)


class ThroughputTable:
    """Steps/s of job classes per worker type, alone and beside another class.

    Rates are of whole jobs (summed over workers). Pairs exist between classes of equal scale
    factor only, since two jobs share every worker of a lease.
    """

    def __init__(self, source: str, alone: Alone, beside: Beside) -> None:
        #: Where the figures come from, for the log and for people.
        self.source = source
        self._alone = alone
        self._beside = beside
        self._classes = tuple(sorted(alone))
        self._worker_types = tuple(sorted(set(chain.from_iterable(alone.values()))))

    @classmethod
    def from_rows(cls, rows: Iterable[ThroughputRow], source: str) -> ThroughputTable:
        """The table that ``rows`` list; what ``rows()`` gave comes back equal.

        Raises
        ------
        TableError
            A rate is no rate, or a cell is stated twice.
        """
        cells = _Cells()
        for row in rows:
            job_class = (row.job_type, row.scale_factor)
            try:
                for alone in row.alone:
                    cells.add_alone(job_class, alone.worker_type, alone.steps_per_s)
                for pair in row.beside:
                    both = (pair.steps_per_s, pair.other_steps_per_s)
                    cells.add_pair(job_class, pair.other_job_type, pair.worker_type, *both)
            except _BadCellError as bad:
                raise bad.at(source, f"row of {_shown(job_class)}") from None
        return cells.table(source)

    def classes(self) -> tuple[ClassKey, ...]:
        """Job classes the table has a row for, in name order."""
        return self._classes

    def worker_types(self) -> tuple[str, ...]:
        """Worker types with a figure for any class, in name order."""
        return self._worker_types

    def alone(self, job_type: str, scale_factor: int, worker_type: str) -> float | None:
        """Steps/s of a job that has its workers to itself; 0.0: cannot run; None: not known."""
        return self._alone.get((job_type, scale_factor), {}).get(worker_type)

    def beside(
        self, job_type: str, other_job_type: str, scale_factor: int, worker_type: str
    ) -> tuple[float, float] | None:
        """Steps/s of (a job, the other) that share all their workers; None: not known."""
        in_order = job_type <= other_job_type
        first, second = (job_type, other_job_type) if in_order else (other_job_type, job_type)
        pair = self._beside.get((first, second, scale_factor), {}).get(worker_type)
        if pair is None or in_order:
            return pair
        return pair[1], pair[0]

    def rows(
        self, classes: Iterable[ClassKey] | None = None, *, pairs: bool = True
    ) -> tuple[ThroughputRow, ...]:
        """The table as the log carries it, one row per class.

        Parameters
        ----------
        classes
            Only these, in this order, and pairs only among them; classes the table has no row for
            are left out. All of them, in name order, when None.
        pairs
            Whether rows list what classes do beside others.

        Returns
        -------
        tuple of ThroughputRow
            Each unordered pair of classes stands once, in the row of the later class.
        """
        chosen = self._classes if classes is None else tuple(dict.fromkeys(classes))
        chosen = tuple(key for key in chosen if key in self._alone)
        return tuple(
            ThroughputRow(
                job_type=job_type,
                scale_factor=scale_factor,
                alone=tuple(
                    Throughput(*cell)
                    for cell in sorted(self._alone[job_type, scale_factor].items())
                ),
                beside=tuple(self._pairs_of(job_type, scale_factor, chosen[: place + 1]))
                if pairs
                else (),
            )
            for place, (job_type, scale_factor) in enumerate(chosen)
        )

    def _pairs_of(
        self, job_type: str, scale_factor: int, others: tuple[ClassKey, ...]
    ) -> Iterator[PairThroughput]:
        for other, other_scale_factor in others:
            if other_scale_factor != scale_factor:
                continue
            key = (min(job_type, other), max(job_type, other), scale_factor)
            for worker_type in sorted(self._beside.get(key, ())):
                both = self.beside(job_type, other, scale_factor, worker_type)
                assert both is not None, "the key was just seen"
                yield PairThroughput(worker_type, other, *both)


class _Cells:
    """A table in the making: every cell checked as it comes."""

    def __init__(self) -> None:
        self._alone: dict[ClassKey, dict[str, float]] = {}
        self._beside: dict[tuple[str, str, int], dict[str, tuple[float, float]]] = {}
        self._stated: set[tuple[ClassKey, str, str]] = set()

    def add_alone(self, job_class: ClassKey, worker_type: str, rate: object) -> None:
        cells = self._alone.setdefault(job_class, {})
        if worker_type in cells:
            known = f"{_shown(job_class)} on {worker_type} is {cells[worker_type]} already"
            raise _BadCellError("steps_per_s", rate, f"each cell once: {known}")
        cells[worker_type] = _rate("steps_per_s", rate)

    def add_pair(
        self, job_class: ClassKey, other: str, worker_type: str, rate: object, other_rate: object
    ) -> None:
        job_type, scale_factor = job_class
        both = _rate("steps_per_s", rate), _rate("other_steps_per_s", other_rate)
        if job_type == other and both[0] != both[1]:
            raise _BadCellError(
                "other_steps_per_s", other_rate, f"{rate} too: both jobs are of one class"
            )
        if (job_class, other, worker_type) in self._stated:
            raise _BadCellError("other_job_type", other, f"each pair once on {worker_type}")
        self._stated.add((job_class, other, worker_type))
        if job_type > other:
            job_type, other, both = other, job_type, (both[1], both[0])
        cells = self._beside.setdefault((job_type, other, scale_factor), {})
        if cells.setdefault(worker_type, both) != both:
            stated = f"as where {job_type!r} is beside {other!r}: {cells[worker_type]}"
            raise _BadCellError("steps_per_s, other_steps_per_s", both, stated)

    def table(self, source: str) -> ThroughputTable:
        if not self._alone:
            raise TableError(source, "whole table", "rows", 0, "at least one isolated throughput")
        for (job_type, other, scale_factor), cells in self._beside.items():
            for name in (job_type, other):
                missing = sorted(cells.keys() - self._alone.get((name, scale_factor), {}).keys())
                if missing:
                    where = f"{job_type!r} beside {other!r} at scale factor {scale_factor}"
                    expected = f"steps/s of {name!r} alone there as well"
                    raise TableError(source, where, "worker_type", missing[0], expected)
        return ThroughputTable(source, self._alone, self._beside)


def parse_table(text: str, source: str) -> ThroughputTable:
    """Read a table in whichever of the three formats it is: told by its first character.

    Raises
    ------
    TableError
        See the parsers.
    """
    parse: dict[str, Callable[[str, str], ThroughputTable]]
    parse = {"{": parse_artifact_json, "[": parse_json}
    return parse.get(_plain(text).lstrip()[:1], parse_csv)(text, source)


def parse_artifact_json(text: str, source: str) -> ThroughputTable:
    """Read the tables of the paper's artifact.

    ``{worker type: {"('<job type>', <scale factor>)": {"null": steps/s, "('<other job type>',
    <scale factor>)": [steps/s, the other's steps/s]}}}``. Pairs are usually stated from both
    sides; the two must agree.

    Raises
    ------
    TableError
        Names the keys down to the cell, its value and what would be right.
    """
    keys: dict[str, ClassKey] = {}
    cells = _Cells()
    where = "top level"
    try:
        for worker_type, classes in _object(_load(text, source)).items():
            where = worker_type
            _name("worker_type", worker_type)
            for class_key, row in _object(classes).items():
                where = f"{worker_type} / {class_key}"
                job_class = _class_key(class_key, keys)
                for other_key, cell in _object(row).items():
                    where = f"{worker_type} / {class_key} / {other_key}"
                    if other_key == _ISOLATED_KEY:
                        cells.add_alone(job_class, worker_type, cell)
                    else:
                        other = _class_key(other_key, keys)
                        _add_artifact_pair(cells, job_class, other, worker_type, cell)
    except _BadCellError as bad:
        raise bad.at(source, where) from None
    return cells.table(source)


def parse_csv(text: str, source: str) -> ThroughputTable:
    """Read our CSV: a header, then one cell a line, in any order.

    Columns ``job_type,scale_factor,worker_type,steps_per_s``; a pair also has ``other_job_type``
    and ``other_steps_per_s``; ``source`` is for people.

    Raises
    ------
    TableError
        Names the line, the column, its value and what would be right.
    """
    reader = csv.reader(io.StringIO(_plain(text)), strict=True)
    cells = _Cells()
    try:
        header = next(reader, [])
        _check_header(header)
        for row in filter(any, reader):
            _add_cell(cells, _by_column(header, row))
    except _BadCellError as bad:
        raise bad.at(source, f"line {max(1, reader.line_num)}") from None
    except csv.Error as error:
        line = f"line {reader.line_num}"
        raise TableError(source, line, "row", str(error), "comma-separated cells") from None
    return cells.table(source)


def parse_json(text: str, source: str) -> ThroughputTable:
    """Read our JSON: a list of objects whose keys are the columns of our CSV.

    Raises
    ------
    TableError
        Names the item (from 1), the key, its value and what would be right.
    """
    items = _load(text, source)
    cells = _Cells()
    where = "top level"
    try:
        for place, item in enumerate(_list(items), 1):
            where = f"item {place}"
            cell = _object(item)
            _check_names(cell)
            _add_cell(cells, cell)
    except _BadCellError as bad:
        raise bad.at(source, where) from None
    return cells.table(source)


def _add_cell(cells: _Cells, item: Mapping[str, object]) -> None:
    """Add one row of our own formats, whose columns are known to be there."""
    job_type = _name("job_type", item["job_type"])
    job_class = (job_type, _scale_factor(item["scale_factor"]))
    worker_type = _name("worker_type", item["worker_type"])
    other, other_rate = (item.get(column) for column in _PAIR_COLUMNS)
    if other in (None, "") and other_rate in (None, ""):
        cells.add_alone(job_class, worker_type, item["steps_per_s"])
        return
    name = _name("other_job_type", other)
    cells.add_pair(job_class, name, worker_type, item["steps_per_s"], other_rate)


def _add_artifact_pair(
    cells: _Cells, job_class: ClassKey, other: ClassKey, worker_type: str, cell: object
) -> None:
    if other[1] != job_class[1]:
        expected = f"{job_class[1]}, as jobs that share workers have equal scale factors"
        raise _BadCellError("scale factor of the other", other[1], expected)
    match cell:
        case [rate, other_rate]:
            cells.add_pair(job_class, other[0], worker_type, rate, other_rate)
        case _:
            raise _BadCellError("pair", cell, "[steps/s, steps/s of the other]")


def _by_column(header: list[str], row: list[str]) -> dict[str, str]:
    if len(row) != len(header):
        raise _BadCellError("row", row, f"{len(header)} cells, as in the header")
    return dict(zip(header, row, strict=True))


def _check_header(header: list[str]) -> None:
    for name, times in Counter(header).items():
        if times > 1:
            raise _BadCellError("header", name, "each column once")
    _check_names(dict.fromkeys(header))


def _check_names(item: Mapping[str, object]) -> None:
    for name in item:
        if name not in _COLUMNS:
            near = get_close_matches(name, _COLUMNS, n=1, cutoff=0.5)
            known = f"{near[0]!r}" if near else f"one of {', '.join(_COLUMNS)}"
            raise _BadCellError("column name", name, known)
    missing = [name for name in _REQUIRED_COLUMNS if name not in item]
    if missing:
        raise _BadCellError(missing[0], None, f"columns {', '.join(_REQUIRED_COLUMNS)}")


def _class_key(text: str, seen: dict[str, ClassKey]) -> ClassKey:
    """``"('A3C', 1)"`` -> ``("A3C", 1)``; ``seen`` holds the few keys met so often."""
    if text in seen:
        return seen[text]
    try:
        key = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        key = None
    match key:
        case (job_type, scale_factor):
            seen[text] = (_name("job_type", job_type), _scale_factor(scale_factor))
            return seen[text]
        case _:
            raise _BadCellError("key", text, "('<job type>', <scale factor>)")


def _rate(column: str, value: object) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            rate = float(value)
        except (ValueError, OverflowError):
            rate = math.nan
        if 0 <= rate < math.inf:
            return rate
    raise _BadCellError(column, value, _RATE)


def _scale_factor(value: object) -> int:
    try:
        scale_factor = int(_rate("scale_factor", value))
        if 1 <= scale_factor <= MAX_SCALE_FACTOR and scale_factor == float(str(value)):
            return scale_factor
    except _BadCellError:
        pass
    raise _BadCellError("scale_factor", value, f"a whole number, 1 to {MAX_SCALE_FACTOR}")


def _name(column: str, value: object) -> str:
    if isinstance(value, str) and value and value == value.strip() and value.isprintable():
        return value
    raise _BadCellError(column, value, "a printable name without surrounding blanks")


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _BadCellError("value", value, "an object")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise _BadCellError("value", value, "a list of objects, one per cell")
    return value


def _load(text: str, source: str) -> object:
    def unique(items: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(items)
        if len(found) != len(items):
            twice = Counter(name for name, _ in items).most_common(1)[0][0]
            raise TableError(source, "an object", "key", twice, "each key once")
        return found

    try:
        return json.loads(_plain(text), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise TableError(source, where, "text", error.msg, "JSON") from None
    except (ValueError, RecursionError) as error:
        raise TableError(source, "whole table", "text", str(error), "JSON") from None


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff")


def _shown(job_class: ClassKey) -> str:
    return f"{job_class[0]!r} at scale factor {job_class[1]}"

"""Results of a sweep: a folder with one Parquet file a cell, named by the cell's key.

A cell's file is there whole or not at all, so a sweep that was stopped goes on where it was, and
several may fill one folder. Anything that reads Parquet reads the folder as one table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import get_args, get_type_hints

import polars as pl

from replay.options import InputError
from replay.request import Request
from replay.sweep.cell import FORMAT, Row
from replay.sweep.experiment import LOAD, OUTPUTS

_TEXT, _NUMBER, _COUNT = pl.String, pl.Float64, pl.Int64
_Type = pl.DataType | type[pl.DataType]
_COLUMN_TYPES: dict[type, _Type] = {bool: pl.Boolean, int: _COUNT, float: _NUMBER}


def _type_of(hint: object) -> _Type:
    """The column type of an option; what is no number is text."""
    kinds = {hint, *get_args(hint)}
    return next((found for kind, found in _COLUMN_TYPES.items() if kind in kinds), _TEXT)


#: {column: its type} of what was run: the options of ``gavel simulate``, and the load.
INPUTS: dict[str, _Type] = {
    name: _type_of(hint) for name, hint in get_type_hints(Request).items() if name not in OUTPUTS
} | {LOAD: _NUMBER}
#: The same of which cell it is, and of what it came to.
COLUMNS: dict[str, _Type] = {
    **dict.fromkeys(("key", "version", "error"), _TEXT),
    "results_format": _COUNT,
    **INPUTS,
    **dict.fromkeys(
        (
            *("average_jct_s", "median_jct_s", "p99_jct_s", "makespan_s", "utilisation"),
            *("cost_usd", "run_s", "load_s", "save_s", "wall_s", "solve_wall_s"),
            *("waiting_s", "running_s", "loading_s", "saving_s"),
        ),
        _NUMBER,
    ),
    **dict.fromkeys(
        (
            *("completed", "rounds", "solves", "failed_solves", "starts", "renewals"),
            *("preemptions", "records"),
        ),
        _COUNT,
    ),
    "last_solve_failure": _TEXT,
    "job_id": pl.List(_TEXT),
    "job_type": pl.List(_TEXT),
    "scale_factor": pl.List(_COUNT),
    "jct_s": pl.List(_NUMBER),
    "outcome": pl.List(_TEXT),
}


class ResultsError(InputError):
    """A folder of results cannot be read as such; the message says why."""


class Results:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def done(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys whose cells have been run, and did not fail."""
        return {key for key in keys if self._file(key).is_file() and not self._failed(key)}

    def add(self, row: Row) -> None:
        """Keep a cell's row, in place of an earlier one of the same key."""
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = {column: [row.get(column)] for column in COLUMNS}
        unfinished = self.folder / f".{row['key']}.{os.getpid()}"
        pl.DataFrame(whole, schema=COLUMNS).write_parquet(unfinished)
        unfinished.replace(self._file(row["key"]))

    def read(self, keys: Iterable[str] | None = None) -> pl.DataFrame:
        """The rows of these keys that are there, or of all, in the order of the keys.

        Raises
        ------
        ResultsError
            There are none, or they are of another format.
        """
        files = sorted(self.folder.glob("[!.]*.parquet"))
        if keys is not None:
            files = [file for key in keys if (file := self._file(key)).is_file()]
        if not files:
            raise ResultsError(f"{self.folder} holds no results; expected files of gavel sweep")
        return pl.concat([_read(file) for file in files])

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.parquet"

    def _failed(self, key: str) -> bool:
        try:
            return bool(_read(self._file(key))["error"].item())
        except ResultsError:
            return True


def _read(file: Path) -> pl.DataFrame:
    try:
        found = pl.read_parquet(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ResultsError(f"{file} is no Parquet file: {str(error).splitlines()[0]}") from None
    missing = [column for column in COLUMNS if column not in found.columns]
    strange = [column for column in missing if column not in INPUTS]
    if strange:
        raise ResultsError(f"{file} has no column {strange[0]!r}: gavel sweep did not write it")
    if found["results_format"].to_list() != [FORMAT]:
        raise ResultsError(
            f"{file}: results_format is {found['results_format'].to_list()}, this release reads "
            f"[{FORMAT}]: run the sweep again, or use the release that wrote it"
        )
    # An option that there was not when it was written.
    found = found.with_columns(pl.lit(None).alias(column) for column in missing)
    return found.select(list(COLUMNS)).cast(pl.Schema(COLUMNS))

"""Results of a sweep: a folder with one Parquet file a cell, named by the cell's key.

A cell's file is there whole or not at all, so a sweep that was stopped goes on where it was, and
several may fill one folder. Anything that reads Parquet reads the folder as one table.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from replay.cli_options import InputError
from replay.sweep.cell import FORMAT, Row

_TEXT, _NUMBER, _COUNT, _FLAG = pl.String, pl.Float64, pl.Int64, pl.Boolean

#: {column: its type}. First what says which cell it is, then what was run, then what it came to.
COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    **dict.fromkeys(("key", "version", "error"), _TEXT),
    "format": _COUNT,
    **dict.fromkeys(
        (
            *("trace", "unknown", "cluster", "servers", "prices", "throughputs", "reference_type"),
            *("policy", "parameters", "entities", "mode", "window", "checkpoint_seconds"),
            *("estimator", "claims"),
        ),
        _TEXT,
    ),
    **dict.fromkeys(("generate", "multi_gpu"), _FLAG),
    **dict.fromkeys(("mean_gap", "jobs_per_h", "round", "profile_fraction", "noise"), _NUMBER),
    **dict.fromkeys(("jobs", "seed", "lag", "profile_workers", "references"), _COUNT),
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
    if "format" not in found.columns or found["format"].to_list() != [FORMAT]:
        theirs = found["format"].to_list() if "format" in found.columns else "none"
        raise ResultsError(
            f"{file}: format is {theirs}, this release reads [{FORMAT}]: run the sweep again, or "
            "use the release that wrote it"
        )
    missing = [column for column in COLUMNS if column not in found.columns]
    if missing:
        raise ResultsError(
            f"{file} has no column {missing[0]!r}: it was not written by gavel sweep"
        )
    return found.select(list(COLUMNS)).cast(pl.Schema(COLUMNS))

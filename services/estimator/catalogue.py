"""A catalogue of accelerators from V100 to B200: what public benchmarks measured, with sources.

``catalogue_throughputs.csv`` has one cited figure a line. The last column names the file and row it
stands in and the figure there, in samples a second; steps/s are *derived* from it, a step being the
same number of samples on every accelerator, whatever batch the benchmark had there.

Two families, never mixed, in the name of each job type:

- ``(lambda)``: lambdal/deeplearning-benchmark, PyTorch, one accelerator, suite v1 (v0 and v2 ran
  other software and are left out).
- ``(mlperf)``: mlcommons/training_results_v5.0, one server of 8 accelerators.

No pair was ever measured on these, and none is made up: space sharing has to learn them.
``catalogue_prices.csv`` has a list price for the types that one was found for, its date and source.
``catalogue_sources.csv`` has the licence of each source, and whether that was confirmed: read where
the source itself says it.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from importlib.resources import files

from services.estimator.tables import TableError, ThroughputTable, parse_csv


@dataclass(frozen=True, slots=True)
class Price:
    """What one worker costs, where and when."""

    usd_per_h: float
    #: Day it was read, as the source has it.
    as_of: str
    source: str


@dataclass(frozen=True, slots=True)
class Source:
    """A repository that figures of the catalogue are cited from."""

    name: str
    licence: str
    #: Whether the source itself was read to say so.
    confirmed: bool
    #: What is known of it.
    ground: str

    def __str__(self) -> str:
        """Name and licence, on one line."""
        unconfirmed = "" if self.confirmed else "; UNCONFIRMED"
        return f"{self.name} (licence: {self.licence}{unconfirmed})"


def sources() -> tuple[Source, ...]:
    """Where the figures come from."""
    rows = csv.DictReader(io.StringIO(_text("catalogue_sources.csv")))
    return tuple(
        Source(row["source"], row["licence"], row["confirmed"] == "yes", row["ground"])
        for row in rows
    )


def throughputs() -> ThroughputTable:
    """Isolated throughputs of the catalogue."""
    return parse_csv(_text("catalogue_throughputs.csv"), "catalogue")


def prices() -> dict[str, Price]:
    """Prices by worker type."""
    return parse_prices(_text("catalogue_prices.csv"), "catalogue of prices")


def parse_prices(text: str, source: str) -> dict[str, Price]:
    """Read ``worker_type,usd_per_h,as_of,source`` lines below a header.

    Raises
    ------
    TableError
        A column is missing, a price is no number above 0 or without date or source, or a type
        comes twice; names the line.
    """
    found: dict[str, Price] = {}
    reader = csv.DictReader(io.StringIO(text))
    for row in reader:
        line = f"line {reader.line_num}"
        for column in ("worker_type", "usd_per_h", "as_of", "source"):
            if not row.get(column):
                raise TableError(source, line, column, row.get(column), "a value")
        try:
            usd_per_h = float(row["usd_per_h"])
        except ValueError:
            usd_per_h = -1.0
        if not 0 < usd_per_h < float("inf"):
            raise TableError(source, line, "usd_per_h", row["usd_per_h"], "USD per hour, above 0")
        if row["worker_type"] in found:
            raise TableError(source, line, "worker_type", row["worker_type"], "each type once")
        found[row["worker_type"]] = Price(usd_per_h, row["as_of"], row["source"])
    return found


def _text(name: str) -> str:
    return files("services.estimator").joinpath(name).read_text("utf-8")

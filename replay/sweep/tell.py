"""Results of a sweep in few lines: one for each combination of what was varied but the seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from rich import box
from rich.console import RenderableType
from rich.table import Table
from scipy.special import stdtrit

from replay.sweep.cell import Row
from replay.sweep.experiment import LOAD
from replay.views import duration


def as_rows(results: pl.DataFrame, varied: Sequence[str]) -> list[dict[str, Any]]:
    """Averages over seeds of the cells that did not fail, with half-widths of 95 % intervals.

    A half-width is None where there is one seed only.
    """
    by = [_column(key) for key in varied if key != "seed"] or ["policy"]
    figures = ("average_jct_s", "median_jct_s", "p99_jct_s", "makespan_s", "cost_usd")
    fine = results.filter(pl.col("error") == "")
    means = fine.group_by(by, maintain_order=True).agg(
        pl.len().alias("seeds"),
        *(pl.col(name).mean() for name in (*figures, "utilisation")),
        *(pl.col(name).std().alias(f"{name}_deviation") for name in figures),
    )
    rows = means.to_dicts()
    for row in rows:
        for name in figures:
            deviation = row.pop(f"{name}_deviation")
            row[f"{name}_half_width"] = half_width(deviation, row["seeds"])
    return rows


def half_width(deviation: float | None, count: int) -> float | None:
    """Half the 95 % confidence interval (Student's t) of a mean, from the sample's deviation."""
    if deviation is None or count < 2:
        return None
    return float(stdtrit(count - 1, 0.975) * deviation / count**0.5)


def table(results: pl.DataFrame, varied: Sequence[str]) -> RenderableType:
    """The same for people."""
    rows = as_rows(results, varied)
    by = [_column(key) for key in varied if key != "seed"] or ["policy"]
    shown = Table(box=box.SIMPLE, pad_edge=False)
    for name in by:
        shown.add_column(name.replace("_", " "), no_wrap=True)
    for name in ("seeds", "average JCT", "99 % JCT", "makespan", "used", "USD"):
        shown.add_column(name, justify="right")
    for row in rows:
        width = row["average_jct_s_half_width"]
        more = "" if width is None else f" ± {width / 3600:.2f}"
        shown.add_row(
            *(_shown(row[name]) for name in by),
            str(row["seeds"]),
            f"{duration(row['average_jct_s'])}{more}",
            duration(row["p99_jct_s"]),
            duration(row["makespan_s"]),
            f"{row['utilisation']:.1%}",
            f"{row['cost_usd']:,.0f}",
        )
    return shown


def named(row: Row, varied: Sequence[str]) -> str:
    """A cell, told from the others of its sweep."""
    keys = [_column(key) for key in varied] or ["policy"]
    return ", ".join(f"{key}={_shown(row[key])}" for key in keys)


def _column(key: str) -> str:
    return LOAD if key == "mean_gap" else key


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

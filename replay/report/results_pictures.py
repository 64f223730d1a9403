"""From results of a sweep to pictures of them: policies against load, and job by job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from replay.options import InputError
from replay.report.charts import HOUR_S, Bars, Chart, Line, Picture, Report, cdf
from replay.sweep.store import INPUTS
from replay.sweep.tell import half_width

_SPENT = {"waiting_s": "waiting", "running_s": "running", "loading_s": "loading a checkpoint"} | {
    "saving_s": "saving a checkpoint"
}
_ISOLATED = "isolated"


class NoResultsError(InputError):
    """There is no result that can be shown."""


def report_of(results: pl.DataFrame, source: str) -> Report:
    """Everything there is to show of a sweep's results.

    Results of other versions of the code than the newest rows' are left out, and counted.

    Raises
    ------
    NoResultsError
        Every cell failed.
    """
    notes = []
    newest = results["version"].to_list()[-1]
    older = int((results["version"] != newest).sum())
    if older:
        notes.append(f"results of other versions of the code, left out: {older}")
    results = results.filter(pl.col("version") == newest)
    failed = results.filter(pl.col("error") != "")
    if len(failed):
        notes.append(f"cells that failed: {len(failed)} (the first: {failed['error'][0]})")
    fine = results.filter((pl.col("error") == "") & (pl.col("completed") > 0))
    if fine.is_empty():
        raise NoResultsError(f"{source}: no cell has a job that finished; {'; '.join(notes)}")
    fine = named(fine)
    return Report(
        title=f"{', '.join(fine['series'].unique(maintain_order=True).to_list()[:6])}",
        subtitle=f"{source}: {len(fine)} cells, {int(fine['completed'].sum()):,} jobs measured",
        figures=_best(fine),
        pictures=pictures(fine),
        notes=notes,
    )


def varied(results: pl.DataFrame) -> list[str]:
    """Columns of inputs that differ between rows; mean gap and load are one."""
    several = [name for name in INPUTS if results[name].n_unique() > 1]
    return [name for name in several if name != "mean_gap"]


def named(results: pl.DataFrame) -> pl.DataFrame:
    """The rows with a column ``series``: the policy, and what else was varied but load and seed."""
    rest = [name for name in varied(results) if name not in {"policy", "jobs_per_h", "seed"}]
    label = pl.concat_str(
        [pl.col("policy"), *(pl.format(f"{name}={{}}", _short(results, name)) for name in rest)],
        separator=", ",
        ignore_nulls=True,
    )
    return results.with_columns(label.alias("series"))


def _short(results: pl.DataFrame, name: str) -> pl.Expr:
    if results[name].dtype == pl.Float64:
        return pl.col(name).map_elements(lambda v: f"{v:g}", return_dtype=pl.String)
    return pl.col(name).cast(pl.String)


def pictures(fine: pl.DataFrame) -> list[Picture]:
    """All pictures of rows that are named and did not fail."""
    made: list[Picture] = []
    loads = fine["jobs_per_h"].drop_nulls().unique().sort().to_list()
    if len(loads) > 1:
        made += [
            against_load(fine, "average_jct_s", "load-jct", "Average JCT against load", "JCT (h)"),
            against_load(
                fine, "utilisation", "load-utilisation", "Utilisation against load", "share held"
            ),
            against_load(fine, "cost_usd", "load-cost", "Cost against load", "USD"),
        ]
    at, where = fine, ""
    if len(loads) > 1:
        at = _highest_load(fine)
        where = f" at {at['jobs_per_h'][0]:.3g} jobs/h"
    return [*made, jct_cdf(at, where), *fairness_cdf(at, where), _spent(at, where)]


def _highest_load(fine: pl.DataFrame) -> pl.DataFrame:
    """Rows of the highest load that most series were run at: they are to be compared."""
    series = fine.group_by("jobs_per_h").agg(pl.col("series").n_unique().alias("many"))
    best = series.sort("many", "jobs_per_h")["jobs_per_h"].to_list()[-1]
    return fine.filter(pl.col("jobs_per_h") == best)


def against_load(fine: pl.DataFrame, column: str, key: str, title: str, y: str) -> Chart:
    """Means over seeds with their 95 % intervals, one line a series."""
    unit = HOUR_S if column.endswith("_s") else 1.0
    lines = []
    for (series,), rows in fine.group_by(["series"], maintain_order=True):
        means = (
            rows.drop_nulls(["jobs_per_h", column])
            .group_by("jobs_per_h")
            .agg(pl.col(column).mean().alias("mean"), pl.col(column).std().alias("sd"), pl.len())
            .sort("jobs_per_h")
        )
        y_values = (means["mean"] / unit).to_list()
        widths = [
            (half_width(sd, count) or 0.0) / unit
            for sd, count in zip(means["sd"], means["len"], strict=True)
        ]
        lines.append(
            Line(
                name=str(series),
                x=means["jobs_per_h"].to_list(),
                y=y_values,
                low=[m - w for m, w in zip(y_values, widths, strict=True)] if any(widths) else (),
                high=[m + w for m, w in zip(y_values, widths, strict=True)] if any(widths) else (),
                style="marked",
            )
        )
    seeds = fine["seed"].n_unique()
    bars = f"Mean over {seeds} seeds; bars: 95 % intervals." if seeds > 1 else "One seed: no bars."
    return Chart(key=key, title=title, x="load (jobs/h)", y=y, lines=lines, note=bars)


def jct_cdf(fine: pl.DataFrame, where: str) -> Chart:
    """Job completion times of all seeds together."""
    lines = [
        cdf(
            str(series), [jct / HOUR_S for jcts in rows["jct_s"] for jct in jcts if jct is not None]
        )
        for (series,), rows in fine.group_by(["series"], maintain_order=True)
    ]
    return Chart(
        key="jct",
        title=f"Job completion times{where}",
        x="JCT (h)",
        y="share of jobs",
        lines=lines,
        note="Jobs of all seeds.",
        log_x=True,
        y_top=1.0,
    )


def fairness_cdf(fine: pl.DataFrame, where: str) -> list[Chart]:
    """JCT over that under ``isolated`` in the same sweep; nothing where that was not run."""
    found = rhos(fine)
    if not found:
        return []
    return [
        Chart(
            key="fairness",
            title=f"Finish-time fairness{where}",
            x="rho: JCT over JCT under isolated",
            y="share of jobs",
            lines=[cdf(f"{name} (average {np.mean(rho):.2f})", rho) for name, rho in found.items()],
            note="Isolated: every job on its 1/n share of the cluster, the same jobs.",
            log_x=True,
            y_top=1.0,
        )
    ]


def rhos(fine: pl.DataFrame) -> dict[str, list[float]]:
    """{series: finish-time fairness of each job}, where ``isolated`` ran on the same jobs."""
    same = [name for name in INPUTS if name != "policy"]
    isolated = {
        _inputs(row, same): dict(zip(row["job_id"], row["jct_s"], strict=True))
        for row in fine.filter(pl.col("policy") == _ISOLATED).to_dicts()
    }
    found: dict[str, list[float]] = {}
    for row in fine.filter(pl.col("policy") != _ISOLATED).to_dicts():
        alone = isolated.get(_inputs(row, same), {})
        for job_id, jct in zip(row["job_id"], row["jct_s"], strict=True):
            if jct is not None and alone.get(job_id):
                found.setdefault(row["series"], []).append(jct / alone[job_id])
    return found


def _inputs(row: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _spent(fine: pl.DataFrame, where: str) -> Bars:
    means = fine.group_by("series", maintain_order=True).agg(
        (pl.col(list(_SPENT)) / pl.col("completed")).mean() / HOUR_S
    )
    return Bars(
        key="spent",
        title=f"Where job time goes{where}",
        y="hours a job, on average",
        groups=means["series"].to_list(),
        parts={name: means[column].to_list() for column, name in _SPENT.items()},
        note="The parts of a bar sum to the average JCT.",
    )


def _best(fine: pl.DataFrame) -> list[tuple[str, str]]:
    """The series that is best on average, by figure."""
    found = []
    for column, name in (
        ("average_jct_s", "least average JCT"),
        ("makespan_s", "least makespan"),
        ("cost_usd", "least cost"),
    ):
        means = fine.group_by("series", maintain_order=True).agg(pl.col(column).mean()).sort(column)
        if len(means) > 1:
            found.append((name, str(means["series"][0])))
    return found

"""``gavel throughputs``: look at throughput tables, compare two, bring one to a cluster."""

from __future__ import annotations

import csv
import json as json_module
import math
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from replay.cli.shared import ClusterName, Force, Json, Nats
from replay.options import examples, new_file, one_of
from replay.reading import table_of
from services.estimator import catalogue

app = typer.Typer(
    no_args_is_help=True,
    help="Throughput tables: steps per second of job classes, by worker type.",
)

_HEADER = (
    *("job_type", "scale_factor", "worker_type", "steps_per_s"),
    *("other_job_type", "other_steps_per_s"),
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="A file (the paper artifact's JSON, our CSV or JSON), `builtin` or `catalogue`.",
    ),
]
#: (job type, scale factor, worker type, job type beside; empty: alone).
Cell = tuple[str, int, str, str]


@app.command(
    epilog=examples(
        "gavel throughputs show catalogue",
        "gavel throughputs show rates.json --job-type 'A3C'",
    )
)
def show(
    table: Source,
    job_type: Annotated[
        str, typer.Option(help="Only this one; with what it makes beside others.")
    ] = "",
    *,
    json: Json = False,
) -> None:
    """Print isolated throughputs, a class a line; of one job type, its pairs too."""
    from replay import views  # noqa: PLC0415 - numpy and the solvers take their time to load

    found = _cells(table)
    if not job_type:
        shown = {cell: rates for cell, rates in found.items() if not cell[3]}
    else:
        mirrored = {(c[3], c[1], c[2], c[0]): rates[::-1] for c, rates in found.items() if c[3]}
        shown = {c: rates for c, rates in (found | mirrored).items() if c[0] == job_type}
        one_of("--job-type", job_type, {cell[0] for cell in found})
    if json:
        print(json_module.dumps([_as_row(cell, rates) for cell, rates in shown.items()], indent=2))
    else:
        views.out().print(_table(shown, _prices(table)))
        for source in catalogue.sources() if table == "catalogue" else ():
            print(f"from {source}")


@app.command("import", epilog=examples("gavel throughputs import rates.json --to rates.csv"))
def import_(
    table: Source,
    to: Annotated[
        Path | None, typer.Option(help="Write our CSV here, and tell no cluster.")
    ] = None,
    nats: Nats = "",
    cluster: ClusterName = "",
    *,
    force: Force = False,
) -> int:
    """Check a table and give it to the running cluster, or convert it to CSV."""
    found = table_of(table, "TABLE")
    if to is not None:
        with new_file("--to", to, force=force).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, _HEADER, lineterminator="\n")
            writer.writeheader()
            writer.writerows(_as_row(cell, rates) for cell, rates in _cells(table).items())
        print(f"{len(found.classes())} job classes of {found.source} written to {to}")
        return 0
    from replay.live import actions  # noqa: PLC0415 - the network takes a while to load

    return actions.import_throughputs(found, nats, cluster)


@app.command(epilog=examples("gavel throughputs diff builtin measured.csv --tolerance 0.05"))
def diff(
    before: Source,
    after: Source,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Relative difference that is none.")
    ] = 0.0,
    *,
    json: Json = False,
) -> int:
    """Print the cells in which two tables differ; exit code 1 if there are any."""
    from replay import views  # noqa: PLC0415 - numpy and the solvers take their time to load

    one, other = _cells(before), _cells(after)
    cells = [
        cell
        for cell in sorted(one.keys() | other.keys())
        if cell not in one or cell not in other or _differ(one[cell], other[cell], tolerance)
    ]
    if json:
        rows = [
            {**_as_key(cell), "before": one.get(cell), "after": other.get(cell)} for cell in cells
        ]
        print(json_module.dumps(rows, indent=2))
    else:
        views.out().print(_differences(cells, one, other))
    return 1 if cells else 0


def _cells(table: str) -> dict[Cell, tuple[float, ...]]:
    """Steps/s by cell: of the job, and of the other beside it if there is one."""
    found: dict[Cell, tuple[float, ...]] = {}
    for row in table_of(table, "TABLE").rows():
        for alone in row.alone:
            found[row.job_type, row.scale_factor, alone.worker_type, ""] = (alone.steps_per_s,)
        for pair in row.beside:
            key = (row.job_type, row.scale_factor, pair.worker_type, pair.other_job_type)
            found[key] = (pair.steps_per_s, pair.other_steps_per_s)
    return found


def _as_key(cell: Cell) -> dict[str, str | int]:
    named: dict[str, str | int] = dict(zip(_HEADER, cell[:3], strict=False))
    return {**named, "other_job_type": cell[3]} if cell[3] else named


def _as_row(cell: Cell, rates: tuple[float, ...]) -> dict[str, str | int | float]:
    return {**_as_key(cell), **dict(zip(("steps_per_s", "other_steps_per_s"), rates, strict=False))}


def _differ(one: tuple[float, ...], other: tuple[float, ...], tolerance: float) -> bool:
    return any(not math.isclose(a, b, rel_tol=tolerance) for a, b in zip(one, other, strict=True))


def _table(cells: dict[Cell, tuple[float, ...]], prices: dict[str, float]) -> Table:
    """A class, or a pair of classes, a line; there may be more worker types than columns fit."""
    shown = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("job type", "workers", "beside", "steps/s"):
        shown.add_column(column, justify="right" if column == "workers" else "left")
    lines: dict[tuple[str, int, str], list[str]] = {}
    for (job_type, scale_factor, worker_type, beside), rates in sorted(cells.items()):
        line = lines.setdefault((job_type, scale_factor, beside), [])
        line.append(f"{worker_type} {_shown(rates)}")
    for (job_type, scale_factor, beside), listed in sorted(lines.items()):
        shown.add_row(job_type, str(scale_factor), beside, ", ".join(listed))
    if prices:
        listed = [f"{worker_type} {price:g}" for worker_type, price in sorted(prices.items())]
        shown.add_section()
        shown.add_row("USD per worker and hour", "", "", ", ".join(listed))
    return shown


def _differences(
    cells: list[Cell],
    one: dict[Cell, tuple[float, ...]],
    other: dict[Cell, tuple[float, ...]],
) -> Table | str:
    if not cells:
        return "no difference"
    shown = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("job type", "workers", "on", "beside", "before", "after"):
        shown.add_column(column)
    for cell in cells:
        before, after = _shown(one.get(cell)), _shown(other.get(cell))
        shown.add_row(cell[0], str(cell[1]), cell[2], cell[3], before or "-", after or "-")
    return shown


def _shown(rates: tuple[float, ...] | None) -> str:
    return "" if rates is None else " / ".join(f"{rate:.4g}" for rate in rates)


def _prices(table: str) -> dict[str, float]:
    if table != "catalogue":
        return {}
    return {worker_type: price.usd_per_h for worker_type, price in catalogue.prices().items()}

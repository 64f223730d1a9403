"""``gavel paper``: the paper's figures and tables, regenerated, its numbers beside ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replay.options import OptionError, one_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from replay.paper.result import Reproduction

TARGETS = (
    *("figure8", "figure9", "figure10", "figure11", "figure12", "figure13"),
    *("estimation", "table3", "table4", "makespan", "cost"),
)
_SEEDS, _FULL_SEEDS = 2, 3
_file: dict[str, Any] = {"exists": True, "readable": True}


def paper(
    target: Annotated[str, typer.Argument(help=f"One of {', '.join(TARGETS)}.")],
    full: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--full", help="As in the paper, hours; else scaled down, minutes.")
    ] = False,
    throughputs: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="The artifact's JSON (a built-in table).", **_file),
    ] = None,
    artifact: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder with the artifact's traces (drawn).", **_file),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="table4 only: of this log, as measured.", **_file),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Of the jobs drawn (2; 3 with --full).")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for results, a page and figures; goes on where it was.")
    ] = Path("paper-results"),
    processes: Annotated[
        int, typer.Option(min=0, help="Simulations at a time; 0: one a processor.")
    ] = 0,
    json: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--json", help="Print one JSON object, no tables.")
    ] = False,
) -> int:
    """Regenerate a figure or table of the paper, and print its numbers beside ours.

    Where the two differ, it says why. Simulations are kept in the folder of results: stopped, it
    goes on where it was.
    """
    one_of("TARGET", target, TARGETS)
    if log is not None and target != "table4":
        raise OptionError("--log", str(log), "none but with table4")
    from replay import views  # noqa: PLC0415 - numpy and the solvers take their time to load
    from replay.paper.catalog import TARGETS as MAKERS  # noqa: PLC0415 - as above
    from replay.paper.result import Setup  # noqa: PLC0415 - as above
    from replay.sweep.store import Results  # noqa: PLC0415 - as above

    if log is not None:
        made = _of_log(log)
    else:
        with _progress(target, quiet=json) as tell:
            setup = Setup(
                full=full,
                seeds=tuple(range(seeds or (_FULL_SEEDS if full else _SEEDS))),
                throughputs=throughputs,
                artifact=artifact,
                results=Results(out / "cells"),
                processes=processes or -1,
                tell=tell,
            )
            made = MAKERS[target](setup)
    if json:
        told = {name: getattr(made, name) for name in ("title", "setting", "claims", "columns")}
        views.print_json(told | {"rows": made.rows})
    else:
        for part in _shown(made):
            views.out().print(part)
    files = _write(made, out / target)
    if files and not json:
        print(f"{out / target}: {', '.join(files)}")
    return 0


def _of_log(log: Path) -> Reproduction:
    from replay.paper.overhead import Overheads  # noqa: PLC0415 - seldom needed
    from replay.paper.tables import overhead_of_log  # noqa: PLC0415 - as above
    from services.runtime.file_log import read_log  # noqa: PLC0415 - as above

    overheads = Overheads()
    for record in read_log(log):
        overheads.take(record)
    if not overheads.by(str):
        raise OptionError("--log", str(log), "a log in which a job ran")
    return overhead_of_log(overheads, log.name)


def _write(made: Reproduction, folder: Path) -> list[str]:
    """The pictures as a page and as figures; returns what was written."""
    if not made.pictures:
        return []
    from replay.report import page, printed  # noqa: PLC0415 - once there is something to show
    from replay.report.charts import Report  # noqa: PLC0415 - as above

    files = printed.write(made.pictures, folder, printed.FORMATS)
    report = Report(
        title=made.title,
        subtitle=made.setting,
        figures=[(claim.what, f"{claim.ours} (paper: {claim.paper})") for claim in made.claims],
        pictures=made.pictures,
    )
    (folder / "index.html").write_text(page.render(report))
    return ["index.html", *(file.name for file in files)]


def _shown(made: Reproduction) -> Iterator[RenderableType]:
    from rich import box  # noqa: PLC0415 - seldom needed
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    yield Text(made.title, "bold")
    yield Text(made.setting, "dim")
    claims = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("claim", "paper", "ours", "why"):
        claims.add_column(name, no_wrap=name == "ours")
    for claim in made.claims:
        claims.add_row(claim.what, claim.paper, claim.ours, claim.why)
    yield claims
    if made.rows:
        table = Table(box=box.SIMPLE, pad_edge=False)
        for name in made.columns:
            table.add_column(name, justify="left" if name == made.columns[0] else "right")
        for row in made.rows:
            table.add_row(*row)
        yield table


@contextmanager
def _progress(target: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how many simulations are done, and how long the others will take."""
    from rich.console import Console  # noqa: PLC0415 - seldom needed
    from rich.progress import (  # noqa: PLC0415 - as above
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _done, _of: None
        return
    columns = (TextColumn(target), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, speed_estimate_period=1800) as bar:
        task = bar.add_task("", total=None)

        def tell(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of)

        yield tell

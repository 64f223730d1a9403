"""``gavel sweep``: every combination of some options of ``gavel simulate``, kept as Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from replay.sweep.cell import Row

#: Failures that are listed by name.
_LISTED = 20


def sweep(
    experiment: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="What to run, in TOML.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of results (the file's name without .toml, -results)."),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=0, help="Cells at a time; 0: as many as there are processors.")
    ] = 0,
    on: Annotated[
        str, typer.Option(metavar="local|ray|dask=ADDRESS", help="What carries the cells.")
    ] = "local",
    dry_run: Annotated[  # noqa: FBT002 - a flag of the command line
        bool, typer.Option("--dry-run", help="Say how many cells there are and are left; run none.")
    ] = False,
    json: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--json", help="Print one JSON object, no table.")
    ] = False,
) -> int:
    """Run policies over loads, seeds, clusters, round lengths: any options of `gavel simulate`.

    A key of the file is an option (`policy`, `jobs_per_h`, `mean_gap`, `seed`, `cluster`, `round`,
    ...); a list means each of these, and every combination is a cell. A cell that was run before,
    with the same inputs and the same code, is not run again: stop a sweep when you like, and start
    it again. A cell that fails is listed, and the others go on.
    """
    from replay import views  # noqa: PLC0415 - numpy and the solvers take their time to load
    from replay.run import check  # noqa: PLC0415 - as above
    from replay.sweep import tell  # noqa: PLC0415 - as above
    from replay.sweep.experiment import read_experiment  # noqa: PLC0415 - as above
    from replay.sweep.run import carried_by, plan, run  # noqa: PLC0415 - as above
    from replay.sweep.store import Results  # noqa: PLC0415 - as above

    asked = read_experiment(experiment)
    for request in asked.samples():
        check(request)
    folder = out or experiment.with_name(f"{experiment.stem}-results")
    planned = plan(asked.requests(), Results(folder))
    failures: dict[str, str] = {}
    if not dry_run:
        with carried_by(on), _progress(len(planned.cells), len(planned.done), quiet=json) as show:

            def told(row: Row) -> None:
                if row["error"]:
                    failures[tell.named(row, asked.varied)] = row["error"]
                show(row)

            run(planned, processes or -1, told)
    counts = {"cells": len(planned.cells), "had": len(planned.done), "failed": len(failures)}
    if json:
        rows = [] if dry_run else tell.as_rows(planned.results.read(planned.cells), asked.varied)
        views.print_json(counts | {"rows": rows})
        return 1 if failures else 0
    if not dry_run:
        views.out().print(tell.table(planned.results.read(planned.cells), asked.varied))
    print(f"{folder}: {counts['cells']} cells, of which {counts['had']} were there before")
    for name, error in list(failures.items())[:_LISTED]:
        print(f"failed: {name}: {error}")
    if len(failures) > _LISTED:
        print(f"failed: ... {len(failures) - _LISTED} more; column error has all")
    return 1 if failures else 0


@contextmanager
def _progress(cells: int, done: int, *, quiet: bool) -> Iterator[Callable[[Row], None]]:
    """Show on a terminal how many cells are done, how long it has been, and will be."""
    from rich.console import Console  # noqa: PLC0415 - seldom needed
    from rich.progress import (  # noqa: PLC0415 - as above
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _row: None
        return
    columns = (
        *(TextColumn("sweep"), BarColumn(), MofNCompleteColumn(), TextColumn("cells")),
        *(TimeElapsedColumn(), TextColumn("gone,"), TimeRemainingColumn(), TextColumn("left")),
        TextColumn("{task.fields[failed]}", style="red"),
    )
    failed = 0
    # Cells differ in length: the speed is judged over half an hour, not the last few.
    with Progress(*columns, console=console, speed_estimate_period=1800) as bar:
        task = bar.add_task("", total=cells, completed=done, failed="")

        def show(row: Row) -> None:
            nonlocal failed
            failed += bool(row["error"])
            bar.update(task, advance=1, failed=f"{failed} failed" if failed else "")

        yield show

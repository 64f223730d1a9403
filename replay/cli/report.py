"""``gavel report`` and ``gavel export``: what a log or a sweep looks like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.options import OptionError, new_file

if TYPE_CHECKING:
    from replay.report.charts import Report
    from replay.report.log_fold import LogFold

_FORMATS = ("pdf", "png")


def report(
    source: Annotated[
        Path, typer.Argument(metavar="LOG|RESULTS", exists=True, help="A log, or a sweep's folder.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page (the source's name with .html, here).")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for figures to print, one file a picture.")
    ] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="pdf,png", help="Of the figures.")
    ] = "pdf,png",
    force: Annotated[bool, typer.Option("--force", help="Replace a page that exists.")] = False,  # noqa: FBT002 - a flag of the command line
) -> int:
    """Write one page that shows a log, or a sweep's results, in any browser and without a network.

    Of a log: workers by round, job completion times, finish-time fairness, time received against
    time promised, the queue, utilisation, cost, waiting by cause. Of results: average JCT with
    intervals, utilisation and cost against load; job completion times, fairness (if the sweep has
    policy isolated), and where job time goes.
    """
    page_file = new_file("--out", out or Path(f"{_stem(source)}.html"), force=force)
    kinds = [kind.strip() for kind in formats.split(",")]
    if not set(kinds) <= set(_FORMATS):
        raise OptionError("--format", formats, f"some of {', '.join(_FORMATS)}")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise OptionError("--figures", str(figures), "a folder; it is a file")
    shown = _of_results(source) if source.is_dir() else _of_log(source)
    from replay.report import page, printed  # noqa: PLC0415 - once there is something to show

    page_file.write_text(page.render(shown))
    print(f"{page_file}: {len(shown.pictures)} pictures")
    if figures is not None:
        files = printed.write(shown.pictures, figures, kinds)
        print(f"{figures}: {len(files)} files")
    return 0


def export(
    log: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A log file.")],
    perfetto: Annotated[
        Path, typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev here.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,  # noqa: FBT002 - a flag of the command line
) -> int:
    """Write a log in the format of another program: leases by worker, jobs, counters, solves."""
    import msgspec  # noqa: PLC0415 - seldom needed

    from replay.report.perfetto import events  # noqa: PLC0415 - numpy takes its time to load

    new_file("--perfetto", perfetto, force=force)
    listed = list(events(_folded(log)))
    told = {"displayTimeUnit": "ms", "traceEvents": listed}
    perfetto.write_bytes(msgspec.json.encode(told))
    print(f"{perfetto}: {len(listed):,} events; open it at https://ui.perfetto.dev")
    return 0


def _stem(source: Path) -> str:
    return source.resolve().name.removesuffix(".zst").removesuffix(".jsonl")


def _of_log(log: Path) -> Report:
    from replay.report import log_pictures  # noqa: PLC0415 - numpy takes its time to load

    return log_pictures.report_of(_folded(log), log.name)


def _of_results(folder: Path) -> Report:
    from replay.report import results_pictures  # noqa: PLC0415 - polars takes its time to load
    from replay.sweep.store import Results  # noqa: PLC0415 - as above

    return results_pictures.report_of(Results(folder).read(), folder.resolve().name)


def _folded(log: Path) -> LogFold:
    from rich.console import Console  # noqa: PLC0415 - seldom needed

    from replay.report.log_pictures import fold  # noqa: PLC0415 - numpy takes its time to load
    from services.runtime.file_log import read_log  # noqa: PLC0415 - as above

    with Console(stderr=True).status(f"reading {log}"):
        return fold(read_log(log))

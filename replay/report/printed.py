"""The same pictures for publications: PDF and PNG, one column wide, readable in grey."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from replay.report.charts import (
    Bars,
    Chart,
    Line,
    Picture,
    Timeline,
    colour_of,
    first_of_group,
    line_colours,
    log_ticks,
    owners_in_order,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("pdf", "png")
_SETTINGS: Any = {
    "font.size": 8,
    "font.family": "sans-serif",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e6ea",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
}
#: Told apart without colour.
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P")
#: Nothing of the moment or the machine: equal pictures are equal files.
_METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}
_COLUMN_IN, _PAGE_IN = 3.5, 7.2


def write(pictures: Iterable[Picture], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write each picture in each format; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for picture in pictures:
        with _drawn(picture) as figure:
            for kind in formats:
                file = folder / f"{picture.key}.{kind}"
                figure.savefig(file, metadata=_METADATA[kind])
                files.append(file)
    return files


@contextmanager
def _drawn(picture: Picture) -> Iterator[Any]:
    import matplotlib as mpl  # noqa: PLC0415 - takes its time to load
    from matplotlib.figure import Figure  # noqa: PLC0415 - as above

    with mpl.rc_context(_SETTINGS):
        if isinstance(picture, Timeline):
            height = min(7.0, 1.0 + 0.09 * len(picture.rows))
            figure = Figure(figsize=(_PAGE_IN, height))
            _timeline(figure.add_subplot(), picture)
        else:
            figure = Figure(figsize=(_COLUMN_IN, 2.5))
            axes = figure.add_subplot()
            if isinstance(picture, Chart):
                _chart(axes, picture)
            else:
                _bars(axes, picture)
        yield figure


def _chart(axes: Axes, chart: Chart) -> None:
    if chart.stacked:
        heights = [line.y for line in chart.lines]
        firsts = zip(chart.lines, first_of_group(chart.lines), strict=True)
        labels = [(line.group or line.name) if first else f"_{line.name}" for line, first in firsts]
        axes.stackplot(
            chart.lines[0].x,
            *heights,
            labels=labels,
            colors=line_colours(chart.lines),
            alpha=0.85,
            edgecolor="white",
            linewidth=0.3,
        )
    else:
        for index, line in enumerate(chart.lines):
            _line(axes, line, index)
    if chart.diagonal:
        top = max((v for line in chart.lines for v in (*line.x, *line.y)), default=1.0)
        axes.plot([0, top], [0, top], color="#9aa0a6", linewidth=0.7, zorder=0)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    if chart.log_x:
        _logarithmic(axes, "x", [v for line in chart.lines for v in line.x])
    if chart.log_y:
        _logarithmic(axes, "y", [v for line in chart.lines for v in line.y])
    if not chart.log_y:
        axes.set_ylim(bottom=0, top=None if chart.y_top is None else 1.03 * chart.y_top)
    if len(chart.lines) > 1:
        axes.legend(loc="best")


def _logarithmic(axes: Axes, which: Literal["x", "y"], values: Sequence[float]) -> None:
    ticks = log_ticks(values)
    scale, place = (
        (axes.set_xscale, axes.set_xticks) if which == "x" else (axes.set_yscale, axes.set_yticks)
    )
    scale("log")
    place(ticks, [f"{tick:g}" for tick in ticks])
    place([], minor=True)


def _line(axes: Axes, line: Line, index: int) -> None:
    colour = colour_of(index)
    dash: Any = _DASHES[index % len(_DASHES)]
    if line.style == "points":
        axes.plot(line.x, line.y, ".", color=colour, markersize=3, alpha=0.5, markeredgewidth=0)
        return
    marker = _MARKERS[index % len(_MARKERS)] if line.style == "marked" else None
    drawn = {"color": colour, "linestyle": dash, "label": line.name, "marker": marker}
    if line.style == "step":
        axes.step(line.x, line.y, where="post", **drawn)
    elif line.low:
        low, y, high = (np.asarray(v, dtype=float) for v in (line.low, line.y, line.high))
        axes.errorbar(line.x, y, np.stack([y - low, high - y]), capsize=2, markersize=3.5, **drawn)
    else:
        axes.plot(line.x, line.y, markersize=3.5, **drawn)


def _bars(axes: Axes, bars: Bars) -> None:
    places = np.arange(len(bars.groups))
    bottom = np.zeros(len(bars.groups))
    for index, (part, sizes) in enumerate(bars.parts.items()):
        if any(sizes):
            axes.bar(places, sizes, 0.55, bottom, label=part, color=colour_of(index))
            bottom += np.asarray(sizes)
    long = max((len(group) for group in bars.groups), default=0) * len(bars.groups) > 45
    axes.set_xticks(
        places, bars.groups, rotation=30 if long else 0, ha="right" if long else "center"
    )
    axes.set_xlim(-0.75, max(2, len(bars.groups)) - 0.25)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(bars.y)
    axes.set_ylim(0, max(1e-9, 1.3 * float(bottom.max(initial=0.0))))
    axes.legend(loc="upper center", ncols=2)


def _timeline(axes: Axes, timeline: Timeline) -> None:
    number = owners_in_order(timeline.spans)
    axes.barh(
        [span.row for span in timeline.spans],
        [span.end - span.start for span in timeline.spans],
        0.86,
        [span.start for span in timeline.spans],
        color=[colour_of(number[span.owner]) for span in timeline.spans],
        linewidth=0,
    )
    rows = len(timeline.rows)
    every = -(-rows // 40)
    axes.set_yticks(range(0, rows, every), timeline.rows[::every], fontsize=6)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(timeline.x)

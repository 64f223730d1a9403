"""One self-contained HTML page: works offline, calls nobody, and is drawn by plotly.js inside."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import msgspec

from replay.report.charts import (
    COLOURS,
    Bars,
    Chart,
    Line,
    Picture,
    Report,
    Timeline,
    colour_of,
    first_of_group,
    line_colours,
    log_ticks,
    owners_in_order,
)

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #f4f5f7; margin: 0; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 25px; margin: 0; } h2 { font-size: 17px; margin: 0; }
p { margin: 4px 0 0; color: #5a5f66; } .note { font-size: 13px; }
section { background: #fff; border: 1px solid #e2e4e8; border-radius: 8px; padding: 16px 18px; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 16px; }
.wide { grid-column: 1 / -1; } .picture { width: 100%; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(165px, 1fr)); gap: 10px 18px; }
dt { color: #5a5f66; font-size: 12.5px; } dd { margin: 0; font-weight: 600; }
.warn { border-left: 4px solid #D55E00; padding-left: 10px; color: #1b1b1b; }
"""
_LAYOUT: dict[str, Any] = {
    "margin": {"l": 64, "r": 14, "t": 30, "b": 50},
    "paper_bgcolor": "#fff",
    "plot_bgcolor": "#fff",
    "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1b1b1b"},
    "colorway": list(COLOURS),
    "legend": {"orientation": "h", "y": -0.25, "yanchor": "top", "font": {"size": 12}},
    "hoverlabel": {"font": {"size": 12}, "align": "left"},
}
_AXIS = {"gridcolor": "#e9ebee", "zeroline": False, "linecolor": "#9aa0a6", "ticks": "outside"}
_CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
}
#: The page's own promise: no request leaves it.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
_SCRIPT = """
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [key, figure] of Object.entries(figures))
  Plotly.newPlot(key, figure.data, figure.layout, %s);
"""


def render(report: Report) -> str:
    """The page."""
    from plotly.offline import get_plotlyjs  # noqa: PLC0415 - five megabytes

    figures = {picture.key: figure(picture) for picture in report.pictures}
    # Names come from users: nothing in them may end the script.
    told = msgspec.json.encode(figures).decode().replace("</", "<\\/").replace("<!--", "<\\!--")
    facts = "".join(
        f"<div><dt>{html.escape(name.strip())}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in report.figures
    )
    notes = "".join(f'<p class="warn">{html.escape(note)}</p>' for note in report.notes)
    title = html.escape(report.title)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{_STYLE}</style></head><body><main>
<h1>{title}</h1><p>{html.escape(report.subtitle)}</p>{notes}
<dl>{facts}</dl>
<div class="grid">{"".join(_section(picture) for picture in report.pictures)}</div>
</main>
<script>{get_plotlyjs()}</script>
<script type="application/json" id="figures">{told}</script>
<script>{_SCRIPT % msgspec.json.encode(_CONFIG).decode()}</script>
</body></html>
"""


def _section(picture: Picture) -> str:
    wide = ' class="wide"' if isinstance(picture, Timeline) else ""
    height = _height(picture)
    note = f'<p class="note">{html.escape(picture.note)}</p>' if picture.note else ""
    return (
        f"<section{wide}><h2>{html.escape(picture.title)}</h2>"
        f'<div class="picture" id="{picture.key}" style="height:{height}px"></div>{note}</section>'
    )


def _height(picture: Picture) -> int:
    return min(900, 120 + 14 * len(picture.rows)) if isinstance(picture, Timeline) else 380


def figure(picture: Picture) -> dict[str, Any]:
    """A picture as plotly.js takes it: ``data`` and ``layout``."""
    if isinstance(picture, Chart):
        return _chart(picture)
    return _bars(picture) if isinstance(picture, Bars) else _timeline(picture)


def _chart(chart: Chart) -> dict[str, Any]:
    colours, firsts = line_colours(chart.lines), first_of_group(chart.lines)
    data = [
        _line(line, colour, chart) | {"showlegend": first}
        for line, colour, first in zip(chart.lines, colours, firsts, strict=True)
    ]
    if chart.diagonal:
        top = max((v for line in chart.lines for v in (*line.x, *line.y)), default=1.0)
        ends = {"x": [0, top], "y": [0, top], "mode": "lines", "hoverinfo": "skip"}
        data.insert(0, ends | {"line": {"color": "#9aa0a6", "width": 1}, "showlegend": False})
    x = _axis(chart.x, [v for line in chart.lines for v in line.x] if chart.log_x else None)
    y = _axis(chart.y, [v for line in chart.lines for v in line.y] if chart.log_y else None)
    if not chart.log_y:
        y["rangemode"] = "tozero"
        if chart.y_top is not None:
            y["range"] = [0, 1.03 * chart.y_top]
    layout = {"xaxis": x, "yaxis": y, "hovermode": "closest", "showlegend": len(chart.lines) > 1}
    return {"data": data, "layout": _LAYOUT | layout}


def _line(line: Line, colour: str, chart: Chart) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "name": html.escape(line.group or line.name),
        "x": line.x,
        "y": line.y,
        "mode": {"line": "lines", "marked": "lines+markers", "step": "lines"}.get(
            line.style, "markers"
        ),
        "line": {"color": colour, "width": 2, "shape": "hv" if line.style == "step" else "linear"},
        "marker": {"color": colour, "size": 6, "opacity": 0.6 if line.style == "points" else 1},
    }
    if chart.stacked:
        trace |= {"stackgroup": "one", "fillcolor": f"{colour}cc"}
        trace |= {"line": {"color": "#fff", "width": 0.6}}
    if line.group:
        trace |= {"hovertext": html.escape(line.name), "legendgroup": html.escape(line.group)}
    if line.labels:
        trace |= {"text": _escaped(line.labels), "hovertemplate": "%{text}<br>%{x:.4g}, %{y:.4g}"}
    if line.low:
        both = zip(line.low, line.y, line.high, strict=True)
        below, above = zip(*((y - low, high - y) for low, y, high in both), strict=True)
        trace["error_y"] = {"symmetric": False, "array": above, "arrayminus": below, "width": 3}
    return trace


def _bars(bars: Bars) -> dict[str, Any]:
    data = [
        {
            "type": "bar",
            "name": html.escape(part),
            "x": _escaped(bars.groups),
            "y": sizes,
            "marker": {"color": colour_of(index)},
        }
        for index, (part, sizes) in enumerate(bars.parts.items())
        if any(sizes)
    ]
    layout = {"barmode": "stack", "xaxis": _axis(""), "yaxis": _axis(bars.y)}
    return {"data": data, "layout": _LAYOUT | layout | {"bargap": 0.45}}


def _timeline(timeline: Timeline) -> dict[str, Any]:
    number = owners_in_order(timeline.spans)
    spans = timeline.spans
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [span.row for span in spans],
        "base": [span.start for span in spans],
        "x": [span.end - span.start for span in spans],
        "width": 0.86,
        "marker": {"color": [colour_of(number[s.owner]) for s in spans], "line": {"width": 0}},
        "text": _escaped([span.what for span in spans]),
        "textposition": "none",
        "hovertemplate": "%{text}<br>from %{base:.2f} h<extra></extra>",
    }
    rows = len(timeline.rows)
    every = -(-rows // 45)
    y = _axis("") | {
        "tickvals": list(range(0, rows, every)),
        "ticktext": _escaped(timeline.rows[::every]),
        "range": [rows - 0.5, -0.5],
        "showgrid": False,
        "tickfont": {"size": 11},
    }
    layout = {"xaxis": _axis(timeline.x), "yaxis": y, "barmode": "overlay"}
    margin = {"l": 92, "r": 14, "t": 30, "b": 46}
    return {"data": [bars], "layout": _LAYOUT | layout | {"margin": margin, "showlegend": False}}


def _axis(title: str, log: Sequence[float] | None = None) -> dict[str, Any]:
    """An axis; logarithmic if the values along it are given."""
    axis = _AXIS | {"title": {"text": html.escape(title)}}
    if log is None:
        return axis
    ticks = log_ticks(log)
    return axis | {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _escaped(texts: Sequence[str]) -> list[str]:
    """Texts in which plotly, which reads some HTML, finds none."""
    return [html.escape(text) for text in texts]

"""Curves over a log's time: jobs there, workers held, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from replay import views
from replay.report.charts import HOUR_S, Chart, Line
from replay.report.fairness import present
from replay.report.log_fold import LogFold

#: Points of a curve: more cannot be seen.
_POINTS = 100

Floats = NDArray[np.float64]


def presence(folded: LogFold) -> Chart:
    """How many jobs are there, and how many of them run."""
    times, numbers = present(folded.coming_and_going)
    changes = [
        (at, change)
        for held in folded.held
        if not held.kind
        for at, change in (
            (held.start_s, len(held.lease.tasks)),
            (held.end_s or held.start_s, -len(held.lease.tasks)),
        )
    ]
    began, running = present(changes)
    edges = np.linspace(0.0, max(folded.at, 1.0), _POINTS)
    lines = [("there", times, numbers), ("on workers", began, running)]
    return Chart(
        key="jobs",
        title="Jobs in the cluster",
        x="time (h)",
        y="jobs",
        lines=[
            Line(
                name=name,
                x=(edges / HOUR_S).tolist(),
                y=[float(n) for n in _at(edges, when, many)],
                style="step",
            )
            for name, when, many in lines
        ],
        note="The gap between the lines is the queue.",
    )


def _at(edges: Floats, times: Floats, numbers: Floats) -> Floats:
    """The number that holds at each edge; 0 before the first time."""
    padded = np.append(0.0, numbers)
    found: Floats = padded[np.searchsorted(times, edges, side="right")]
    return found


def use(folded: LogFold, counts: Mapping[str, int]) -> list[Chart]:
    """Utilisation and cost over time, by worker type."""
    if not counts or folded.at <= 0:
        return []
    edges = np.linspace(0.0, folded.at, _POINTS + 1)
    busy_s = {name: _busy_s(folded, name, edges) for name in counts}
    prices = {w.worker_type: w.usd_per_h or 0.0 for w in folded.workers.values()}
    hours = (edges / HOUR_S).tolist()
    width = folded.at / _POINTS
    lines = [
        Line(
            name=f"{name} ({count})",
            x=hours[:-1],
            y=(np.diff(busy_s[name]) / (width * count)).tolist(),
            style="step",
        )
        for name, count in counts.items()
    ]
    used = Chart(
        key="utilisation",
        title="Utilisation",
        x="time (h)",
        y="share of workers held by jobs",
        lines=lines,
        note=f"Over {views.duration(width)} at a time.",
        y_top=1.0,
    )
    cost = Chart(
        key="cost",
        title="Cost of the workers held",
        x="time (h)",
        y="USD, summed",
        lines=[
            Line(name=name, x=hours, y=(busy_s[name] / HOUR_S * prices[name]).tolist())
            for name in counts
        ],
        note=", ".join(f"{name} {prices[name]:g} USD/h" for name in counts),
        stacked=True,
    )
    return [used, cost] if any(prices.values()) else [used]


def _busy_s(folded: LogFold, worker_type: str, edges: Floats) -> Floats:
    """(edges,) worker-seconds held by jobs up to each edge."""
    leases = [h for h in folded.held if not h.kind and h.lease.worker_type == worker_type]
    weights = np.array([len(h.lease.worker_ids) for h in leases], dtype=float)
    starts = np.array([h.start_s for h in leases])
    ends = np.array([h.end_s if h.end_s is not None else h.start_s for h in leases])
    return _held_s(edges, starts, weights) - _held_s(edges, ends, weights)


def _held_s(edges: Floats, since: Floats, weights: Floats) -> Floats:
    """(edges,) sum over all ``since`` before the edge of weight times the time since."""
    order = np.argsort(since, kind="stable")
    before = np.searchsorted(since[order], edges, side="right")
    total = np.append(0.0, np.cumsum(weights[order]))[before]
    moment = np.append(0.0, np.cumsum((weights * since)[order]))[before]
    held: Floats = edges * total - moment
    return held

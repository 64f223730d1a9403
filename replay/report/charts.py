"""Pictures, described: what is shown, of which figures, in which units.

How they are drawn is for ``page.py`` (interactive) and ``printed.py`` (for publications); both
draw the same descriptions, so that a page and a paper show the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

#: Colours that people who are colour-blind tell apart (Okabe and Ito), darkest first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555", "#9C8A00")

HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """One series of a chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    #: Ends of the interval about each y; empty: none is known.
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    #: ``line`` (``marked`` at its points), ``step`` (holds from its x on) or ``points``.
    style: str = "line"
    #: What a point is, shown when it is pointed at.
    labels: Sequence[str] = ()
    #: Lines of a group have one colour and one name in the legend.
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Lines over a common x."""

    key: str
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    #: What has to be known to read it.
    note: str = ""
    stacked: bool = False
    log_x: bool = False
    log_y: bool = False
    #: A thin line at y = x.
    diagonal: bool = False
    y_top: float | None = None


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Parts of a whole, for each group."""

    key: str
    title: str
    y: str
    groups: Sequence[str]
    #: {part: (groups,) its size}
    parts: Mapping[str, Sequence[float]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A lease on one worker."""

    row: int
    start: float
    end: float
    #: Whose it is; spans of one owner have one colour.
    owner: str
    what: str


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Who held what from when to when."""

    key: str
    title: str
    x: str
    #: Workers, top to bottom, and the type of each.
    rows: Sequence[str]
    groups: Sequence[str]
    spans: Sequence[Span]
    note: str = ""


Picture = Chart | Bars | Timeline


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything there is to show of a log, or of results."""

    title: str
    subtitle: str
    #: (what it is, its value)
    figures: Sequence[tuple[str, str]]
    pictures: Sequence[Picture]
    #: What a reader must know so as not to misread it.
    notes: Sequence[str] = ()


def cdf(name: str, values: ArrayLike) -> Line:
    """The share of values that are at most x, as steps; None and NaN do not count."""
    numbers = np.asarray(values, dtype=float)
    numbers = np.sort(numbers[~np.isnan(numbers)])
    shares = np.arange(1, len(numbers) + 1) / max(1, len(numbers))
    x = np.concatenate([numbers[:1], numbers])
    y = np.concatenate([np.zeros(min(1, len(numbers))), shares])
    return Line(name=name, x=x.tolist(), y=y.tolist(), style="step")


def log_ticks(values: Iterable[float]) -> list[float]:
    """Round numbers for a logarithmic axis: 1, 2 and 5 of each decade, or decades if many."""
    positive = [value for value in values if 0 < value < math.inf]
    if not positive:
        return []
    low, high = min(positive), max(positive)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 3 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return [tick for tick in ticks if 0.7 * low <= tick <= 1.4 * high]


def line_colours(lines: Sequence[Line]) -> list[str]:
    """The colour of each line: its group's, or its own."""
    groups = list(dict.fromkeys(line.group or line.name for line in lines))
    return [colour_of(groups.index(line.group or line.name)) for line in lines]


def first_of_group(lines: Sequence[Line]) -> list[bool]:
    """Whether a line stands for its group in the legend."""
    groups = [line.group or line.name for line in lines]
    return [groups.index(group) == n for n, group in enumerate(groups)]


def colour_of(index: int) -> str:
    """The colour of the n-th series, over and over."""
    return COLOURS[index % len(COLOURS)]


def owners_in_order(spans: Sequence[Span]) -> dict[str, int]:
    """Each owner's number, by first appearance."""
    return {owner: n for n, owner in enumerate(dict.fromkeys(span.owner for span in spans))}

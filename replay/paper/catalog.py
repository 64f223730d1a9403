"""What of the paper can be regenerated, by name."""

from __future__ import annotations

from collections.abc import Callable

from replay.paper import continuous, estimation, hierarchy, rounds, scaling, static, tables
from replay.paper.result import Reproduction, Setup

TARGETS: dict[str, Callable[[Setup], Reproduction]] = {
    "figure8": continuous.figure8,
    "figure9": continuous.figure9,
    "figure10": continuous.figure10,
    "figure11": hierarchy.figure11,
    "figure12": scaling.figure12,
    "figure13": rounds.figure13,
    "estimation": estimation.estimation,
    "table3": tables.table3,
    "table4": tables.table4,
    "makespan": static.makespan,
    "cost": static.cost,
}

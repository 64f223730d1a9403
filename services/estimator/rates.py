"""Throughputs that are measured again and again: what to believe of them, and when to say so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from schemas.domain import UNCONSOLIDATED, ThroughputRow

#: Throughputs of a job are whole powers of this times those of its class.
_STEP = 1.02

#: A first measurement further than this factor from what was believed needs confirmation.
_SURPRISE = math.log(4.0)
#: Later ones are doubted beyond so many times their usual spread, and never below this factor.
_SPREADS = 4.0
_LEAST_DOUBT = math.log(1.15)
#: Measurements in a row that agree, within this factor, before the doubtful are believed.
_CONFIRMATIONS = 3
_AGREEMENT = math.log(1.2)
#: Weight of a new measurement, at least; the first ones are averaged.
_GAIN = 0.2
_FIRST_SPREAD = 0.05
#: A change of less than so many times the usual spread is no news.
_NEWS_SPREADS = 2.0


@dataclass(slots=True)
class MovingRate:
    """Moving estimate of one throughput, steps/s, that outliers do not move.

    An average of logarithms, since throughputs err by factors. A measurement far off is set aside;
    when several in a row agree with each other, the job has changed its ways (a doubled batch
    size), and the estimate starts anew from them.
    """

    #: Steps/s believed; before the first measurement, what a table or an owner says.
    value: float
    #: Measurements since the start, or since the job last changed.
    count: int = 0
    #: How often the job has changed.
    changes: int = 0
    #: Usual distance of measurements from the estimate, as a logarithm.
    spread: float = _FIRST_SPREAD
    _doubtful: list[float] = field(default_factory=list)

    def observe(self, rate: float) -> None:
        """Take in a measurement; one of no steps, or no number, says nothing and is ignored."""
        if not 0 < rate < math.inf:
            return
        if self.value <= 0:
            self._confirm(rate)
            return
        error = math.log(rate / self.value)
        doubt = max(_LEAST_DOUBT, _SPREADS * self.spread) if self.count else _SURPRISE
        if abs(error) > doubt:
            if self.count:
                # A job that is often in doubt is a noisy one; one doubt does not make it so.
                self.spread += _GAIN / 2 * (_LEAST_DOUBT - self.spread)
            self._confirm(rate)
            return
        self._doubtful.clear()
        self.count += 1
        if self.count > 1:
            self.spread += _GAIN * (abs(error) - self.spread)
        self.value *= math.exp(error * max(_GAIN, 1.0 / self.count))

    def is_news(self, published: float, tolerance: float) -> bool:
        """Whether it differs from what was published by more than its own noise and a tolerance."""
        if (self.value > 0) != (published > 0):
            return True
        noise = _NEWS_SPREADS * self.spread if self.count >= _CONFIRMATIONS else 0.0
        limit = max(math.log1p(tolerance), noise)
        return self.value > 0 and abs(math.log(self.value / published)) > limit

    def _confirm(self, rate: float) -> None:
        self._doubtful = [*self._doubtful[1 - _CONFIRMATIONS :], rate]
        low, high = min(self._doubtful), max(self._doubtful)
        if len(self._doubtful) == _CONFIRMATIONS and math.log(high / low) <= _AGREEMENT:
            self.value = median(self._doubtful)
            self.changes += self.count > 0
            self.count = _CONFIRMATIONS
            self.spread = _FIRST_SPREAD
            self._doubtful.clear()


def rates_of(row: ThroughputRow) -> dict[str, float]:
    """Isolated steps/s of a class or job, by worker type."""
    return {cell.worker_type: cell.steps_per_s for cell in row.alone}


def rate_on(rates: Mapping[str, float], way: str) -> float:
    """Steps/s on a type, or in its unconsolidated way: the type's, where the way's is not known."""
    return rates.get(way, rates.get(way.removesuffix(UNCONSOLIDATED), 0.0))


def snapped(rates: Mapping[str, float], of_class: Mapping[str, float]) -> dict[str, float]:
    """Throughputs as whole powers of a small step times the class's, where it has one."""
    found = {}
    for worker_type, rate in rates.items():
        reference = of_class.get(worker_type, 0.0)
        if rate > 0 and reference > 0:
            rate = reference * _STEP ** round(math.log(rate / reference) / math.log(_STEP))  # noqa: PLW2901 - the same rate, rounded
        found[worker_type] = rate
    return found

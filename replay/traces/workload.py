"""Synthetic workloads: arrivals, lengths, widths, weights and deadlines, each as asked for.

Every quantity is drawn by a generator of its own, made of the seed and the quantity's name: equal
seeds give equal jobs, and asking for other weights, say, changes nothing but the weights. The
simulations of the paper draw as ``generate.py`` does; the defaults here are theirs (§7.3).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from replay.traces.change import cancelling
from replay.traces.generate import (
    SCALE_FACTOR_SHARES,
    SCALE_FACTORS,
    GenerateError,
    paper_durations_s,
    reference_rates,
)
from replay.traces.rows import TimedEvent
from replay.traces.rules import MAX_S
from schemas.domain import JobSpec
from schemas.events import CancelRequested
from services.estimator.tables import ThroughputTable

Floats = NDArray[np.float64]
_DAY_S = 86_400.0
#: Of the mean gap, the gap between jobs of one burst.
_GAP_IN_BURST = 0.05
#: A cancellation comes within so many times the job's isolated length after its arrival.
_CANCELLED_WITHIN = 2.0


@dataclass(frozen=True)
class Regime:
    """From ``start_s`` on, jobs come ``rate`` times as often and last ``length`` times as long."""

    start_s: float
    rate: float = 1.0
    length: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is asked for; see the command line's ``gavel trace generate`` for each."""

    num_jobs: int
    #: Between arrivals, over a whole number of days and regimes of rate 1.
    mean_gap_s: float
    seed: int = 0
    reference_type: str = "v100"
    #: Mean jobs that come at once; 1: each by itself (Poisson).
    burst: float = 1.0
    #: The rate swings by this part of its mean over a day, highest at 18 h.
    swing: float = 0.0
    #: Seconds to draw from, each as likely; empty: the paper's distribution, or log-normal.
    durations_s: Sequence[float] = ()
    #: (median in s, standard deviation of the logarithm)
    lognormal: tuple[float, float] | None = None
    #: {value: its part of all jobs}
    scale_factors: Mapping[float, float] = field(
        default_factory=lambda: dict(zip(SCALE_FACTORS, SCALE_FACTOR_SHARES, strict=True))
    )
    weights: Mapping[float, float] = field(default_factory=lambda: {1.0: 1.0})
    #: Deadlines as multiples of the isolated duration; 0: none.
    slos: Mapping[float, float] = field(default_factory=lambda: {0.0: 1.0})
    #: To draw from; empty: all of the table.
    job_types: Sequence[str] = ()
    #: Part of the jobs that their owners cancel.
    cancelled: float = 0.0
    regimes: Sequence[Regime] = ()


def draw(asked: Workload, table: ThroughputTable) -> tuple[list[JobSpec], list[TimedEvent]]:
    """Jobs in order of arrival, with ids "0", "1", ..., and cancellations of some.

    Raises
    ------
    GenerateError
        No job type of the table fits a scale factor that was drawn, or times go beyond any trace.
    """
    number = asked.num_jobs
    arrivals_s = _arrivals_s(asked)
    lengths_s = _durations_s(asked) * _regime_of(asked, arrivals_s, "length")
    scale_factors = _mixed(asked, "scale factors", asked.scale_factors).astype(int)
    weights = _mixed(asked, "weights", asked.weights)
    slos = _mixed(asked, "slos", asked.slos)
    places = _chance(asked, "job types").random(number)
    cancels = _chance(asked, "cancelled").random((2, number))
    if number and not (arrivals_s[-1] <= MAX_S and lengths_s.max() <= MAX_S):
        raise GenerateError(f"arrivals or durations go beyond {MAX_S:g} s")
    rates = {
        int(scale): reference_rates(table, int(scale), asked.reference_type, asked.job_types)
        for scale in np.unique(scale_factors)
    }
    jobs, events = [], []
    for i in range(number):
        scale_factor, length_s = int(scale_factors[i]), float(lengths_s[i])
        choices = rates[scale_factor]
        job_type, steps_per_s = choices[int(places[i] * len(choices))]
        job = JobSpec(
            job_id=str(i),
            job_type=job_type,
            scale_factor=scale_factor,
            total_steps=length_s * steps_per_s,
            priority_weight=float(weights[i]),
            slo_s=float(slos[i]) * length_s or None,
            arrival_s=float(arrivals_s[i]),
        )
        jobs.append(job)
        if cancels[0, i] < asked.cancelled:
            at_s = job.arrival_s + float(cancels[1, i]) * _CANCELLED_WITHIN * length_s
            event = CancelRequested(job_id=job.job_id)
            events.append(TimedEvent(at_s, cancelling(job.job_id), event))
    return jobs, sorted(events, key=lambda event: event.at_s)


def _chance(asked: Workload, what: str) -> np.random.Generator:
    return np.random.default_rng([asked.seed, zlib.crc32(what.encode())])


def _mixed(asked: Workload, what: str, shares: Mapping[float, float]) -> Floats:
    """(jobs,) values drawn by their parts."""
    values = np.array(sorted(shares), dtype=float)
    parts = np.array([shares[value] for value in sorted(shares)], dtype=float)
    drawn: Floats = _chance(asked, what).choice(values, asked.num_jobs, p=parts / parts.sum())
    return drawn


def _durations_s(asked: Workload) -> Floats:
    """(jobs,) lengths on the reference type."""
    chance = _chance(asked, "durations")
    if asked.durations_s:
        drawn: Floats = chance.choice(np.asarray(asked.durations_s, dtype=float), asked.num_jobs)
        return drawn
    if asked.lognormal is not None:
        median_s, sigma = asked.lognormal
        lengths_s: Floats = np.exp(sigma * chance.standard_normal(asked.num_jobs)) * median_s
        return lengths_s
    return paper_durations_s(chance, asked.num_jobs)


# --- arrivals -------------------------------------------------------------------------------------


def _arrivals_s(asked: Workload) -> Floats:
    """(jobs,) in order; the first is at 0."""
    if not asked.num_jobs or not asked.mean_gap_s:
        return np.zeros(asked.num_jobs)
    due = _even_s(asked)
    if not asked.swing and not asked.regimes:
        return due
    return _stretched(asked, due)


def _even_s(asked: Workload) -> Floats:
    """Arrivals at a rate that never changes: one at a time, or in bursts of geometric size."""
    chance = _chance(asked, "arrivals")
    number = asked.num_jobs
    if asked.burst <= 1.0:
        gaps_s = chance.exponential(asked.mean_gap_s, number)
        gaps_s[0] = 0.0
        even: Floats = np.cumsum(gaps_s)
        return even
    sizes = chance.geometric(1.0 / asked.burst, number)
    bursts = int(np.searchsorted(np.cumsum(sizes), number)) + 1
    starts_s = np.cumsum(chance.exponential(asked.mean_gap_s * asked.burst, bursts))
    inside_s = chance.exponential(asked.mean_gap_s * _GAP_IN_BURST, number)
    of_burst = np.repeat(np.arange(bursts), sizes[:bursts])[:number]
    first = np.r_[0, np.flatnonzero(np.diff(of_burst)) + 1]
    since_s = np.cumsum(inside_s)
    arrivals_s: Floats = np.sort(starts_s[of_burst] + since_s - since_s[first][of_burst])
    first_s = float(arrivals_s.min())
    return arrivals_s - first_s


def _stretched(asked: Workload, due_s: Floats) -> Floats:
    """Times at which the expected number of arrivals is what it is at ``due_s`` at rate 1.

    Expected arrivals by t are E(t) = sum over regimes of rate (D(end) - D(start)), D the integral
    of the day's swing; E rises, so its inverse is found by bisection.
    """
    starts = np.array([0.0, *(regime.start_s for regime in asked.regimes)])
    rates = np.array([1.0, *(regime.rate for regime in asked.regimes)])
    turn = 2.0 * np.pi / _DAY_S

    def day(t: Floats) -> Floats:
        # The rate is 1 - swing sin(turn t): least at 6 h, most at 18 h.
        even: Floats = t - asked.swing / turn * (1.0 - np.cos(turn * t))
        return even

    before = np.r_[0.0, np.cumsum(rates[:-1] * np.diff(day(starts)))]

    def expected(t: Floats) -> Floats:
        at = np.searchsorted(starts, t, side="right") - 1
        total: Floats = before[at] + rates[at] * (day(t) - day(starts[at]))
        return total

    low, high = np.zeros_like(due_s), np.full_like(due_s, _DAY_S)
    while (short := expected(high) < due_s).any():
        if high.max() > MAX_S:
            raise GenerateError(f"arrivals go beyond {MAX_S:g} s: the last regime's rate is 0")
        high[short] *= 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        late = expected(middle) < due_s
        low, high = np.where(late, middle, low), np.where(late, high, middle)
    first_s = float(high[0])
    return high - first_s


def _regime_of(asked: Workload, arrivals_s: Floats, what: str) -> Floats:
    """(jobs,) the figure of the regime that each job arrives in."""
    starts = np.array([0.0, *(regime.start_s for regime in asked.regimes)])
    figures = np.array([1.0, *(getattr(regime, what) for regime in asked.regimes)])
    found: Floats = figures[np.searchsorted(starts, arrivals_s, side="right") - 1]
    return found

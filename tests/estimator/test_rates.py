"""A throughput measured again and again: noise, outliers, change."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.estimator.rates import MovingRate, snapped

RATES = st.floats(1e-3, 1e6)
TOLERANCE = 0.03


def observed(rate: MovingRate, *measurements: float) -> MovingRate:
    """The estimate after these."""
    for measurement in measurements:
        rate.observe(measurement)
    return rate


@given(truth=RATES, wrong=st.floats(0.3, 3.0))
def test_the_first_measurement_replaces_what_was_only_said(truth: float, wrong: float) -> None:
    """A table wrong by a factor of up to three is put right at once."""
    assert observed(MovingRate(truth * wrong), truth).value == pytest.approx(truth)


@given(truth=RATES, seed=st.integers(0, 1000), noise=st.floats(0.0, 0.08))
def test_noise_averages_out(truth: float, seed: int, noise: float) -> None:
    """After 30 noisy measurements the estimate is nearer than the noise is wide."""
    chance = random.Random(seed)
    measurements = [truth * math.exp(chance.gauss(0, noise)) for _ in range(30)]
    rate = observed(MovingRate(truth), *measurements)
    assert abs(math.log(rate.value / truth)) <= 1.5 * noise + 1e-9


@given(
    truth=RATES,
    before=st.integers(1, 10),
    factor=st.sampled_from([1e-6, 1e6, 3.0, 0.2]),
    times=st.integers(1, 2),
)
def test_an_outlier_moves_nothing(truth: float, before: int, factor: float, times: int) -> None:
    """One or two measurements that are a million times off, or three times, change nothing."""
    rate = observed(MovingRate(truth), *[truth] * before)
    observed(rate, *[truth * factor] * times)
    assert rate.value == pytest.approx(truth)
    assert observed(rate, truth).value == pytest.approx(truth)
    assert rate.changes == 0


@given(truth=RATES, factor=st.sampled_from([0.25, 0.5, 1.5, 2.0, 8.0]), before=st.integers(1, 50))
def test_a_job_that_changes_its_ways_is_followed(truth: float, factor: float, before: int) -> None:
    """A doubled batch size: after three measurements that agree, the estimate is the new one."""
    rate = observed(MovingRate(truth), *[truth] * before)
    now = truth * factor
    observed(rate, now, now * 1.02)
    assert rate.value == pytest.approx(truth)
    observed(rate, now * 0.99)
    assert rate.value == pytest.approx(now)
    assert rate.changes == 1


def test_a_first_measurement_beyond_belief_waits_for_others() -> None:
    """A million times what the table says is believed when three agree, not before."""
    rate = observed(MovingRate(1.0), 1e6, 1e6)
    assert rate.value == 1.0
    assert observed(rate, 1e6).value == pytest.approx(1e6)


@pytest.mark.parametrize("nothing", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_throughput_is_ignored(nothing: float) -> None:
    """No steps, or no number: says nothing about how fast a job is."""
    rate = observed(MovingRate(2.0), 2.0, nothing)
    assert (rate.value, rate.count) == (2.0, 1)


def test_what_was_said_not_to_run_and_does_is_believed_in_the_end() -> None:
    """A table's 0 against measurements: three that agree."""
    rate = observed(MovingRate(0.0), 2.0, 2.1)
    assert rate.value == 0.0
    assert observed(rate, 2.0).value == pytest.approx(2.0)


def test_news_is_what_exceeds_tolerance_and_noise() -> None:
    """A change within the tolerance is none; within a noisy job's own noise, neither."""
    calm = MovingRate(1.0)
    assert not calm.is_news(1.0 + TOLERANCE / 2, TOLERANCE)
    assert calm.is_news(1.0 + 2 * TOLERANCE, TOLERANCE)
    assert calm.is_news(0.0, TOLERANCE)
    noisy = observed(MovingRate(1.0), *[0.92, 1.08] * 10)
    assert not noisy.is_news(noisy.value * (1 + 2 * TOLERANCE), TOLERANCE)
    assert noisy.is_news(noisy.value * 2, TOLERANCE)


@given(rate=RATES, reference=RATES)
def test_snapped_rates_are_near_and_few(rate: float, reference: float) -> None:
    """Within 1 %; a job within 1 % of its class is its class, to the bit."""
    found = snapped({"v100": rate, "new": rate}, {"v100": reference})
    assert found["v100"] == pytest.approx(rate, rel=0.01)
    assert found["new"] == rate
    assert snapped({"v100": reference * 1.009}, {"v100": reference}) == {"v100": reference}
    assert snapped({"v100": 0.0}, {"v100": reference}) == {"v100": 0.0}

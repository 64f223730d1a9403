"""Shares are rounded, and rounding breaks nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.policy.classes import SHARE_UNIT, round_to_units


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4))
def test_rounded_shares_are_near_and_feasible(seed: int, classes: int, types: int) -> None:
    """From shares that fill every type and every job's time: within 1e-8, and nothing exceeded."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(types), classes)
    demands = rng.integers(1, 1000, classes).astype(float)
    workers = np.floor(demands @ shares)
    shares *= np.minimum(workers / (demands @ shares), 1.0)
    units = round_to_units(shares, demands, workers)
    assert (units >= 0).all()
    assert np.abs(units * SHARE_UNIT - shares).max() <= 1.5 * SHARE_UNIT
    whole = round(1 / SHARE_UNIT)
    assert (units.sum(axis=1) <= whole).all()
    assert (demands.astype(np.int64) @ units <= workers.astype(np.int64) * whole).all()


def test_noise_of_a_solver_does_not_show() -> None:
    """Shares off by 1e-12 either way are the same shares, and a whole stays whole."""
    shares = np.array([[1.0, 0.0], [0.25, 0.75]])
    demands, workers = np.array([2.0, 4.0]), np.array([3.0, 3.0])
    expected = round_to_units(shares, demands, workers)
    for noise in (-1e-12, 1e-12):
        assert (round_to_units(shares + noise, demands, workers) == expected).all()

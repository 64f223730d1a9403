"""Shares of jobs whose needs differ are rounded, and nobody's need is lost by it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.policy.classes import SHARE_UNIT
from services.policy.jobs import round_by_fractions


@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(1, 4))
def test_small_shares_keep_their_worth(seed: int, jobs: int, types: int) -> None:
    """Shares over six orders of magnitude that fill every type: all keep 1 - 1e-6 or a unit more.

    What rounding up takes is at most a unit for each worker's demand; spread over the type's
    workers by fractions, that is what anybody can lose.
    """
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(types), jobs) * 10 ** rng.uniform(-6, 0, (jobs, 1))
    demands = rng.choice([1.0, 2.0, 4.0, 8.0], jobs)
    workers = np.floor(demands @ shares)
    shares *= np.minimum(workers / (demands @ shares), 1.0)
    units = round_by_fractions(shares, demands, workers)
    assert (units.sum(axis=1) <= 1 / SHARE_UNIT).all()
    assert (demands @ units <= workers / SHARE_UNIT).all()
    lost = SHARE_UNIT * demands.sum() / np.maximum(workers, 1.0)
    least = shares * (1 - 2.1 * lost) - 0.02 * SHARE_UNIT
    # A job all of whose time is taken cannot have all its shares rounded up.
    largest = shares >= shares.max(axis=1, keepdims=True) * (1 - 1e-9)
    least = np.where(largest, least - types * SHARE_UNIT, least)
    assert (units * SHARE_UNIT >= least - 1e-15).all()
    assert (units * SHARE_UNIT <= shares + SHARE_UNIT).all()


def test_noise_of_a_solver_does_not_show_and_wholes_stay_whole() -> None:
    """Shares off by 1e-12 either way are the same shares; a full job beside thirds stays full."""
    shares = np.array([[1.0, 0.0], [0.25, 0.75], [1 / 3, 0.0]])
    demands, workers = np.array([2.0, 4.0, 3.0]), np.array([4.0, 3.0])
    expected = round_by_fractions(shares, demands, workers)
    assert expected[0].tolist() == [1 / SHARE_UNIT, 0]
    for noise in (-1e-12, 1e-12):
        assert (round_by_fractions(shares + noise, demands, workers) == expected).all()

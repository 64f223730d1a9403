"""Isolated: the static partition."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from services.policy.isolated import Isolated
from services.policy.problem import Problem
from tests.policy.problems import job_class, problem, problems, shares, violation


@given(problems())
def test_the_partition_is_feasible_and_ignores_speed_and_weight(asked: Problem) -> None:
    """Jobs of one scale factor that run on the same types get the same share, at most a whole."""
    allocation = Isolated().solve(asked)
    assert violation(asked, allocation) <= 1e-9
    seen: dict[tuple[object, ...], np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
    given_shares = shares(asked, allocation)
    for each in asked.classes:
        usable = tuple(
            speed > 0 and each.scale_factor <= workers
            for speed, workers in zip(each.throughputs, asked.num_workers, strict=True)
        )
        for job_id in each.job_ids:
            expected = seen.setdefault((each.scale_factor, usable), given_shares[job_id])
            np.testing.assert_allclose(given_shares[job_id], expected, atol=1.5e-8)


def test_shares_are_the_workers_over_the_jobs_and_the_scale_factor() -> None:
    """Four jobs on 4 k80s and 2 p100s: 1 k80 and half a p100 each, a gang of 2 half of that."""
    asked = problem(
        (4, 2), job_class(1.0, 2.0, ids="a b c"), job_class(1.0, 2.0, ids="gang", scale_factor=2)
    )
    given_shares = shares(asked, Isolated().solve(asked))
    np.testing.assert_allclose(given_shares["gang"], [1 / 2, 1 / 4], atol=1e-8)
    # 1 + 1/2 is more than all of its time; scaled to it.
    np.testing.assert_allclose(given_shares["a"], [2 / 3, 1 / 3], atol=1e-8)

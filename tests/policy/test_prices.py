"""The cheapest way to a level, and the level that a budget pays for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.policy.prices import cheapest

#: Few values, so that ties, free types and plateaus between two segments are common.
_LEVELS = st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0, 1.0 + 1e-13])
_COSTS = st.sampled_from([0.0, 1e-12, 0.2, 1.0, 3.0])


@given(data=st.data())
def test_a_budget_pays_for_its_level_and_for_no_more(data: st.DataObject) -> None:
    """The highest affordable level costs the budget; what is above it costs more, if anything."""
    classes = data.draw(st.integers(1, 5), label="classes")
    types = data.draw(st.integers(1, 3), label="types")
    size = classes * types
    reachable = np.array(data.draw(st.lists(_LEVELS, min_size=size, max_size=size)))
    costs = np.array(data.draw(st.lists(_COSTS, min_size=size, max_size=size)))
    reachable = reachable.reshape(classes, types)
    hull = cheapest(reachable, costs.reshape(classes, types) * (reachable > 0))
    everybody = np.ones(classes, dtype=bool)
    highest = reachable.max(axis=1)
    budget = data.draw(st.floats(0.0, 4.0 * classes), label="budget")

    level = hull.affordable_level(everybody, budget)

    cost = hull.costs(np.minimum(level, highest)).sum()
    assert cost <= budget + 1e-9
    if np.isfinite(level):
        more = hull.costs(np.minimum(level + 1e-3, highest)).sum()
        assert more >= budget - 1e-9
    else:
        assert hull.costs(highest).sum() <= budget + 1e-9


def test_a_plateau_between_two_costly_stretches_is_crossed() -> None:
    """One class pays up to 0.3, the other from 0.5 on: for nothing more, 0.5 is to be had."""
    reachable = np.array([[0.3, 0.0], [0.5, 1.0]])
    costs = np.array([[1.0, 0.0], [0.0, 1.0]])
    hull = cheapest(reachable, costs)

    level = hull.affordable_level(np.ones(2, dtype=bool), 1.0)

    assert level == 0.5

"""The cheapest way to a level, and the level that a budget pays for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from services.policy.prices import Hull, cheapest

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


def test_a_budget_that_ends_on_a_plateau_crosses_it() -> None:
    """Six classes' last stretches cost the budget; the seventh's starts further up, for nothing.

    To the digit as a simulation met it: rounding put the budget a hair below the plateau's cost.
    """
    segments = np.array(
        [
            (1.0294948375977366, 1.7272169665731638, 0.11943627681080503),
            (1.1127673505643656, 1.7150560744011567, 0.27672220991444324),
            (1.0731954573102267, 1.4484665103461571, 0.2220617142174154),
            (1.1599474614474048, 1.4671034068981175, 0.8139188047724633),
            (4.969878607896078, 5.876245099202471, 0.36776881816634976),
            (1.2669326310587754, 1.3419923333444732, 1.1102273363161477),
            (1.638245907526628, 3.6845021686739736, 0.16289911467219248),
        ]
    )
    starts, ends, slopes = segments.T[:, None, :]
    hull = Hull(starts, ends, slopes)

    level = hull.affordable_level(np.ones(7, dtype=bool), 1.0)

    assert level == starts.max()

"""Whether needs can be met, and the prices that prove it: a game of workers against jobs.

One side puts prices on the worker types, all workers together being worth 1; the other covers the
needs of all jobs as cheaply as these prices allow (``prices.py``). What that costs at the worst
prices is how full the fullest type must be, so needs can be met if and only if it is at most 1.
There are as many prices as worker types, a handful, however many jobs there are: cutting planes
find the worst ones, each plane being the use of workers that was cheapest at some prices.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from services.policy.prices import Hull, cheapest
from services.policy.solver import INF, Floats, Ints, LinearProgram

#: Relative gap between the bounds on the fullness at which they are one.
_GAP = 1e-12


@dataclass(slots=True)
class Market:
    """What needs cost, for one choice of where each job may run.

    Attributes
    ----------
    reachable : (members, worker types)
        Level of a job that spends all its time on the type; 0 where it may not run.
    loads : (members, worker types)
        Fraction of the type's workers that the member then holds.
    """

    reachable: Floats
    loads: Floats
    _hulls: dict[bytes, Hull] = field(default_factory=dict)

    def hull(self, worth: Floats) -> Hull:
        """Cheapest ways to all levels at these prices, (worker types,), in parts of all worth."""
        key = worth.tobytes()
        if key not in self._hulls:
            self._hulls[key] = cheapest(self.reachable, self.loads * worth)
        return self._hulls[key]

    def cost(self, worth: Floats, needs: Floats) -> float:
        """The cheapest cost of the needs, (members,)."""
        return float(self.hull(worth).costs(needs).sum())

    def worst(self, needs: Floats, met: float) -> Floats | None:
        """The worth of the types at which the needs cost most; None if that is at most ``met``.

        Raises
        ------
        SolverError
            No solver found an answer.
        """
        types = self.reachable.shape[1]
        program = LinearProgram(
            costs=np.append(np.zeros(types), -1.0),
            col_lower=np.append(np.zeros(types), -INF),
            col_upper=np.append(np.ones(types), INF),
            row_lower=np.ones(1),
            row_upper=np.ones(1),
            entries=(np.zeros(types, np.int64), np.arange(types), np.ones(types)),
        )
        # Prices seen before are good guesses, and their hulls are at hand.
        guesses = [np.frombuffer(key) for key in self._hulls] or [np.full(types, 1 / types)]
        planes = [self._use(worth, needs) for worth in guesses]
        program.add_rows(*_planes(planes))
        seen = {plane.tobytes() for plane in planes}
        while True:
            solution = program.solve()
            most, worth = -solution.objective, solution.values[:types].copy()
            worth[worth <= solution.accuracy] = 0.0
            worth /= worth.sum()
            if most <= met:
                return None
            use = self._use(worth, needs)
            # A plane that is there already misses the gap by what the solver takes for nothing.
            if float(use @ worth) >= most * (1 - _GAP) or use.tobytes() in seen:
                return worth
            program.add_rows(*_planes([use]))
            seen.add(use.tobytes())

    def _use(self, worth: Floats, needs: Floats) -> Floats:
        """(worker types,) how full each is when all cover their needs as cheaply as can be."""
        shares = self.hull(worth).shares(needs, len(worth))
        use: Floats = (shares * self.loads).sum(axis=0)
        return use


def _planes(uses: list[Floats]) -> tuple[Floats, Floats, tuple[Ints, Ints, Floats]]:
    """Rows that say: the cost is at most that of each of these uses, (worker types,)."""
    table = np.column_stack([np.array(uses), -np.ones(len(uses))])
    rows, columns = np.nonzero(table)
    lower = np.zeros(len(uses))
    return lower, np.full(len(uses), INF), (rows, columns, table[rows, columns])

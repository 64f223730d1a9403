"""Needs that may be lowered where not all can be met: by how little in all, and whose.

A need lowered by d_i times its relief is what a class's pool must serve (``needs.py``): for every
speed theta, sum_i (q_i - d_i relief_i - theta)+ <= what the pool offers above theta. The left side
is convex in d. It is the largest, over all sets of jobs, of the sum without the +; so each set that
a solution violates is one cut, linear in d, and the jobs themselves are no columns of pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.policy.needs import MET, Needs, NeedsProgram
from services.policy.pools import Pools
from services.policy.solver import INF, Floats, Ints

#: Part of its relief below which a job has none.
_NONE = 1e-9


class RelievedProgram(NeedsProgram):
    """``NeedsProgram`` at one level, with a column beside for all jobs alike: their d.

    Parameters
    ----------
    rows, needs : (jobs,)
        Class of each job, ascending, and the speed it needs, as a fraction of its class's fastest.
    relief, costs : (jobs,)
        By how much, at most, the need may be lowered, and what d_i = 1 costs.
    """

    def __init__(
        self, pools: Pools, rows: Ints, needs: Floats, relief: Floats, costs: Floats
    ) -> None:
        none = np.zeros(len(rows))
        self._lowered = needs
        super().__init__(pools, Needs(rows, lambda _: (self._lowered, none), 1.0))
        self._rows, self._most, self._relief = rows, needs, relief
        self._relieved = np.flatnonzero(relief > 0)
        looks = np.column_stack([rows, needs, relief, costs])[self._relieved]
        alike, group = np.unique(looks, axis=0, return_inverse=True)
        self._group, self._groups = group.ravel(), len(alike)
        of_class = alike[:, 0].astype(np.int64)
        self._group_costs = self._by_group(costs)
        part = self._by_group(relief / self._sizes[rows]) * self._scales[of_class]
        self._program.add_columns(
            np.zeros(self._groups), (of_class, np.arange(self._groups), part), upper=1.0
        )
        self._first_relief = self._width
        self._width += self._groups
        #: Cuts made: the speed's entry, and who needs more, in bytes.
        self._made: set[tuple[int, bytes]] = set()

    def lower_least(self) -> None:
        """Lower needs at the least cost, and at no more from then on."""
        costs = self._group_costs / self._group_costs.max(initial=1e-9)
        self.minimise(np.append(np.zeros(self._first_relief), costs))
        self.keep_optima()

    def lowered(self) -> Floats:
        """(jobs,) needs as the last answer meets them."""
        part = self.solution.values[self._first_relief :]
        needs = self._most.copy()
        given = np.where(part > _NONE, part, 0.0)[self._group]
        needs[self._relieved] -= self._relief[self._relieved] * given
        return needs

    def _cut(self) -> bool:
        self._lowered = self.lowered()
        self._sort_needs(self.level)
        every = np.arange(len(self._pools.speeds))
        missing = self._needs_above(every)[0] - self._offered_above(self.values)
        new = np.flatnonzero(missing > MET)
        #: (cuts, jobs) who needs more than the speed.
        above = self._above(new)
        keys = [(at, jobs.tobytes()) for at, jobs in zip(new.tolist(), above, strict=True)]
        # One made before is missed by the solver's tolerance alone.
        first = [n for n, key in enumerate(keys) if key not in self._made]
        if not first:
            return False
        self._made.update(keys)
        new, above = new[first], above[first]
        speeds, of_class = self._pools.speeds[new], self._pools.classes[new]
        needs = np.where(above, self._most, 0.0).sum(axis=1) - speeds * above.sum(axis=1)
        needs /= self._sizes[of_class]
        relief = np.zeros((len(new), self._groups))
        cuts, jobs = np.nonzero(above[:, self._relieved])
        of_jobs = self._relief[self._relieved[jobs]] / self._sizes[of_class[cuts]]
        np.add.at(relief, (cuts, self._group[jobs]), of_jobs)
        rows, columns = np.nonzero(relief)
        offers = self._offers(new)
        entries = (
            np.append(offers[0], rows),
            np.append(offers[1], self._first_relief + columns),
            np.append(offers[2], relief[rows, columns]),
        )
        self._program.add_rows(needs, np.full(len(new), INF), entries)
        return True

    def _above(self, entries: Ints) -> NDArray[np.bool_]:
        """(entries, jobs) who of the class needs more than the entry's speed."""
        pools = self._pools
        of_class = self._rows == pools.classes[entries][:, None]
        above: NDArray[np.bool_] = of_class & (self._lowered > pools.speeds[entries][:, None])
        return above

    def _by_group(self, values: Floats) -> Floats:
        """(groups,) sums of (jobs,) values."""
        sums: Floats = np.bincount(self._group, values[self._relieved], self._groups).astype(float)
        return sums

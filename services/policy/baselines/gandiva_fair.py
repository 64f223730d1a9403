"""Gandiva_fair, a baseline: an equal share of every worker type for each, then trading."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.policy.classes import ClassArrays, gather, to_rows
from services.policy.isolated import isolated_shares
from services.policy.problem import Allocation, Problem
from services.policy.solver import Floats

#: Speed-ups must differ by more than this factor for a trade to be worth it.
_GAIN = 1 + 1e-9
#: What is less than this many workers is nothing.
_NOTHING = 1e-12


@dataclass(frozen=True)
class GandivaFair:
    """Everybody's lottery tickets win the same share of each type; then jobs swap shares.

    Whom the faster of two types helps most buys time on it from whom it helps least, and pays
    with time on the slower: one for one if the seller is faster there, else at the geometric mean
    of their two speed-ups. Both gain, and a trade goes on until one of them has nothing to give,
    or the seller no time left to use what it gets. The shares before trading are those of
    ``isolated``, so nobody does worse.
    """

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        arrays, set_aside = gather(problem)
        if not len(arrays.counts):
            return Allocation(rows=(), set_aside=set_aside)
        shares = isolated_shares(arrays)
        types = range(len(arrays.num_workers))
        for fast in types:
            for slow in types:
                if fast != slow:
                    _trade(arrays, shares, fast, slow)
        return Allocation(rows=to_rows(problem, arrays, shares), set_aside=set_aside)


def _trade(arrays: ClassArrays, shares: Floats, fast: int, slow: int) -> None:
    """Let classes swap time on two types, best buyer with best seller, while both gain.

    Only classes to whom ``fast`` is the faster buy; ``shares``, (classes, worker types), changes.
    """
    both = np.flatnonzero(arrays.usable[:, fast] & arrays.usable[:, slow])
    speed_ups = arrays.throughputs[both, fast] / arrays.throughputs[both, slow]
    order = np.argsort(-speed_ups, kind="stable")
    line, ups = both[order], speed_ups[order]
    buyer, seller = 0, len(line) - 1
    while buyer < seller and ups[buyer] > 1 and ups[buyer] > ups[seller] * _GAIN:
        b, s = line[buyer], line[seller]
        # Each faster on what it gets: one for one, which takes no more time of either.
        price = 1.0 if ups[seller] < 1 else float(np.sqrt(ups[buyer] * ups[seller]))
        slack = float(1.0 - shares[s].sum()) * arrays.demands[s]
        limits = np.array(
            [
                shares[s, fast] * arrays.demands[s],
                shares[b, slow] * arrays.demands[b] / price,
                max(slack, 0.0) / (price - 1) if price > 1 else np.inf,
            ]
        )
        sold = float(limits.min())
        for who, sign in ((b, 1.0), (s, -1.0)):
            shares[who, fast] += sign * sold / arrays.demands[who]
            shares[who, slow] -= sign * sold * price / arrays.demands[who]
        np.maximum(shares, 0.0, out=shares)
        # Who set the limit is done; one of the two always did.
        if limits[[0, 2]].min() <= sold + _NOTHING:
            seller -= 1
        else:
            buyer += 1

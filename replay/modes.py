"""Bundles of settings: how a cluster is run, by name.

A mode changes no code path that another could not reach; it is a set of values of
``ClusterConfigured``, printed with the result.
"""

from __future__ import annotations

import random

from schemas.events import ClusterConfigured

#: In paper mode, the order in which heterogeneity-aware policies visit worker types: fastest first.
_FASTEST_FIRST = ("v100", "p100", "k80")

#: How many orders a shuffled selection draws before it goes through them again.
_SHUFFLES = 997


def default_mode(policy: str, round_duration_s: float) -> ClusterConfigured:
    """A real cluster: rounds on a grid, planned ahead, credit that outlives a solve."""
    return ClusterConfigured(policy=policy, round_duration_s=round_duration_s)


def paper_mode(policy: str, round_duration_s: float, seed: int = 0) -> ClusterConfigured:
    """The mechanism of the paper's simulator, defects that change no schedule left out.

    A round ends with its last task; X/f starts anew at each allocation; types are served one
    after another, in an order that is shuffled each round for heterogeneity-agnostic policies;
    jobs that arrive between solves wait; at least 1920 s lie between two solves.
    """
    agnostic = policy.endswith(":agnostic") or policy in {"isolated", "gandiva-fair", "tiresias"}
    return ClusterConfigured(
        policy=policy,
        round_duration_s=round_duration_s,
        plan_lead_s=0.0,
        round_end="last_task",
        priority="reset",
        selection="per_type",
        fill="none" if policy.startswith(("fifo", "sjf")) else "in_order",
        type_orders=shuffled_orders(seed) if agnostic else (_FASTEST_FIRST,),
        new_jobs="wait",
        resolve_min_gap_s=1920.0,
        reference_type="v100",
    )


def shuffled_orders(seed: int, rounds: int = _SHUFFLES) -> tuple[tuple[str, ...], ...]:
    """One order of the three types per round. The offset is that of the published runs' seeds."""
    rng = random.Random(seed + 5)
    orders = []
    for _ in range(rounds):
        order = list(_FASTEST_FIRST)
        rng.shuffle(order)
        orders.append(tuple(order))
    return tuple(orders)


MODES = {"default": default_mode, "paper": paper_mode}

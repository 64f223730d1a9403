"""Policies by name. A new policy joins ``POLICIES`` with one line."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

from services.policy.baselines.allox import AlloX
from services.policy.baselines.gandiva import Gandiva
from services.policy.baselines.gandiva_fair import GandivaFair
from services.policy.baselines.tiresias import Tiresias
from services.policy.cost import Cost, CostSlo
from services.policy.fifo import Fifo
from services.policy.finish_time_fairness import FinishTimeFairness, FinishTimeFairnessAgnostic
from services.policy.hierarchical import Hierarchical
from services.policy.isolated import Isolated
from services.policy.las import Las, LasAgnostic
from services.policy.las_sharing import LasSharing
from services.policy.makespan import Makespan, MakespanAgnostic
from services.policy.max_throughput import MaxThroughput
from services.policy.problem import Policy, PolicyError
from services.policy.shortest_job_first import ShortestJobFirst, ShortestJobFirstAgnostic
from services.policy.strategy_proof import StrategyProof

#: Name -> dataclass whose fields are the policy's parameters. ``name:variant`` is a policy's own
#: entry: ``:agnostic`` is blind to worker types, ``:ss`` shares workers between two jobs.
POLICIES: dict[str, Callable[..., Policy]] = {
    "allox": AlloX,
    "cost": Cost,
    "cost-slo": CostSlo,
    "fifo": Fifo,
    "ftf": FinishTimeFairness,
    "ftf:agnostic": FinishTimeFairnessAgnostic,
    "gandiva": Gandiva,
    "gandiva-fair": GandivaFair,
    "hierarchical": Hierarchical,
    "isolated": Isolated,
    "las": Las,
    "las:agnostic": LasAgnostic,
    "las:ss": LasSharing,
    "makespan": Makespan,
    "makespan:agnostic": MakespanAgnostic,
    "max-throughput": MaxThroughput,
    "sjf": ShortestJobFirst,
    "sjf:agnostic": ShortestJobFirstAgnostic,
    "strategy-proof": StrategyProof,
    "tiresias": Tiresias,
}


class UnknownPolicyError(PolicyError):
    """No policy of that name, or no parameter of that name; the message says which there are."""


def resolve(name: str, parameters: Mapping[str, float | str] = {}) -> Policy:
    """The policy of this name with these parameters.

    Raises
    ------
    UnknownPolicyError
        There is no such policy, or it has no such parameter.
    """
    make = POLICIES.get(name)
    if make is None:
        raise UnknownPolicyError(f"policy {name!r} is not known; {_nearest(name, POLICIES)}")
    known = _parameters(make)
    for parameter in parameters:
        if parameter not in known:
            raise UnknownPolicyError(
                f"policy {name!r} has no parameter {parameter!r}; {_nearest(parameter, known)}"
            )
    return make(**parameters)


def needs(name: str, what: str) -> bool:
    """Whether a policy asks for what few do: ``previous`` rows, ``isolated`` time, ``pairs``."""
    shares = what == "pairs" and ":ss" in name
    return shares or bool(getattr(POLICIES.get(name), f"needs_{what}", False))


def _parameters(make: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(make)]


def _nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    near = difflib.get_close_matches(name, list(known), cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(repr(n) for n in near)}?"
    return f"known are {', '.join(sorted(known))}" if known else "it has none"

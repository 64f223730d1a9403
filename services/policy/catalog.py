"""Policies by name. A new policy joins ``POLICIES`` with one line.

A policy of your own needs no line here: name its file on the command line
(``--policy mine.py:MyPolicy``), or have a package of yours declare it as an entry point of the
group ``gavel.policies``. A service runs no file that only a log names.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module, metadata

from services.policy.placement import by_placement
from services.policy.problem import Policy, PolicyError

#: Makes a policy: a dataclass whose fields are the policy's parameters.
MakePolicy = Callable[..., Policy]

#: Name -> where it is, so that only what is run is loaded. ``name:variant`` is a policy's own
#: entry: ``:agnostic`` is blind to worker types, ``:ss`` shares workers between two jobs,
#: ``:placement``, which is made of the policy without it, tells gangs that are consolidated on few
#: servers from those that are not.
POLICIES: dict[str, str] = {
    "allox": "services.policy.baselines.allox:AlloX",
    "cost": "services.policy.cost:Cost",
    "cost-slo": "services.policy.cost_slo:CostSlo",
    "cost-slo:ss": "services.policy.cost_slo:CostSloSharing",
    "cost:ss": "services.policy.cost:CostSharing",
    "fifo": "services.policy.fifo:Fifo",
    "ftf": "services.policy.finish_time_fairness:FinishTimeFairness",
    "ftf:agnostic": "services.policy.finish_time_fairness:FinishTimeFairnessAgnostic",
    "ftf:ss": "services.policy.sharing.deadlines:FinishTimeFairnessSharing",
    "gandiva": "services.policy.baselines.gandiva:Gandiva",
    "gandiva-fair": "services.policy.baselines.gandiva_fair:GandivaFair",
    "hierarchical": "services.policy.hierarchical:Hierarchical",
    "hierarchical:ss": "services.policy.sharing.hierarchical:HierarchicalSharing",
    "isolated": "services.policy.isolated:Isolated",
    "las": "services.policy.las:Las",
    "las:agnostic": "services.policy.las:LasAgnostic",
    "las:ss": "services.policy.sharing.las:LasSharing",
    "makespan": "services.policy.makespan:Makespan",
    "makespan:agnostic": "services.policy.makespan:MakespanAgnostic",
    "makespan:ss": "services.policy.sharing.deadlines:MakespanSharing",
    "max-throughput": "services.policy.max_throughput:MaxThroughput",
    "max-throughput:ss": "services.policy.max_throughput:MaxThroughputSharing",
    "sjf": "services.policy.shortest_job_first:ShortestJobFirst",
    "sjf:agnostic": "services.policy.shortest_job_first:ShortestJobFirstAgnostic",
    "strategy-proof": "services.policy.strategy_proof:StrategyProof",
    "tiresias": "services.policy.baselines.tiresias:Tiresias",
}

#: Why a variant of a policy makes no sense.
_MEANINGLESS = {
    "fifo:agnostic": "FIFO gives each job the fastest type with room, so it looks at types",
    "isolated:agnostic": "isolated shares do not depend on throughputs: it is blind already",
    "allox:placement": "allox serves jobs of one worker, which are consolidated anyway",
    "gandiva:placement": "gandiva gives jobs equal time, wherever their workers are",
    "gandiva-fair:placement": "lottery tickets are for workers, wherever they are",
    "tiresias:placement": "Tiresias counts the time that jobs hold workers, wherever they are",
    "isolated:placement": "isolated shares do not depend on throughputs",
    "isolated:ss": "an isolated job has its workers to itself",
    "gandiva:ss": "gandiva shares workers already, in its own way",
    "strategy-proof:agnostic": "blind to types, nobody can gain by misreporting throughputs",
}

# Whatever looks at the throughputs of gangs can look at them by placement.
POLICIES |= {
    f"{name}:placement": where
    for name, where in POLICIES.items()
    if ":agnostic" not in name and f"{name}:placement" not in _MEANINGLESS
}

#: Entry points of other people's packages.
GROUP = "gavel.policies"

_registered: dict[str, MakePolicy] = {}


class UnknownPolicyError(PolicyError):
    """No policy of that name, or no parameter of that name; the message says which there are."""


def register(name: str, make: MakePolicy) -> None:
    """Have a policy of this process's own run under a name: a file's, or a test's."""
    _registered[name] = make


def names() -> list[str]:
    """All names that ``resolve`` takes, in order."""
    return sorted({*POLICIES, *_registered, *metadata.entry_points(group=GROUP).names})


def find(name: str) -> MakePolicy:
    """The policy of this name, not yet made.

    Raises
    ------
    UnknownPolicyError
        There is no such policy.
    """
    if name in _registered:
        return _registered[name]
    if name in POLICIES:
        module, _, attribute = POLICIES[name].partition(":")
        make: MakePolicy = getattr(import_module(module), attribute)
        return by_placement(name, make) if name.endswith(":placement") else make
    for entry_point in metadata.entry_points(group=GROUP, name=name):
        loaded: MakePolicy = entry_point.load()
        return loaded
    why = _MEANINGLESS.get(name) or _nearest(name, names())
    if ":agnostic" in name and ":placement" in name:
        why = "what is blind to worker types is blind to how they are held"
    raise UnknownPolicyError(f"policy {name!r} is not known; {why}")


def resolve(name: str, parameters: Mapping[str, float | str] = {}) -> Policy:
    """The policy of this name with these parameters.

    Raises
    ------
    UnknownPolicyError
        There is no such policy, or it has no such parameter.
    PolicyError
        A parameter's value is none that it takes.
    """
    make = find(name)
    known = parameters_of(make)
    for parameter, value in parameters.items():
        if parameter not in known:
            raise UnknownPolicyError(
                f"policy {name!r} has no parameter {parameter!r}; {_nearest(parameter, known)}"
            )
        is_number = isinstance(known[parameter], int | float)
        if is_number and not (isinstance(value, int | float) and math.isfinite(value)):
            raise PolicyError(f"parameter {parameter} is {value!r}, must be a finite number")
    return make(**parameters)


def needs(name: str, what: str) -> bool:
    """Whether a policy asks for what few do: ``previous`` rows, ``isolated`` time, ``pairs``."""
    if what == "pairs" and ":ss" in name:
        return True
    try:
        return bool(getattr(find(name), f"needs_{what}", False))
    except UnknownPolicyError:
        return False


def parameters_of(make: MakePolicy) -> dict[str, object]:
    """{parameter: its default}; none for a policy that is no dataclass."""
    if not dataclasses.is_dataclass(make):
        return {}
    return {field.name: field.default for field in dataclasses.fields(make)}


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(repr(n) for n in near)}?"
    return f"known are {', '.join(sorted(known))}" if known else "it has none"

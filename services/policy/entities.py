"""The hierarchy of entities (§4.3): who is below whom, and how what a node has is divided.

What flows down the tree is *work*: scale factor times normalised throughput, summed over jobs. A
``fairness`` node raises what is below it together, in proportion to weights, and what one cannot
take goes to the others; a ``fifo`` node gives each in order of arrival all it can take. Children
of weight 0 get only what is left when their siblings can take no more. So the work of every job
is a function of the work of all, and grows with it: the curve that water filling walks along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schemas.domain import Entity
from services.policy.fifo import arrival_ranks
from services.policy.problem import Problem, ProblemError
from services.policy.solver import Floats, Ints

#: Child of the root that jobs without an entity, or of one that is not configured, belong to.
DEFAULT = Entity(entity_id="")
_POLICIES = ("fairness", "fifo")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where all stood when some were held: the lowest entity, what prices, who was held."""

    lowest: float
    prices: Floats
    held: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Member:
    """Jobs of one class that one entity treats alike: all of them, or one in a queue.

    Attributes
    ----------
    row : row of the class among the merged classes
    job_class : index of the class in the problem
    job_ids : the jobs
    weight : priority weight of each
    arrival : rank of the earliest
    """

    row: int
    job_class: int
    job_ids: tuple[str, ...]
    weight: float
    arrival: int


@dataclass(slots=True)
class Node:
    """An entity, or the root, and what is below it.

    Attributes
    ----------
    members : (members,) positions of those directly below
    children : entities directly below
    weights, counts : (members + children,) weight and number of alike
    order : (members + children,) who is served first in a queue; weight 0 comes last
    """

    entity: Entity
    members: list[int] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    counts: Floats = field(default_factory=lambda: np.zeros(0))
    order: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def close(self, members: Sequence[Member]) -> int:
        """Order what is below, once all of it is known; the rank of the earliest arrival."""
        self.children = sorted(self.children, key=lambda child: child.entity.entity_id)
        arrivals = [members[i].arrival for i in self.members]
        arrivals += [child.close(members) for child in self.children]
        weights = [members[i].weight for i in self.members]
        weights += [child.entity.weight for child in self.children]
        counts = [len(members[i].job_ids) for i in self.members] + [1] * len(self.children)
        self.weights, self.counts = np.array(weights, float), np.array(counts, float)
        self.order = np.lexsort((np.array(arrivals), self.weights == 0))
        return min(arrivals, default=0)


def check(entities: Sequence[Entity]) -> None:
    """Refuse what is no tree.

    Raises
    ------
    ProblemError
        An id is empty or given twice, a parent unknown, a chain of parents a circle, a weight no
        weight, or a policy neither ``fairness`` nor ``fifo``.
    """
    parents: dict[str, str] = {}
    for entity in entities:
        name = f"entity {entity.entity_id!r}"
        if not entity.entity_id:
            raise ProblemError("an entity has the id '', which stands for jobs without one")
        if entity.entity_id in parents:
            raise ProblemError(f"{name} is configured twice, must be once")
        if not (math.isfinite(entity.weight) and entity.weight >= 0):
            raise ProblemError(f"{name}: weight is {entity.weight}, must be finite and >= 0")
        if entity.policy not in _POLICIES:
            raise ProblemError(f"{name}: policy is {entity.policy!r}, must be one of {_POLICIES}")
        parents[entity.entity_id] = entity.parent
    for entity in entities:
        if entity.parent and entity.parent not in parents:
            raise ProblemError(
                f"entity {entity.entity_id!r}: parent is {entity.parent!r}, must be '' or one of "
                f"{', '.join(sorted(parents))}"
            )
        chain = [entity.entity_id]
        while parents[chain[-1]]:
            chain.append(parents[chain[-1]])
            if chain[-1] in chain[:-1]:
                circle = " -> ".join(chain[chain.index(chain[-1]) :])
                raise ProblemError(f"entities are their own ancestors: {circle}; must be a tree")


def members_of(problem: Problem, merged_into: Ints) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Who is to be served, and the entity that each is directly below.

    Parameters
    ----------
    merged_into : (classes of the problem,) row of each among the merged classes; -1: set aside

    Raises
    ------
    ProblemError
        Jobs of a ``fifo`` entity come without their arrival.
    """
    entities = {entity.entity_id: entity for entity in problem.entities}
    members: list[tuple[str, Member]] = []
    for index, (asked, row) in enumerate(zip(problem.classes, merged_into.tolist(), strict=True)):
        if row < 0:
            continue
        entity = entities.get(asked.entity, DEFAULT)
        alike = [(min(asked.arrival_ranks, default=0), asked.job_ids)]
        if entity.policy == "fifo":
            ranks = arrival_ranks(index, asked)
            alike = [(rank, (job,)) for rank, job in zip(ranks, asked.job_ids, strict=True)]
        members += [
            (entity.entity_id, Member(row, index, ids, asked.priority_weight, rank))
            for rank, ids in alike
        ]
    members.sort(key=lambda m: (m[0], m[1].row, m[1].arrival, m[1].job_ids))
    return tuple(member for _, member in members), tuple(entity for entity, _ in members)


def grow(entities: Sequence[Entity], members: Sequence[Member], entity_of: Sequence[str]) -> Node:
    """The tree over these members, without entities that no job is below.

    Parameters
    ----------
    members : (members,) who are to be served
    entity_of : (members,) id of the entity each is directly below
    """
    root = Node(Entity(entity_id="", policy="fairness"))
    nodes = {e.entity_id: Node(e) for e in (*entities, DEFAULT)}
    for position, entity_id in enumerate(entity_of):
        nodes[entity_id].members.append(position)
    wanted: set[str] = set()
    for entity_id in entity_of:
        ancestor = entity_id
        while ancestor not in wanted:
            wanted.add(ancestor)
            ancestor = nodes[ancestor].entity.parent or ancestor
    for entity_id in sorted(wanted):
        parent = nodes[entity_id].entity.parent
        (nodes[parent] if parent else root).children.append(nodes[entity_id])
    root.close(members)
    return root


class Curve:
    """The work of each member as a function of the work of all, while these caps hold.

    Parameters
    ----------
    node : the tree
    caps : (members,) most work that each job of a member can do
    """

    def __init__(self, node: Node, caps: Floats) -> None:
        self._node = node
        self._below = [Curve(child, caps) for child in node.children]
        own = caps[node.members]
        below = np.array([curve.total for curve in self._below])
        self._caps = np.concatenate([own, below])
        amounts = self._caps * node.counts
        #: Most work that all below can do.
        self.total: float = float(amounts.sum())
        if node.entity.policy == "fifo":
            self._before = np.zeros(len(amounts))
            self._before[node.order[1:]] = np.cumsum(amounts[node.order])[:-1]
        else:
            heavy = node.weights > 0
            self._shared = [_Shared(self._caps, node, heavy), _Shared(self._caps, node, ~heavy)]

    def fill(self, amount: float, work: Floats) -> None:
        """Write the work of each job into ``work``, (members,), when all do ``amount``."""
        given = self.divide(amount)
        own = len(self._node.members)
        work[self._node.members] = given[:own]
        for curve, below in zip(self._below, given[own:], strict=True):
            curve.fill(float(below), work)

    def divide(self, amount: float) -> Floats:
        """(members + children,) work of each, or of each alike."""
        if self._node.entity.policy == "fifo":
            return np.clip(amount - self._before, 0.0, self._caps)
        first, second = self._shared
        left = max(0.0, amount - first.total)
        return first.divide(min(amount, first.total)) + second.divide(left)


class _Shared:
    """Rising together: each takes weight times a level, up to its cap.

    Work as a function of the level is piecewise linear, with a bend where one meets its cap.
    """

    def __init__(self, caps: Floats, node: Node, taking_part: NDArray[np.bool_]) -> None:
        self._caps = np.where(taking_part, caps, 0.0)
        self._weights = np.where(node.weights > 0, node.weights, 1.0) * taking_part
        levels = np.divide(caps, self._weights, out=np.zeros(len(caps)), where=taking_part)
        order = np.argsort(levels, kind="stable")
        rates = (self._weights * node.counts)[order]
        done = np.cumsum((self._caps * node.counts)[order])
        rising = np.append(np.cumsum(rates[::-1])[::-1][1:], 0.0)[: len(rates)]
        self._levels = np.append(0.0, levels[order])
        self._works = np.append(0.0, np.maximum.accumulate(done + levels[order] * rising))
        self.total = float(self._works[-1])

    def divide(self, amount: float) -> Floats:
        level = np.interp(amount, self._works, self._levels)
        given: Floats = np.minimum(self._caps, self._weights * level)
        return given


def lowest_work(root: Node, curve: Curve, amount: float) -> float:
    """Least work per weight of an entity below the root; all weigh 1 if none has any."""
    weights = root.weights
    counted = weights > 0 if weights.any() else weights == 0
    given = curve.divide(amount)[counted]
    return float((given / np.where(weights > 0, weights, 1.0)[counted]).min())

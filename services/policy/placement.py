"""Placement sensitivity: each worker type held in two ways, consolidated or not (§3.1).

The paper makes two worker types of each, which share one capacity. A job's columns for the two
hold equally many workers and take equally much of its time; they differ in speed alone. So in no
optimum does a job that has several workers use the slower: whatever it does there it could do in
the faster with time and workers to spare. The program with both columns is therefore the program
with the faster of them, and its shares bear that one's name. Of equals, it is the consolidated.

Two jobs that share their workers hold a type in one way too: the one in which their speeds, each
as a fraction of the job's own alone, add up to more. There one could be faster in one way and the
other in the other; what a mix of both could gain is given up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from schemas.domain import UNCONSOLIDATED, AllocationRow, Combination
from services.policy.problem import Allocation, JobClass, PairSpeeds, Policy, Problem

#: (worker types,) whether the unconsolidated way is the faster.
Ways = tuple[bool, ...]


def unconsolidated(worker_types: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the types' unconsolidated ways."""
    return tuple(name + UNCONSOLIDATED for name in worker_types)


def fastest(problem: Problem) -> Problem:
    """The problem in which every job holds each type in its faster way."""
    if not any(c.unconsolidated for c in problem.classes):
        return problem
    of_pairs = _pair_ways(problem)
    pairs: PairSpeeds = {}
    for pair, (one, two) in problem.pairs.items():
        ways = of_pairs.get(pair)
        if ways is None:
            pairs[pair] = (one, two)
            continue
        other_one, other_two = problem.pairs_unconsolidated[pair]
        pairs[pair] = (_chosen(ways, one, other_one), _chosen(ways, two, other_two))
    classes = (
        msgspec.structs.replace(c, throughputs=_chosen(ways, c.throughputs, c.unconsolidated))
        if (ways := _ways(c)) and any(ways)
        else c
        for c in problem.classes
    )
    return msgspec.structs.replace(problem, classes=tuple(classes), pairs=pairs)


@functools.cache
def by_placement(name: str, policy: Callable[..., Policy]) -> Callable[..., Policy]:
    """The policy's variant, of this name, that is asked about types held in the faster way."""
    made_of: Any = policy

    def solve(self: Policy, problem: Problem) -> Allocation:
        return solve_by_placement(functools.partial(made_of.solve, self), problem)

    base = name.removesuffix(":placement")
    doc = f"``{base}``, gangs consolidated on few servers or not, as is faster on the type (§3.1)."
    members = {"__doc__": doc, "needs_placement": True, "solve": solve}
    variant: Any = type(f"{made_of.__name__}Placement", (made_of,), members)
    return cast("Callable[..., Policy]", variant)


def solve_by_placement(solve: Callable[[Problem], Allocation], problem: Problem) -> Allocation:
    """What ``solve`` answers when each job holds each type in its faster way, by their names.

    Raises
    ------
    ProblemError, SolverError
        As ``solve`` does.
    """
    allocation = solve(fastest(problem))
    if not any(c.unconsolidated for c in problem.classes):
        return allocation
    return msgspec.structs.replace(allocation, rows=tuple(_named(problem, allocation.rows)))


def _ways(job_class: JobClass) -> Ways:
    spread = job_class.unconsolidated or job_class.throughputs
    return tuple(b > a for a, b in zip(job_class.throughputs, spread, strict=True))


def _pair_ways(problem: Problem) -> dict[tuple[int, int], Ways]:
    """Pairs of classes that share unconsolidated workers of some type, with all their ways."""
    faster = _fastest_alone(problem)
    found: dict[tuple[int, int], Ways] = {}
    for (c, d), spread in problem.pairs_unconsolidated.items():
        consolidated = problem.pairs.get((c, d))
        if consolidated is None or not problem.classes[c].unconsolidated:
            continue
        alone = faster[c], faster[d]
        found[c, d] = tuple(
            _worth(spread, alone, j) > _worth(consolidated, alone, j)
            for j in range(len(problem.worker_types))
        )
    return found


def _fastest_alone(problem: Problem) -> list[tuple[float, ...]]:
    """(classes, worker types) steps/s of a job alone in its faster way."""
    return [
        tuple(map(max, c.throughputs, c.unconsolidated or c.throughputs)) for c in problem.classes
    ]


def _worth(
    speeds: tuple[tuple[float, ...], tuple[float, ...]],
    alone: tuple[tuple[float, ...], tuple[float, ...]],
    worker_type: int,
) -> float:
    """What both make, as fractions of what each makes alone; 0 unless both run."""
    both = [(s[worker_type], a[worker_type]) for s, a in zip(speeds, alone, strict=True)]
    if not all(s > 0 and a > 0 for s, a in both):
        return 0.0
    return sum(s / a for s, a in both)


def _chosen(
    ways: Ways, consolidated: tuple[float, ...], spread: tuple[float, ...]
) -> tuple[float, ...]:
    return tuple(b if way else a for way, a, b in zip(ways, consolidated, spread, strict=True))


def _named(problem: Problem, rows: tuple[AllocationRow, ...]) -> Iterator[AllocationRow]:
    """The rows, each cut into those whose jobs hold its types in the same ways."""
    place = {job_id: c for c, each in enumerate(problem.classes) for job_id in each.job_ids}
    of_pairs = _pair_ways(problem)
    of_classes = [_ways(job_class) for job_class in problem.classes]
    none = (False,) * len(problem.worker_types)
    for row in rows:
        groups: dict[Ways, list[Combination]] = {}
        for combination in row.combinations:
            c, d = place[combination[0]], place[combination[-1]]
            ways = of_classes[c]
            if len(combination) > 1:
                ways = of_pairs.get((min(c, d), max(c, d)), none)
            groups.setdefault(ways, []).append(combination)
        for ways, combinations in groups.items():
            spread = {t for t, way in zip(problem.worker_types, ways, strict=True) if way}
            shares = {t + UNCONSOLIDATED * (t in spread): x for t, x in row.shares.items()}
            yield AllocationRow(tuple(combinations), shares)

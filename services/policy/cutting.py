"""Classes cut into parts, where jobs that are alike in most things are not in one that counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from services.policy.problem import JobClass, PairSpeeds, Problem

#: What a class says of each of its jobs.
_PER_JOB = (
    "arrival_ranks",
    "steps_remaining",
    "elapsed_s",
    "isolated_s",
    "held_s",
    "slo_remaining_s",
    "factors",
)


class Part(NamedTuple):
    """Some jobs of a class.

    Attributes
    ----------
    places : their positions in the class
    weight : their priority weight; None leaves the class's
    speed : how many times as fast they are as the class says, alone and beside others
    """

    places: tuple[int, ...]
    weight: float | None = None
    speed: float = 1.0


def cut(problem: Problem, parts: Mapping[int, Sequence[Part]]) -> Problem:
    """The problem with a class for each part, in place of the classes of these indices."""
    classes: list[JobClass] = []
    #: (classes of the problem,) index and speed of each of its parts.
    made: list[list[tuple[int, float]]] = []
    for index, job_class in enumerate(problem.classes):
        of_class = parts.get(index)
        if of_class is None:
            made.append([(len(classes), 1.0)])
            classes.append(job_class)
            continue
        made.append([(len(classes) + n, part.speed) for n, part in enumerate(of_class)])
        classes += [_part(job_class, part) for part in of_class]
    pairs: PairSpeeds = {}
    for (c, d), (one, two) in problem.pairs.items():
        for (a, speed), (b, other_speed) in product(made[c], made[d]):
            both = _times(one, speed), _times(two, other_speed)
            pairs[min(a, b), max(a, b)] = both if a <= b else (both[1], both[0])
    return msgspec.structs.replace(problem, classes=tuple(classes), pairs=pairs)


def _part(job_class: JobClass, part: Part) -> JobClass:
    fields = [name for name in _PER_JOB if getattr(job_class, name)]
    return msgspec.structs.replace(
        job_class,
        job_ids=tuple(job_class.job_ids[n] for n in part.places),
        priority_weight=job_class.priority_weight if part.weight is None else part.weight,
        throughputs=_times(job_class.throughputs, part.speed),
        unconsolidated=_times(job_class.unconsolidated, part.speed),
        **{name: tuple(getattr(job_class, name)[n] for n in part.places) for name in fields},
    )


def _times(rates: tuple[float, ...], speed: float) -> tuple[float, ...]:
    return rates if speed == 1 else tuple(rate * speed for rate in rates)

"""Space sharing: which classes may share workers, how fast each then is, and at what cost.

A *column* is one way for a class to spend time on a worker type: alone, beside another class, or
beside another job of its own. Two jobs can share only workers that both hold whole, so their scale
factors are equal; and a pair whose speeds, each as a fraction of the job's speed alone, add up to
no more than 1 is left out: taking turns on the same workers gives both at least as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from services.policy.classes import ClassArrays, gather
from services.policy.problem import Problem
from services.policy.solver import Floats, Ints

#: What the speeds of a pair must add up to, relative to alone, to be worth anything.
WORTH_SHARING = 1 + 1e-9

#: Makes of two numbers in [0, 1) a third that looks like neither.
_MIXING = 997.0 * 2**0.5


@dataclass(frozen=True, slots=True)
class Columns:
    """Ways for classes to spend time on worker types; those alone come first.

    The unit of a column is the most that it could ever be used: all jobs of the class, or of the
    smaller of two classes, on the type all the time.

    Attributes
    ----------
    first, second : (columns,)
        Rows of the classes, first < second; second is -1 where there is no other class.
    with_itself : (columns,)
        Whether two jobs of the first class share.
    types : (columns,)
        Worker type.
    speeds : (2, columns)
        Steps/s of a job of the first and of the second class; 0 where there is no other.
    amounts : (columns,)
        Leases held all the time by one unit of the column.
    times : (2, columns)
        Fraction of its time that each job of the first and of the second class then spends.
    workers : (columns,)
        Workers that one unit holds.
    """

    first: Ints
    second: Ints
    with_itself: NDArray[np.bool_]
    types: Ints
    speeds: Floats
    amounts: Floats
    times: Floats
    workers: Floats

    def __len__(self) -> int:
        """Columns."""
        return len(self.first)

    def top_speeds(self, classes: int) -> Floats:
        """(classes,) steps/s of a job that always runs in its fastest way."""
        top = np.zeros(classes + 1)
        np.maximum.at(top, self.first, self.speeds[0])
        np.maximum.at(top, self.second, self.speeds[1])
        fastest: Floats = top[:-1]
        return fastest

    def tie_breakers(self, arrays: ClassArrays) -> Floats:
        """(columns,) a number in [0, 1) that is each column's own, from what its classes are."""
        own = np.vstack([arrays.tie_breakers(), np.zeros(len(arrays.num_workers))])
        here, there = own[self.first, self.types], own[self.second, self.types]
        mixed: Floats = (here + there + _MIXING * (here * there + self.with_itself)) % 1.0
        return mixed


def gather_with_pairs(problem: Problem) -> tuple[ClassArrays, Columns, dict[str, str]]:
    """``classes.gather``, for classes alike beside all others too, and their columns.

    Raises
    ------
    ProblemError
        A throughput, weight, scale factor or worker count is no sensible number.
    """
    pairs = np.array(list(problem.pairs), dtype=np.int64).reshape(-1, 2)
    shape = (len(pairs), 2, len(problem.worker_types))
    numbers = chain.from_iterable(chain.from_iterable(problem.pairs.values()))
    speeds = np.fromiter(numbers, dtype=float).reshape(shape)
    speeds = np.where(np.isfinite(speeds) & (speeds > 0).all(axis=1, keepdims=True), speeds, 0.0)
    running = speeds.any(axis=(1, 2))
    pairs, speeds = pairs[running], speeds[running]
    arrays, set_aside = gather(problem, _kinds(problem, pairs, speeds))
    return arrays, _columns(arrays, arrays.merged_into[pairs], speeds), set_aside


def _kinds(problem: Problem, pairs: Ints, speeds: Floats) -> Floats:
    """(classes,) equal numbers for classes alike beside all others, whatever the others' order."""
    kinds = np.zeros(len(problem.classes))
    sharing, at = np.unique(pairs, return_inverse=True)
    if len(sharing):
        looks = [
            (*c.throughputs, c.scale_factor, c.priority_weight)
            for c in (problem.classes[index] for index in sharing)
        ]
        place = np.argsort(sorted(range(len(looks)), key=looks.__getitem__), kind="stable")
        c, d = place[at.reshape(-1, 2)].T
        #: (classes, classes, (worker types, self and other)) speeds together, both ways.
        seen = np.zeros((len(looks), len(looks), 2 * speeds.shape[2]))
        seen[c, d] = speeds.reshape(len(speeds), -1)
        seen[d, c] = speeds[:, ::-1].reshape(len(speeds), -1)
        # Big-endian numbers >= 0 sort as their bytes do.
        rows = [row.tobytes() for row in seen.astype(">f8")]
        ranks = {row: rank for rank, row in enumerate(sorted(set(rows)))}
        kinds[sharing] = 1 + np.array([ranks[row] for row in rows])[place]
    return kinds


def _columns(arrays: ClassArrays, pairs: Ints, speeds: Floats) -> Columns:
    """Columns of the classes alone, then those of ``pairs``, (pairs, 2), of their rows."""
    alone, alone_types = np.nonzero(arrays.usable)
    backwards = pairs[:, 0] > pairs[:, 1]
    pairs = np.where(backwards[:, None], pairs[:, ::-1], pairs)
    speeds = np.where(backwards[:, None, None], speeds[:, ::-1], speeds)
    numbers = np.where((pairs >= 0).all(axis=1), pairs @ [len(arrays.counts), 1], -1)
    known, once = np.unique(numbers, return_index=True)
    once = once[known >= 0]
    pairs, speeds = pairs[once], speeds[once]
    c, d = pairs.T
    possible = (arrays.scale_factors[c] == arrays.scale_factors[d]) & (
        (c != d) | (arrays.counts[c] >= 2)
    )
    usable = arrays.usable[c] & arrays.usable[d] & (speeds > 0).all(axis=1)
    # Who seems faster beside another than alone was measured on a better day.
    alone_speeds = arrays.throughputs[pairs]
    speeds = np.minimum(speeds, alone_speeds)
    relative = np.divide(speeds, alone_speeds, out=np.zeros(speeds.shape), where=usable[:, None])
    index, pair_types = np.nonzero(possible[:, None] & (relative.sum(axis=1) > WORTH_SHARING))
    c, d = c[index], d[index]

    first, other = np.append(alone, c), np.append(np.full(len(alone), -1), d)
    with_itself = first == other
    second = np.where(with_itself, -1, other)
    jobs, other_jobs = arrays.counts[first], np.append(arrays.counts, np.inf)[second]
    amounts = np.where(with_itself, jobs / 2, np.minimum(jobs, other_jobs))
    others_speeds = np.where(c == d, 0.0, speeds[index, 1, pair_types])
    return Columns(
        first=first,
        second=second,
        with_itself=with_itself,
        types=np.append(alone_types, pair_types),
        speeds=np.array(
            [
                np.append(arrays.throughputs[alone, alone_types], speeds[index, 0, pair_types]),
                np.append(np.zeros(len(alone)), others_speeds),
            ]
        ),
        amounts=amounts,
        times=np.array([np.where(with_itself, 1.0, amounts / jobs), amounts / other_jobs]),
        workers=amounts * arrays.scale_factors[first],
    )

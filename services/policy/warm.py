"""The max-min level of LAS kept up to date: an arrival or an end is one coefficient and one bound.

The model of classes stays in the solver, and each solve starts from the last basis. Any basis
that proves the level proves the same level, so a warm answer and a cold one differ by rounding
alone. That is enough for who asks what the level is, or would be with another job. It is not
enough for the log: shares at one level are many, prices at a corner are many, and even equal ones
differ in their last bits by the way that led to them. A service that restarts has lost its basis,
and must come to the same bytes. So ``las`` and ``las:ss`` solve afresh, a pure function of the
problem, and nothing on the log depends on this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.policy.problem import ProblemError
from services.policy.sharing.pairs import WORTH_SHARING
from services.policy.solver import INF, Floats, Ints, LinearProgram

#: Most columns that are taken in after one solve.
_AT_ONCE = 64


class LevelModel:
    """max t with s_c thr_c / (w_c Tbar_c) >= t for every class that has jobs (§4.1).

    Program columns: t; leases held all the time by a class, or by two that share (§3.1), on a
    type. Rows: types' workers; then for each class what its jobs get less t for each of them, and
    their time. Columns of pairs are many, and join when they would raise the level.

    Parameters
    ----------
    num_workers : (worker types,)
        Workers of each type. With others, Tbar is another in every class: make a new model.
    """

    def __init__(self, num_workers: Floats) -> None:
        self._workers = num_workers
        types = len(num_workers)
        self._jobs: list[int] = []
        self._scale_factors: list[int] = []
        self._alone: list[Floats] = []
        self._per_step: list[float] = []
        self._spare = _Columns.none()
        #: {class: (its self-sharing columns,) in the program}
        self._with_itself: dict[int, list[int]] = {}
        # In units of all workers together, so that what a worker is worth is about 1.
        self._program = LinearProgram(
            costs=np.array([-max(1.0, float(num_workers.sum()))]),
            col_lower=np.zeros(1),
            col_upper=np.full(1, INF),
            row_lower=np.full(types, -INF),
            row_upper=num_workers,
            entries=(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)),
        )
        self._columns = 1
        self._solved: float | None = None

    def add_class(
        self,
        throughputs: Floats,
        scale_factor: int = 1,
        weight: float = 1.0,
        beside: Mapping[int, tuple[Floats, Floats]] = {},
    ) -> int:
        """Number of a new class, which has no jobs yet.

        Parameters
        ----------
        throughputs : (worker types,)
            Steps/s of one job; 0 where it cannot run.
        beside : {class: ((worker types,), (worker types,))}
            Steps/s of a job of this class and of that one where they share; the class's own
            number, which is how many there are, for two of its jobs.

        Raises
        ------
        ProblemError
            There is no type that has both a throughput and enough workers.
        """
        alone = np.where(scale_factor <= self._workers, throughputs, 0.0)
        if not (alone > 0).any():
            raise ProblemError(f"throughputs is {throughputs}, must be > 0 where the job fits")
        equal = float(alone @ self._workers / self._workers.sum())
        number = len(self._jobs)
        self._jobs.append(0)
        self._scale_factors.append(scale_factor)
        self._alone.append(alone)
        self._per_step.append(scale_factor / (weight * equal))
        nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        self._program.add_rows(np.array([0.0, -INF]), np.array([INF, 0.0]), nothing)
        (types,) = np.nonzero(alone)
        gains = np.array([alone[types], np.zeros(len(types))]) * self._per_step[number]
        self._take_in(_Columns.of(number, -1, types, gains, scale_factor))
        pairs = [self._pairs_of(number, other, np.array(s)) for other, s in beside.items()]
        self._spare = self._spare.joined(pairs)
        self._solved = None
        return number

    def change_jobs(self, number: int, by: int) -> None:
        """Jobs of a class arrive, or end."""
        before, now = self._jobs[number], self._jobs[number] + by
        if now < 0:
            raise ValueError(f"class {number} has {before} jobs; {-by} cannot end")
        self._jobs[number] = now
        needs = len(self._workers) + 2 * number
        self._program.set_entry(needs, 0, -float(now))
        self._program.set_row_upper(needs + 1, float(now))
        if (before < 2) != (now < 2):
            for column in self._with_itself.get(number, ()):
                self._program.set_col_bounds(column, 0.0, INF if now >= 2 else 0.0)
        self._solved = None

    def level(self) -> float:
        """The highest level that all jobs can have; infinite without jobs.

        Raises
        ------
        SolverError
            No solver found an answer.
        """
        if not any(self._jobs):
            return INF
        while self._solved is None:
            solution = self._program.solve()
            costs = self._spare.reduced_costs(solution.row_duals, len(self._workers))
            costs[np.array(self._jobs)[self._spare.first] < 1 + self._spare.with_itself] = 0.0
            best = np.argsort(costs, kind="stable")[:_AT_ONCE]
            best = best[costs[best] < -solution.accuracy]
            if not len(best):
                self._solved = float(solution.values[0])
            else:
                self._take_in(self._spare.at(best))
                self._spare = self._spare.at(np.setdiff1d(np.arange(len(costs)), best))
        return self._solved

    def _pairs_of(self, number: int, other: int, speeds: Floats) -> _Columns:
        """Columns in which the two classes share; ``speeds`` (2, worker types)."""
        alone = np.array([self._alone[number], self._alone[other]])
        if self._scale_factors[number] != self._scale_factors[other]:
            return _Columns.none()
        together = np.minimum(speeds, alone)
        kept = np.divide(together, alone, out=np.zeros(alone.shape), where=alone > 0)
        (types,) = np.nonzero((together > 0).all(axis=0) & (kept.sum(axis=0) > WORTH_SHARING))
        per_step = np.array([[self._per_step[number]], [self._per_step[other]]])
        return _Columns.of(
            number, other, types, (together * per_step)[:, types], self._scale_factors[number]
        )

    def _take_in(self, columns: _Columns) -> None:
        self._program.add_columns(np.zeros(len(columns.first)), columns.entries(len(self._workers)))
        for at in np.flatnonzero(columns.with_itself).tolist():
            number, column = int(columns.first[at]), self._columns + at
            self._with_itself.setdefault(number, []).append(column)
            if self._jobs[number] < 2:
                self._program.set_col_bounds(column, 0.0, 0.0)
        self._columns += len(columns.first)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Ways to hold leases of a type, of one class or two.

    Attributes
    ----------
    first, second : (columns,)
        The classes; the second is -1 of one that is alone, or shares with itself.
    types : (columns,)
    gains, times : (2, columns)
        What a lease held all the time adds to the levels of the jobs of each, summed over them,
        and takes of their time.
    workers : (columns,)
        What it holds.
    """

    first: Ints
    second: Ints
    types: Ints
    gains: Floats
    times: Floats
    workers: Floats

    @classmethod
    def none(cls) -> _Columns:
        return cls.of(0, -1, np.zeros(0, np.int64), np.zeros((2, 0)), 1)

    @classmethod
    def of(cls, first: int, other: int, types: Ints, gains: Floats, workers: int) -> _Columns:
        """The same classes on several types; ``gains`` (2, types)."""
        two = first == other
        times = np.array([1.0 + two, float(other >= 0 and not two)])
        if two:
            gains = np.array([gains.sum(axis=0), np.zeros(len(types))])
        return cls(
            np.full(len(types), first),
            np.full(len(types), -1 if two else other),
            types,
            gains,
            np.repeat(times[:, None], len(types), axis=1),
            np.full(len(types), float(workers)),
        )

    @property
    def with_itself(self) -> NDArray[np.bool_]:
        """(columns,) whether two jobs of the first class share."""
        shares: NDArray[np.bool_] = self.times[0] > 1
        return shares

    def at(self, index: Ints) -> _Columns:
        """These columns only."""
        return _Columns(
            self.first[index],
            self.second[index],
            self.types[index],
            self.gains[:, index],
            self.times[:, index],
            self.workers[index],
        )

    def joined(self, others: Sequence[_Columns]) -> _Columns:
        """All of them."""
        every = (self, *others)
        return _Columns(
            np.concatenate([each.first for each in every]),
            np.concatenate([each.second for each in every]),
            np.concatenate([each.types for each in every]),
            np.concatenate([each.gains for each in every], axis=1),
            np.concatenate([each.times for each in every], axis=1),
            np.concatenate([each.workers for each in every]),
        )

    def entries(self, num_types: int) -> tuple[Ints, Ints, Floats]:
        """Rows, columns from 0, and values, as ``LinearProgram.add_columns`` takes them."""
        every = np.arange(len(self.first))
        two = np.flatnonzero(self.second >= 0)
        needs, others = num_types + 2 * self.first, num_types + 2 * self.second[two]
        return (
            np.concatenate([self.types, needs, needs + 1, others, others + 1]),
            np.concatenate([every, every, every, two, two]),
            np.concatenate(
                [self.workers, self.gains[0], self.times[0], self.gains[1, two], self.times[1, two]]
            ),
        )

    def reduced_costs(self, duals: Floats, num_types: int) -> Floats:
        """(columns,) what a unit would add to the cost; ``duals`` of all rows of the program."""
        of_classes = np.append(duals[num_types:], [0.0, 0.0]).reshape(-1, 2)
        needs, time = of_classes[:, 0], of_classes[:, 1]
        saved = duals[self.types] * self.workers
        for owner, gains, times in zip(
            (self.first, self.second), self.gains, self.times, strict=True
        ):
            saved = saved + needs[owner] * gains + time[owner] * times
        return -saved

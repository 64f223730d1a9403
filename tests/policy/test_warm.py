"""A level kept up to date is the level solved afresh, however long the history."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.policy.catalog import resolve
from services.policy.problem import Problem, ProblemError
from services.policy.solver import INF
from services.policy.warm import LevelModel
from tests.policy.problems import problems
from tests.policy.sharing import shared_problems

_EVENTS = 500


class _Cluster:
    """Jobs that come and go, as a problem and as a model that is edited."""

    def __init__(self, asked: Problem) -> None:
        self._asked = asked
        self._model = LevelModel(np.array(asked.num_workers, dtype=float))
        self.jobs = [0] * len(asked.classes)
        self._numbers: dict[int, int] = {}

    def change(self, index: int, by: int) -> None:
        """Jobs of a class of the problem arrive or end; the class is made with its first job."""
        if index not in self._numbers:
            asked = self._asked.classes[index]
            self._numbers[index] = len(self._numbers)
            beside = {}
            for other, number in self._numbers.items():
                pair = (min(index, other), max(index, other))
                if pair in self._asked.pairs:
                    one, two = self._asked.pairs[pair]
                    mine, yours = (one, two) if index <= other else (two, one)
                    beside[number] = np.array(mine), np.array(yours)
            self._model.add_class(
                np.array(asked.throughputs), asked.scale_factor, asked.priority_weight, beside
            )
        self._model.change_jobs(self._numbers[index], by)
        self.jobs[index] += by

    @property
    def warm(self) -> float:
        """The level of the model."""
        return self._model.level()

    def cold(self, policy: str) -> float | None:
        """The level of a policy that has never seen the cluster."""
        classes = tuple(
            msgspec.structs.replace(
                c, job_ids=tuple(f"{index}-{n}" for n in range(jobs)), arrival_ranks=()
            )
            for index, (c, jobs) in enumerate(zip(self._asked.classes, self.jobs, strict=True))
        )
        return (
            resolve(policy).solve(msgspec.structs.replace(self._asked, classes=classes)).objective
        )


def _runnable(asked: Problem) -> Problem:
    """The problem's classes that fit somewhere, with their pairs."""
    kept = [
        index
        for index, c in enumerate(asked.classes)
        if any(
            t > 0 and c.scale_factor <= n
            for t, n in zip(c.throughputs, asked.num_workers, strict=True)
        )
    ]
    place = {index: n for n, index in enumerate(kept)}
    pairs = {
        (place[c], place[d]): speeds
        for (c, d), speeds in asked.pairs.items()
        if c in place and d in place
    }
    classes = tuple(asked.classes[index] for index in kept)
    return msgspec.structs.replace(asked, classes=classes, pairs=pairs)


def _check(policy: str, asked: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = _Cluster(asked)
    for _ in range(_EVENTS):
        index = int(rng.integers(len(cluster.jobs)))
        ends = cluster.jobs[index] > 0 and rng.random() < 0.5
        cluster.change(index, -1 if ends else 1)
        if any(cluster.jobs):
            assert cluster.warm == pytest.approx(cluster.cold(policy), rel=1e-9)


_SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=6, deadline=None)
@given(problems().map(_runnable).filter(lambda p: p.classes), _SEEDS)
def test_500_events_later_the_level_is_that_of_a_cold_solve(asked: Problem, seed: int) -> None:
    """One after another: 500 random arrivals and ends, each level held to ``las``'s."""
    _check("las", asked, seed)


@settings(max_examples=3, deadline=None)
@given(shared_problems(max_classes=4).map(_runnable).filter(lambda p: p.classes), _SEEDS)
def test_the_same_where_jobs_share_workers(asked: Problem, seed: int) -> None:
    """Pairs join the program, and those within a class need two jobs of it."""
    _check("las:ss", asked, seed)


def test_nobody_is_at_any_level() -> None:
    """Before the first arrival and after the last end, nothing bounds the level."""
    model = LevelModel(np.array([2.0, 0.0]))
    number = model.add_class(np.array([3.0, 9.0]))
    assert model.level() == INF
    model.change_jobs(number, 4)
    assert model.level() == pytest.approx(0.5)
    model.change_jobs(number, -4)
    assert model.level() == INF


def test_what_cannot_be_is_refused() -> None:
    """A class that runs nowhere, and the end of a job that is not there."""
    model = LevelModel(np.array([2.0]))
    with pytest.raises(ProblemError, match="where the job fits"):
        model.add_class(np.array([3.0]), scale_factor=4)
    number = model.add_class(np.array([3.0]))
    with pytest.raises(ValueError, match="class 0 has 0 jobs; 1 cannot end"):
        model.change_jobs(number, -1)

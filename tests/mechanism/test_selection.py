"""Algorithm 1: the laws of greedy choice, for any claims, keys and capacities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.domain import Combination
from services.mechanism.claims import Claims, Floats
from services.mechanism.selection import Choice, select

TYPES = ("k80", "p100", "v100")


class Case(NamedTuple):
    """What a round is chosen from."""

    claims: Claims
    capacity: list[int]
    keys: tuple[Floats, ...]
    type_order: list[int] | None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to eight combinations, pairs among them, that share up to three types."""
    num_types = draw(st.integers(1, 3))
    jobs = [f"j{i}" for i in range(draw(st.integers(1, 5)))]
    singles: list[Combination] = [(job,) for job in jobs]
    pairs: list[Combination] = [(a, b) for a in jobs for b in jobs if a < b]
    combinations = singles + draw(
        st.lists(st.sampled_from(pairs), unique=True, max_size=3) if pairs else st.just([])
    )
    cells = st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=num_types, max_size=num_types)
    flags = st.lists(st.booleans(), min_size=num_types, max_size=num_types)
    claims = Claims.build(
        TYPES[:num_types],
        combinations,
        np.array([draw(cells) for _ in combinations]),
        np.array([draw(flags) for _ in combinations]),
        np.array([draw(st.integers(1, 3)) for _ in combinations]),
        np.array([min(jobs.index(job) for job in c) for c in combinations]),
    )
    ranks = st.lists(
        st.integers(0, 2),
        min_size=len(combinations) * num_types,
        max_size=len(combinations) * num_types,
    )
    keys = tuple(
        np.array(draw(ranks), dtype=float).reshape(claims.share.shape)
        for _ in range(draw(st.integers(1, 2)))
    )
    return Case(
        claims,
        draw(st.lists(st.integers(0, 4), min_size=num_types, max_size=num_types)),
        keys,
        draw(st.none() | st.permutations(range(num_types))),
    )


def choices(case: Case, fill: str) -> list[Choice]:
    """What is chosen."""
    return select(case.claims, case.capacity, case.keys, type_order=case.type_order, fill=fill)


def order(case: Case, pair: Choice, fill: str) -> tuple[float, ...]:
    """What a pair is served by, least first."""
    row, column = pair
    filler = float(case.claims.share[pair] == 0)
    place = case.type_order.index(column) if case.type_order is not None else 0
    keys = [-float(key[pair]) for key in case.keys]
    behind = [filler, place] if fill == "last" else [place, filler]
    return (*behind, *keys, float(case.claims.arrival[row]), column, row)


@given(case=cases(), fill=st.sampled_from(["last", "in_order", "none"]))
def test_no_worker_and_no_job_is_given_twice(case: Case, fill: str) -> None:
    """Per type no more workers than are free; every job at most once; only where it can run."""
    claims = case.claims
    chosen = choices(case, fill)
    for column, free in enumerate(case.capacity):
        assert sum(int(claims.scale_factor[row]) for row, c in chosen if c == column) <= free
    running = [job for row, _ in chosen for job in claims.combinations[row]]
    assert len(running) == len(set(running))
    assert all(claims.runnable[pair] for pair in chosen)


@given(case=cases(), fill=st.sampled_from(["last", "in_order", "none"]))
def test_nothing_is_passed_over_that_could_have_run(case: Case, fill: str) -> None:
    """A pair is left out only if better ones took its workers or one of its jobs."""
    claims = case.claims
    chosen = choices(case, fill)
    eligible = claims.runnable & ((claims.share > 0) | (fill != "none"))
    for row, column in zip(*map(np.ndarray.tolist, np.nonzero(eligible)), strict=True):
        if (row, column) in chosen:
            continue
        turn = order(case, (row, column), fill)
        better = [pair for pair in chosen if order(case, pair, fill) < turn]
        taken = {job for r, _ in better for job in claims.combinations[r]}
        used = sum(int(claims.scale_factor[r]) for r, c in better if c == column)
        full = used + int(claims.scale_factor[row]) > case.capacity[column]
        assert full or taken & set(claims.combinations[row])


@given(case=cases(), fill=st.sampled_from(["last", "in_order", "none"]))
def test_choices_come_in_the_order_they_were_made(case: Case, fill: str) -> None:
    """Best first: by entitlement, visit, keys, arrival and type, in that order."""
    chosen = choices(case, fill)
    assert chosen == sorted(chosen, key=lambda pair: order(case, pair, fill))


@given(case=cases())
def test_without_filling_only_the_entitled_run(case: Case) -> None:
    """``none``: who has X = 0 on a type does not run there, however idle it is."""
    assert all(case.claims.share[pair] > 0 for pair in choices(case, "none"))


def example(shares: dict[str, list[float]], **scale_factors: int) -> Claims:
    """Claims of single jobs, in order of arrival, that can run everywhere."""
    return Claims.build(
        TYPES[: len(next(iter(shares.values())))],
        [(job,) for job in shares],
        np.array(list(shares.values())),
        np.ones((len(shares), len(next(iter(shares.values())))), dtype=bool),
        np.array([scale_factors.get(job, 1) for job in shares]),
        np.arange(len(shares)),
    )


@pytest.mark.parametrize(
    ("type_order", "chosen"),
    [(None, [(0, 0), (1, 1)]), ([0, 1], [(0, 0), (1, 1)]), ([1, 0], [(0, 1), (1, 0)])],
)
def test_types_are_visited_in_their_order(
    type_order: list[int] | None, chosen: list[Choice]
) -> None:
    """The better job takes the type that is visited first; in one list, its own best."""
    claims = example({"a": [0.5, 0.5], "b": [0.5, 0.5]})
    keys = (np.array([[9.0, 8.0], [2.0, 1.0]]),)
    assert select(claims, [1, 1], keys, type_order=type_order, fill="last") == chosen


@pytest.mark.parametrize(
    ("fill", "chosen"),
    [("last", [(1, 1)]), ("in_order", [(0, 0)]), ("none", [(1, 1)])],
)
def test_fillers_wait_for_all_entitled_or_for_those_of_the_type(
    fill: str, chosen: list[Choice]
) -> None:
    """``last`` puts X = 0 behind the entitled of every type, ``in_order`` of its own type only.

    Two jobs that share worker time; k80 is visited first, and nobody has X there.
    """
    claims = Claims.build(
        ("k80", "v100"),
        [("a",), ("a", "b")],
        np.array([[0.0, 0.0], [0.0, 1.0]]),
        np.array([[True, False], [False, True]]),
        np.array([1, 1]),
        np.array([0, 0]),
    )
    keys = (np.zeros((2, 2)),)
    assert select(claims, [1, 1], keys, type_order=[0, 1], fill=fill) == chosen


def test_a_gang_that_does_not_fit_lets_smaller_ones_by() -> None:
    """Greed goes on down the list: two small jobs use what the gang of four cannot."""
    claims = example({"gang": [1.0], "a": [0.5], "b": [0.5]}, gang=4)
    keys = (np.array([[3.0], [2.0], [1.0]]),)
    assert select(claims, [3], keys, type_order=None, fill="last") == [(1, 0), (2, 0)]


def test_a_filler_never_goes_before_the_entitled_of_its_type() -> None:
    """``in_order`` is by entitlement first, even where a key ranks the filler higher."""
    claims = example({"filler": [0.0], "owed": [0.5]})
    keys = (np.array([[5.0], [-3.0]]),)
    assert select(claims, [1], keys, type_order=[0], fill="in_order") == [(1, 0)]

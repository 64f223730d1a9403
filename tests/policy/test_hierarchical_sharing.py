"""Hierarchical fairness with space sharing: right, whatever the tree and the order of input."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.policy.hierarchical import Hierarchical
from services.policy.problem import Problem
from services.policy.reference import sharing as reference_sharing
from services.policy.sharing.hierarchical import HierarchicalSharing
from services.policy.sharing.las import LasSharing
from services.policy.solver import Floats
from tests.policy.problems import problems
from tests.policy.sharing import (
    levels,
    lost_steps_per_s,
    one_by_one,
    shared_problems,
    shares,
    throughputs,
    violation,
)
from tests.policy.test_hierarchical import trees


def normalised(
    asked: Problem, allocation_shares: dict[tuple[str, ...], Floats]
) -> dict[str, float]:
    """{job id: thr_i / Tbar_i} of the jobs that can run somewhere."""
    gained = throughputs(asked, allocation_shares)
    return {job_id: gained[job_id] / equal for job_id, equal in equals(asked).items()}


def equals(asked: Problem) -> dict[str, float]:
    """{job id: Tbar_i} of the jobs that can run somewhere."""
    workers = np.array(asked.num_workers, dtype=float)
    found: dict[str, float] = {}
    for c in asked.classes:
        speeds = np.where(c.scale_factor <= workers, c.throughputs, 0.0)
        if speeds.any():
            found |= dict.fromkeys(c.job_ids, float(speeds @ workers / workers.sum()))
    return found


@settings(max_examples=60)
@given(st.data())
def test_agrees_with_the_readable_program(data: st.DataObject) -> None:
    """Every job's level is that of water filling job by job, in trees of any shape."""
    asked = data.draw(shared_problems(max_classes=4).flatmap(trees))
    allocation = HierarchicalSharing().solve(asked)
    given_shares = shares(asked, allocation)
    assert violation(asked, given_shares) <= 1e-9
    expected = reference_sharing.hierarchical(one_by_one(asked))
    found = normalised(asked, given_shares)
    assert found.keys() == expected.keys()
    equal = equals(asked)
    for job_id, level in expected.items():
        lost = lost_steps_per_s(asked, job_id) / equal[job_id]
        assert found[job_id] == pytest.approx(level, rel=1e-5, abs=lost + 1e-7)


@settings(max_examples=40)
@given(shared_problems(max_classes=5))
def test_without_entities_it_is_las_with_sharing(asked: Problem) -> None:
    """Every job has the level that ``las:ss`` gives it."""
    ranked = with_ranks(asked)
    flat = levels(ranked, shares(ranked, LasSharing().solve(ranked)))
    tree = levels(ranked, shares(ranked, HierarchicalSharing().solve(ranked)))
    for job_id, level in flat.items():
        assert tree[job_id] == pytest.approx(level, rel=1e-5, abs=1e-6 * max(flat.values()))


@settings(max_examples=40)
@given(st.data())
def test_without_pairs_it_is_hierarchical(data: st.DataObject) -> None:
    """The lowest entity has what it has without sharing."""
    asked = data.draw(problems(max_classes=5).flatmap(trees))
    plain, sharing = Hierarchical().solve(asked), HierarchicalSharing().solve(asked)
    assert sharing.set_aside == plain.set_aside
    if plain.objective is not None:
        assert sharing.objective == pytest.approx(plain.objective, rel=1e-6)


@settings(max_examples=30)
@given(data=st.data(), seed=st.randoms(use_true_random=False))
def test_order_of_the_input_changes_nobodys_share(data: st.DataObject, seed: Random) -> None:
    """Classes in another order give every combination the same; so does asking again."""
    asked = data.draw(shared_problems(max_classes=4).flatmap(trees))
    before = HierarchicalSharing().solve(asked)
    assert HierarchicalSharing().solve(asked) == before
    order = list(range(len(asked.classes)))
    seed.shuffle(order)
    place = {index: n for n, index in enumerate(order)}
    pairs = {}
    for (c, d), (one, two) in asked.pairs.items():
        a, b = place[c], place[d]
        pairs[min(a, b), max(a, b)] = (one, two) if a <= b else (two, one)
    classes = tuple(asked.classes[index] for index in order)
    after = HierarchicalSharing().solve(
        msgspec.structs.replace(asked, classes=classes, pairs=pairs)
    )
    shares_before, shares_after = shares(asked, before), shares(asked, after)
    assert shares_before.keys() == shares_after.keys()
    for combination, share in shares_before.items():
        assert (share == shares_after[combination]).all()


def with_ranks(asked: Problem) -> Problem:
    """The problem with an order of arrival."""
    rank, classes = 0, []
    for c in asked.classes:
        ranks = tuple(range(rank, rank + len(c.job_ids)))
        classes.append(msgspec.structs.replace(c, arrival_ranks=ranks))
        rank += len(c.job_ids)
    return msgspec.structs.replace(asked, classes=tuple(classes))

"""Policies by name."""

from __future__ import annotations

import inspect

import pytest

from services.policy.catalog import POLICIES, UnknownPolicyError, resolve
from tests.policy.problems import job_class, problem


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_name_gives_a_documented_policy_that_allocates(name: str) -> None:
    """With its default parameters, one job alone on one worker gets all of it."""
    policy = resolve(name)
    assert inspect.getdoc(type(policy))
    allocation = policy.solve(problem((1,), job_class(2.0)))
    assert [row.shares for row in allocation.rows] == [{"k80": 1.0}]


@pytest.mark.parametrize(
    ("name", "hint"), [("laz", "'las'"), ("las:agnostc", "'las:agnostic'"), ("FIFO", "known are")]
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, hint: str) -> None:
    """The message says what was meant, or all that there is."""
    with pytest.raises(UnknownPolicyError, match=hint):
        resolve(name)


def test_an_unknown_parameter_is_refused() -> None:
    """A misspelt parameter is an error, not a default silently kept."""
    with pytest.raises(UnknownPolicyError, match="'las' has no parameter 'floor'"):
        resolve("las", {"floor": 0.5})

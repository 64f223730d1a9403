"""Policies by name."""

from __future__ import annotations

import inspect

import pytest

from services.policy.catalog import POLICIES, UnknownPolicyError, resolve
from services.policy.problem import PolicyError
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


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("cost", "floor", "nan"),
        ("cost", "floor", float("nan")),
        ("cost-slo:ss:placement", "floor", "half"),
        ("tiresias", "threshold_worker_s", float("inf")),
        ("tiresias", "threshold_worker_s", -1.0),
        ("max-throughput", "normalise", 3.0),
    ],
)
def test_a_value_that_a_parameter_does_not_take_is_refused(
    name: str, parameter: str, value: float | str
) -> None:
    """Where the policy is named, not in each of its solves."""
    with pytest.raises(PolicyError, match=f"parameter {parameter} is {value!r}, must be"):
        resolve(name, {parameter: value})


def test_an_unknown_parameter_is_refused() -> None:
    """A misspelt parameter is an error, not a default silently kept."""
    with pytest.raises(UnknownPolicyError, match="'las' has no parameter 'floor'"):
        resolve("las", {"floor": 0.5})

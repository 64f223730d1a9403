"""Shortest job first: order by what is left, then as FIFO."""

from __future__ import annotations

import msgspec
import pytest

from services.policy.catalog import resolve
from services.policy.problem import Problem, ProblemError
from tests.policy.problems import job_class, problem, shares


def placed(asked: Problem) -> dict[str, str]:
    """{job id: its worker type} of the jobs that run."""
    allocation = resolve("sjf").solve(asked)
    return {
        job_id: asked.worker_types[int(share.argmax())]
        for job_id, share in shares(asked, allocation).items()
        if share.any()
    }


def test_the_shortest_takes_its_fastest_type_whatever_came_first() -> None:
    """The order is by time at best speed, not by arrival and not by steps."""
    asked = problem(
        (1, 1),
        job_class(1.0, 2.0, ids="long short", steps=(4000.0, 100.0)),
        msgspec.structs.replace(
            job_class(10.0, 20.0, ids="many", steps=1500.0), arrival_ranks=(2,)
        ),
    )
    # 100 / 2 s, then 1500 / 20 s; 4000 / 2 s finds no room.
    assert placed(asked) == {"short": "p100", "many": "k80"}


def test_nobody_longer_takes_what_a_gang_waits_for() -> None:
    """A short gang of 4 finds 3 workers: they stay free for it."""
    shortest = job_class(1.0, ids="shortest", steps=1.0)
    gang = msgspec.structs.replace(
        job_class(1.0, ids="gang", scale_factor=4, steps=10.0), arrival_ranks=(1,)
    )
    long = msgspec.structs.replace(job_class(1.0, ids="long", steps=100.0), arrival_ranks=(2,))
    assert placed(problem((4,), shortest, gang, long)) == {"shortest": "k80"}


def test_equals_go_by_arrival() -> None:
    """Of two alike, the earlier runs."""
    assert placed(problem((1,), job_class(1.0, ids="first second"))) == {"first": "k80"}


def test_blind_it_orders_by_the_reference_type_and_favours_no_type() -> None:
    """Best on v100 first, although it would take longer on its own fastest; shares as workers."""
    asked = msgspec.structs.replace(
        problem(
            (2, 1, 1),
            job_class(9.0, 1.0, 1.0, ids="a b", steps=90.0),
            msgspec.structs.replace(
                job_class(1.0, 1.0, 4.0, ids="c d e", steps=80.0), arrival_ranks=(2, 3, 4)
            ),
        ),
        reference_type="v100",
    )
    given_shares = shares(asked, resolve("sjf:agnostic").solve(asked))
    assert all(given_shares[job_id].tolist() == [0.5, 0.25, 0.25] for job_id in "acde")
    assert not given_shares["b"].any()


def test_blind_a_gang_that_finds_no_room_closes_what_it_could_use() -> None:
    """2 of 3 p100s are taken; a gang of 2 keeps the last, and the k80s, which it cannot use, go."""
    asked = problem(
        (1, 3),
        job_class(0.0, 2.0, ids="a b", steps=1.0),
        msgspec.structs.replace(
            job_class(0.0, 1.0, ids="gang", scale_factor=2, steps=2.0), arrival_ranks=(2,)
        ),
        msgspec.structs.replace(job_class(1.0, 1.0, ids="last", steps=9.0), arrival_ranks=(3,)),
    )
    given_shares = shares(asked, resolve("sjf:agnostic").solve(asked))
    assert given_shares["a"].tolist() == given_shares["b"].tolist() == [0.0, 1.0]
    assert not given_shares["gang"].any()
    assert given_shares["last"].tolist() == [1.0, 0.0]


def test_without_ranks_equals_have_no_order() -> None:
    """A class that does not say when its jobs arrived is refused by name."""
    unranked = msgspec.structs.replace(job_class(1.0, ids="a b"), arrival_ranks=())
    with pytest.raises(ProblemError, match=r"class 0 \(a-b\): arrival_ranks has 0 values, .* 2 jo"):
        resolve("sjf").solve(problem((1,), unranked))

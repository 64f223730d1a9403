"""Which workers: kept if held, else on one server, else on as few as possible."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from services.mechanism.placement import Workers, place
from tests.mechanism.events import worker

Request = tuple[int, tuple[str, ...] | None]


class Case(NamedTuple):
    """What is to be placed, and where."""

    requests: list[Request]
    servers: dict[str, list[str]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Requests that fit, some of which hold workers already."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    servers = {f"s{i}": [f"s{i}-{j}" for j in range(size)] for i, size in enumerate(sizes)}
    everybody = [w for ids in servers.values() for w in ids]
    left: list[str] = draw(st.permutations(everybody))
    requests: list[Request] = []
    while draw(st.booleans()) and left:
        count = draw(st.integers(1, len(left)))
        held, left = tuple(left[:count]), left[count:]
        requests.append((count, held if draw(st.booleans()) else None))
    return Case(requests, servers)


@given(case=cases())
def test_everybody_gets_workers_of_their_own(case: Case) -> None:
    """Each request gets as many workers as it asks for, and no worker is given twice."""
    placed = place(case.requests, case.servers)
    assert [len(workers) for workers in placed] == [count for count, _ in case.requests]
    given_out = [w for workers in placed for w in workers]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= {w for ids in case.servers.values() for w in ids}


@given(case=cases())
def test_who_holds_workers_keeps_them(case: Case) -> None:
    """Held workers that are there stay with their holder, in their order."""
    placed = place(case.requests, case.servers)
    for (_, held), workers in zip(case.requests, placed, strict=True):
        if held is not None:
            assert workers == held


@given(case=cases())
def test_the_others_lie_on_as_few_servers_as_there_was_room_for(case: Case) -> None:
    """Big ones first: on the fullest server with room, else on the least number of servers."""
    placed = place(case.requests, case.servers)
    home = {w: server for server, ids in case.servers.items() for w in ids}
    free = {server: len(ids) for server, ids in case.servers.items()}
    for (_, held), workers in zip(case.requests, placed, strict=True):
        for w in workers if held is not None else ():
            free[home[w]] -= 1
    newcomers = [
        (count, workers)
        for (count, held), workers in zip(case.requests, placed, strict=True)
        if held is None
    ]
    for count, workers in sorted(newcomers, key=lambda newcomer: -newcomer[0]):
        used = {home[w] for w in workers}
        roomy = [room for room in free.values() if room >= count]
        most_first = sorted(free.values(), reverse=True)
        needed = next(k for k in range(1, len(free) + 1) if sum(most_first[:k]) >= count)
        assert len(used) == needed
        if roomy:
            assert free[used.pop()] == min(roomy)
        for w in workers:
            free[home[w]] -= 1


def test_a_worker_that_is_gone_is_not_kept() -> None:
    """Part of what it held is gone: it is placed anew, whole."""
    assert place([(2, ("a0", "gone"))], {"a": ["a0"], "b": ["b0", "b1"]}) == [("b0", "b1")]


def test_two_holders_of_one_worker_do_not_both_keep_it() -> None:
    """The second of two that claim to hold the same worker gets another."""
    assert place([(1, ("a0",)), (1, ("a0",))], {"a": ["a0", "a1"]}) == [("a0",), ("a1",)]


def test_only_workers_that_are_there_and_not_draining_are_given_out() -> None:
    """Missing and draining workers are no capacity; each comes back by its own way only."""
    books = Workers()
    for name in ("a", "b", "c"):
        books.register(worker(name))
    books.miss("a", "lost")
    books.drain("b")
    assert books.capacity(("v100",)) == [1]
    books.found("b")
    assert books.capacity(("v100",)) == [1]
    books.found("a")
    assert books.servers("v100") == {"s0": ["a", "c"]}
    assert books.counts == {"v100": 3}


def test_a_worker_that_registers_again_counts_once() -> None:
    """Its newest facts are those that hold, its type too."""
    books = Workers()
    books.register(worker("a", "k80"))
    books.register(worker("a", "v100"))
    assert books.capacity(("k80", "v100")) == [0, 1]
    assert books.types() == ("v100",)
    assert books.counts == {"k80": 0, "v100": 1}

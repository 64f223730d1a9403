"""Which gangs span more servers than need be."""

from __future__ import annotations

from schemas.domain import UNCONSOLIDATED, Lease
from schemas.events import WorkerRegistered
from schemas.servers import Servers


def worker(worker_id: str, server_id: str, *, profiles_only: bool = False) -> WorkerRegistered:
    """One v100."""
    return WorkerRegistered(
        worker_id=worker_id,
        worker_type="v100",
        server_id=server_id,
        reporter="worker.a",
        profiles_only=profiles_only,
    )


def lease(*worker_ids: str) -> Lease:
    """A lease of these workers."""
    return Lease(
        lease_id="l", tasks=(), worker_type="v100", worker_ids=worker_ids, reporters=("worker.a",)
    )


SPREAD = "v100" + UNCONSOLIDATED


def test_a_worker_that_moves_is_on_its_new_server_only() -> None:
    """Registered again elsewhere, it no longer makes its old server as large."""
    servers = Servers.of([worker("a", "s"), worker("b", "s"), worker("c", "t")])
    assert servers.way(lease("a", "c")) == SPREAD
    servers.add(worker("b", "u"))
    # Three servers of one worker each: no two workers are closer than these.
    assert servers.way(lease("a", "c")) == "v100"


def test_workers_for_profiles_make_no_room_for_gangs() -> None:
    """A server that is large only for them cannot hold a gang by itself."""
    profiling = worker("b", "s", profiles_only=True)
    servers = Servers.of([worker("a", "s"), profiling, worker("c", "t")])
    assert servers.way(lease("a", "c")) == "v100"


def test_workers_can_be_apart_only_where_there_are_servers_for_it() -> None:
    """On one server, or one to a server, there is no other way to lie."""
    one = Servers.of(worker(f"w{i}", "s") for i in range(4))
    each = Servers.of(worker(f"w{i}", f"s{i}") for i in range(4))
    two = Servers.of(worker(f"w{i}", f"s{i // 2}") for i in range(4))
    assert [s.can_be_apart("v100", 2) for s in (one, each, two)] == [False, False, True]
    assert not two.can_be_apart("v100", 4)
    assert not two.can_be_apart("k80", 2)


def test_workers_never_heard_of_say_nothing() -> None:
    """A log may be cut: a lease of unknown workers counts as of its type."""
    assert Servers().way(lease("a", "b")) == "v100"

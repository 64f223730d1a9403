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


def test_workers_never_heard_of_say_nothing() -> None:
    """A log may be cut: a lease of unknown workers counts as of its type."""
    assert Servers().way(lease("a", "b")) == "v100"

"""Which workers lie on which server: whether a gang spans more servers than need be (§3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.domain import UNCONSOLIDATED, Lease
from schemas.events import WorkerRegistered


def fewest(workers: int, sizes: Iterable[int]) -> int | None:
    """The least number of servers, of these sizes, that together have so many workers."""
    held = 0
    for count, size in enumerate(sorted(sizes, reverse=True), 1):
        held += size
        if held >= workers:
            return count
    return None


@dataclass(slots=True)
class Servers:
    """Workers by server, as they registered."""

    #: {worker id: its server}
    _server: dict[str, str] = field(default_factory=dict)
    #: {worker type: {server: ids of its workers that run jobs}}
    _workers: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, workers: Iterable[WorkerRegistered]) -> Servers:
        """The servers of these workers."""
        servers = cls()
        for worker in workers:
            servers.add(worker)
        return servers

    def add(self, worker: WorkerRegistered) -> None:
        """Put a worker on its server; one that was on another is there no more."""
        worker_id = worker.worker_id
        if worker_id in self._server:
            for servers in self._workers.values():
                servers.get(self._server[worker_id], set()).discard(worker_id)
        self._server[worker_id] = worker.server_id
        if not worker.profiles_only:
            servers = self._workers.setdefault(worker.worker_type, {})
            servers.setdefault(worker.server_id, set()).add(worker_id)

    def way(self, lease: Lease) -> str:
        """The worker type, and in which of the two ways the lease holds it.

        A gang is consolidated on as few servers as could hold it if all were free.
        """
        ids = lease.worker_ids
        if len(ids) == 1:
            return lease.worker_type
        spanned = {self._server[i] for i in ids if i in self._server}
        needed = fewest(len(ids), map(len, self._workers.get(lease.worker_type, {}).values()))
        spread = needed is not None and len(spanned) > needed
        return lease.worker_type + UNCONSOLIDATED * spread

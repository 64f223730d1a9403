"""Which workers lie on which server: whether a gang spans more servers than need be (§3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

    def is_consolidated(self, worker_type: str, worker_ids: Sequence[str]) -> bool:
        """Whether workers of a type are on as few servers as could hold them if all were free."""
        spanned = {self._server[i] for i in worker_ids if i in self._server}
        needed = fewest(len(worker_ids), map(len, self._workers.get(worker_type, {}).values()))
        return needed is None or len(spanned) <= needed

    def can_be_apart(self, worker_type: str, workers: int) -> bool:
        """Whether so many workers of the type can lie on more servers than need be."""
        sizes = [len(ids) for ids in self._workers.get(worker_type, {}).values() if ids]
        needed = fewest(workers, sizes)
        return needed is not None and min(workers, len(sizes)) > needed

    def way(self, lease: Lease) -> str:
        """The worker type, and in which of the two ways the lease holds it."""
        is_gang = len(lease.worker_ids) > 1
        if is_gang and not self.is_consolidated(lease.worker_type, lease.worker_ids):
            return lease.worker_type + UNCONSOLIDATED
        return lease.worker_type

"""Which workers lie on which server: whether a gang spans more servers than need be (§3.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.domain import UNCONSOLIDATED, Lease
from schemas.events import WorkerRegistered
from services.mechanism.consolidation import fewest


@dataclass(slots=True)
class Servers:
    """Workers by server."""

    #: {worker id: its server}
    _server: dict[str, str] = field(default_factory=dict)
    #: {worker type: {server: its workers that run jobs}}
    _sizes: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, workers: Iterable[WorkerRegistered]) -> Servers:
        """The servers of these workers."""
        servers = cls()
        for worker in workers:
            servers.add(worker)
        return servers

    def add(self, worker: WorkerRegistered) -> None:
        """Put one more worker on its server."""
        if worker.worker_id in self._server:
            return
        self._server[worker.worker_id] = worker.server_id
        if not worker.profiles_only:
            sizes = self._sizes.setdefault(worker.worker_type, {})
            sizes[worker.server_id] = sizes.get(worker.server_id, 0) + 1

    def way(self, lease: Lease) -> str:
        """The worker type, and in which of the two ways the lease holds it."""
        ids = lease.worker_ids
        if len(ids) == 1:
            return lease.worker_type
        spanned = len({self._server[worker_id] for worker_id in ids})
        needed = fewest(len(ids), [*self._sizes[lease.worker_type].values()])
        return lease.worker_type + UNCONSOLIDATED * (spanned != needed)

"""Which workers a chosen combination gets (§5): big jobs first, and as little moving as possible.

A combination keeps the workers it holds if it is to run on the same type again. The others are
placed in decreasing scale factor, on one server if one has room, else on as few as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.events import WorkerRegistered


@dataclass(slots=True)
class Workers:
    """The workers there are, and of these the ones that can be leased."""

    #: In order of registration, which is the order they are given out in.
    registered: dict[str, WorkerRegistered] = field(default_factory=dict)
    #: {worker type: workers registered to run jobs, whether or not they can be leased now}
    counts: dict[str, int] = field(default_factory=dict)
    #: {worker id that is not there: "unreachable since ..." or "lost"}
    missing: dict[str, str] = field(default_factory=dict)
    #: {worker id to be leased no more: whether it has been said that nothing holds it}
    draining: dict[str, bool] = field(default_factory=dict)
    #: Whether any worker has come to be of another type, or for profiles only: what leases say of
    #: it may be out of date.
    has_changed: bool = False
    #: {worker type: {server: [worker id]}} of those that can; None when out of date.
    _usable: dict[str, dict[str, list[str]]] | None = None
    _capacity: dict[str, int] = field(default_factory=dict)

    def register(self, worker: WorkerRegistered) -> None:
        """A worker is there, or its facts have changed."""
        before = self.registered.get(worker.worker_id)
        if before is not None and not before.profiles_only:
            self.counts[before.worker_type] -= 1
            stays = before.worker_type == worker.worker_type and not worker.profiles_only
            self.has_changed = self.has_changed or not stays
        self.registered[worker.worker_id] = worker
        if not worker.profiles_only:
            self.counts[worker.worker_type] = self.counts.get(worker.worker_type, 0) + 1
        self.draining.pop(worker.worker_id, None)
        self.found(worker.worker_id)

    def miss(self, worker_id: str, how: str) -> None:
        """It is not there."""
        self.missing[worker_id] = how
        self._usable = None

    def found(self, worker_id: str) -> None:
        """It is there again; if it was to be drained, it still is."""
        self.missing.pop(worker_id, None)
        self._usable = None

    def drain(self, worker_id: str) -> None:
        """Lease it no more."""
        self.draining.setdefault(worker_id, False)
        self._usable = None

    def leasable(self, worker_id: str) -> bool:
        """Whether it is there, and not to be emptied."""
        return worker_id not in self.missing and worker_id not in self.draining

    @property
    def all_usable(self) -> bool:
        """Whether whoever holds workers can be leased the same ones again."""
        return not (self.missing or self.draining or self.has_changed)

    def servers(self, worker_type: str) -> Mapping[str, Sequence[str]]:
        """Servers of the type, each with its workers that can be leased."""
        return self._by_type().get(worker_type, {})

    def types(self) -> tuple[str, ...]:
        """Worker types registered, by name; also those of which no worker can be leased now."""
        return tuple(sorted(t for t, count in self.counts.items() if count))

    def capacity(self, worker_types: Sequence[str]) -> list[int]:
        """(worker types,) workers that can be leased."""
        self._by_type()
        return [self._capacity.get(t, 0) for t in worker_types]

    def reporters(self, worker_ids: Sequence[str]) -> tuple[str, ...]:
        """The worker services that hold these workers, in the workers' order."""
        return tuple(dict.fromkeys(self.registered[w].reporter for w in worker_ids))

    def span(self, worker_ids: Sequence[str]) -> int:
        """Servers that the workers are on."""
        return len({self.registered[w].server_id for w in worker_ids})

    def _by_type(self) -> dict[str, dict[str, list[str]]]:
        if self._usable is None:
            self._usable = {}
            for worker in self.registered.values():
                if self.leasable(worker.worker_id) and not worker.profiles_only:
                    servers = self._usable.setdefault(worker.worker_type, {})
                    servers.setdefault(worker.server_id, []).append(worker.worker_id)
            self._capacity = {
                worker_type: sum(len(ids) for ids in servers.values())
                for worker_type, servers in self._usable.items()
            }
        return self._usable


def place(
    requests: Sequence[tuple[int, tuple[str, ...] | None]], servers: Mapping[str, Sequence[str]]
) -> list[tuple[str, ...]]:
    """Assign workers of one type.

    Parameters
    ----------
    requests : per chosen combination, its scale factor and the workers it holds (None: none);
        together they fit
    servers : {server: its workers} of the type, in order

    Returns
    -------
    Per request, its workers.
    """
    free = {server: list(workers) for server, workers in servers.items()}
    home = {worker: server for server, workers in servers.items() for worker in workers}
    placed: list[tuple[str, ...]] = [()] * len(requests)
    by_size = sorted(range(len(requests)), key=lambda i: -requests[i][0])
    for i in by_size:
        held = requests[i][1]
        if held is not None and all(w in home and w in free[home[w]] for w in held):
            for worker in held:
                free[home[worker]].remove(worker)
            placed[i] = held
    for i in by_size:
        if not placed[i]:
            placed[i] = _fewest_servers(requests[i][0], free)
    return placed


def _fewest_servers(workers: int, free: dict[str, list[str]]) -> tuple[str, ...]:
    """The fullest server with room for all; else the emptiest ones first, until it fits."""
    roomy = [server for server in free if len(free[server]) >= workers]
    if roomy:
        chosen = [min(roomy, key=lambda server: len(free[server]))]
    else:
        chosen = sorted(free, key=lambda server: -len(free[server]))
    taken: list[str] = []
    for server in chosen:
        take = free[server][: workers - len(taken)]
        del free[server][: len(take)]
        taken += take
        if len(taken) == workers:
            return tuple(taken)
    raise AssertionError("selection never chooses more workers than are free")

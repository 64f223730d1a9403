"""Server-level room: which gangs can be held consolidated together, and where.

A gang is consolidated when its workers span the fewest servers that could hold it if all were
free. Smaller jobs never stand in its way: whoever need not be consolidated is placed after all
gangs that must, and moves if it lies where one is to go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from schemas.servers import fewest
from services.mechanism.placement import place

#: (index of a server, workers taken of it), for each server that a gang is on.
Parts = tuple[tuple[int, int], ...]


class Room:
    """The room that gangs leave to gangs on the servers of one type, in one round."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        self._free = list(sizes)
        self._spans: dict[int, int | None] = {}
        #: Sizes of gangs for which there was no room; for the rest of the round there is none.
        self._refused: set[int] = set()
        #: Those taken: their size, and where each could lie.
        self.packed: list[tuple[int, Parts]] = []

    @property
    def refused(self) -> bool:
        """Whether any gang was turned away."""
        return bool(self._refused)

    def span(self, workers: int) -> int | None:
        """Servers that a consolidated gang of this size is on; None if it can never be held."""
        if workers not in self._spans:
            self._spans[workers] = fewest(workers, self._sizes)
        return self._spans[workers]

    def take(self, workers: int) -> bool:
        """Take a gang if it can be consolidated together with all taken before."""
        if workers in self._refused:
            return False
        parts = self._fit(workers, self._free)
        if parts is not None:
            self.packed.append((workers, parts))
            return True
        gangs = sorted((*(size for size, _ in self.packed), workers), reverse=True)
        free, packed = list(self._sizes), []
        for size in gangs:
            parts = self._fit(size, free)
            if parts is None:
                self._refused.add(workers)
                return False
            packed.append((size, parts))
        self._free, self.packed = free, packed
        return True

    def _fit(self, workers: int, free: list[int]) -> Parts | None:
        parts = fit(workers, free, self.span(workers))
        for server, taken in parts or ():
            free[server] -= taken
        return parts


def fit(
    workers: int,
    free: Sequence[int],
    span: int | None,
    disturbed: Callable[[int, int], int] = lambda _server, _taken: 0,
) -> Parts | None:
    """Where a gang fits on ``span`` servers: all but one whole, of the last what is needed.

    The last is the one where the fewest are ``disturbed`` (by so many workers taken on a server),
    then the fullest.
    """
    if span is None:
        return None
    order = sorted(range(len(free)), key=lambda i: -free[i]) if span > 1 else range(len(free))
    whole = order[: span - 1]
    left = workers - sum(free[i] for i in whole)
    roomy = [i for i in order[span - 1 :] if free[i] >= left]
    if not roomy:
        return None
    last = min(roomy, key=lambda i: (disturbed(i, left), free[i]))
    return (*((i, free[i]) for i in whole), (last, left))


class Request(NamedTuple):
    """A chosen combination to be placed."""

    workers: int
    #: The workers it holds, if it may keep them.
    held: tuple[str, ...] | None
    #: Whether it was priced as consolidated.
    consolidated: bool


def place_as_priced(
    requests: Sequence[Request], servers: Mapping[str, Sequence[str]], room: Room
) -> list[tuple[str, ...]]:
    """Assign workers of one type, to gangs that must be consolidated first (compare ``place``).

    ``room`` has taken exactly those gangs. They keep what they hold if that leaves room for the
    others; else all lie as the room has packed them.
    """
    gangs = [i for i, request in enumerate(requests) if request.consolidated]
    gangs.sort(key=lambda i: -requests[i].workers)
    placed = _around_the_held(requests, gangs, servers, room)
    if placed is None:
        placed = _as_packed(requests, gangs, servers, room)
    gone = {worker for ids in placed.values() for worker in ids}
    left = {name: [w for w in workers if w not in gone] for name, workers in servers.items()}
    others = [i for i in range(len(requests)) if i not in placed]
    rest = place([(requests[i].workers, requests[i].held) for i in others], left)
    placed |= dict(zip(others, rest, strict=True))
    return [placed[i] for i in range(len(requests))]


class _Free:
    """Free workers by server; of these, the ones that others hold are given out last."""

    def __init__(self, requests: Sequence[Request], servers: Mapping[str, Sequence[str]]) -> None:
        self.names = list(servers)
        self._workers = [list(workers) for workers in servers.values()]
        self._wanted = {w for r in requests if not r.consolidated for w in r.held or ()}

    def counts(self) -> list[int]:
        return [len(workers) for workers in self._workers]

    def disturbed(self, server: int, taken: int) -> int:
        workers = self._workers[server]
        return max(0, taken - sum(w not in self._wanted for w in workers))

    def keep(self, held: tuple[str, ...]) -> bool:
        """Take just these, if all are free."""
        there = [w for workers in self._workers for w in workers if w in held]
        if len(there) < len(held):
            return False
        self._workers = [[w for w in workers if w not in held] for workers in self._workers]
        return True

    def take(self, parts: Parts, own: tuple[str, ...] = ()) -> tuple[str, ...]:
        taken: list[str] = []
        for server, count in parts:
            workers = self._workers[server]
            workers.sort(key=lambda w: (w not in own, w in self._wanted))
            taken += workers[:count]
            del workers[:count]
        return own if set(own) == set(taken) else tuple(taken)


def _around_the_held(
    requests: Sequence[Request],
    gangs: Sequence[int],
    servers: Mapping[str, Sequence[str]],
    room: Room,
) -> dict[int, tuple[str, ...]] | None:
    """Gangs that hold workers keep them; None if the others then do not fit."""
    free = _Free(requests, servers)
    placed: dict[int, tuple[str, ...]] = {}
    for i in gangs:
        held = requests[i].held
        if held is not None and free.keep(held):
            placed[i] = held
    for i in gangs:
        if i not in placed:
            workers = requests[i].workers
            parts = fit(workers, free.counts(), room.span(workers), free.disturbed)
            if parts is None:
                return None
            placed[i] = free.take(parts)
    return placed


def _as_packed(
    requests: Sequence[Request],
    gangs: Sequence[int],
    servers: Mapping[str, Sequence[str]],
    room: Room,
) -> dict[int, tuple[str, ...]]:
    """All gangs where the room has found that they fit, each where it is now if one lies there."""
    free = _Free(requests, servers)
    home = {worker: i for i, workers in enumerate(servers.values()) for worker in workers}
    left = list(room.packed)
    placed: dict[int, tuple[str, ...]] = {}
    for stays in (True, False):
        for i in gangs:
            own = requests[i].held or ()
            here = {home.get(worker) for worker in own}
            fitting = (
                p
                for p in left
                if p[0] == requests[i].workers and (not stays or {s for s, _ in p[1]} == here)
            )
            packed = next(fitting, None) if i not in placed else None
            if packed is not None:
                left.remove(packed)
                placed[i] = free.take(packed[1], own)
    return placed

"""Servers that fail and come back, leave for good, or join late: events for a simulated cluster."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from replay.traces.rows import TimedEvent
from schemas.events import DrainRequested, WorkerRegistered, WorkerReturned, WorkerUnreachable


@dataclass(frozen=True, kw_only=True)
class Churn:
    """What befalls servers, each by itself, in exponential times."""

    #: Mean seconds that a server is up between failures, and is away after one; 0: none fails.
    up_s: float = 0.0
    away_s: float = 3600.0
    #: Parts of the servers that are drained for good at some time, and that join at some time.
    leaving: float = 0.0
    joining: float = 0.0
    seed: int = 0


def befall(workers: Sequence[WorkerRegistered], horizon_s: float, asked: Churn) -> list[TimedEvent]:
    """Events from 0 to ``horizon_s`` (a return may be later), in order of time.

    A server that has not joined is unreachable from the start. The workers of a server go and come
    together; those kept for profiles stay.
    """
    servers: dict[str, list[WorkerRegistered]] = {}
    for worker in workers:
        if not worker.profiles_only:
            servers.setdefault(worker.server_id, []).append(worker)
    found = [
        event
        for server_id, its_workers in servers.items()
        for event in _server(server_id, its_workers, horizon_s, asked)
    ]
    # Of one time, in the order of servers.
    return sorted(found, key=lambda event: event.at_s)


def _server(
    server_id: str, workers: Sequence[WorkerRegistered], horizon_s: float, asked: Churn
) -> Iterator[TimedEvent]:
    chance = np.random.default_rng([asked.seed, zlib.crc32(server_id.encode())])
    joins, leaves, join_place, leave_place = chance.random(4).tolist()
    now = 0.0
    if joins < asked.joining:
        now = join_place * horizon_s
        yield from _outage(workers, 0.0, now)
    end_s = horizon_s
    if leaves < asked.leaving:
        end_s = now + leave_place * (horizon_s - now)
        yield TimedEvent(end_s, "operator", DrainRequested(server_id=server_id))
    while asked.up_s > 0:
        now += float(chance.exponential(asked.up_s))
        if now >= end_s:
            return
        back_s = now + float(chance.exponential(asked.away_s))
        yield from _outage(workers, now, back_s)
        now = back_s


def _outage(
    workers: Sequence[WorkerRegistered], gone_s: float, back_s: float
) -> Iterator[TimedEvent]:
    for worker in workers:
        gone = WorkerUnreachable(worker_id=worker.worker_id, since_s=gone_s)
        yield TimedEvent(gone_s, "mechanism", gone)
        back = WorkerReturned(worker_id=worker.worker_id, reporter=worker.reporter)
        yield TimedEvent(back_s, worker.reporter, back)

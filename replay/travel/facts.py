"""What a service can know, as people ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from schemas.domain import Lease
from schemas.events import WorkerRegistered

#: Nothing on any worker type.
EMPTY: Mapping[str, float] = {}


class JobKnown(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is not over."""

    job_id: str
    job_type: str
    scale_factor: int
    priority_weight: float
    #: ``leased``, ``waiting``, or ``not before`` a time.
    state: str
    steps: float
    total_steps: float | None
    #: Seconds it has held workers; None: this service does not count them.
    held_s: float | None = None


class WorkerKnown(msgspec.Struct, frozen=True, kw_only=True):
    """An accelerator."""

    worker_id: str
    worker_type: str
    server_id: str
    #: ``there``, ``unreachable since ...``, ``lost``, ``draining``, ``drained``; ``for profiles``.
    state: str
    job_ids: tuple[str, ...] = ()


class LeaseKnown(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that is out."""

    lease_id: str
    job_ids: tuple[str, ...]
    worker_type: str
    worker_ids: tuple[str, ...]
    #: The last round it is held in; None: this service does not say.
    until_round: int | None
    #: What the plan that granted it ranked it by.
    priority: float


class ShareKnown(msgspec.Struct, frozen=True, kw_only=True):
    """A combination on a worker type, or on one way to hold it (§3.1, §5)."""

    job_ids: tuple[str, ...]
    worker_type: str
    #: X, fraction of wall-clock time.
    share: float
    #: t, seconds received since the newest allocation, and f, its part of all that was.
    received_s: float
    fraction: float
    #: What it is ranked by, were the next round planned now; None: this service does not rank.
    priority: float | None = None
    #: Whether it would be served then.
    is_served: bool | None = None


class SpeedKnown(msgspec.Struct, frozen=True, kw_only=True):
    """A job class, and its steps/s alone by worker type."""

    job_type: str
    scale_factor: int
    steps_per_s: dict[str, float]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A service after some record."""

    service: str
    #: The last record it has seen, and its time, s.
    seq: int
    at_s: float
    #: Its newest start.
    epoch: int
    #: What it has decided and is not in the log yet: (record it answers, index, what).
    owed: tuple[tuple[int, int, str], ...]
    #: A few facts by name.
    facts: dict[str, str | float | int | bool | None] = {}
    jobs: tuple[JobKnown, ...] = ()
    workers: tuple[WorkerKnown, ...] = ()
    leases: tuple[LeaseKnown, ...] = ()
    shares: tuple[ShareKnown, ...] = ()
    speeds: tuple[SpeedKnown, ...] = ()
    #: All that its core declares.
    state: dict[str, Any] = {}


def worker_known(
    worker: WorkerRegistered, state: str, job_ids: tuple[str, ...] = ()
) -> WorkerKnown:
    """A worker as it registered, and how it is."""
    return WorkerKnown(
        worker_id=worker.worker_id,
        worker_type=worker.worker_type,
        server_id=worker.server_id,
        state=state,
        job_ids=job_ids,
    )


def lease_known(lease: Lease, until_round: int | None) -> LeaseKnown:
    """A lease, and how long it is held."""
    return LeaseKnown(
        lease_id=lease.lease_id,
        job_ids=tuple(task.job_id for task in lease.tasks),
        worker_type=lease.worker_type,
        worker_ids=lease.worker_ids,
        until_round=until_round,
        priority=lease.priority,
    )

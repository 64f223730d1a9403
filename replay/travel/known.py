"""What a service knows, read off its core, which is left as it is.

The mechanism knows of jobs, workers, leases, shares and priorities; the policy of jobs and shares;
the estimator of speeds; a worker service of its workers and leases. ``state`` is all of it, as the
class of the core declares it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import msgspec
import numpy as np

from replay.moment import Cores
from replay.received import Received
from replay.travel.decided import told
from replay.travel.facts import (
    EMPTY,
    JobKnown,
    Known,
    ShareKnown,
    SpeedKnown,
    lease_known,
    worker_known,
)
from replay.travel.mechanism import mechanism
from schemas.domain import AllocationRow, Lease, ThroughputRow
from schemas.events import ClusterConfigured
from schemas.subjects import ESTIMATOR, MECHANISM, POLICY, role
from services.estimator.rates import rates_of
from services.estimator.references import References
from services.runtime.snapshot import state_of


def known(cores: Cores, service: str) -> Known:
    """What a service knows; it must be one of ``cores.actors``."""
    actor = cores.actors[service]
    state = state_of(actor.core)
    of_role = {MECHANISM: mechanism, POLICY: _policy, ESTIMATOR: _estimator}
    tell = of_role.get(role(service), _worker)
    return Known(
        service=service,
        seq=cores.last_seq,
        at_s=cores.now,
        epoch=actor.epoch,
        owed=tuple((*key, told(decision)) for key, decision in sorted(actor.open.items())),
        state={name.lstrip("_"): plain(value) for name, value in state.items()},
        **tell(state, cores),
    )


def plain(value: Any) -> Any:
    """A value of a core's state as JSON has it; arrays are lists, a combination's key is text."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return value


def _key(key: Any) -> str:
    return ", ".join(map(_key, key)) if isinstance(key, tuple) else str(key)


# --- by role --------------------------------------------------------------------------------------


def _policy(state: Mapping[str, Any], cores: Cores) -> dict[str, Any]:
    config: ClusterConfigured = state["_config"]
    rows: tuple[AllocationRow, ...] = state["_previous"]
    withdrawn = state["_lost"] | state["_draining"]
    return {
        "facts": {
            "policy": config.policy,
            "x_is_stale": state["_stale"],
            "is_solving": state["_solving"],
            "solved_at_s": state["_solved_at"] if state["_known"] else None,
            "job_classes": len(state["_classes"]),
        },
        "jobs": tuple(
            JobKnown(
                job_id=job_id,
                job_type=job.spec.job_type,
                scale_factor=job.spec.scale_factor,
                priority_weight=job.spec.priority_weight,
                state="in X" if job_id in state["_known"] else "not in X yet",
                steps=job.steps,
                total_steps=job.spec.total_steps,
                held_s=job.held_s,
            )
            for job_id, job in state["_jobs"].items()
        ),
        "workers": tuple(
            worker_known(each, "withdrawn" if each.worker_id in withdrawn else "there")
            for each in state["_workers"].values()
        ),
        "shares": tuple(_allocated(rows, cores.received)),
    }


def _allocated(rows: Iterable[AllocationRow], received: Received) -> Iterator[ShareKnown]:
    fractions = received.fractions()
    for combination, worker_type, share in (
        (combination, worker_type, share)
        for row in rows
        for combination in row.combinations
        for worker_type, share in row.shares.items()
    ):
        yield ShareKnown(
            job_ids=combination,
            worker_type=worker_type,
            share=share,
            received_s=received.seconds.get(combination, EMPTY).get(worker_type, 0.0),
            fraction=fractions.get(combination, EMPTY).get(worker_type, 0.0),
        )


def _estimator(state: Mapping[str, Any], _cores: Cores) -> dict[str, Any]:
    references: References = state["_references"]
    config: ClusterConfigured = state["_config"]
    rows: Iterable[ThroughputRow] = references.published.values()
    return {
        "facts": {
            "estimator": config.estimator,
            "classes": len(references.alone),
            "published": len(references.published),
            "jobs_followed": len(state["_jobs"]),
            "profiles_out": len(state["_profiles"]),
        },
        "speeds": tuple(
            SpeedKnown(
                job_type=row.job_type,
                scale_factor=row.scale_factor,
                steps_per_s=rates_of(row),
            )
            for row in rows
        ),
    }


def _worker(state: Mapping[str, Any], _cores: Cores) -> dict[str, Any]:
    leases: dict[str, Lease] = state["_leases"]
    of_worker = {
        worker_id: tuple(task.job_id for task in lease.tasks)
        for lease in leases.values()
        for worker_id in lease.worker_ids
    }
    return {
        "workers": tuple(
            worker_known(worker, "there", of_worker.get(worker_id, ()))
            for worker_id, worker in state["_workers"].items()
        ),
        "leases": tuple(lease_known(lease, None) for lease in leases.values()),
    }

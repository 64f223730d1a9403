"""What a service knows, as people ask for it: read off its core, which is left as it is.

The mechanism knows of jobs, workers, leases, shares and priorities; the policy of jobs and shares;
the estimator of speeds; a worker service of its workers and leases. ``state`` is all of it, as the
class of the core declares it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import msgspec
import numpy as np

from replay.moment import Cores
from replay.received import Received
from replay.travel.decided import told
from schemas.domain import AllocationRow, Combination, Lease, ThroughputRow
from schemas.events import ClusterConfigured, RoundScheduled, WorkerRegistered
from schemas.subjects import ESTIMATOR, MECHANISM, POLICY, role
from services.estimator.references import References
from services.mechanism.jobs import Jobs
from services.mechanism.leases import Leases
from services.mechanism.placement import Workers
from services.mechanism.planning import Planner, Ranking, Standing
from services.policy.core import PolicyCore
from services.runtime.actor import Core
from services.runtime.snapshot import state_of

_EMPTY: Mapping[str, float] = {}


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


def known(cores: Cores, service: str) -> Known:
    """What a service knows; it must be one of ``cores.actors``."""
    actor = cores.actors[service]
    state = state_of(actor.core)
    of_role = {MECHANISM: _mechanism, POLICY: _policy, ESTIMATOR: _estimator}
    tell = of_role.get(role(service), _worker)
    return Known(
        service=service,
        seq=cores.last_seq,
        at_s=cores.now,
        epoch=actor.epoch,
        owed=tuple((*key, told(decision)) for key, decision in sorted(actor.open.items())),
        state={name.lstrip("_"): plain(value) for name, value in state.items()},
        **tell(actor.core, state, cores),
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


# --- the mechanism --------------------------------------------------------------------------------


def _mechanism(_core: Core, state: dict[str, Any], cores: Cores) -> dict[str, Any]:
    config: ClusterConfigured = state["_config"]
    jobs: Jobs = state["_jobs"]
    workers: Workers = state["_workers"]
    leases: Leases = state["_leases"]
    plan: RoundScheduled | None = state["_round"]
    of_job: dict[str, bool] = {}
    of_worker: dict[str, tuple[str, ...]] = {}
    for held in leases.held.values():
        of_job |= dict.fromkeys(held.running, True)
        of_worker |= dict.fromkeys(held.lease.worker_ids, tuple(sorted(held.running)))
    return {
        "facts": {
            "policy": config.policy,
            "priority": config.priority,
            "round": plan.round_id if plan else None,
            "starts_at_s": plan.starts_at_s if plan else None,
            "ends_at_s": plan.ends_at_s if plan else None,
            "reports_ignored": leases.ignored,
        },
        "jobs": tuple(
            JobKnown(
                job_id=job_id,
                job_type=job.spec.job_type,
                scale_factor=job.spec.scale_factor,
                priority_weight=job.spec.priority_weight,
                state="leased"
                if job_id in of_job
                else f"not before {job.not_before_s:.2f} s"
                if job.not_before_s > cores.now
                else "waiting",
                steps=job.steps,
                total_steps=job.spec.total_steps,
            )
            for job_id, job in jobs.active.items()
        ),
        "workers": tuple(
            _worker_known(worker, _where(workers, worker), of_worker.get(worker.worker_id, ()))
            for worker in workers.registered.values()
        ),
        "leases": tuple(
            _lease_known(held.lease, held.until_round) for held in leases.held.values()
        ),
        "shares": tuple(_ranked(_ranking(state, cores.now), cores.received)),
    }


def _where(workers: Workers, worker: WorkerRegistered) -> str:
    worker_id = worker.worker_id
    if worker_id in workers.missing:
        return workers.missing[worker_id]
    if worker_id in workers.draining:
        return "drained" if workers.draining[worker_id] else "draining"
    return "for profiles" if worker.profiles_only else "there"


def _ranking(state: Mapping[str, Any], now: float) -> Ranking | None:
    """How the next round would be planned now; the planner's books stay as they are."""
    jobs: Jobs = state["_jobs"]
    workers: Workers = state["_workers"]
    if not jobs.active or not workers.types():
        return None
    config: ClusterConfigured = state["_config"]
    leases: Leases = state["_leases"]
    plan: RoundScheduled | None = state["_round"]
    is_last_task = config.round_end == "last_task"
    starts_at_s = now if plan is None or is_last_task else max(now, plan.ends_at_s)
    goes_on = plan is not None and (is_last_task or starts_at_s <= plan.ends_at_s)
    held = leases.in_round(plan.round_id) if plan is not None and goes_on else {}
    round_id = plan.round_id + 1 if plan is not None else 1
    planner: Planner = copy.deepcopy(state["_planner"])
    standing = Standing(config, jobs, workers, held, round_id)
    return planner.plan(standing, starts_at_s)[1]


def _ranked(ranking: Ranking | None, received: Received) -> Iterator[ShareKnown]:
    """Combinations that are owed or have received something, or would be served."""
    if ranking is None:
        return
    claims, served = ranking.claims, set(ranking.choices)
    fractions = received.fractions()
    for row, combination in enumerate(claims.combinations):
        seconds = received.seconds.get(combination, _EMPTY)
        for column, worker_type in enumerate(claims.worker_types):
            share = float(claims.share[row, column])
            is_served = (row, column) in served
            if share > 0 or is_served or worker_type in seconds:
                yield ShareKnown(
                    job_ids=combination,
                    worker_type=worker_type,
                    share=share,
                    received_s=seconds.get(worker_type, 0.0),
                    fraction=fractions.get(combination, _EMPTY).get(worker_type, 0.0),
                    priority=round(float(ranking.priority[row, column]), 6),
                    is_served=is_served,
                )


# --- the others -----------------------------------------------------------------------------------


def _policy(core: Core, state: dict[str, Any], cores: Cores) -> dict[str, Any]:
    assert isinstance(core, PolicyCore)
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
            _worker_known(each, "withdrawn" if each.worker_id in withdrawn else "there")
            for each in state["_workers"].values()
        ),
        "shares": tuple(_allocated(rows, cores.received)),
    }


def _allocated(rows: Iterable[AllocationRow], received: Received) -> Iterator[ShareKnown]:
    fractions = received.fractions()
    each: tuple[Combination, str, float]
    for each in (
        (combination, worker_type, share)
        for row in rows
        for combination in row.combinations
        for worker_type, share in row.shares.items()
    ):
        combination, worker_type, share = each
        yield ShareKnown(
            job_ids=combination,
            worker_type=worker_type,
            share=share,
            received_s=received.seconds.get(combination, _EMPTY).get(worker_type, 0.0),
            fraction=fractions.get(combination, _EMPTY).get(worker_type, 0.0),
        )


def _estimator(_core: Core, state: dict[str, Any], _cores: Cores) -> dict[str, Any]:
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
                steps_per_s={cell.worker_type: cell.steps_per_s for cell in row.alone},
            )
            for row in rows
        ),
    }


def _worker(_core: Core, state: dict[str, Any], _cores: Cores) -> dict[str, Any]:
    leases: dict[str, Lease] = state["_leases"]
    of_worker = {
        worker_id: tuple(task.job_id for task in lease.tasks)
        for lease in leases.values()
        for worker_id in lease.worker_ids
    }
    return {
        "workers": tuple(
            _worker_known(worker, "there", of_worker.get(worker_id, ()))
            for worker_id, worker in state["_workers"].items()
        ),
        "leases": tuple(_lease_known(lease, None) for lease in leases.values()),
    }


def _worker_known(
    worker: WorkerRegistered, state: str, job_ids: tuple[str, ...] = ()
) -> WorkerKnown:
    return WorkerKnown(
        worker_id=worker.worker_id,
        worker_type=worker.worker_type,
        server_id=worker.server_id,
        state=state,
        job_ids=job_ids,
    )


def _lease_known(lease: Lease, until_round: int | None) -> LeaseKnown:
    return LeaseKnown(
        lease_id=lease.lease_id,
        job_ids=tuple(task.job_id for task in lease.tasks),
        worker_type=lease.worker_type,
        worker_ids=lease.worker_ids,
        until_round=until_round,
        priority=lease.priority,
    )

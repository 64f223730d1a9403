"""What the mechanism knows: jobs, workers, leases; X, t, f and priorities."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from replay.moment import Cores
from replay.received import Received
from replay.travel.facts import (
    EMPTY,
    JobKnown,
    ShareKnown,
    lease_known,
    worker_known,
)
from schemas.events import ClusterConfigured, RoundScheduled, WorkerRegistered
from services.mechanism.jobs import Jobs
from services.mechanism.leases import Leases
from services.mechanism.placement import Workers
from services.mechanism.planning import Planner, Ranking, Standing


def mechanism(state: Mapping[str, Any], cores: Cores) -> dict[str, Any]:
    """Jobs, workers, leases, and shares as the next plan would rank them; see ``Known``."""
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
            worker_known(worker, where(workers, worker), of_worker.get(worker.worker_id, ()))
            for worker in workers.registered.values()
        ),
        "leases": tuple(lease_known(held.lease, held.until_round) for held in leases.held.values()),
        "shares": tuple(_ranked(ranking_now(state, cores.now), cores.received)),
    }


def where(workers: Workers, worker: WorkerRegistered) -> str:
    """How a worker is, in words; see ``WorkerKnown.state``."""
    worker_id = worker.worker_id
    if worker_id in workers.missing:
        return workers.missing[worker_id]
    if worker_id in workers.draining:
        return "drained" if workers.draining[worker_id] else "draining"
    return "for profiles" if worker.profiles_only else "there"


def ranking_now(state: Mapping[str, Any], now: float) -> Ranking | None:
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
        seconds = received.seconds.get(combination, EMPTY)
        for column, worker_type in enumerate(claims.worker_types):
            share = float(claims.share[row, column])
            is_served = (row, column) in served
            if share > 0 or is_served or worker_type in seconds:
                yield ShareKnown(
                    job_ids=combination,
                    worker_type=worker_type,
                    share=share,
                    received_s=seconds.get(worker_type, 0.0),
                    fraction=fractions.get(combination, EMPTY).get(worker_type, 0.0),
                    priority=round(float(ranking.priority[row, column]), 6),
                    is_served=is_served,
                )

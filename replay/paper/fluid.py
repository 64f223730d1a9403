"""The ideal mechanism (§7.5): every job makes exactly the progress that the allocation promises.

No rounds, no workers, no leases: between two arrivals or completions each job advances at its
effective throughput under X. What a real mechanism does is held against this.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from schemas.domain import JobSpec
from services.estimator.tables import ThroughputTable
from services.policy.catalog import resolve
from services.policy.problem import JobClass, Policy, Problem

#: Steps below which a job is done: rounding, nothing more.
_DONE = 1e-6


def jcts_s(
    policy_name: str,
    jobs: Sequence[JobSpec],
    workers: Mapping[str, int],
    table: ThroughputTable,
    measured: Sequence[str],
) -> dict[str, float]:
    """{job id: seconds from arrival to completion} of the measured jobs; see the module.

    Parameters
    ----------
    policy_name : one that needs nothing of jobs but their classes, such as LAS
    jobs : sorted by arrival, of known steps
    """
    policy = resolve(policy_name)
    waiting = [(job.arrival_s, n) for n, job in enumerate(jobs)]
    heapq.heapify(waiting)
    left: dict[str, float] = {}
    speeds: dict[str, float] = {}
    by_id = {job.job_id: job for job in jobs}
    found: dict[str, float] = {}
    unmeasured = set(measured)
    now = 0.0
    while unmeasured and (waiting or left):
        ends = {job_id: now + left[job_id] / v for job_id, v in speeds.items() if v > 0}
        first_end = min(ends.values(), default=float("inf"))
        then = min(first_end, waiting[0][0] if waiting else float("inf"))
        for job_id, speed in speeds.items():
            left[job_id] -= speed * (then - now)
        now = then
        for job_id in [j for j, end in ends.items() if end <= now or left[j] <= _DONE]:
            del left[job_id]
            found[job_id] = now - by_id[job_id].arrival_s
            unmeasured.discard(job_id)
        while waiting and waiting[0][0] <= now:
            job = jobs[heapq.heappop(waiting)[1]]
            left[job.job_id] = job.total_steps or 0.0
        speeds = _speeds(policy, [by_id[job_id] for job_id in left], workers, table)
    return {job_id: found[job_id] for job_id in measured if job_id in found}


def _speeds(
    policy: Policy,
    jobs: Sequence[JobSpec],
    workers: Mapping[str, int],
    table: ThroughputTable,
) -> dict[str, float]:
    """{job id: its effective throughput, steps/s}."""
    types = tuple(sorted(workers))
    members: dict[tuple[str, int], list[str]] = {}
    for job in jobs:
        members.setdefault((job.job_type, job.scale_factor), []).append(job.job_id)
    rates = {key: tuple(table.alone(*key, name) or 0.0 for name in types) for key in members}
    problem = Problem(
        worker_types=types,
        num_workers=tuple(workers[name] for name in types),
        reference_type="v100",
        classes=tuple(
            JobClass(
                job_type=key[0],
                scale_factor=key[1],
                throughputs=rates[key],
                job_ids=tuple(ids),
            )
            for key, ids in sorted(members.items())
        ),
    )
    key_of = {job_id: key for key, ids in members.items() for job_id in ids}
    speeds = dict.fromkeys(key_of, 0.0)
    for row in policy.solve(problem).rows:
        for (job_id,) in row.combinations:
            rate = dict(zip(types, rates[key_of[job_id]], strict=True))
            speeds[job_id] = sum(rate[name] * share for name, share in row.shares.items())
    return speeds

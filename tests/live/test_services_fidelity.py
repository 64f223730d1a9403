"""A live cluster and a simulated one, given the same jobs at the same times: the same schedule."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from replay.simulate import Simulation, build_workers
from schemas.events import (
    ClusterConfigured,
    JobCompleted,
    JobSubmitted,
    LeaderElected,
    WorkerRegistered,
)
from services.estimator.tables import ThroughputTable
from services.runtime.log import MemoryLog
from tests.live.cluster import CONTROLLERS, TABLE, Cluster, running_cluster

pytestmark = [pytest.mark.live, pytest.mark.slow]

#: Seconds from the first submit, and steps: more than the workers can do at once.
JOBS = ((0.0, 500.0), (1.0, 300.0), (1.1, 80.0), (4.0, 400.0), (6.5, 200.0), (6.6, 60.0))


def test_live_times_are_those_of_a_simulation(tmp_path: Path) -> None:
    """Average JCT and makespan are near the simulated: the same code decides.

    Within 10 %, as the machine may have other tests to run; ``bench_fidelity.py`` holds them to 3.
    """
    off = asyncio.run(relative_errors(tmp_path))
    assert max(off.values()) < 0.10, off


async def relative_errors(folder: Path) -> dict[str, float]:
    """{figure: how far the live one is off the simulated one, relative}."""
    async with running_cluster(folder) as cluster:
        cluster.start_workers("k80=1,v100=1")
        await cluster.until_count(LeaderElected, len(CONTROLLERS) + 1)
        await cluster.configure(round_s=2.0, plan_lead_s=0.5)
        await cluster.until_count(WorkerRegistered, 2)
        await submit_all(cluster)
        await cluster.until_count(JobCompleted, len(JOBS))
        await cluster.check_log()
        return compare(cluster)


async def submit_all(cluster: Cluster) -> None:
    """Submit each job when its time has come."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, (after_s, steps) in enumerate(JOBS):
        await asyncio.sleep(began + after_s - loop.time())
        await cluster.submit(f"job-{number}", steps=steps)


def compare(cluster: Cluster) -> dict[str, float]:
    """Simulate what was submitted, when it was; hold the figures against each other."""
    submitted = {
        record.event.job.job_id: (record.at, record.event.job)
        for record in cluster.records
        if isinstance(record.event, JobSubmitted)
    }
    completed = {
        record.event.job_id: record.at
        for record in cluster.records
        if isinstance(record.event, JobCompleted)
    }
    first = min(at for at, _ in submitted.values())
    jobs = [msgspec.structs.replace(job, arrival_s=at - first) for at, job in submitted.values()]
    simulation = Simulation(
        MemoryLog(),
        cluster.events(ClusterConfigured)[0],
        build_workers({"k80": 1, "v100": 1}, {}, {}),
        ThroughputTable.from_rows(TABLE, "test"),
        jobs,
    )
    figures = simulation.run().figures()
    live = [completed[job_id] - at for job_id, (at, _) in submitted.items()]
    found = {"average JCT": sum(live) / len(live), "makespan": max(completed.values()) - first}
    assert figures.average_jct_s is not None
    assert figures.makespan_s is not None
    simulated = {"average JCT": figures.average_jct_s, "makespan": figures.makespan_s}
    return {name: abs(found[name] / simulated[name] - 1.0) for name in found}

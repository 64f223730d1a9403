"""Two replicas of policy, mechanism and estimator: either may be killed while rounds go on.

How soon the other takes over is measured in ``tests/bench/bench_take_over.py``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schemas.events import JobCompleted, LeaderElected, RoundScheduled
from tests.live.cluster import CONTROLLERS, Cluster

pytestmark = pytest.mark.live


def _starts(cluster: Cluster, service: str) -> int:
    return cluster.event_count(service, LeaderElected)


async def _with_standbys(cluster: Cluster) -> None:
    """Start one replica of each service, and once it leads, another that stands by."""
    await cluster.connect()
    cluster.start(*CONTROLLERS)
    cluster.start_workers("v100=2")
    for service in CONTROLLERS:
        await cluster.until_said(service, '"leading"')
        cluster.start(f"{service}-standby")
        await cluster.until_said(f"{service}-standby", '"restored"')
    await cluster.configure(round_s=1.0)


def test_leaders_killed_during_rounds(tmp_path: Path) -> None:
    """One after the other is replaced by its standby: no round twice, no job lost or done twice."""

    async def run() -> None:
        async with Cluster(tmp_path) as cluster:
            await _with_standbys(cluster)
            for number, service in enumerate(CONTROLLERS):
                # With a job that needs it: to be estimated, admitted, and given a share.
                await cluster.submit(f"before-{service}", steps=150.0)
                await cluster.until_count(RoundScheduled, 3 * number + 1)
                cluster.kill(service)
                await cluster.submit(f"after-{service}", steps=150.0)
                await cluster.until(lambda _, service=service: _starts(cluster, service) == 2)  # type: ignore[misc] # bound now
                await cluster.until_said(f"{service}-standby", '"leading"')
            await cluster.until_count(JobCompleted, 2 * len(CONTROLLERS))
            rounds = [event.round_id for event in cluster.events(RoundScheduled)]
            assert rounds == sorted(set(rounds))
            await cluster.check_log()

    asyncio.run(run())


def test_standbys_killed_during_rounds(tmp_path: Path) -> None:
    """Nobody notices: no start anew, no round left out."""

    async def run() -> None:
        async with Cluster(tmp_path) as cluster:
            await _with_standbys(cluster)
            await cluster.submit("long", steps=600.0)
            await cluster.until_count(RoundScheduled, 1)
            for service in CONTROLLERS:
                cluster.kill(f"{service}-standby")
            await cluster.submit("after", steps=150.0)
            await cluster.until_count(JobCompleted, 2)
            assert [_starts(cluster, service) for service in CONTROLLERS] == [1, 1, 1]
            await cluster.check_log()

    asyncio.run(run())

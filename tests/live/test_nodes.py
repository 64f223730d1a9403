"""The log on a cluster of three servers: one may die, and nothing that was said is lost."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from replay.verify import verify_log
from schemas.events import CancelRequested, RoundScheduled
from services.runtime.jetstream import JetStreamLog
from services.runtime.live_log import LogUnavailableError
from services.runtime.pull import ApiError
from tests.live.cluster import CONTROLLERS, PATIENCE_S, Cluster
from tests.live.nodes import Nodes, all_current, leader_of
from tests.live.servers import MAX_BYTES
from tests.live.shells import Outsider, export

pytestmark = pytest.mark.live

#: Of log time between two rounds of 1 s: the servers take 4 to 9 s to find another leader.
LONGEST_PAUSE_S = 15.0


class ReplicatedCluster(Cluster):
    """A cluster whose log has three replicas."""

    def __init__(self, folder: Path) -> None:
        self.nodes = Nodes(folder / "nats")
        super().__init__(folder, self.nodes)

    async def connect(self, user: str = "", password: str = "") -> None:
        """See ``Cluster``; the servers take a while to find each other."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    self.log = await JetStreamLog.connect(
                        self.nodes.urls, self.name, max_bytes=MAX_BYTES, replicas=3
                    )
                    break
                except LogUnavailableError:
                    continue
        self._reading = asyncio.create_task(self._follow())

    async def until_current(self) -> None:
        """Wait until every replica holds all of the log."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if await all_current(self.log.inbox, self.log.name):
                        return
                except (ApiError, TimeoutError):
                    continue


async def _append_for_ever(log: JetStreamLog, acknowledged: dict[int, str]) -> None:
    """Append one thing after the other; {sequence: what} of those that were acknowledged."""
    client = Outsider(log, "client.outside")
    while True:
        name = f"nobody-{len(acknowledged)}"
        acknowledged[await client.append(CancelRequested(job_id=name))] = name
        await asyncio.sleep(0.01)  # a pace that leaves the machine to others


def test_the_leader_of_the_stream_is_killed_during_rounds(tmp_path: Path) -> None:
    """All that was acknowledged is there, rounds soon go on, and again once the server is back."""

    async def run() -> None:
        async with ReplicatedCluster(tmp_path) as cluster:
            await cluster.connect()
            await cluster.until_current()
            cluster.start(*CONTROLLERS)
            cluster.start_workers("v100=2")
            await cluster.configure(round_s=1.0)
            for number in range(3):
                await cluster.submit(f"job-{number}", steps=1e6)
            await cluster.until_count(RoundScheduled, 3)
            acknowledged: dict[int, str] = {}
            appending = asyncio.create_task(_append_for_ever(cluster.log, acknowledged))
            before = [r.seq for r in cluster.records if isinstance(r.event, RoundScheduled)][-1]
            leader = await leader_of(cluster.log.inbox, cluster.log.name)
            cluster.nodes.kill(leader)
            await cluster.until_count(RoundScheduled, len(cluster.events(RoundScheduled)) + 4)
            cluster.nodes.start()
            await cluster.until_current()
            await cluster.until_count(RoundScheduled, len(cluster.events(RoundScheduled)) + 2)
            appending.cancel()
            await asyncio.gather(appending, return_exceptions=True)
            await cluster.until_read()
            stored = {
                record.seq: record.event.job_id
                for record in cluster.records
                if isinstance(record.event, CancelRequested)
            }
            assert acknowledged.items() <= stored.items()
            since = cluster.records[before - 1 :]
            rounds = [record.at for record in since if isinstance(record.event, RoundScheduled)]
            assert max(later - one for one, later in pairwise(rounds)) < LONGEST_PAUSE_S
            report = verify_log(export(cluster.records, tmp_path / "export.jsonl"))
            assert report.ok, report.divergence

    asyncio.run(run())

"""Services that begin with a snapshot: they read the log's tail only, and go on exactly."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.events import JobCompleted, RoundScheduled, WorkerUnreachable
from services.runtime.snapshot import _parts, _sealed
from tests.live.cluster import CONTROLLERS, Cluster

pytestmark = pytest.mark.live

ALL = (*CONTROLLERS, "worker-a")


class SnapshotCluster(Cluster):
    """A cluster whose services keep snapshots in one folder."""

    @property
    def kept(self) -> Path:
        """Where they are."""
        return self.folder / "snapshots"

    def begin(self) -> None:
        """Start all services."""
        settings = {
            "GAVEL_SERVICE_SNAPSHOT_FOLDER": str(self.kept),
            "GAVEL_SERVICE_SNAPSHOT_EVERY": "10",
        }
        self.start(*CONTROLLERS, **settings)
        self.start_workers("v100=2", **settings, GAVEL_MECHANISM_UNREACHABLE_AFTER_S="1.0")

    def lines(self, name: str, event: str) -> list[dict[str, Any]]:
        """What the service has said on one occasion, each time."""
        own = [line for line in self.said[name].split("\n")[:-1] if line.startswith("{")]
        return [line for line in map(json.loads, own) if line["event"] == event]

    async def until_lines(self, name: str, event: str, times: int) -> list[dict[str, Any]]:
        """Wait until the service has said it so often."""
        await self.until(lambda _: len(self.lines(name, event)) >= times)
        return self.lines(name, event)

    async def run_jobs(self, first: int, count: int) -> None:
        """Have jobs come to their end."""
        for number in range(first, first + count):
            await self.submit(f"job-{number}", steps=60.0)
        await self.until_count(JobCompleted, first + count)


def test_a_restarted_service_reads_only_the_tail(tmp_path: Path) -> None:
    """Killed, each begins with its snapshot; together they go on to a log that verifies.

    The mechanism's watch over workers is in its snapshot too: it misses one that had registered
    before.
    """

    async def run() -> None:
        async with SnapshotCluster(tmp_path) as cluster:
            await cluster.connect()
            cluster.begin()
            await cluster.configure(round_s=1.0)
            await cluster.run_jobs(0, 6)
            for name in ALL:
                await cluster.until_lines(name, "snapshot", 2)
                cluster.kill(name)
            said_before = {name: cluster.lines(name, "snapshot")[-1]["seq"] for name in ALL}
            for name in ALL:
                cluster.restart(name)
            for name in ALL:
                restored = (await cluster.until_lines(name, "restored", 2))[-1]
                # It may have been killed between writing one and saying so.
                assert restored["from_snapshot"] >= said_before[name]
            await cluster.run_jobs(6, 2)
            cluster.kill("worker-a")
            await cluster.until_count(WorkerUnreachable, 2)
            await cluster.check_log()

    asyncio.run(run())


def test_what_does_not_fit_is_left_alone(tmp_path: Path) -> None:
    """An altered snapshot, or one of other decisions, is named and ignored; the log decides."""

    async def run() -> None:
        async with SnapshotCluster(tmp_path) as cluster:
            await cluster.connect()
            cluster.begin()
            await cluster.configure(round_s=1.0)
            await cluster.run_jobs(0, 6)
            await cluster.until_lines("mechanism", "snapshot", 2)
            cluster.kill("mechanism")
            # Two, or three where it was killed before the oldest was dropped.
            newest, *older = sorted(
                cluster.kept.glob("test.mechanism.*.snapshot"),
                key=lambda path: -int(path.suffixes[-2][1:]),
            )
            newest.write_bytes(newest.read_bytes()[:-1] + b"\0")
            for path in older:
                header, state = _parts(path.read_bytes())
                header = msgspec.structs.replace(header, behaviour=header.behaviour + 1)
                path.write_bytes(_sealed(header, state))
            cluster.restart("mechanism")
            restored = (await cluster.until_lines("mechanism", "restored", 2))[-1]
            assert restored["from_snapshot"] == 0
            why = [str(line["detail"]) for line in cluster.lines("mechanism", "snapshot ignored")]
            assert ["checksum" in why[0], "behaviour version" in why[1]] == [True, True]
            rounds = len(cluster.events(RoundScheduled))
            await cluster.run_jobs(6, 2)
            assert len(cluster.events(RoundScheduled)) > rounds
            await cluster.check_log()

    asyncio.run(run())


def test_a_folder_that_cannot_be_written_to_stops_nobody(tmp_path: Path) -> None:
    """Said, and no more: a service without snapshots is as good, if slower to start."""

    async def run() -> None:
        async with SnapshotCluster(tmp_path) as cluster:
            await cluster.connect()
            cluster.kept.write_text("no folder")
            cluster.begin()
            await cluster.configure(round_s=1.0)
            await cluster.run_jobs(0, 6)
            await cluster.until_lines("mechanism", "snapshot not written", 1)

    asyncio.run(run())


def test_a_job_that_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    """A number in a job, however large, is valid JSON: it costs the snapshots, and no more."""

    async def run() -> None:
        async with SnapshotCluster(tmp_path) as cluster:
            await cluster.connect()
            cluster.begin()
            await cluster.configure(round_s=1.0)
            await cluster.submit("endless", steps=1e9, max_attempts=1 << 70)
            await cluster.run_jobs(0, 4)
            await cluster.until_lines("mechanism", "snapshot not taken", 1)
            await cluster.run_jobs(4, 1)
            assert cluster.lines("mechanism", "leading")[1:] == []

    asyncio.run(run())

"""A live cluster under load: `make bench` prints the figures.

Four services, the server and the client share the machine, whose disk syncs each write.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from replay.traces.generate import generate
from replay.traces.tables import builtin_table
from schemas.events import JobAdmitted, JobSubmitted, RoundScheduled, TimerFired
from schemas.record import Draft
from services.runtime.actor import Writer
from services.runtime.embedded import EmbeddedServer
from services.runtime.jetstream import JetStreamLog
from tests.live.cluster import CONTROLLERS, Cluster

_SUBMITS_PER_S, _SUBMIT_S, _SUBMIT_P99_MS = 500, 20, 50.0
_SERVICES, _SERVERS_EACH, _SERVER_SIZE = 5, 25, 8
_JOBS, _ROUND_S = 2_000, 10.0
_LATE_P99_MS = 50.0
_MAX_BYTES = 1 << 30


@contextmanager
def _folder(where: str | None) -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="gavel-bench-", dir=where))
    try:
        yield found
    finally:
        shutil.rmtree(found)


class _Cluster(Cluster):
    """Has room for a load, and says how its services fare."""

    async def connect(self, user: str = "", password: str = "") -> None:
        """See ``Cluster``."""
        self.log = await JetStreamLog.connect(self.server.url, self.name, max_bytes=_MAX_BYTES)
        self._reading = asyncio.create_task(self._follow())

    async def status(self, name: str) -> dict[str, Any]:
        """What a service says of itself."""
        line = next(t for t in self.said[name].splitlines() if '"event": "health"' in t)
        url = f"http://127.0.0.1:{json.loads(line)['port']}/status"
        content = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())
        found: dict[str, Any] = json.loads(content)
        return found


def _submits(count: int) -> list[Draft]:
    jobs = generate(count, 0.0, multi_gpu=False, seed=0, table=builtin_table())
    return [Writer(f"client.{j.job_id}", 0).draft(0, 0, 0, JobSubmitted(job=j)) for j in jobs]


def _percentiles(values: list[float]) -> str:
    ordered = sorted(values)
    return f"p50 {ordered[len(ordered) // 2]:.1f}, p99 {_p99(values):.1f}, max {ordered[-1]:.1f} ms"


def _p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", [None, "/dev/shm"], ids=["disk", "memory"])  # noqa: S108 - to compare
@pytest.mark.parametrize("services", [False, True], ids=["log alone", "with services"])
def test_submits(where: str | None, services: bool) -> None:
    """500 a second for 20 s, each from being sent to being acknowledged as stored."""
    if where and not Path(where).is_dir():
        pytest.skip(f"no {where} here")
    drafts = _submits(_SUBMITS_PER_S * _SUBMIT_S)
    took_ms: list[float] = []

    async def submit(log: JetStreamLog, draft: Draft, due: float) -> None:
        await asyncio.sleep(due - time.monotonic())
        sent = time.monotonic()
        await log.append(draft)
        took_ms.append(1e3 * (time.monotonic() - sent))

    async def measure(folder: Path) -> float:
        async with _Cluster(folder, EmbeddedServer(folder / "nats")) as cluster:
            await cluster.connect()
            if services:
                cluster.start(*CONTROLLERS)
                for name in CONTROLLERS:
                    await cluster.until_said(name, '"leading"')
                await cluster.configure(round_s=10.0, table=builtin_table().rows())
            begins = time.monotonic() + 0.5
            async with asyncio.TaskGroup() as group:
                for number, draft in enumerate(drafts):
                    due = begins + number / _SUBMITS_PER_S
                    group.create_task(submit(cluster.log, draft, due))
            took_s = time.monotonic() - begins
            if services:
                await cluster.until_count(JobAdmitted, len(drafts))
            return took_s

    with _folder(where) as folder:
        took_s = asyncio.run(measure(folder))
    print(
        f"\n{len(drafts)} submits in {took_s:.1f} s ({len(drafts) / took_s:.0f}/s): "
        f"{_percentiles(took_ms)} (p99 at most {_SUBMIT_P99_MS:g})"
    )
    assert _p99(took_ms) < _SUBMIT_P99_MS


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("policy", "rounds", "blocked_ms"), [("las", 20, 50.0), ("las:ss", 5, 100.0)]
)
def test_a_thousand_workers(policy: str, rounds: int, blocked_ms: float) -> None:
    """2,000 jobs on 1,000 workers of 125 servers, rounds of 10 s: each is planned in time."""
    types = ("v100", "p100", "k80")

    async def measure(folder: Path) -> None:
        async with _Cluster(folder, EmbeddedServer(folder / "nats")) as cluster:
            await cluster.connect()
            cluster.start(*CONTROLLERS)
            for number in range(_SERVICES):
                of_type = types[number % len(types)]
                count = _SERVERS_EACH * _SERVER_SIZE
                cluster.start_workers(
                    f"{of_type}={count}",
                    f"worker-w{number}",
                    GAVEL_WORKER_SERVER_SIZE=str(_SERVER_SIZE),
                )
            table = builtin_table().rows()
            await cluster.configure(round_s=_ROUND_S, table=table, policy=policy)
            jobs = generate(_JOBS, 0.0, multi_gpu=False, seed=0, table=builtin_table())
            for first in range(0, _JOBS, 100):
                await asyncio.gather(
                    *(
                        cluster.submit(j.job_id, 1e9, job_type=j.job_type)
                        for j in jobs[first : first + 100]
                    )
                )
            await cluster.until_count(JobAdmitted, _JOBS)
            # The first round begins with its plan.
            done = max(1, len(cluster.events(RoundScheduled)))
            await cluster.until_count(RoundScheduled, done + rounds, patience_s=600.0)
            status = {name: await cluster.status(name) for name in cluster.services}
            _judge(cluster, status, rounds, blocked_ms)

    with _folder(None) as folder:
        asyncio.run(measure(folder))


def _judge(
    cluster: Cluster, status: dict[str, dict[str, Any]], rounds: int, blocked_ms: float
) -> None:
    by_seq = {record.seq: record for record in cluster.records}
    plans = [r for r in cluster.records if isinstance(r.event, RoundScheduled)][-rounds:]
    late_ms, spare_ms = [], []
    for plan in plans:
        timer = by_seq[plan.cause].event
        assert isinstance(timer, TimerFired)
        assert isinstance(plan.event, RoundScheduled)
        late_ms.append(1e3 * (plan.at - timer.due_s))
        spare_ms.append(1e3 * (plan.event.starts_at_s - plan.at))
    print(f"\n{len(cluster.records)} records; due to RoundScheduled: {_percentiles(late_ms)}")
    print(f"planned {min(spare_ms):.0f} ms or more before the boundary")
    for name, said in status.items():
        print(f"{name}: loop blocked {said['loop_blocked_ms']} ms, {said['memory_mib']} MiB")
    assert min(spare_ms) > 0
    assert _p99(late_ms) < _LATE_P99_MS
    assert max(said["loop_blocked_ms"] for said in status.values()) < blocked_ms

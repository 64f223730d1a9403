"""Explain, plan and what-if of a cluster that runs: the commands, against the real log."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from replay.whatif.answer import what_if
from replay.whatif.change import Change
from schemas.events import (
    JobCancelled,
    JobCompleted,
    JobSubmitted,
    LeaderElected,
    RoundScheduled,
    WorkerRegistered,
)
from tests.live.cluster import CLASS, CONTROLLERS, ROOT, Cluster, running_cluster

pytestmark = [pytest.mark.live, pytest.mark.slow]

#: Seconds to load and to save, of the emulated tasks.
LOAD_S, SAVE_S = 0.3, 0.2


async def asked(cluster: Cluster, *arguments: str) -> Any:
    """What a command says of the running cluster, with ``--json``."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("GAVEL_")}
    where = ("--nats", cluster.server.url, "--cluster-name", cluster.name, "--json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "replay.cli", *arguments, *where),
        cwd=cluster.folder,
        env=own | {"GAVEL_HOME": str(cluster.folder / "home"), "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


def test_a_running_cluster_is_asked_and_its_log_changed(tmp_path: Path) -> None:
    """A job that runs or waits is explained, one is planned; then the log is decided anew."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers(
                "k80=1,v100=1",
                GAVEL_WORKER_LOAD_S=str(LOAD_S),
                GAVEL_WORKER_SAVE_S=str(SAVE_S),
            )
            await cluster.until_count(LeaderElected, len(CONTROLLERS) + 1)
            await cluster.configure(round_s=3.0, plan_lead_s=1.0)
            await cluster.until_count(WorkerRegistered, 2)
            for number, steps in enumerate((500.0, 300.0, 400.0, 1e6)):
                await cluster.submit(f"job-{number}", steps=steps)
            await cluster.until_count(RoundScheduled, 3)
            await explained(cluster)
            await planned(cluster)
            await cluster.until_count(JobCompleted, 3, 90.0)
            await cluster.cancel("job-3")
            await cluster.until_count(JobCancelled, 1)
            await cluster.check_log()
            changed(cluster)

    asyncio.run(run())


async def explained(cluster: Cluster) -> None:
    """The job that takes hours runs or waits, with reasons, numbers and a future."""
    found = await asked(cluster, "explain", "job-3")
    assert found["status"] in ("waiting", "running")
    assert found["reasons"]
    assert {on["worker_type"] for on in found["types"]} == {"k80", "v100"}
    assert sum(on["share"] for on in found["types"]) > 0
    assert found["likely"]["seen_to_s"] > found["at_s"]
    assert [each["change"] for each in found["helps"]] == ["one more k80", "one more v100"]


async def planned(cluster: Cluster) -> None:
    """A small job would be done soon; nothing is submitted."""
    found = await asked(cluster, "plan", "--type", CLASS, "--steps", "100", "--id", "new")
    assert found["starts_s"] < found["ends_s"]
    assert found["jobs"] >= 1
    submitted = {event.job.job_id for event in cluster.events(JobSubmitted)}
    assert "new" not in submitted


def changed(cluster: Cluster) -> None:
    """Unchanged, what had been completed is so again, when it was, but for a busy machine's part.

    ``tests/replay/test_whatif_live.py`` holds a kept log to 3 %.
    """
    records = list(cluster.records)
    answer = what_if(lambda: iter(records), Change())
    assert abs(answer.off or 0.0) < 0.10
    assert answer.unchanged.figures.outcomes == answer.recorded.figures.outcomes
    more = what_if(lambda: iter(records), Change(cluster={"v100": 1}))
    assert sum(more.gains().values()) > 0

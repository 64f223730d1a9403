"""The estimator among live services: what it says is put right by what workers show."""

from __future__ import annotations

import asyncio
import math
import shlex
import sys
from pathlib import Path

import pytest

from replay.live.picture import Picture
from schemas.domain import PairThroughput, Throughput, ThroughputRow
from schemas.events import (
    JobCancelled,
    JobFailed,
    LeasesChanged,
    ProgressReported,
    RoundScheduled,
    TasksStarted,
    TaskStopped,
    ThroughputEstimated,
    ThroughputMeasured,
    WorkerRegistered,
)
from schemas.record import Record
from services.worker.system import tasks_under
from tests.live.cluster import CLASS, PATIENCE_S, TABLE, Cluster, running_cluster

pytestmark = pytest.mark.live

ROUNDS = 5


def rates(estimate: ThroughputEstimated) -> dict[str, float]:
    """{worker type: isolated steps/s}."""
    return {cell.worker_type: cell.steps_per_s for cell in estimate.row.alone}


def is_right(record: Record, worker_type: str, truth: float) -> bool:
    """Whether it is an estimate of the class that is within 5 % of the truth."""
    event = record.event
    if not isinstance(event, ThroughputEstimated) or event.job_id or event.row.scale_factor > 1:
        return False
    rate = rates(event).get(worker_type, 0.0)
    return rate > 0 and abs(math.log(rate / truth)) <= math.log(1.05)


def rounds_on(records: list[Record], worker_type: str) -> int:
    """Rounds that were reported with a task on the type."""
    leases = {
        lease.lease_id
        for record in records
        if isinstance(record.event, RoundScheduled)
        for lease in record.event.granted
        if lease.worker_type == worker_type
    }
    reports = (r.event for r in records if isinstance(r.event, ProgressReported))
    return sum(any(row.lease_id in leases for row in report.rows) for report in reports)


@pytest.mark.parametrize("pace", [0.5, 2.0])
def test_a_table_wrong_by_two_is_put_right_within_five_rounds(tmp_path: Path, pace: float) -> None:
    """On one type; the log says after how many rounds, whatever the machine does meanwhile."""
    (small, *_) = TABLE
    (truth,) = (c.steps_per_s * pace for c in small.alone if c.worker_type == "v100")

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1,k80=1", GAVEL_WORKER_PACE=f"v100={pace}")
            await cluster.configure(round_s=1.0, estimator="learned")
            for number in range(2):
                await cluster.submit(f"job-{number}", steps=1e6)
            await cluster.until(
                lambda records: any(is_right(record, "v100", truth) for record in records)
            )
            place = next(i for i, r in enumerate(cluster.records) if is_right(r, "v100", truth))
            assert 1 <= rounds_on(cluster.records[:place], "v100") <= ROUNDS
            other = cluster.records[place].event
            assert isinstance(other, ThroughputEstimated)
            assert other.row.job_type == CLASS
            assert rates(other)["k80"] == pytest.approx(rates_of_table()["k80"], rel=0.05)
            await end(cluster, "job-0", "job-1")

    asyncio.run(run())


# --- profiles of real processes ------------------------------------------------------------------

EMULATED = {"GAVEL_WORKER_TASKS": "emulated"}
#: Two job types that are nothing like each other.
PAIRED = (
    ThroughputRow(
        job_type="calm",
        scale_factor=1,
        alone=(Throughput("k80", 40.0), Throughput("p100", 70.0), Throughput("v100", 100.0)),
        beside=(
            PairThroughput("k80", "calm", 36.0, 36.0),
            PairThroughput("v100", "calm", 95.0, 95.0),
        ),
    ),
    ThroughputRow(
        job_type="wild",
        scale_factor=1,
        alone=(Throughput("k80", 30.0), Throughput("p100", 60.0), Throughput("v100", 90.0)),
        beside=(
            PairThroughput("k80", "calm", 20.0, 10.0),
            PairThroughput("k80", "wild", 6.0, 6.0),
            PairThroughput("v100", "calm", 70.0, 20.0),
            PairThroughput("v100", "wild", 18.0, 18.0),
        ),
    ),
)
#: A profile is a quarter of a round: room for a process to start on a busy machine.
ROUND_S, PROFILE_S = 60.0, 15.0


def estimates_of(cluster: Cluster, job_id: str, source: str) -> list[ThroughputEstimated]:
    """What was said of one job, from such a source."""
    found = cluster.events(ThroughputEstimated)
    return [each for each in found if (each.job_id, each.source) == (job_id, source)]


def profiling(cluster: Cluster, accelerators: str, name: str = "worker-p") -> None:
    """Start a worker service whose workers are for profiles only."""
    cluster.start_workers(accelerators, name, GAVEL_WORKER_PROFILES_ONLY="true", **EMULATED)


def profiles(cluster: Cluster) -> dict[str, str]:
    """{lease id: worker type} of the profiles granted so far."""
    changes = cluster.events(LeasesChanged)
    return {lease.lease_id: lease.worker_type for each in changes for lease in each.granted}


async def configure(cluster: Cluster, **settings: object) -> None:
    """Every job is to be learned."""
    known = {"policy": "las:ss", "estimator": "learned", "trust_job_types": False}
    await cluster.configure(
        round_s=ROUND_S, table=PAIRED, **(known | {"profile_s": PROFILE_S} | settings)
    )


async def end(cluster: Cluster, *job_ids: str) -> None:
    """Cancel the jobs, and check what the log then says of it all."""
    for job_id in job_ids:
        await cluster.cancel(job_id)
    await cluster.until_count(JobCancelled, len(job_ids))
    await cluster.until_read()
    leases = {
        lease_id
        for event in cluster.events(LeasesChanged)
        if event.reason == "the job was cancelled"
        for lease_id in event.revoked
    }
    await cluster.until(lambda _: leases <= {e.task.lease_id for e in cluster.events(TaskStopped)})
    await cluster.check_log()


def test_a_job_nobody_knows_is_profiled_as_a_process_beside_others(tmp_path: Path) -> None:
    """Copies of it run alone and beside a reference, on workers kept for that; then it is known.

    The job itself runs meanwhile, and of the copies nothing is left. One profile never returns: its
    worker service is gone for good, so it is revoked, and the job is what the others found.
    """

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1,k80=1", **EMULATED)
            profiling(cluster, "v100=2,k80=2")
            profiling(cluster, "p100=1", "worker-q")
            await cluster.until_count(WorkerRegistered, 7)
            await configure(cluster, profile_fraction=0.5, worker_lost_after_s=1.0)
            await cluster.submit("mystery", steps=1e7, job_type="wild")
            provisional = await first(cluster, "mystery", "provisional")
            assert provisional.confidence == 0.0
            await cluster.until(lambda _: len(profiles(cluster)) == 5)
            cluster.kill("worker-q")
            learned = await first(cluster, "mystery", "learned")
            found = cluster.events(ThroughputMeasured)
            assert [each.outcome for each in found] == ["measured"] * 4, found
            assert sorted(each.beside == "" for each in found) == [False, False, True, True]
            assert all(each.seconds >= 1 for each in found)
            assert learned.confidence > 0
            assert learned.row.job_type in {"wild", "job mystery"}
            (lost,) = (i for i, worker_type in profiles(cluster).items() if worker_type == "p100")
            revoked = [lease for each in cluster.events(LeasesChanged) for lease in each.revoked]
            assert revoked == [lost]
            truth = {cell.worker_type: cell.steps_per_s for cell in PAIRED[1].alone}
            assert rates(learned) == pytest.approx(truth, rel=0.3)
            picture = Picture()
            for record in cluster.records:
                picture.take(record)
            told = picture.estimate(picture.jobs["mystery"])
            assert (told.source, told.job_class) == ("learned", learned.row.job_type)
            assert (told.confidence, told.profiles) == (learned.confidence, {"measured": 4})
            left = {path.name for path in (tmp_path / "checkpoints" / ".profiles").iterdir()}
            assert left <= {lost}
            assert not list((tmp_path / "worker-p" / "jobs").glob("*/*"))
            assert not tasks_under(tmp_path / "worker-p")
            await end(cluster, "mystery")
            async with asyncio.timeout(PATIENCE_S):
                # What its dead service has left ends with its lease.
                while tasks_under(tmp_path / "worker-q"):
                    await cluster.log.last_seq()

    asyncio.run(run())


async def first(cluster: Cluster, job_id: str, source: str) -> ThroughputEstimated:
    """The first estimate of a job from such a source, once there is one."""
    await cluster.until(lambda _: bool(estimates_of(cluster, job_id, source)))
    return estimates_of(cluster, job_id, source)[0]


def test_a_profile_that_fails_says_why_and_the_job_goes_on(tmp_path: Path) -> None:
    """Its command ends at once where it is profiled; its provisional estimate stands."""
    code = "import os; 'p' in os.environ['GAVEL_LEASE_ID'] and exit('no such data set')"
    command = (
        f"{shlex.quote(sys.executable)} -c {shlex.quote(code + '; import time; time.sleep(99)')}"
    )

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1", **EMULATED)
            profiling(cluster, "v100=1")
            await cluster.until_count(WorkerRegistered, 2)
            await configure(cluster, profile_fraction=0.0)
            await cluster.submit("broken", steps=1e7, job_type="new", command=command)
            await cluster.until_count(ThroughputMeasured, 1)
            (found,) = cluster.events(ThroughputMeasured)
            assert (found.outcome, found.steps_per_s) == ("failed", 0.0)
            assert "no such data set" in found.detail
            await cluster.until_count(TasksStarted, 1)
            assert not estimates_of(cluster, "broken", "learned")
            assert not cluster.events(JobFailed)
            await end(cluster, "broken")

    asyncio.run(run())


def test_a_profile_whose_service_dies_is_reported_by_its_next_start(tmp_path: Path) -> None:
    """Killed in mid-profile, it starts the copy anew if there is time, and leaves none behind."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1", **EMULATED)
            profiling(cluster, "v100=1")
            await cluster.until_count(WorkerRegistered, 2)
            await configure(cluster, profile_fraction=0.0, profile_s=3.0)
            await cluster.submit("mystery", steps=1e7, job_type="wild")
            await cluster.until_count(LeasesChanged, 1)
            cluster.kill("worker-p")
            cluster.restart("worker-p")
            await cluster.until_count(ThroughputMeasured, 1)
            assert not tasks_under(tmp_path / "worker-p")
            await end(cluster, "mystery")

    asyncio.run(run())


def rates_of_table() -> dict[str, float]:
    """What the table says of the class on one worker, right about the k80."""
    return {cell.worker_type: cell.steps_per_s for cell in TABLE[0].alone}

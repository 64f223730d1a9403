"""What a live cluster survives of its workers: services, tasks and accelerators that go away.

After each, the log verifies and keeps its promises (``Cluster.check_log``).
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from schemas.domain import Lease
from schemas.events import (
    DrainRequested,
    JobCompleted,
    JobRequeued,
    LeaderElected,
    ProgressReported,
    RoundScheduled,
    TasksStarted,
    TaskStopped,
    WorkerLost,
    WorkerRegistered,
    WorkerReturned,
)
from services.worker.system import tasks_under
from tests.live.cluster import PATIENCE_S, Cluster, running_cluster
from tests.live.led import Words, led, until_ended

pytestmark = pytest.mark.live

EMULATED = {"GAVEL_WORKER_TASKS": "emulated"}
#: So long that a lease does not end while the slowest machine restarts a service.
LONG_S, LEAD_S = 300.0, 0.2


async def restart(cluster: Cluster, name: str) -> None:
    """Start a dead service again, and wait until it leads."""
    starts = len(cluster.events(LeaderElected))
    cluster.restart(name)
    await cluster.until_count(LeaderElected, starts + 1)


async def only_task(folder: Path) -> int:
    """The one process of a task, once there is one: between two leases, there is none."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            pids = [pid for processes in tasks_under(folder).values() for pid in processes]
            if len(pids) == 1:
                return pids[0]
            # The system does not tell of processes that begin.
            await asyncio.sleep(0.01)


def test_a_killed_worker_service_finds_its_tasks_again(tmp_path: Path) -> None:
    """Training goes on while the service is dead, and is taken over: the same process completes."""

    async def run() -> None:
        with led(tmp_path) as leader:
            async with running_cluster(tmp_path) as cluster:
                cluster.start_workers("v100=1", **EMULATED)
                await cluster.configure(round_s=LONG_S, plan_lead_s=LEAD_S)
                await cluster.submit("job", steps=40.0, command=leader.command)
                leader.let(20)
                await leader.trained(20)
                before = await only_task(tmp_path)
                cluster.kill("worker-a")
                await restart(cluster, "worker-a")
                assert await only_task(tmp_path) == before
                leader.let(20)
                await cluster.until_count(JobCompleted, 1)
                await cluster.check_log()
                assert len(cluster.events(TasksStarted)) == 1

    asyncio.run(run())


def test_steps_told_before_a_restart_are_not_taken_back_after_it(tmp_path: Path) -> None:
    """A task that says nothing to the restarted service is as far as the log says."""

    async def run() -> None:
        with led(tmp_path) as leader:
            async with running_cluster(tmp_path) as cluster:
                cluster.start_workers("v100=1", **EMULATED)
                await cluster.configure(round_s=2.0)
                await cluster.submit("job", steps=40.0, command=leader.command)
                leader.let(20)
                await cluster.until(lambda _: 20.0 in steps_told(cluster))
                os.kill(await only_task(tmp_path), signal.SIGSTOP)
                cluster.kill("worker-a")
                await restart(cluster, "worker-a")
                told = len(steps_told(cluster))
                await cluster.until(lambda _: len(steps_told(cluster)) > told)
                await cluster.cancel("job")
                await cluster.until_count(TaskStopped, 1)
                await cluster.check_log()

    asyncio.run(run())


def steps_told(cluster: Cluster) -> list[float]:
    """Steps of all rows of rounds, in order."""
    return [row.steps for report in cluster.events(ProgressReported) for row in report.rows]


def test_a_worker_cut_off_while_its_job_finishes(tmp_path: Path) -> None:
    """Away for longer than the lease, lost, its job requeued, it returns: no step is done twice."""

    async def run() -> None:
        with led(tmp_path) as leader:
            async with running_cluster(tmp_path) as cluster:
                cluster.kill("mechanism")
                cluster.start("mechanism", GAVEL_MECHANISM_UNREACHABLE_AFTER_S="1.5")
                cluster.start_workers("v100=1", **EMULATED)
                await cluster.configure(round_s=6.0, worker_lost_after_s=7.0)
                await cluster.submit("job", steps=40.0, command=leader.command)
                leader.let(20)
                await leader.trained(20)
                task = await only_task(tmp_path)
                cluster.services["worker-a"].send_signal(signal.SIGSTOP)
                # Were any step lost, it would wait for more.
                leader.let(20)
                await until_ended(task)
                await cluster.until_count(WorkerLost, 1)
                await cluster.until_count(JobRequeued, 1)
                cluster.services["worker-a"].send_signal(signal.SIGCONT)
                await cluster.until_count(WorkerReturned, 1)
                await cluster.until_count(JobCompleted, 1)
                await cluster.check_log()

    asyncio.run(run())


async def granted(cluster: Cluster, number: int) -> Lease:
    """The n-th lease that is granted, from 0."""

    def leases() -> list[Lease]:
        return [lease for plan in cluster.events(RoundScheduled) for lease in plan.granted]

    await cluster.until(lambda _: len(leases()) > number)
    return leases()[number]


def test_a_lease_that_ends_while_its_service_stands_still(tmp_path: Path) -> None:
    """Unheard, the task saves and leaves; that is no failure, and it goes on from there."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=1", **EMULATED)
            await cluster.configure(round_s=2.0)
            await cluster.submit("job", steps=600.0)
            await cluster.until(lambda _: any(steps_told(cluster)))
            task = await only_task(tmp_path)
            cluster.services["worker-a"].send_signal(signal.SIGSTOP)
            await until_ended(task)
            cluster.services["worker-a"].send_signal(signal.SIGCONT)
            await cluster.until_count(JobCompleted, 1)
            await cluster.check_log()
            assert {event.reason for event in cluster.events(TaskStopped)} == {"completed"}

    asyncio.run(run())


#: Its first save is whole; in the second it stands still, half written.
SAVES = """
import signal, sys
from pathlib import Path
from gavel_iterator import GavelIterator

def say(word):
    with open(sys.argv[1], "w") as pipe:
        print(word, file=pipe)

def save(path):
    again = Path(sys.argv[2]).exists()
    Path(path).write_text("half" if again else "whole")
    say("saving")
    while again:
        signal.pause()
    Path(sys.argv[2]).touch()

def batches():
    while True:
        sum(range(100_000))
        yield None

for _ in GavelIterator(batches(), load=lambda path: say(Path(path).read_text()), save=save):
    pass
"""


def test_a_server_that_dies_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    """Its service and its task killed over a half-written file, the one before is loaded again."""

    async def run() -> None:
        words = Words(tmp_path / "words")
        arguments = (sys.executable, "-c", SAVES, str(words.pipe), str(tmp_path / "saved"))
        async with running_cluster(tmp_path) as cluster:
            cluster.start_workers("v100=3", **EMULATED, GAVEL_WORKER_CHECKPOINT_GRACE_S="60")
            await cluster.configure(round_s=2.0)
            await cluster.submit("job", steps=1e6, command=shlex.join(arguments))
            for lease in range(2):
                # To be moved, it has to save.
                held = await granted(cluster, lease)
                await cluster.order(DrainRequested(worker_id=held.worker_ids[0]))
                await words.until("saving", lease + 1)
            task = await only_task(tmp_path)
            cluster.kill("worker-a")
            os.kill(task, signal.SIGKILL)
            loaded = words.heard.count("whole")
            await restart(cluster, "worker-a")
            await words.until("whole", loaded + 1)
            assert "half" not in words.heard
            await cluster.cancel("job")
            await cluster.until_count(TaskStopped, 1)
            await cluster.check_log()
        words.close()

    asyncio.run(run())


def test_accelerators_that_disappear_and_return(tmp_path: Path) -> None:
    """Of eight, two go with jobs on them: these go on elsewhere, until the two are back."""
    there = tmp_path / "accelerators"

    def set_there(count: int) -> None:
        new = tmp_path / "accelerators.new"
        new.write_text(f"v100={count}")
        new.rename(there)

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            set_there(8)
            cluster.start_workers(f"@{there}")
            await cluster.configure(round_s=2.0)
            for number in range(8):
                await cluster.submit(f"job-{number}", steps=400.0)
            await cluster.until(lambda _: started(cluster) == 8)
            set_there(6)
            await cluster.until_count(WorkerLost, 2)
            cluster.kill("worker-a")
            await restart(cluster, "worker-a")
            await cluster.until_count(JobCompleted, 6)
            set_there(8)
            await cluster.until_count(JobCompleted, 8)
            await cluster.submit("last", steps=10.0)
            await cluster.until_count(JobCompleted, 9)
            await cluster.check_log()
            check_never_leased_while_lost(cluster)

    asyncio.run(run())


def started(cluster: Cluster) -> int:
    """How many leases have started."""
    return sum(len(event.lease_ids) for event in cluster.events(TasksStarted))


def check_never_leased_while_lost(cluster: Cluster) -> None:
    """No plan grants or renews what is on a lost worker."""
    lost: set[str] = set()
    on: dict[str, tuple[str, ...]] = {}
    for record in cluster.records:
        event = record.event
        if isinstance(event, WorkerLost):
            lost.add(event.worker_id)
        elif isinstance(event, WorkerReturned | WorkerRegistered):
            lost.discard(event.worker_id)
        elif isinstance(event, RoundScheduled):
            on |= {lease.lease_id: lease.worker_ids for lease in event.granted}
            held = [*event.renewed, *(lease.lease_id for lease in event.granted)]
            assert lost.isdisjoint(w for lease_id in held for w in on[lease_id])
    assert not lost

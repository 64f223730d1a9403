"""The shell over a real log: replicas that are killed, timers, clean ends, a whole cluster."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from replay.cluster import Cluster
from replay.simulate import WORKER, build_workers, table_rates
from replay.traces.tables import builtin_table
from replay.verify import verify_log
from schemas.decisions import Decision, Effect, Wake
from schemas.domain import JobSpec, Throughput, ThroughputRow
from schemas.events import (
    AnyEvent,
    CancelRequested,
    ClusterConfigured,
    Event,
    JobCompleted,
    JobSubmitted,
    LeaderElected,
    RoundScheduled,
    ThroughputEstimated,
    ThroughputTableImported,
    TimerFired,
)
from schemas.record import Record
from services.runtime import stream
from services.runtime.clock import LogClock
from services.runtime.embedded import EmbeddedServer
from services.runtime.jetstream import JetStreamLog
from services.runtime.live_log import LogFullError
from services.runtime.pull import request
from services.runtime.shell import AlreadyRunningError
from tests.live.servers import MAX_BYTES, connected, kill, new_cluster, shared_server
from tests.live.shells import (
    ROOT,
    Lines,
    LiveCluster,
    Outsider,
    caught_up,
    export,
    running,
    shell_over,
    until,
)

pytestmark = pytest.mark.live

E = TypeVar("E", bound=Event)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's work."""

    async def within() -> None:
        async with asyncio.timeout(100.0):
            await work

    asyncio.run(within())


def of_kind(records: Sequence[Record], kind: type[Event], actor: str = "") -> list[Record]:
    """Records of one kind, and of one writer if named."""
    return [r for r in records if isinstance(r.event, kind) and actor in ("", r.actor)]


def events_of(records: Sequence[Record], kind: type[E], actor: str = "") -> list[E]:
    """What these records say."""
    return [r.event for r in of_kind(records, kind, actor) if isinstance(r.event, kind)]


def verified(records: list[Record], folder: Path) -> None:
    """The cores decide the very same again, and nothing else."""
    report = verify_log(export(records, folder / "log.jsonl"))
    assert report.ok, report.divergence
    assert not report.warnings, report.warnings


def table_of(count: int) -> ThroughputTableImported:
    """A table of as many job types."""
    alone = (Throughput("v100", 1.0),)
    rows = (ThroughputRow(job_type=f"type-{i}", scale_factor=1, alone=alone) for i in range(count))
    return ThroughputTableImported(source="test", rows=tuple(rows))


def job(number: int) -> JobSubmitted:
    """A job of a type of its own, which the estimator answers with one estimate."""
    spec = JobSpec(job_id=f"job-{number}", job_type=f"type-{number}", total_steps=1.0)
    return JobSubmitted(job=spec)


class Replica:
    """A service in a process of its own."""

    def __init__(self, cluster: str, actor: str, replica: str) -> None:
        self._arguments = (shared_server().url, cluster, actor, replica)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it."""
        command = (sys.executable, "-P", "-m", "tests.live.shells", *self._arguments)
        self._process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stderr=asyncio.subprocess.DEVNULL
        )

    def send(self, which: signal.Signals) -> None:
        """Signal it."""
        assert self._process is not None
        self._process.send_signal(which)

    async def end(self, how: signal.Signals) -> int:
        """Signal it, and wait until it is gone; its exit status."""
        self.send(how)
        assert self._process is not None
        return await self._process.wait()


# --- replicas ------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", ["leader", "standby"])
def test_killing_a_replica_loses_and_doubles_no_decision(killed: str, tmp_path: Path) -> None:
    """Killed amid a hundred submits, either replica is replaced; each job is estimated once."""
    count = 100

    async def main() -> None:
        cluster = new_cluster()
        replicas = [Replica(cluster, "estimator", name) for name in ("a", "b")]
        async with connected(cluster) as log:
            await Outsider(log, "operator").append(table_of(count))
            await replicas[0].start()
            await until(log, lambda records: bool(of_kind(records, LeaderElected)))
            await replicas[1].start()
            client = Outsider(log, "client.a")
            for number in range(count // 2):
                await client.append(job(number))
            victim = replicas.pop(0 if killed == "leader" else 1)
            await victim.end(signal.SIGKILL)
            for number in range(count // 2, count):
                await client.append(job(number))
            records = await until(
                log, lambda found: len(of_kind(found, ThroughputEstimated)) == count
            )
            assert killed == "standby" or len(of_kind(records, LeaderElected)) > 1
            assert await replicas[0].end(signal.SIGTERM) == 0
            records = [record async for record in log.read()]
        estimated = [event.row.job_type for event in events_of(records, ThroughputEstimated)]
        assert sorted(estimated) == sorted(f"type-{number}" for number in range(count))
        verified(records, tmp_path)

    run(main())


def test_a_leader_that_hangs_is_replaced_and_refused_when_it_wakes(tmp_path: Path) -> None:
    """Stopped in mid-life, it misses its successor's start; what it then appends is fenced."""
    count = 40

    async def main() -> None:
        cluster = new_cluster()
        hung, standby = (Replica(cluster, "estimator", name) for name in ("a", "b"))
        async with connected(cluster) as log:
            await Outsider(log, "operator").append(table_of(count))
            await hung.start()
            await until(log, lambda records: bool(of_kind(records, LeaderElected)))
            await standby.start()
            client = Outsider(log, "client.a")
            for number in range(count // 2):
                await client.append(job(number))
            hung.send(signal.SIGSTOP)
            for number in range(count // 2, count):
                await client.append(job(number))
            await until(log, lambda found: len(of_kind(found, LeaderElected)) == 2)
            hung.send(signal.SIGCONT)
            await until(log, lambda found: len(of_kind(found, ThroughputEstimated)) == count)
            for replica in (hung, standby):
                assert await replica.end(signal.SIGTERM) == 0
            verified([record async for record in log.read()], tmp_path)

    run(main())


def test_a_cut_off_leader_steps_down() -> None:
    """When another has started in its absence, it stands by and appends nothing more."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as log, connected(cluster) as other:
            await Outsider(log, "operator").append(table_of(3))
            shell = shell_over(log, "estimator")
            async with running(shell):
                await until(other, lambda records: bool(of_kind(records, LeaderElected)))
                rival = shell_over(other, "estimator", replica="rival")
                for record in [record async for record in other.read()]:
                    rival.actor.fold(record)
                assert await other.append(rival.actor.elect("rival", 1)) is not None
                await until(log, lambda records: len(of_kind(records, LeaderElected)) == 2)
                await Outsider(log, "client.a").append(job(1))
                # The rival never answers, so the first leads again after a while.
                records = await until(
                    other, lambda found: bool(of_kind(found, ThroughputEstimated))
                )
            epochs = [record.epoch for record in of_kind(records, LeaderElected)]
            assert epochs == [1, 2, 3]
            assert [r.epoch for r in of_kind(records, ThroughputEstimated)] == [3]

    run(main())


def test_a_second_worker_of_one_name_is_refused() -> None:
    """It is told that the first runs, and as what; the first goes on."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as log, connected(cluster) as other:
            first = shell_over(log, "worker.w", executor=_Idle(), stands_by=False)
            async with running(first):
                await until(other, lambda records: bool(of_kind(records, LeaderElected)))
                second = shell_over(other, "worker.w", executor=_Idle(), stands_by=False)
                with pytest.raises(AlreadyRunningError, match=f"runs already, as {first.replica}"):
                    await second.run()
                assert first.leading

    run(main())


class _Idle:
    """A worker's hands that find nothing to do."""

    async def carry_out(self, effect: object, report: object) -> None:
        """See ``Executor``."""


# --- timers --------------------------------------------------------------------------------------


class Metronome:
    """A core that asks for a timer every so often, and counts those that fired."""

    handles = (LeaderElected, TimerFired, CancelRequested)
    effects: ClassVar[tuple[type[Effect], ...]] = ()

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self.fired: list[str] = []

    def handle(self, event: AnyEvent, now: float) -> Sequence[Decision]:
        """See ``Core``."""
        if isinstance(event, CancelRequested):
            return (Wake("0", now + self._every_s),)
        if isinstance(event, TimerFired):
            self.fired.append(event.timer)
            return (Wake(str(len(self.fired)), event.due_s + self._every_s),)
        return ()


def _has_beats(count: int, records: list[Record]) -> bool:
    return len(of_kind(records, TimerFired)) >= count


@pytest.mark.parametrize("off_s", [2.0, -2.0, -3600.0, 2e9])
def test_timers_fire_in_log_time_whatever_the_host_s_clock_says(off_s: float) -> None:
    """None is in the log before it is due, nor later by what the clock is off."""
    count = 50

    def clock() -> float:
        return time.monotonic() + off_s

    async def main() -> None:
        async with connected(new_cluster(), clock=clock) as log:
            shell = shell_over(log, "mechanism", core=Metronome(0.02), monotonic=clock)
            async with running(shell):
                await Outsider(log, "client.a").append(CancelRequested(job_id="start"))
                records = await until(log, lambda found: len(of_kind(found, TimerFired)) == count)
            due = [event.due_s for event in events_of(records, TimerFired)]
            fired = [record.at for record in of_kind(records, TimerFired)]
            # The least late one: a busy machine is not what the clock is off.
            assert 0.0 <= min(at - due_s for at, due_s in zip(fired, due, strict=True)) < 1.0

    run(main())


def test_a_timer_due_while_nobody_led_fires_at_once() -> None:
    """The next start finds it open, and fires it with the time it was due at, before any other."""

    async def main() -> None:
        async with connected(new_cluster()) as log:
            async with running(shell_over(log, "mechanism", core=Metronome(60.0))):
                await until(log, lambda records: bool(of_kind(records, LeaderElected)))
            await Outsider(log, "client.a").append(CancelRequested(job_id="start"))
            async with running(shell_over(log, "mechanism", core=Metronome(0.0))):
                records = await until(log, lambda found: bool(of_kind(found, TimerFired)))
            (asked,) = of_kind(records, CancelRequested)
            ended, started = of_kind(records, LeaderElected)[-2:]
            fired = of_kind(records, TimerFired)[0]
            assert ended.seq < asked.seq < started.seq < fired.seq
            assert fired.event == TimerFired(timer="0", due_s=asked.at)

    run(main())


# --- ends and beginnings -------------------------------------------------------------------------


def test_a_clean_stop_settles_what_was_decided() -> None:
    """Stopped, it has appended all events, and names its timers; the next start goes on there."""

    async def main() -> None:
        async with connected(new_cluster()) as log:
            await Outsider(log, "operator").append(table_of(2))
            shell = shell_over(log, "estimator")
            async with running(shell):
                await until(log, lambda records: bool(of_kind(records, LeaderElected)))
                await Outsider(log, "client.a").append(job(0))
                await caught_up(shell)
            shell = shell_over(log, "mechanism", core=Metronome(60.0))
            async with running(shell):
                await until(log, lambda records: records[-1].actor == "mechanism")
                await Outsider(log, "client.b").append(CancelRequested(job_id="start"))
                await caught_up(shell)
            records = [record async for record in log.read()]
            assert len(of_kind(records, ThroughputEstimated)) == 1
            last = {r.actor: r for r in of_kind(records, LeaderElected)}
            asked = of_kind(records, CancelRequested)[0]
            estimator, mechanism = last["estimator"].event, last["mechanism"].event
            assert isinstance(estimator, LeaderElected)
            assert isinstance(mechanism, LeaderElected)
            assert estimator.still_open == ()
            assert estimator.settled >= of_kind(records, ThroughputEstimated)[0].seq
            assert mechanism.still_open == ((asked.seq, 0),)

    run(main())


def test_a_clean_stop_hands_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standby need not wait for silence: it has read that the leader has ended."""
    monkeypatch.setattr("services.runtime.shell._SILENCE_S", 3600.0)

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as log, connected(cluster) as other:
            lines = Lines()
            standby = shell_over(other, "estimator", replica="b", logger=lines)
            async with AsyncExitStack() as outer:
                async with running(shell_over(log, "estimator")):
                    await until(log, lambda records: bool(of_kind(records, LeaderElected)))
                    await outer.enter_async_context(running(standby))
                    await lines.until("restored")
                await until(log, lambda records: len(of_kind(records, LeaderElected)) == 3)
                await lines.until("leading")

    run(main())


def test_a_full_log_is_waited_out() -> None:
    """Nothing is dropped: with more room, what was decided in the meantime is appended."""

    async def main() -> None:
        async with connected(new_cluster(), max_bytes=4 << 10) as log:
            operator = Outsider(log, "operator")
            await operator.append(table_of(8))
            shell = shell_over(log, "estimator")
            async with running(shell):
                await until(log, lambda records: bool(of_kind(records, LeaderElected)))
                client = Outsider(log, "client.a")
                number = 0
                with suppress(LogFullError):
                    for number in range(8):
                        await client.append(job(number))
                assert number < 7
                larger = stream.settings(log.cluster, 1 << 20, 1)
                await request(log.inbox, f"STREAM.UPDATE.{log.name}", larger)
                await until(log, lambda found: len(of_kind(found, ThroughputEstimated)) == number)
                assert (await shell.status()).log_fullness < 0.1

    run(main())


def test_killing_the_server_loses_and_doubles_no_timer(tmp_path: Path) -> None:
    """Killed twice amid a metronome's beats, the server is back with each beat once, in time."""
    count = 60

    async def main(server: EmbeddedServer) -> None:
        async with connected(new_cluster(), server, try_timeout_s=0.5) as log:
            core = Metronome(0.02)
            async with running(shell_over(log, "mechanism", core=core)):
                await Outsider(log, "client.a").append(CancelRequested(job_id="start"))
                for beats in (count // 3, 2 * count // 3):
                    await until(log, partial(_has_beats, beats))
                    await kill(server)
                    server.start()
                records = await until(log, lambda found: len(of_kind(found, TimerFired)) >= count)
        fired = [event.timer for event in events_of(records, TimerFired)]
        assert fired == [str(number) for number in range(len(fired))]
        due = [event.due_s for event in events_of(records, TimerFired)]
        assert due == pytest.approx([due[0] + 0.02 * number for number in range(len(due))])

    with EmbeddedServer(tmp_path) as server:
        run(main(server))


def test_without_a_log_a_service_stops_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot append, its next start makes good: that is no failure of this one."""
    monkeypatch.setattr("services.runtime.shell._SETTLE_PATIENCE_S", 0.2)

    async def main(server: EmbeddedServer) -> None:
        async with connected(new_cluster(), server) as log:
            lines = Lines()
            shell = shell_over(log, "estimator", logger=lines)
            running_shell = asyncio.create_task(shell.run())
            await lines.until("leading")
            await kill(server)
            shell.stop()
            await running_shell

    with EmbeddedServer(tmp_path) as server:
        run(main(server))


def test_the_connection_s_end_is_the_process_s_end() -> None:
    """A closed connection is no silent standstill: the shell ends, saying so."""

    async def main() -> None:
        log = await JetStreamLog.connect(shared_server().url, new_cluster(), max_bytes=MAX_BYTES)
        running_shell = asyncio.create_task(shell_over(log, "estimator").run())
        async with connected(log.cluster) as other:
            await until(other, lambda records: bool(of_kind(records, LeaderElected)))
        await log.close()
        with pytest.raises(Exception, match="closed"):
            await running_shell

    run(main())


def test_a_cluster_runs_its_jobs_though_its_mechanism_is_killed(tmp_path: Path) -> None:
    """Four services live: no round twice, no job lost, and the log is what the cores decide."""
    table = builtin_table()
    job_type = next(iter(sorted(row.job_type for row in table.rows())))

    async def main() -> None:
        cluster = new_cluster()
        async with (
            connected(cluster) as log,
            connected(cluster) as log_b,
            connected(cluster) as log_c,
            connected(cluster) as log_d,
        ):
            operator, client = Outsider(log, "operator"), Outsider(log, "client.a")
            await operator.append(ClusterConfigured(policy="las", round_duration_s=0.5))
            rows = tuple(table.rows([(job_type, 1)]))
            await operator.append(ThroughputTableImported(source="test", rows=rows))
            clock = LogClock()
            workers = build_workers({"v100": 2}, {}, {})
            hands = LiveCluster(Cluster(workers, table_rates(table)), clock)
            leader, standby = (Replica(cluster, "mechanism", name) for name in ("a", "b"))
            await leader.start()
            shells = (
                shell_over(log_b, "estimator"),
                shell_over(log_c, "policy"),
                shell_over(log_d, WORKER, executor=hands, clock=clock),
            )
            async with running(*shells):
                rate = table.alone(job_type, 1, "v100") or 0.0
                for number in range(4):
                    spec = JobSpec(
                        job_id=f"job-{number}", job_type=job_type, total_steps=rate * 1.2
                    )
                    await client.append(JobSubmitted(job=spec))
                await until(log, lambda found: len(of_kind(found, RoundScheduled)) >= 2)
                await standby.start()
                await until(log, lambda found: len(of_kind(found, RoundScheduled)) >= 4)
                await leader.end(signal.SIGKILL)
                await until(log, lambda found: len(of_kind(found, JobCompleted)) == 4)
                assert await standby.end(signal.SIGTERM) == 0
            records = [record async for record in log.read()]
            rounds = [event.round_id for event in events_of(records, RoundScheduled)]
            assert rounds == sorted(set(rounds))
            # Two have led, and the second has ended.
            assert len(of_kind(records, LeaderElected, "mechanism")) >= 3
            verified(records, tmp_path)

    run(main())

"""A whole live cluster for tests: a real server, each service a real process, to be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self, TypeVar

from replay.verify import verify_log
from schemas.domain import JobSpec, Throughput, ThroughputRow
from schemas.events import (
    AnyEvent,
    CancelRequested,
    ClusterConfigured,
    Event,
    JobSubmitted,
    ThroughputTableImported,
)
from schemas.record import Record
from services.runtime.embedded import EmbeddedServer
from services.runtime.jetstream import JetStreamLog
from services.worker.system import tasks_under
from tests.live.servers import MAX_BYTES
from tests.live.shells import Outsider, export
from tests.simulation.invariants import violations

E = TypeVar("E", bound=Event)

#: For whatever is waited for: only a failing test waits so long, even on a busy machine.
PATIENCE_S = 60.0
_SHOWN_CHARS = 2000

ROOT = Path(__file__).resolve().parents[2]
CONTROLLERS = ("policy", "mechanism", "estimator")
#: A job class, for jobs that need no thought: alone on one worker, and on two.
CLASS = "small"
TABLE = (
    ThroughputRow(
        job_type=CLASS, scale_factor=1, alone=(Throughput("k80", 20.0), Throughput("v100", 100.0))
    ),
    ThroughputRow(
        job_type=CLASS, scale_factor=2, alone=(Throughput("k80", 40.0), Throughput("v100", 200.0))
    ),
)


class Server(Protocol):
    """Where the log is."""

    url: str

    def start(self) -> None:
        """Have it take appends."""
        ...

    def stop(self) -> None:
        """Have it end."""
        ...


class Cluster:
    """Processes over a folder.

    ``records`` is the log as read so far, ``said`` what each service has printed.
    """

    def __init__(self, folder: Path, server: Server | None = None, name: str = "test") -> None:
        self.folder = folder
        self.server = server or EmbeddedServer(folder / "nats")
        self.name = name
        self.services: dict[str, subprocess.Popen[bytes]] = {}
        self.records: list[Record] = []
        self.said: dict[str, str] = defaultdict(str)
        #: {service: interpreter}, where not the tests' own.
        self.pythons: dict[str, Path] = {}
        self._commands: dict[str, tuple[str, dict[str, str]]] = {}
        #: What is still read of services' output.
        self._outputs: set[IO[bytes]] = set()
        #: Set whenever something is read, of the log or of a service's output.
        self._news = asyncio.Event()
        self._operators = 0
        self._clients: dict[str, Outsider] = {}
        self._reading: asyncio.Task[None] | None = None
        self.log: JetStreamLog

    async def __aenter__(self) -> Self:
        """Start the server; no service runs yet."""
        self.server.start()
        return self

    async def connect(self, user: str = "", password: str = "") -> None:
        """Read the log, made if there is none and the user may."""
        credentials = {"user": user, "password": password} if user else {}
        self.log = await JetStreamLog.connect(
            self.server.url, self.name, name="cli", max_bytes=MAX_BYTES, credentials=credentials
        )
        self._reading = asyncio.create_task(self._follow())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop all that runs, and show what it said if a test fails."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        try:
            await self._end_services()
        finally:
            self._end_at_once()
            if self._reading is not None:
                await self.log.close()
            self.server.stop()
        if error is not None:
            for name, text in self.said.items():
                sys.stderr.write(f"--- {name}\n{text[-_SHOWN_CHARS:]}")

    async def _end_services(self) -> None:
        """Have the services end as an operator would."""
        for process in self.services.values():
            process.terminate()
        for process in self.services.values():
            await asyncio.to_thread(process.wait, PATIENCE_S)

    def _end_at_once(self) -> None:
        """End what is left, tasks too."""
        for process in self.services.values():
            process.kill()
            process.wait()
        for pids in tasks_under(self.folder).values():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for output in tuple(self._outputs):
            self._hear("", output, last=True)

    # --- processes -------------------------------------------------------------------------------

    def start(self, *names: str, **settings: str) -> None:
        """Start services; ``worker-a`` is a worker service of name ``a``. Settings as variables."""
        for name in names:
            role, _, instance = name.partition("-")
            if instance:
                settings = {"GAVEL_WORKER_NAME": instance, **settings}
            self._commands[name] = (role, settings)
            self._spawn(name)

    def start_workers(self, accelerators: str, name: str = "worker-a", **settings: str) -> None:
        """Start a worker service with in-process tasks, unless told otherwise."""
        defaults = {
            "GAVEL_WORKER_ACCELERATORS": accelerators,
            "GAVEL_WORKER_TASKS": "in_process",
            "GAVEL_WORKER_FOLDER": str(self.folder / name),
            "GAVEL_WORKER_CHECKPOINT_ROOT": str(self.folder / "checkpoints"),
        }
        self.start(name, **(defaults | settings))

    def _spawn(self, name: str) -> None:
        role, settings = self._commands[name]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GAVEL_")}
        environment |= {
            "GAVEL_LOG_SERVERS": self.server.url,
            "GAVEL_LOG_CLUSTER": self.name,
            "GAVEL_LOG_MAX_BYTES": str(MAX_BYTES),
        }
        process = self.services[name] = subprocess.Popen(
            [self.pythons.get(role, sys.executable), "-P", "-m", f"services.{role}"],
            cwd=self.folder,
            env=environment | {"PYTHONPATH": str(ROOT)} | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._outputs.add(process.stdout)
        asyncio.get_running_loop().add_reader(process.stdout, self._hear, name, process.stdout)

    def _hear(self, name: str, output: IO[bytes], *, last: bool = False) -> None:
        """Take in what a service prints; nothing at all: it has ended."""
        data = b"" if last else output.read()
        if data is None:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(output)
            self._outputs.remove(output)
            output.close()
        self.said[name] += data.decode(errors="replace")
        self._news.set()

    async def until_said(self, name: str, text: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until a service has printed something."""
        await self.until(lambda _: text in self.said[name], patience_s)

    def kill(self, name: str) -> None:
        """End a service without a word."""
        self.services[name].send_signal(signal.SIGKILL)
        self.services[name].wait()

    def restart(self, name: str) -> None:
        """Start a dead service again, as it was started."""
        self._spawn(name)

    # --- the log ---------------------------------------------------------------------------------

    async def configure(
        self,
        round_s: float = 2.0,
        table: tuple[ThroughputRow, ...] = TABLE,
        **settings: object,
    ) -> None:
        """Append how the cluster is run, and a throughput table."""
        config = ClusterConfigured(round_duration_s=round_s, **settings)  # type: ignore[arg-type] # checked there
        await self.order(config, ThroughputTableImported(source="test", rows=table))

    async def order(self, *events: AnyEvent) -> None:
        """Append what an operator says."""
        operator = Outsider(self.log, f"operator.test{self._operators}")
        self._operators += 1
        for event in events:
            await operator.append(event)

    async def submit(self, job_id: str, steps: float, **fields: object) -> None:
        """Append a job."""
        spec = {"job_type": CLASS, "total_steps": steps} | fields
        job = JobSpec(job_id=job_id, **spec)  # type: ignore[arg-type] # as it is there
        self._clients[job_id] = Outsider(self.log, f"client.{job_id}")
        await self._clients[job_id].append(JobSubmitted(job=job))

    async def cancel(self, job_id: str) -> None:
        """Append that a job is to be cancelled."""
        await self._clients[job_id].append(CancelRequested(job_id=job_id))

    async def until(
        self, enough: Callable[[list[Record]], bool], patience_s: float = PATIENCE_S
    ) -> None:
        """Wait until the log's records are enough."""
        async with asyncio.timeout(patience_s):
            while not enough(self.records):
                self._news.clear()
                await self._news.wait()

    async def until_count(
        self, kind: type[Event], count: int, patience_s: float = PATIENCE_S
    ) -> None:
        """Wait until the log has so many events of a kind."""
        await self.until(lambda _: len(self.events(kind)) >= count, patience_s)

    def events(self, kind: type[E]) -> list[E]:
        """The events of a kind, as read so far."""
        return [r.event for r in self.records if isinstance(r.event, kind)]

    def event_count(self, actor: str, kind: type[AnyEvent]) -> int:
        """How many events of a kind an actor has in the log."""
        return sum(r.actor == actor and isinstance(r.event, kind) for r in self.records)

    async def until_read(self) -> None:
        """Read what the log holds now."""
        last = await self.log.last_seq()
        await self.until(lambda records: records[-1].seq >= last)

    async def check_log(self) -> None:
        """The exported log verifies, and keeps the cluster's promises."""
        await self.until_read()
        path = export(self.records, self.folder / "export.jsonl")
        report = verify_log(path)
        assert report.ok, report.divergence
        broken = violations(self.records)
        assert not broken, "\n".join(broken[:5])

    async def _follow(self) -> None:
        async for record, _ in self.log.follow():
            self.records.append(record)
            self._news.set()


@asynccontextmanager
async def running_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster whose policy, mechanism and estimator run."""
    async with Cluster(folder) as cluster:
        await cluster.connect()
        cluster.start(*CONTROLLERS)
        yield cluster

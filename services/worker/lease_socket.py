"""The Unix socket between this worker service and its training processes.

The seam to processes that are somebody else's: connections come, lie, break off and return, and
the executor sees ``Report`` only, of what holds by ``ranks.py``. What does not is refused: counted
by name, logged, answered; the connection stays unless it cannot be read on.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from schemas.domain import TaskSpec
from services.worker.ranks import (
    LINE_LIMIT,
    Hello,
    Message,
    Proposal,
    Ranks,
    RefusedError,
    TaskSteps,
    decode,
)

_HELLO_PATIENCE_S = 10.0
#: A connection that has earned this many refusals is closed.
_REFUSALS_BORNE = 20
_LONGEST_PATH = 107


class LeaseSocketError(Exception):
    """The socket cannot be opened; the message says why, and what would help."""


class Logger(Protocol):
    """As much of a structured logger as is needed here."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Something is wrong that a person may want to know."""
        ...


class Gone(Message, frozen=True, gc=False, tag="gone"):
    """The rank's connection is closed; the process may live, and may come back."""


class Agreeable(Message, frozen=True, gc=False, tag="agreeable"):
    """All ranks of this server have proposed; none goes past this iteration for now."""

    iteration: int


class Report(msgspec.Struct, frozen=True):
    """What a rank has said, and holds; or what has become of its connection."""

    lease_id: str
    job_id: str
    #: None for ``Agreeable``, which is of all ranks here.
    rank: int | None
    #: The process, by the kernel's word; 0 if it is in a namespace of its own.
    pid: int
    message: Message


@dataclass(slots=True)
class _Task:
    """One job under one lease, and what its ranks have been told."""

    lease_id: str
    ranks: Ranks
    ends_at_s: float
    proposing: bool = False
    stop_at: int | None = None
    #: {rank: its connection}
    speakers: dict[int, _Speaker] = field(default_factory=dict)
    #: {rank: process last seen as it}
    pids: dict[int, int] = field(default_factory=dict)

    def tell(self, kind: str, **fields: float) -> None:
        for speaker in self.speakers.values():
            _write(speaker.writer, kind, **fields)


@dataclass(slots=True)
class _Speaker:
    """A connection that has said who it is."""

    task: _Task
    rank: int
    pid: int
    writer: asyncio.StreamWriter
    refused: int = 0


def task_environment(
    socket_path: Path, lease_id: str, task: TaskSpec, rank: int, progress_interval_s: float
) -> dict[str, str]:
    """The variables by which a training process finds its lease (the SDK's ``settings.py``)."""
    return {
        "GAVEL_SOCKET": str(socket_path),
        "GAVEL_LEASE_ID": lease_id,
        "GAVEL_JOB_ID": task.job_id,
        "GAVEL_RANK": str(rank),
        "GAVEL_WORLD_SIZE": str(task.scale_factor),
        "GAVEL_TOTAL_STEPS": repr(task.total_steps),
        "GAVEL_CHECKPOINT_DIR": task.checkpoint_dir,
        "GAVEL_RESUME_FROM": task.resume_from,
        "GAVEL_PROGRESS_INTERVAL_S": repr(progress_interval_s),
    }


class LeaseSocket:
    """A Unix socket that the training processes of expected tasks may connect to.

    Parameters
    ----------
    path
        Where the socket lies; its folder is best closed to others.
    report
        Called in the event loop with each report; it must not block.
    logger
        Refusals go there.
    unknown_lease_patience_s
        How long a process of a lease that is not known waits to be expected: one that was started
        just before its service died may speak before the next start has read the log.
    """

    def __init__(
        self,
        path: Path,
        report: Callable[[Report], None],
        logger: Logger,
        unknown_lease_patience_s: float = 0.0,
    ) -> None:
        self.path = path
        self._unknown_lease_patience_s = unknown_lease_patience_s
        #: Set whenever a task comes to be expected.
        self._news = asyncio.Event()
        #: {kind: how often}
        self.refusals: Counter[str] = Counter()
        self._report = report
        self._logger = logger
        self._tasks: dict[tuple[str, str], _Task] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen.

        Raises
        ------
        LeaseSocketError
            The path is too long or not writable, or somebody listens there.
        """
        length = len(os.fsencode(self.path))
        if length > _LONGEST_PATH:
            raise LeaseSocketError(
                f"{self.path} has {length} bytes: the path of a Unix socket has at most "
                f"{_LONGEST_PATH}; choose a shorter folder"
            )
        try:
            if self.path.is_socket():
                _remove_abandoned(self.path)
            self._server = await asyncio.start_unix_server(
                self._accept, self.path, limit=LINE_LIMIT
            )
            self.path.chmod(0o600)
        except OSError as error:
            raise LeaseSocketError(f"{self.path}: cannot listen there: {error}") from error

    async def close(self) -> None:
        """Close all connections; training goes on until the leases end."""
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self.path.unlink(missing_ok=True)
        self._server = None

    def expect(
        self, lease_id: str, task: TaskSpec, ranks: Collection[int], ends_in_s: float
    ) -> None:
        """Let these ranks of a task connect; to be called before they start."""
        self._tasks[lease_id, task.job_id] = _Task(lease_id, Ranks(task, ranks), _now() + ends_in_s)
        self._news.set()

    def forget(self, lease_id: str, job_id: str) -> None:
        """The task is over: its connections are closed, new ones refused."""
        task = self._tasks.pop((lease_id, job_id))
        for speaker in task.speakers.values():
            speaker.writer.close()

    def renew(self, lease_id: str, ends_in_s: float) -> None:
        """The lease goes on: its tasks are told, training is not disturbed."""
        for task in self._tasks.values():
            if task.lease_id == lease_id:
                task.ends_at_s = _now() + ends_in_s
                task.tell("lease", ends_in_s=ends_in_s)

    def propose(self, lease_id: str, job_id: str) -> None:
        """Ask each rank for a step ahead; ``Agreeable`` is reported once all have answered."""
        task = self._tasks[lease_id, job_id]
        task.ranks.forget_proposals()
        task.proposing = True
        task.tell("propose")

    def stop(self, lease_id: str, job_id: str, at: int = 0) -> None:
        """Let all ranks save and leave at an iteration; 0: each at its next step."""
        task = self._tasks[lease_id, job_id]
        task.proposing, task.stop_at = False, at
        task.tell("stop", at=at)

    def checkpoint(self, lease_id: str, job_id: str, at: int = 0) -> None:
        """Let all ranks save at an iteration, and go on; 0: each at its next step."""
        task = self._tasks[lease_id, job_id]
        task.proposing = False
        task.tell("checkpoint", at=at)

    def steps(self, lease_id: str, job_id: str) -> TaskSteps | None:
        """How far the task is; None until each of its ranks here has loaded."""
        return self._tasks[lease_id, job_id].ranks.steps()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        speaker: _Speaker | None = None
        try:
            speaker = await self._greet(reader, writer)
            while speaker and (line := await _read_line(reader)):
                self._hear(speaker, line)
        except RefusedError as refusal:
            self._refuse(refusal, writer, speaker)
        except (ConnectionError, asyncio.CancelledError):
            pass  # Lost, or closed by us: either way there is nothing more to hear.
        finally:
            self._connections.discard(connection)
            if speaker and speaker.task.speakers.get(speaker.rank) is speaker:
                del speaker.task.speakers[speaker.rank]
                self._tell(speaker, Gone())
            writer.close()

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> _Speaker | None:
        """Who speaks; None where the connection ends before it has said so."""
        try:
            line = await asyncio.wait_for(_read_line(reader), _HELLO_PATIENCE_S)
        except TimeoutError:
            raise RefusedError("silent", f"no hello within {_HELLO_PATIENCE_S:g} s") from None
        if not line:
            return None
        hello = decode(line)
        if not isinstance(hello, Hello):
            raise RefusedError("no_hello", f"the first line is {type(hello).__name__}, not Hello")
        task = await self._expected(hello)
        if task is None:
            raise RefusedError(
                "unknown_lease", f"lease {hello.lease!r} of job {hello.job!r} is not out here"
            )
        pid = _peer_pid(writer)
        taken = task.speakers.get(hello.rank)
        if taken and taken.pid != pid:
            raise RefusedError("rank_taken", f"rank {hello.rank} is process {taken.pid} already")
        task.ranks.greet(hello, is_new=task.pids.get(hello.rank) != pid)
        if taken:
            taken.writer.close()
        speaker = _Speaker(task, hello.rank, pid, writer)
        task.pids[hello.rank], task.speakers[hello.rank] = pid, speaker
        _write(writer, "lease", ends_in_s=max(task.ends_at_s - _now(), 0.0))
        if task.proposing:
            _write(writer, "propose")
        if task.stop_at is not None:
            _write(writer, "stop", at=task.stop_at)
        self._tell(speaker, hello)
        return speaker

    async def _expected(self, hello: Hello) -> _Task | None:
        """The task that a process says it is of, as soon as it is expected; None if it never is."""
        key = (hello.lease, hello.job)
        try:
            async with asyncio.timeout(self._unknown_lease_patience_s):
                while key not in self._tasks:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return None
        return self._tasks[key]

    def _hear(self, speaker: _Speaker, line: bytes) -> None:
        """Take in one line; what is refused changes nothing."""
        try:
            message = decode(line)
            speaker.task.ranks.hear(speaker.rank, message)
        except RefusedError as refusal:
            speaker.refused += 1
            if speaker.refused >= _REFUSALS_BORNE:
                raise
            self._refuse(refusal, speaker.writer, speaker)
            return
        self._tell(speaker, message)
        step = speaker.task.ranks.agreeable()
        if isinstance(message, Proposal) and speaker.task.proposing and step is not None:
            speaker.task.proposing = False
            job_id = speaker.task.ranks.spec.job_id
            self._report(Report(speaker.task.lease_id, job_id, None, 0, Agreeable(step)))

    def _refuse(
        self, refusal: RefusedError, writer: asyncio.StreamWriter, speaker: _Speaker | None
    ) -> None:
        self.refusals[refusal.kind] += 1
        self._logger.warning(
            "refused a message on the lease socket",
            kind=refusal.kind,
            reason=str(refusal),
            pid=_peer_pid(writer),
            lease=speaker.task.lease_id if speaker else None,
            rank=speaker.rank if speaker else None,
        )
        _write(writer, "refused", kind=refusal.kind, reason=str(refusal))

    def _tell(self, speaker: _Speaker, message: Message) -> None:
        job_id = speaker.task.ranks.spec.job_id
        report = Report(speaker.task.lease_id, job_id, speaker.rank, speaker.pid, message)
        self._report(report)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _write(writer: asyncio.StreamWriter, message: str, /, **fields: float | str) -> None:
    if not writer.is_closing():
        writer.write(msgspec.json.encode({"type": message, **fields}) + b"\n")


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """One whole line; empty at the end. A line that a kill has cut short is none."""
    try:
        line = await reader.readline()
    except ValueError as error:
        raise RefusedError("too_long", f"a line has at most {LINE_LIMIT} bytes") from error
    return line if line.endswith(b"\n") else b""


def _peer_pid(writer: asyncio.StreamWriter) -> int:
    """The process at the other end, by the kernel's word and not its own."""
    connection = writer.get_extra_info("socket")
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    return int(struct.unpack("3i", credentials)[0])


def _remove_abandoned(path: Path) -> None:
    """Remove a socket that nobody listens on any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise LeaseSocketError(f"{path}: another worker service listens there; stop it first")

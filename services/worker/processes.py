"""Tasks as processes: started, heard on the lease socket, stopped, found again after a restart.

A task's processes outlive this service on purpose: training goes on to its lease's end while the
service is upgraded or has crashed. They carry their task's folder in their environment, by which
the next start of the service finds them and whatever they have forked.

::

    <folder>/lease.sock
    <folder>/jobs/<job id>/<lease id>/rank-<rank>.log    and .log.1, the part before
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from schemas.domain import Lease, TaskSpec
from schemas.events import WorkerRegistered
from schemas.subjects import is_safe_name
from services.worker.devices import Accelerators
from services.worker.hands import Counts, Ending, Profile
from services.worker.launch import Launcher, LaunchError, Settings
from services.worker.lease_socket import Agreeable, Gone, LeaseSocket, Logger, Report
from services.worker.measuring import Profiler
from services.worker.ranks import Done, Error, Hello, Stopped
from services.worker.resume import newest_checkpoint
from services.worker.system import (
    end_all,
    exit_code,
    gone,
    kill_group,
    leads_session,
    tasks_under,
)
from services.worker.task_log import cut, last_line
from services.worker.view import LogView

_LOOK_EVERY_S = 1.0
#: Less than a starting process waits to be answered.
_RESTORED_WITHIN_S = 8.0
#: Ranks are useless without each other: how long the others may go on when one has failed.
_WITHOUT_ONE_S = 2.0
#: How long what was killed may take to be gone, and its last words to be read.
_GONE_WITHIN_S = 5.0
#: A lead for what happens around saving, and for the ranks of a gang to meet at one step.
_STOP_LEAD_S, _MEETING_S = 0.1, 2.2

_Key = tuple[str, str]


@dataclass(frozen=True)
class Tools:
    """What the tasks of one service share."""

    launcher: Launcher
    socket: LeaseSocket
    view: LogView
    now: Callable[[], float]
    settings: Settings


class ProcessHands:
    """Starts tasks as processes.

    Parameters
    ----------
    accelerators : what the tasks run on
    view, now : fold of the log, and log time
    """

    def __init__(
        self,
        accelerators: Accelerators,
        settings: Settings,
        view: LogView,
        now: Callable[[], float],
        logger: Logger,
    ) -> None:
        self._accelerators = accelerators
        socket = LeaseSocket(
            settings.folder / "lease.sock",
            self._hear,
            logger,
            unknown_lease_patience_s=_RESTORED_WITHIN_S,
        )
        launcher = Launcher(settings, accelerators.cuda_ids, view, socket.path)
        self._tools = Tools(launcher, socket, view, now, settings)
        self._profiler = Profiler(settings, view, socket, self._start_copy, now)
        self._tasks: dict[_Key, ProcessTask] = {}
        #: What a dead process of this service has left: {task: {rank: pid}}
        self._left: dict[_Key, dict[int, int]] = {}

    async def open(self) -> None:
        """Listen to tasks, and look for those that run already.

        Raises
        ------
        LeaseSocketError
            Another service of this name runs here.
        """
        self._tools.settings.folder.mkdir(parents=True, exist_ok=True)
        self._tools.settings.checkpoint_root.mkdir(parents=True, exist_ok=True)
        await self._tools.socket.open()
        for folder, found in tasks_under(self._tools.settings.folder / "jobs").items():
            self._left[folder.name, folder.parent.name] = {
                rank: pid for pid, rank in found.items() if leads_session(pid)
            }

    async def close(self, *, leave_tasks: bool) -> None:
        """Stop listening; tasks go on to the ends of their leases, or save and leave now."""
        if not leave_tasks:
            await asyncio.gather(*(task.stop() for task in tuple(self._tasks.values())))
        await self._tools.socket.close()

    async def rotate_logs(self) -> None:
        """Keep the newest part of what tasks print; runs until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            for task in tuple(self._tasks.values()):
                await asyncio.to_thread(task.cut_logs)

    def detect(self) -> Sequence[WorkerRegistered]:
        """See ``Hands``."""
        return self._accelerators.workers

    async def measure(self, lease: Lease, starts_at_s: float, ends_at_s: float) -> Profile:
        """See ``Hands``."""
        if not set(lease.worker_ids) <= self._accelerators.cuda_ids.keys():
            return Profile("failed", detail="its workers are of several worker services")
        return await self._profiler.measure(lease, ends_at_s)

    async def end_strays(self, known: Callable[[str, str], bool]) -> None:
        """See ``Hands``."""
        for key in [key for key in self._left if not known(*key)]:
            del self._left[key]
        for folder, found in tasks_under(self._tools.settings.folder / "jobs").items():
            if found and not known(folder.name, folder.parent.name):
                end_all(folder)

    def start(
        self,
        lease: Lease,
        spec: TaskSpec,
        starts_at_s: float,
        ends_at_s: float,
        *,
        fresh: bool,
        after: Counts,
    ) -> ProcessTask:
        """See ``Hands``."""
        own = self._accelerators.cuda_ids
        ranks = [rank for rank, worker in enumerate(lease.worker_ids) if worker in own]
        loads_from_s = starts_at_s if fresh else self._tools.now()
        task = ProcessTask(self._tools, lease, spec, ranks, (loads_from_s, ends_at_s), after)
        key = (lease.lease_id, spec.job_id)
        self._tasks[key] = task
        task.ending.add_done_callback(lambda _: self._forget(key))
        left = self._left.pop(key, None)
        if left is not None and left.keys() != set(ranks):
            # What has lost a part of itself is of no use.
            end_all(task.folder)
            left = None
        task.begin(left or {})
        return task

    def _start_copy(self, lease: Lease, spec: TaskSpec, ends_at_s: float) -> ProcessTask:
        now = self._tools.now()
        return self.start(lease, spec, now, ends_at_s, fresh=True, after=Counts())

    def _forget(self, key: _Key) -> None:
        task = self._tasks.pop(key)
        partners = [other for other in self._tasks if other[0] == key[0]]
        for partner in partners:
            with suppress(OSError):
                lease, spec = self._tasks[partner].lease, self._tasks[partner].spec
                self._tools.launcher.set_pace(lease, [spec])
        task.forget()
        asyncio.get_running_loop().run_in_executor(None, task.cut_logs)

    def _hear(self, report: Report) -> None:
        key = (report.lease_id, report.job_id)
        task = self._tasks.get(key)
        if task is not None:
            task.hear(report)
            self._profiler.hear(key)


class ProcessTask:
    """See ``Task``: the ranks of one job under one lease that run here.

    ``times``: from when its workers wait for it to train, and when its lease ends, s.
    """

    def __init__(
        self,
        tools: Tools,
        lease: Lease,
        spec: TaskSpec,
        ranks: Sequence[int],
        times: tuple[float, float],
        after: Counts,
    ) -> None:
        self.lease = lease
        self.spec = spec
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._tools = tools
        self._ranks = ranks
        loads_from_s, self._ends_at_s = times
        #: Set until all its ranks train; None from the start if they do already.
        self._loads_from_s: float | None = loads_from_s
        #: How long that took.
        self._load_s = 0.0
        #: {rank: its process} of those that run
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int | None] = {}
        self._done: set[int] = set()
        self._stopped: set[int] = set()
        #: Ranks whose connections are open; set while there are none.
        self._speaking: set[int] = set()
        self._heard_out = asyncio.Event()
        self._heard_out.set()
        self._concluding: asyncio.Task[None] | None = None
        self._checkpoints = Path()
        self._spoke = False
        self._stopping = False
        #: Tells other services where the ranks here could stop; None: all ranks are here.
        self._propose: Callable[[int], None] | None = None
        self._error = ""
        self._counts = after

    @property
    def folder(self) -> Path:
        """Where its logs lie."""
        return self._tools.launcher.folder(self.lease.lease_id, self.spec.job_id)

    @property
    def _key(self) -> _Key:
        return (self.lease.lease_id, self.spec.job_id)

    @property
    def _safely_named(self) -> bool:
        """Whether its folder is where such folders are."""
        return all(is_safe_name(name) for name in self._key)

    # --- beginning -------------------------------------------------------------------------------

    def begin(self, left: Mapping[int, int]) -> None:
        """Take over what runs already, or start; a start that fails is an ending."""
        now = self._tools.now()
        if not self._safely_named:
            self._end("failed", now, f"{self._key} are no names of a lease and a job")
            return
        try:
            spec = self._tools.launcher.with_checkpoint_dir(self.spec)
        except LaunchError as error:
            self._end("failed", now, str(error))
            return
        ends_in_s = max(0.0, self._ends_at_s - now)
        self._tools.socket.expect(self.lease.lease_id, spec, self._ranks, ends_in_s)
        self._checkpoints = Path(spec.checkpoint_dir)
        if left:
            self._loads_from_s = None
            # All of them first: one that has just ended is not the last of them.
            self._pids.update(left)
            for rank, pid in left.items():
                self._watch(rank, pid)
            return
        steps, complete = self._on_disk()
        if complete:
            self._counts = Counts(self.spec.total_steps, self.spec.total_steps)
            self._end("completed", now)
        elif ends_in_s <= 0:
            saved = max(steps, self._counts.saved_steps)
            self._counts = Counts(max(saved, self._counts.steps), saved)
            self._end("stopped", now)
        else:
            self._launch(spec)

    def _on_disk(self) -> tuple[float, bool]:
        """Steps of the lease's newest checkpoint, and whether they are all."""
        steps, complete = newest_checkpoint(self._checkpoints, self.lease.lease_id)
        return min(steps, self.spec.total_steps), complete

    def _launch(self, spec: TaskSpec) -> None:
        launcher = self._tools.launcher
        tasks = list(self.lease.tasks)
        if not self.lease.profile:
            is_over = self._tools.view.is_over
            tasks = [t for t in tasks if not is_over(self.lease.lease_id, t.job_id)]
        try:
            launcher.set_pace(self.lease, tasks)
            for rank in self._ranks:
                self._watch(rank, launcher.launch(self.lease, spec, rank, self._ranks))
        except (LaunchError, OSError) as error:
            for pid in self._pids.values():
                kill_group(pid, signal.SIGKILL)
            self._pids.clear()
            self._end("failed", self._tools.now(), str(error))

    def _watch(self, rank: int, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._exited(rank, None)
            return
        self._pids[rank] = pid
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._exited(rank, exit_code(pid))

        loop.add_reader(descriptor, ended)

    # --- what it says, and its end ---------------------------------------------------------------

    def hear(self, report: Report) -> None:
        """Take in what a rank has said."""
        message = report.message
        self._spoke = True
        self._note_counts()
        if isinstance(message, Error):
            self._error = message.text
        elif isinstance(message, Agreeable) and self._stopping:
            (self._propose or self.stop_at)(message.iteration)
        if report.rank is None:
            return
        if isinstance(message, Done):
            self._done.add(report.rank)
        elif isinstance(message, Stopped):
            self._stopped.add(report.rank)
        elif isinstance(message, Hello):
            self._speaking.add(report.rank)
            self._heard_out.clear()
        elif isinstance(message, Gone):
            self._speaking.discard(report.rank)
            if not self._speaking:
                self._heard_out.set()

    def _note_counts(self) -> None:
        said, before = self._tools.socket.steps(*self._key), self._counts
        if said is not None:
            if self._loads_from_s is not None:
                self._load_s = max(0.0, self._tools.now() - self._loads_from_s)
                self._loads_from_s = None
            # Never back: one that starts over under its lease does its steps a second time.
            self._counts = Counts(
                max(said.steps, before.steps),
                max(said.checkpointed_steps, before.saved_steps),
                max(said.load_s, self._load_s),
                said.save_s,
            )

    def _exited(self, rank: int, code: int | None) -> None:
        self._pids.pop(rank, None)
        self._codes[rank] = code
        if self.ending.done():
            return
        if self._pids:
            if rank not in self._done | self._stopped:
                loop = asyncio.get_running_loop()
                loop.call_later(_WITHOUT_ONE_S, self._signal, signal.SIGKILL)
            return
        self._concluding = asyncio.ensure_future(self._conclude(self._tools.now()))

    async def _conclude(self, at_s: float) -> None:
        """Its processes have exited: end what they have forked, hear out what they have said."""
        with suppress(TimeoutError):
            # Not for ever: one may hang in a driver.
            async with asyncio.timeout(_GONE_WITHIN_S):
                for pid in end_all(self.folder):
                    await gone(pid)
                # Nobody is left to hold a connection open, but the last word may be unread.
                await self._heard_out.wait()
        if not self._end_by_word(at_s):
            self._end_by_disk(at_s)

    def _end_by_word(self, at_s: float) -> bool:
        if self._done >= set(self._codes):
            total = self.spec.total_steps
            counts = self._counts
            self._counts = Counts(total, total, counts.load_s, counts.save_s)
            self._end("completed", at_s)
            return True
        if self._stopping or self._stopped >= set(self._codes):
            self._end("stopped", at_s)
            return True
        return False

    def _end_by_disk(self, at_s: float) -> None:
        """Left without a word that we have heard: what it has put on disk, and how it ended."""
        steps, complete = self._on_disk()
        if steps > self._counts.saved_steps:
            counts = self._counts
            self._counts = Counts(max(steps, counts.steps), steps, counts.load_s, counts.save_s)
        if complete:
            self._end("completed", at_s)
            return
        code = next((c for c in self._codes.values() if c), self._codes[min(self._codes)])
        detail = self._error or last_line(self.folder / f"rank-{min(self._codes)}.log")
        if code == 0:
            detail = (
                f"it ended before its {self.spec.total_steps:g} steps were done; does it iterate "
                f"over a GavelIterator? Its last line: {detail!r}"
            )
        elif code is None:
            detail = f"it ended while the worker service was away; its last line: {detail!r}"
        self._end("failed", at_s, detail, code)

    def _end(self, reason: str, at_s: float, detail: str = "", code: int | None = None) -> None:
        self.ending.set_result(Ending(reason, at_s, code, detail))

    def forget(self) -> None:
        """Nothing of it runs any more, nor shall anything that it has forked."""
        with suppress(KeyError):
            self._tools.socket.forget(*self._key)
        end_all(self.folder)

    def cut_logs(self) -> None:
        """Keep the newest part of what it prints; takes a while."""
        for log in self.folder.glob("rank-*.log") if self._safely_named else ():
            cut(log)

    # --- Task ------------------------------------------------------------------------------------

    def counts(self, now: float) -> Counts:
        """See ``Task``; until it trains, all is loading: the start, imports, the checkpoint."""
        counts = self._counts
        if self._loads_from_s is None:
            return counts
        load_s = max(0.0, now - self._loads_from_s)
        return Counts(counts.steps, counts.saved_steps, load_s, counts.save_s)

    def renew(self, ends_at_s: float) -> None:
        """See ``Task``."""
        self._ends_at_s = ends_at_s
        if not self.ending.done():
            self._tools.socket.renew(self.lease.lease_id, max(0.0, ends_at_s - self._tools.now()))

    def stop_lead_s(self) -> float:
        """See ``Task``."""
        meeting_s = _MEETING_S if self.spec.scale_factor > 1 else 0.0
        return _STOP_LEAD_S + self._counts.save_s + meeting_s

    async def stop(self, propose: Callable[[int], None] | None = None) -> None:
        """See ``Task``."""
        if self.ending.done():
            return
        self._stopping, self._propose = True, propose
        if self._spoke:
            if self.spec.scale_factor > 1:
                self._tools.socket.propose(*self._key)
            else:
                self._tools.socket.stop(*self._key)
            await self._ends_within(self._tools.settings.checkpoint_grace_s)
        await self.kill()

    def stop_at(self, iteration: int) -> None:
        """See ``Task``."""
        if not self.ending.done():
            self._tools.socket.stop(*self._key, at=iteration)

    async def kill(self) -> None:
        """See ``Task``."""
        self._stopping = True
        self._signal(signal.SIGTERM)
        await self._ends_within(self._tools.settings.terminate_grace_s)
        self._signal(signal.SIGKILL)
        await asyncio.wait((self.ending,))

    def abandon(self) -> None:
        """See ``Copy``."""
        self._stopping = True
        self._signal(signal.SIGKILL)

    async def _ends_within(self, seconds: float) -> None:
        await asyncio.wait((self.ending,), timeout=seconds)

    def _signal(self, number: int) -> None:
        for pid in tuple(self._pids.values()):
            kill_group(pid, number)

"""The lease socket: what holds is reported, what lies is refused by name, and nothing kills it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.worker.lease_socket import Agreeable, Gone, LeaseSocket, LeaseSocketError, Report
from services.worker.ranks import LINE_LIMIT, Hello, Progress, TaskSteps
from tests.worker.lease_host import Host, Lines, ended, hosting, task

HELLO = {
    "type": "hello",
    "protocol": 1,
    "lease": "a",
    "job": "j",
    "rank": 0,
    "world": 2,
    "iteration": 0,
    "checkpointed": 0,
}
PROGRESS = {"type": "progress", "iteration": 5, "checkpointed": 3, "load_s": 0.5, "save_s": 0.25}


class Client:
    """A process that says whatever it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def say(self, *lines: dict[str, Any] | bytes) -> None:
        """Send lines, objects as JSON."""
        for line in lines:
            self.writer.write(
                line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            )

    async def hear(self, kind: str) -> dict[str, Any]:
        """The next message of a kind; the test fails if the connection ends before."""
        while True:
            line = await self._reader.readline()
            assert line, f"the connection ended before {kind}"
            message: dict[str, Any] = json.loads(line)
            if message["type"] == kind:
                return message

    async def closed(self) -> None:
        """Wait for the connection's end."""
        while await self._reader.readline():
            pass


@asynccontextmanager
async def client(host: Host) -> AsyncIterator[Client]:
    """A connection."""
    reader, writer = await asyncio.open_unix_connection(host.socket.path)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


def on_host(folder: Path, scenario: Callable[[Host], Awaitable[None]], steps: float = 20) -> None:
    """Play a scenario against a socket that expects both ranks of job j under lease a."""

    async def play() -> None:
        async with asyncio.timeout(60), hosting(folder) as host:
            host.socket.expect("a", task(folder, steps=steps, ranks=2), {0, 1}, 60.0)
            await scenario(host)

    asyncio.run(play())


def test_a_hello_is_answered_with_the_lease(tmp_path: Path) -> None:
    """A rank is told the seconds to the lease's end, and reported with its real process."""

    async def scenario(host: Host) -> None:
        async with client(host) as rank:
            rank.say(HELLO)
            assert 0 < (await rank.hear("lease"))["ends_in_s"] <= 60.0
            (report,) = host.reports
            assert (report.lease_id, report.job_id, report.rank) == ("a", "j", 0)
            assert report.pid > 0
            assert isinstance(report.message, Hello)
        await host.heard(Gone)

    on_host(tmp_path, scenario)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"lease": "b"}, "unknown_lease"),
        ({"job": "k"}, "unknown_lease"),
        ({"rank": 2}, "unknown_rank"),
        ({"world": 3}, "unknown_rank"),
        ({"protocol": 2}, "protocol"),
        ({"rank": -1}, "malformed"),
        ({"rank": "0"}, "malformed"),
        ({"iteration": 1e300}, "malformed"),
        ({"iteration": 11}, "steps_beyond_total"),
        ({"iteration": 4, "checkpointed": 5}, "checkpoint_ahead"),
        ({"type": "farewell"}, "malformed"),
        (PROGRESS, "no_hello"),
        (b"GET / HTTP/1.1\r\n", "not_json"),
        (b"\xff\xfe\n", "not_json"),
        (b"[]\n", "malformed"),
        (b'{"x":' + b"[" * 50_000 + b"\n", "not_json"),
        (b"x" * (2 * LINE_LIMIT) + b"\n", "too_long"),
    ],
)
def test_a_false_hello_is_refused(
    tmp_path: Path, change: dict[str, Any] | bytes, kind: str
) -> None:
    """It is answered with its kind, counted, logged, hung up on, and reported to nobody."""

    async def scenario(host: Host) -> None:
        async with client(host) as liar, client(host) as honest:
            liar.say(change if isinstance(change, bytes) else HELLO | change)
            assert (await liar.hear("refused"))["kind"] == kind
            await liar.closed()
            assert host.socket.refusals == {kind: 1}
            assert [fields["kind"] for _, fields in host.lines.lines] == [kind]
            assert not host.reports
            honest.say(HELLO)
            await honest.hear("lease")

    on_host(tmp_path, scenario)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (PROGRESS | {"iteration": 4}, "steps_decreased"),
        (PROGRESS | {"checkpointed": 2}, "steps_decreased"),
        (PROGRESS | {"iteration": 11}, "steps_beyond_total"),
        (PROGRESS | {"checkpointed": 6}, "checkpoint_ahead"),
        (PROGRESS | {"iteration": -5}, "malformed"),
        (PROGRESS | {"iteration": True}, "malformed"),
        (PROGRESS | {"save_s": -1}, "malformed"),
        (PROGRESS | {"save_s": None}, "malformed"),
        ({"type": "progress"}, "malformed"),
        ({"type": "done", "iteration": 9}, "done_early"),
        ({"type": "proposal", "iteration": 11}, "steps_beyond_total"),
        ({"type": "checkpointed", "iteration": 2, "save_s": 0}, "steps_decreased"),
        ({"type": "stopped", "iteration": 5, "checkpointed": 6}, "checkpoint_ahead"),
        ({"type": "gone"}, "malformed"),
        ({"type": "agreeable", "iteration": 3}, "malformed"),
        (HELLO, "second_hello"),
        (b'{"type": "progress", "iteration": NaN}\n', "not_json"),
        (b"\n", "not_json"),
    ],
)
def test_a_lie_changes_nothing(tmp_path: Path, message: dict[str, Any] | bytes, kind: str) -> None:
    """Refused by name; the connection stays, the counts are as before, the next truth counts."""

    async def scenario(host: Host) -> None:
        async with client(host) as rank:
            rank.say(HELLO, PROGRESS)
            await host.heard(Progress)
            before = list(host.reports)
            rank.say(message)
            assert (await rank.hear("refused"))["kind"] == kind
            assert host.socket.refusals == {kind: 1}
            assert host.reports == before
            rank.say(PROGRESS | {"iteration": 6})
            assert (await host.heard(Progress, times=2)).iteration == 6

    on_host(tmp_path, scenario)


def test_who_only_lies_is_hung_up_on(tmp_path: Path) -> None:
    """A connection that earns twenty refusals is closed, and each is counted."""

    async def scenario(host: Host) -> None:
        async with client(host) as rank:
            rank.say(HELLO, *[b"nonsense\n"] * 100)
            await rank.closed()
        assert host.socket.refusals == {"not_json": 20}

    on_host(tmp_path, scenario)


def test_a_line_cut_short_by_a_kill_is_no_lie(tmp_path: Path) -> None:
    """Half a line at the end of a connection is neither heard nor refused."""

    async def scenario(host: Host) -> None:
        async with client(host) as rank:
            rank.say(HELLO, PROGRESS, json.dumps(PROGRESS | {"iteration": 9}).encode()[:-1])
            await rank.hear("lease")
        await host.heard(Gone)
        assert [message.iteration for message in host.said(Progress)] == [5]
        assert not host.socket.refusals

    on_host(tmp_path, scenario)


def test_a_rank_belongs_to_one_process(tmp_path: Path) -> None:
    """Another process cannot be a rank that is connected; the same process may connect anew."""
    thief = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(sys.argv[1])\n"
        "s.sendall(sys.argv[2].encode() + b'\\n')\n"
        "print(s.makefile().read())\n"
    )

    async def scenario(host: Host) -> None:
        async with client(host) as rank, client(host) as again:
            rank.say(HELLO, PROGRESS)
            await host.heard(Progress)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                thief,
                str(host.socket.path),
                json.dumps(HELLO),
                stdout=asyncio.subprocess.PIPE,
            )
            _, out, _ = await ended(process)
            assert json.loads(out)["kind"] == "rank_taken"
            again.say(HELLO | {"iteration": 5, "checkpointed": 3})
            await again.hear("lease")
            await rank.closed()
            assert not host.said(Gone)

    on_host(tmp_path, scenario)


def test_a_gang_agrees_on_the_highest_step(tmp_path: Path) -> None:
    """Nothing is agreeable before every rank has proposed; then it is the highest, once."""

    async def scenario(host: Host) -> None:
        async with client(host) as first, client(host) as second:
            first.say(HELLO)
            await first.hear("lease")
            host.socket.propose("a", "j")
            await first.hear("propose")
            first.say({"type": "proposal", "iteration": 7})
            await host.until(lambda: len(host.reports) == 2)
            # A rank that connects late is asked, too.
            second.say(HELLO | {"rank": 1})
            await second.hear("propose")
            assert not host.said(Agreeable, rank=None)
            second.say({"type": "proposal", "iteration": 4})
            assert (await host.heard(Agreeable, rank=None)).iteration == 7
            host.socket.stop("a", "j", at=7)
            assert [(await rank.hear("stop"))["at"] for rank in (first, second)] == [7, 7]
            assert len(host.said(Agreeable, rank=None)) == 1

    on_host(tmp_path, scenario)


def test_a_task_is_as_far_as_its_last_rank(tmp_path: Path) -> None:
    """Steps are whole-job: the lowest iteration times the ranks; unknown until all have loaded."""

    async def scenario(host: Host) -> None:
        async with client(host) as first, client(host) as second:
            first.say(HELLO, PROGRESS)
            await host.heard(Progress)
            assert host.socket.steps("a", "j") is None
            second.say(HELLO | {"rank": 1}, PROGRESS | {"iteration": 4, "save_s": 2.0})
            await host.heard(Progress, rank=1)
            assert host.socket.steps("a", "j") == TaskSteps(8.0, 6.0, 0.5, 2.0)
            second.say({"type": "checkpointed", "iteration": 5, "save_s": 1.0})
            await host.until(lambda: len(host.reports) == 5)
            assert host.socket.steps("a", "j") == TaskSteps(10.0, 6.0, 0.5, 3.0)

    on_host(tmp_path, scenario)


def test_renewals_reach_the_lease_and_no_other(tmp_path: Path) -> None:
    """Both jobs that share a lease hear that it goes on; a job of another lease does not."""

    async def scenario(host: Host) -> None:
        shared = task(tmp_path, steps=20, ranks=2)
        host.socket.expect("b", shared, {0}, 60.0)
        async with client(host) as renewed, client(host) as other:
            renewed.say(HELLO)
            other.say(HELLO | {"lease": "b"})
            await renewed.hear("lease")
            await other.hear("lease")
            host.socket.renew("a", 500.0)
            assert (await renewed.hear("lease"))["ends_in_s"] == 500.0
            host.socket.stop("b", "j")
            # The next word to the other is this one: no lease in between.
            assert json.loads(await other._reader.readline())["type"] == "stop"

    on_host(tmp_path, scenario)


def test_who_speaks_before_it_is_expected_is_waited_for(tmp_path: Path) -> None:
    """A process that outlived its service is not turned away by one that has yet to read the log.

    (It was, one time in many, and then ended itself, with the training it had begun.)
    """

    async def scenario(host: Host) -> None:
        host.socket._unknown_lease_patience_s = 60.0
        async with client(host) as early, client(host) as other:
            early.say(HELLO | {"lease": "late"})
            other.say(HELLO)
            await other.hear("lease")
            host.socket.expect("late", task(tmp_path, steps=20, ranks=2), {0, 1}, 50.0)
            assert 0 < (await early.hear("lease"))["ends_in_s"] <= 50.0
        assert not host.socket.refusals

    on_host(tmp_path, scenario)


def test_a_forgotten_task_is_hung_up_on(tmp_path: Path) -> None:
    """Once its task is forgotten a rank is disconnected, and turned away when it returns."""

    async def scenario(host: Host) -> None:
        async with client(host) as rank, client(host) as again:
            rank.say(HELLO)
            await rank.hear("lease")
            host.socket.forget("a", "j")
            await rank.closed()
            again.say(HELLO)
            assert (await again.hear("refused"))["kind"] == "unknown_lease"

    on_host(tmp_path, scenario)


def ignore(report: Report) -> None:
    """Nobody listens."""


def test_a_socket_that_cannot_be_opened(tmp_path: Path) -> None:
    """Too long a path, a missing folder, a path in use: each is said; an abandoned one is taken."""

    async def scenario() -> None:
        for path, why in (
            (tmp_path / ("x" * 120), "at most 107; choose a shorter folder"),
            (tmp_path / "missing" / "s", "cannot listen there"),
        ):
            with pytest.raises(LeaseSocketError, match=why):
                await LeaseSocket(path, ignore, Lines()).open()
        async with hosting(tmp_path) as host:
            assert host.socket.path.stat().st_mode & 0o777 == 0o600
            with pytest.raises(LeaseSocketError, match="another worker service listens there"):
                await LeaseSocket(host.socket.path, ignore, Lines()).open()
        assert not host.socket.path.exists()
        abandon = f"import socket; socket.socket(socket.AF_UNIX).bind({str(host.socket.path)!r})"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", abandon, stdout=asyncio.subprocess.PIPE
        )
        await ended(process)
        assert host.socket.path.is_socket()
        async with hosting(tmp_path):
            pass

    asyncio.run(scenario())

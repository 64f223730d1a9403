"""The embedded server: a real one, on a store of its own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from services.runtime.embedded import (
    EmbeddedServer,
    EmbeddedServerError,
    StoreInUseError,
    check_version,
    find_binary,
    sync_warnings,
)
from tests.live.led import until_ended

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.live

START_AND_WAIT = """
import sys
from services.runtime.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""


def is_running(pid: int) -> bool:
    """Whether the process is there, and no zombie."""
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_it_starts_and_stops(tmp_path: Path) -> None:
    """It listens on loopback, syncs every write, and leaves no process behind."""
    with EmbeddedServer(tmp_path / "nats") as server:
        assert server.url.startswith("nats://127.0.0.1:")
        assert server.monitor_url.startswith("http://127.0.0.1:")
        assert is_running(server.pid)
    assert not is_running(server.pid)
    assert "sync_interval: always" in (tmp_path / "nats" / "server.conf").read_text()


def test_a_store_has_one_server(tmp_path: Path) -> None:
    """A second server on a store is refused, naming store and process; the first goes on."""
    with EmbeddedServer(tmp_path) as server:
        with pytest.raises(StoreInUseError, match=rf"process {server.pid}\) runs over {tmp_path}"):
            EmbeddedServer(tmp_path).start()
        assert server.running
    with EmbeddedServer(tmp_path) as after:
        assert after.running


def test_the_lock_outlives_whoever_started_the_server(tmp_path: Path) -> None:
    """Killed, its starter takes the server along; the store is free once that is gone."""
    starter = subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT, tmp_path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    assert starter.stdin is not None
    pid = int(starter.stdout.readline())
    with pytest.raises(StoreInUseError, match=f"process {pid}"):
        EmbeddedServer(tmp_path).start()
    starter.kill()
    starter.wait()
    starter.stdin.close()
    starter.stdout.close()
    asyncio.run(until_ended(pid))
    with EmbeddedServer(tmp_path) as server:
        assert server.running


def test_a_server_that_ends_is_started_again(tmp_path: Path) -> None:
    """Watched, a killed server is back at the same address; the watcher is told of it."""

    async def kill_once(server: EmbeddedServer) -> int:
        restarted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        watcher = asyncio.create_task(server.watch(restarted.set_result, every_s=0.01))
        os.kill(server.pid, signal.SIGKILL)
        status = await restarted
        watcher.cancel()
        return status

    with EmbeddedServer(tmp_path) as server:
        before = server.url
        assert asyncio.run(kill_once(server)) == -signal.SIGKILL
        assert server.url == before
        assert server.running


@pytest.mark.parametrize("text", ["nats-server: v2.11.9", "nats-server: v1.99.0", "nginx", ""])
def test_an_old_server_is_refused(text: str) -> None:
    """Before 2.12 the fence is ignored: such a server is named and refused."""
    with pytest.raises(EmbeddedServerError, match=r"at least nats-server 2\.12"):
        check_version(text, "there")


def test_an_old_binary_is_refused(tmp_path: Path) -> None:
    """The version is asked of the binary itself, before anything is started."""
    binary = tmp_path / "nats-server"
    binary.write_text("#!/bin/sh\necho nats-server: v2.10.22\n")
    binary.chmod(stat.S_IRWXU)
    with pytest.raises(EmbeddedServerError, match=r"v2\.10\.22.*at least nats-server 2\.12"):
        EmbeddedServer(tmp_path, binary=binary)


def test_a_pinned_binary_is_the_pinned_one(tmp_path: Path) -> None:
    """The digest is checked where it is pinned: the right one passes, another is refused."""
    digest = hashlib.sha256(find_binary().read_bytes()).hexdigest()
    assert EmbeddedServer(tmp_path, sha256=digest).version
    with pytest.raises(EmbeddedServerError, match=f"sha256 {digest}, but {'0' * 64} is pinned"):
        EmbeddedServer(tmp_path, sha256="0" * 64)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The end of the server's own log is in the error."""
    (tmp_path / "jetstream").write_text("in the way of the store")
    with pytest.raises(EmbeddedServerError, match=r"ended with status 1(.|\n)*not a directory"):
        EmbeddedServer(tmp_path).start()


def test_a_binary_that_is_not_there_is_named(tmp_path: Path) -> None:
    """So that a wrong path in the settings is found."""
    with pytest.raises(EmbeddedServerError, match="no-server does not run"):
        EmbeddedServer(tmp_path, binary=tmp_path / "no-server")


@pytest.mark.parametrize(
    "said", [b"[]", b"{}", b'{"jetstream":null}', b'{"jetstream":{"config":1}}', b"\xff", b"no"]
)
def test_monitoring_that_is_another_s_is_no_obstacle(said: bytes) -> None:
    """Whatever answers there: that nothing is known of the server is said, and no more."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the library's name
            """Keep quiet."""

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        asking = threading.Thread(target=server.handle_request)
        asking.start()
        (warning,) = sync_warnings(f"http://127.0.0.1:{server.server_port}")
        asking.join()
    assert "no monitoring at" in warning


@pytest.mark.parametrize("url", ["http://127.0.0.1:port", "http://", "http://[::1", "http://a b"])
def test_a_monitoring_url_that_is_none_is_no_obstacle(url: str) -> None:
    """It is named in the warning."""
    (warning,) = sync_warnings(url)
    assert f"no monitoring at {url} (" in warning

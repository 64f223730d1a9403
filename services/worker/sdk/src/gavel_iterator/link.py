"""The connection to the worker service: a thread that reads it, and reports what the loop does.

The loop never waits for it. A lost connection is tried again for as long as the process lives;
until it is back, the lease last told of is all that counts.
"""

from __future__ import annotations

import contextlib
import logging
import math
import select
import socket
import threading
import time
from collections.abc import Callable

from .course import Course
from .errors import WorkerError
from .protocol import LINE_LIMIT, VERSION, Message, ProtocolError, decode, encode
from .settings import Settings

_TICK_S = 0.2
_START_PATIENCE_S = 10.0
#: A worker service that does not take a short line for so long counts as lost.
_SEND_PATIENCE_S = 5.0
_EXIT_PATIENCE_S = 2.0

_log = logging.getLogger("gavel_iterator")


class Link:
    """One rank's side of ``protocol.py``."""

    def __init__(self, settings: Settings, course: Course) -> None:
        self._settings = settings
        self._course = course
        self._socket: socket.socket | None = None
        self._received = b""
        self._sending = threading.Lock()
        self._closing = threading.Event()
        #: The first answer is here: the lease's end, or a refusal.
        self._answered = threading.Event()
        #: Set once the checkpoint is loaded: no answer before is worth anything.
        self._ready = False
        self._asked = False
        self._refusal = ""
        self._trouble = "connected, but not a word"
        self._next_progress = 0.0
        #: Done or stopped; repeated on a new connection, as the worker may have missed it.
        self._last_word: tuple[str, Message] | None = None
        self._delivered = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gavel-link", daemon=True)

    def start(self) -> None:
        """Connect, and wait to be told when the lease ends.

        Raises
        ------
        WorkerError
            The worker service does not answer, or refuses this process.
        """
        self._thread.start()
        answered = self._answered.wait(_START_PATIENCE_S)
        if answered and not self._refusal:
            return
        self.close()
        where = f"the worker service at {self._settings.socket_path}"
        if self._refusal:
            raise WorkerError(f"{where} refused this process: {self._refusal}")
        raise WorkerError(f"{where} did not answer within {_START_PATIENCE_S:g} s: {self._trouble}")

    def loaded(self) -> None:
        """From here on the course's figures are true: report them."""
        self._ready = True
        self._send("progress", self._progress)

    def checkpointed(self, save_s: float) -> None:
        """Say that this rank's part of a checkpoint is on disk."""
        fields = {"iteration": self._course.checkpointed, "save_s": save_s}
        self._send("checkpointed", lambda: fields)

    def error(self, text: str) -> None:
        """Say what went wrong."""
        fields = {"iteration": self._course.iteration, "text": text[: LINE_LIMIT // 16]}
        self._send("error", lambda: fields)

    def last_word(self, kind: str, fields: Message) -> None:
        """Say how it ended; the thread repeats it when this connection is lost."""
        self._last_word = (kind, fields)
        self._send(kind, lambda: fields)

    def close(self) -> None:
        """Let the last word reach the worker service, if it listens, and end the thread."""
        if self._last_word:
            self._delivered.wait(_EXIT_PATIENCE_S)
        self._closing.set()
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        self._thread.join(_EXIT_PATIENCE_S)
        self._drop()

    def forget(self) -> None:
        """In a forked process: let go of the parent's connection, without a word."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._ready:
                self._course.tick(time.monotonic())
            try:
                if self._socket is None:
                    self._connect()
                self._receive()
                self._speak()
            except (OSError, ProtocolError) as error:
                if not self._closing.is_set():
                    self._lost(error)
                    self._closing.wait(_TICK_S)

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_SEND_PATIENCE_S)
            connection.connect(self._settings.socket_path)
        except OSError:
            connection.close()
            raise
        self._received = b""
        self._socket = connection
        self._send("hello", self._hello)
        if self._last_word is not None:
            kind, fields = self._last_word
            self._send(kind, lambda: fields)

    def _receive(self) -> None:
        connection = self._socket
        if connection is None:
            raise ConnectionError("the connection was lost while sending")
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        remaining_s = self._course.lease_ends_at - time.monotonic()
        wait_s = min(_TICK_S, remaining_s) if remaining_s > 0 else _TICK_S
        if not poll.poll(math.ceil(wait_s * 1000)):
            return
        data = connection.recv(LINE_LIMIT)
        if not data:
            raise ConnectionError("the worker service closed the connection")
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > LINE_LIMIT:
            raise ProtocolError(f"a line is longer than {LINE_LIMIT} bytes")
        for line in lines:
            self._handle(decode(line))

    def _handle(self, message: Message) -> None:
        kind = message.get("type")
        if kind == "lease":
            self._course.renew(time.monotonic() + float(message["ends_in_s"]))
            self._answered.set()
        elif kind == "propose":
            self._asked = True
        elif kind == "checkpoint":
            self._course.checkpoint(int(message["at"]))
        elif kind == "stop":
            self._course.stop(int(message["at"]))
        elif kind == "refused":
            refusal = f"{message.get('kind')}: {message.get('reason')}"
            if self._answered.is_set():
                _log.warning("the worker service refused a message: %s", refusal)
            else:
                self._refusal = refusal
                self._answered.set()

    def _speak(self) -> None:
        """Say what is due: the answer to a question, progress."""
        if not self._ready or self._last_word:
            return
        if self._asked:
            self._asked = False
            self._send("proposal", self._proposal)
        now = time.monotonic()
        if now >= self._next_progress:
            self._next_progress = now + self._settings.progress_interval_s
            self._send("progress", self._progress)

    def _hello(self) -> Message:
        checkpointed = self._course.checkpointed
        return {
            "protocol": VERSION,
            "lease": self._settings.lease_id,
            "job": self._settings.job_id,
            "rank": self._settings.rank,
            "world": self._settings.world_size,
            "iteration": self._course.iteration,
            "checkpointed": checkpointed,
        }

    def _proposal(self) -> Message:
        return {"iteration": self._course.propose(time.monotonic())}

    def _progress(self) -> Message:
        # In this order: the loop goes on meanwhile, and no checkpoint is ahead of it.
        checkpointed = self._course.checkpointed
        return {
            "iteration": self._course.iteration,
            "checkpointed": checkpointed,
            "load_s": self._course.load_s,
            "save_s": self._course.save_s,
        }

    def _send(self, kind: str, fields: Callable[[], Message]) -> None:
        """Send a message, made only when it is its turn: counts never go back on the wire."""
        with self._sending:
            if self._socket is None:
                return
            try:
                self._socket.sendall(encode(kind, fields()))
            except OSError as error:
                _log.warning("the worker service does not listen: %s", error)
                self._drop()
                return
        if self._last_word is not None and kind == self._last_word[0]:
            self._delivered.set()

    def _lost(self, error: Exception) -> None:
        if self._socket is not None:
            _log.warning(
                "lost the worker service, training goes on until the lease ends: %s", error
            )
        self._trouble = str(error)
        self._asked = False
        self._course.withdraw()
        self._drop()

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

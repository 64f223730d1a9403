"""The way to a log: a connection to its NATS servers, and its stream, found or made."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client

from services.runtime import stream
from services.runtime.inbox import Inbox
from services.runtime.log import LogError
from services.runtime.pull import ApiError, request

#: Reconnect for ever, notice a dead peer within seconds, and keep nothing to be sent later.
OPTIONS: Mapping[str, Any] = {
    "connect_timeout": 2,
    "reconnect_time_wait": 0.25,
    "max_reconnect_attempts": -1,
    "ping_interval": 5,
    "max_outstanding_pings": 2,
    "pending_size": -1,
}
URLS = "nats://HOST:PORT, or tls://HOST:PORT"
#: The names are a help to who mistyped one; a user who may not see them gets no answer.
_NAMES_TIMEOUT_S = 1.0
_NO_SUCH_STREAM = 10059

# Whenever a server ends a TLS connection, asyncio warns of how the library has set it up.
logging.getLogger("asyncio").addFilter(lambda line: "eof_received" not in str(line.msg))


class BadUrlError(LogError):
    """What is named as a server is none."""


class UnfitServerError(LogError):
    """The server is too old, or has no JetStream."""


class NoSuchClusterError(LogError):
    """The servers hold no log of that name, or none that this user may see.

    ``known`` has the names of those they hold, as far as the user may see them.
    """

    def __init__(self, cluster: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(f"there is no cluster {cluster!r} yet, or none that this user may see")
        self.known = known


class LogClient(Client):  # type: ignore[misc] # the library is untyped
    """The library's client, which says nothing in the clear at a ``tls://`` URL.

    The library itself leaves it to the server whether the connection is encrypted, so that who
    stands between could have the password for the asking.
    """

    def _connect_command(self) -> bytes:
        assert self._current_server is not None, "called once there is one"
        uri = self._current_server.uri
        if uri.scheme == "tls" and not self._server_info.get("tls_required"):
            raise nats.errors.Error(f"{uri.hostname}:{uri.port} speaks no TLS")
        command: bytes = super()._connect_command()
        return command


def is_url(text: str) -> bool:
    """Whether it is ``nats://HOST:PORT`` or, for TLS, ``tls://HOST:PORT``; only HOST is needed."""
    try:
        url = urlsplit(text if "//" in text else f"nats://{text}")
        # Read for the error it raises: not every number is a port.
        _ = url.port
    except ValueError:
        return False
    # The library takes this name for no name.
    has_host = bool(url.hostname) and url.hostname != "none" and not re.search(r"\s", text)
    return has_host and url.scheme in ("nats", "tls") and not url.path.strip("/")


def check_urls(servers: Sequence[str]) -> None:
    """Check that each is one.

    Raises
    ------
    BadUrlError
        One is not.
    """
    for each in servers:
        if not is_url(each):
            raise BadUrlError(f"{shown([each])!r} is no server; expected {URLS}")


def shown(servers: Sequence[str]) -> str:
    """The servers' URLs, without a password that one may have."""
    return re.sub(r"//[^/,]*@", "//", ",".join(servers))


def advice(trouble: str) -> str:
    """What would help one who is not let in, by what the connection says of it."""
    if "CERTIFICATE_VERIFY_FAILED" in trouble:
        return (
            "log.ca_file (GAVEL_LOG_CA_FILE) must have the CA that signed the server's "
            "certificate, and the URL a name that is in it"
        )
    if "CERTIFICATE_REQUIRED" in trouble:
        return "log.certificate_file (GAVEL_LOG_CERTIFICATE_FILE) must have one that it accepts"
    if "no TLS" in trouble:
        return "switch it on there, or write nats:// for what anybody may read"
    return "start a NATS server there, or name another"


async def ensure_stream(
    inbox: Inbox, cluster: str, max_bytes: int, replicas: int, *, make: bool
) -> None:
    """Check the stream that holds a cluster's log; if there is none, make it, or refuse to.

    Parameters
    ----------
    inbox : where answers arrive
    cluster : its name
    max_bytes, replicas : of the stream, if it is made
    make : whether it may be

    Raises
    ------
    NoSuchClusterError
        There is none, and none is to be made.
    UnfitServerError
        The server has no JetStream.
    UnfitStreamError
        It is not fit to hold the log.
    ApiError, TimeoutError, nats.errors.Error
        The server refuses, or does not answer.
    """
    asked = stream.settings(cluster, max_bytes, replicas)
    name = asked["name"]
    try:
        try:
            info = await request(inbox, f"STREAM.INFO.{name}")
        except ApiError as error:
            if error.err_code != _NO_SUCH_STREAM:
                raise
            if not make:
                raise NoSuchClusterError(cluster, await _clusters(inbox)) from None
            info = await request(inbox, f"STREAM.CREATE.{name}", asked)
    except nats.errors.NoRespondersError:
        raise UnfitServerError("the NATS server has no JetStream: switch it on") from None
    stream.check_settings(asked, info["config"])
    stream.check_state(name, info["state"])


async def _clusters(inbox: Inbox) -> tuple[str, ...]:
    """Names of the clusters whose logs the server holds; none if the user may not see them."""
    try:
        found = await request(
            inbox, "STREAM.NAMES", {"subject": "gavel.*.ev.>"}, timeout_s=_NAMES_TIMEOUT_S
        )
    except (ApiError, TimeoutError, nats.errors.Error):
        return ()
    return tuple(cluster for name in found["streams"] or () if (cluster := stream.cluster_of(name)))

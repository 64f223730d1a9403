"""The way to a log: servers that are not there or no use, streams that are not, and TLS."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from services.runtime import stream
from services.runtime.connection import BadUrlError, NoSuchClusterError, is_url
from services.runtime.jetstream import JetStreamLog
from services.runtime.live_log import LogUnavailableError
from services.runtime.pull import request
from tests.live.servers import MAX_BYTES, NatsServer, Tally, connected, new_cluster, shared_server
from tests.runtime.test_jetstream import cancel, run

pytestmark = pytest.mark.live


def test_a_server_that_is_not_there_is_named() -> None:
    """Without an answer, connecting ends in time, with the address and what to do."""

    async def main() -> None:
        with pytest.raises(LogUnavailableError, match=r"no log at nats://127\.0\.0\.1:1: .*start"):
            await JetStreamLog.connect("nats://127.0.0.1:1", "lab", connect_timeout_s=0.5)

    run(main())


@pytest.mark.parametrize(
    "url", ["none", "/", "[", "nats://", "nats://h:99999", "http://h:4222", "nats://a b", "h/path"]
)
def test_what_is_no_server_is_named(url: str) -> None:
    """Before anything is connected to; a host alone, with a port, or in TLS is one."""

    async def connect() -> None:
        with pytest.raises(BadUrlError, match=rf"^{re.escape(repr(url))} is no server; expected"):
            await JetStreamLog.connect(["127.0.0.1", url], "main")

    asyncio.run(connect())
    assert all(is_url(each) for each in ("h", "h:4222", "nats://u:p@h:4222/", "tls://[::1]:4222"))


def test_a_password_in_a_url_is_not_shown() -> None:
    """The server is named without it."""

    async def main() -> None:
        with pytest.raises(LogUnavailableError, match=r"no log at nats://127\.0\.0\.1:1: ") as said:
            await JetStreamLog.connect("nats://u:pass@127.0.0.1:1", "lab", connect_timeout_s=0.5)
        assert "ss@" not in str(said.value)

    run(main())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--user", "u", "--pass", "p", "-js"], "Authorization"),
        ([], "has no JetStream"),
    ],
)
def test_a_server_that_is_of_no_use_is_named(
    tmp_path: Path, flags: list[str], message: str
) -> None:
    """One that lets us not in, or keeps nothing."""
    store = ("-sd", tmp_path) if "-js" in flags else ()

    async def main(url: str) -> None:
        with pytest.raises(Exception, match=message):
            await JetStreamLog.connect(url, "lab", connect_timeout_s=2.0)

    with NatsServer(*flags, *store) as server:
        run(main(server.url))


@pytest.mark.parametrize("synced", [True, False])
def test_a_server_that_does_not_sync_is_warned_of(tmp_path: Path, *, synced: bool) -> None:
    """The warning says what may be lost, and what to set; the embedded server needs none."""
    (tmp_path / "server.conf").write_text(
        'http: "127.0.0.1:-1"\n'
        f'jetstream {{ store_dir: "{tmp_path}"{", sync_interval: always" if synced else ""} }}\n'
    )

    async def main(server: NatsServer) -> None:
        log = await JetStreamLog.connect(
            server.url, "lab", max_bytes=MAX_BYTES, monitor_url=server.monitor_url
        )
        assert ["sync_interval: always" in warning for warning in log.warnings] == (
            [] if synced else [True]
        )
        await log.close()

    with NatsServer("-c", tmp_path / "server.conf") as server:
        run(main(server))


def test_monitoring_that_does_not_answer_is_no_obstacle() -> None:
    """It is said that the question is open; the log is there all the same."""

    async def main() -> None:
        url = "http://127.0.0.1:1"
        async with connected(new_cluster(), monitor_url=url) as log:
            assert [url in warning for warning in log.warnings] == [True]
            assert await log.append(cancel("client.a", 0)) == 1

    run(main())


def test_a_stream_of_another_layout_is_refused() -> None:
    """A release does not guess at what another has written."""

    async def main() -> None:
        cluster = new_cluster()
        async with connected(cluster) as log:
            theirs = stream.settings(cluster, MAX_BYTES, 1) | {"metadata": {"gavel.layout": "7"}}
            await request(log.inbox, f"STREAM.UPDATE.{log.name}", theirs)
            with pytest.raises(stream.UnfitStreamError, match=r"layout 7.* reads layout 1"):
                await JetStreamLog.connect(shared_server().url, cluster)

    run(main())


def test_a_log_is_made_by_who_may() -> None:
    """Others are told which there are; nothing is made for them."""

    async def main() -> None:
        url, cluster = shared_server().url, new_cluster()
        async with connected(new_cluster()) as other:
            for _ in range(2):
                with pytest.raises(NoSuchClusterError) as refused:
                    await JetStreamLog.connect(url, cluster, make=False)
                assert other.cluster in refused.value.known
                assert cluster not in refused.value.known
            async with connected(other.cluster, make=False) as again:
                assert await again.last_seq() == 0

    run(main())


def test_at_a_tls_url_nothing_is_said_in_the_clear() -> None:
    """Not even to a server that says it needs no TLS, and would be told the password."""
    heard = Tally()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {"server_id": "x", "version": "2.12.0", "auth_required": True, "max_payload": 1024}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        heard.add(await reader.read())
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            with pytest.raises(LogUnavailableError, match=rf"{port} speaks no TLS; switch it on"):
                await JetStreamLog.connect(
                    f"tls://127.0.0.1:{port}",
                    "lab",
                    credentials={"user": "u", "password": "secret"},
                    connect_timeout_s=0.5,
                )
            await heard.reached(1)
            assert set(heard.found) == {b""}

    run(main())

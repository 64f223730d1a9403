"""The log behind TLS: set up by the guide's own commands, used by services and by commands."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.live.cluster import Cluster
from tests.live.servers import NatsServer
from tests.live.test_services_deploy import (
    DEPLOY,
    GUIDE,
    configured,
    credentials,
    passwords,
)
from tests.replay.command import gavel

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates"),
]


def by_the_guide(program: str, folder: Path, word: str, instead: str) -> None:
    """Run the guide's commands of one program, with something in place of a word."""
    lines = re.findall(rf"^    ({program} .+)$", GUIDE, re.MULTILINE)
    assert any(word in line for line in lines)
    for line in lines:
        words = shlex.split(line.replace(word, instead))
        subprocess.run(words, check=True, capture_output=True, cwd=folder)


def authority(folder: Path) -> Path:
    """A CA, which has signed a certificate for this machine; its own certificate."""
    folder.mkdir()
    by_the_guide("openssl", folder, "DNS:head", "IP:127.0.0.1")
    return folder / "ca.pem"


def secured(folder: Path, authority: Path, *, verify: bool) -> NatsServer:
    """A server of deploy's configuration, with TLS; ``verify``: it asks for certificates."""
    configuration = folder / "secrets" / "gavel.conf"
    by_the_guide("sed", folder, "/etc/gavel/secrets/gavel.conf", str(configuration))
    text = (DEPLOY / "nats" / "tls.conf").read_text()
    if verify:
        text = re.sub(r"# (ca_file:|verify:)", r"\1", text)
    for path in re.findall(r'"(/etc/gavel/[\w./]+)"', text):
        text = text.replace(path, str(authority.parent / Path(path).name))
    (folder / "secrets" / "tls.conf").write_text(text)
    return configured(configuration)


def refused(code: int, *arguments: str) -> str:
    """The one line that a command says for it."""
    result = gavel("jobs", *arguments)
    assert result.exit_code == code
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize("verify", [False, True])
def test_services_and_commands_use_a_log_behind_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, verify: bool
) -> None:
    """They read and append; who trusts another CA, or has no certificate, is told what is amiss."""
    ca, other = authority(tmp_path / "ca"), authority(tmp_path / "other")
    users = passwords(tmp_path)
    tls = {"GAVEL_LOG_CA_FILE": str(ca)}
    if verify:
        own = tmp_path / "own.pem"
        own.write_text((ca.parent / "head.pem").read_text() + (ca.parent / "head.key").read_text())
        tls["GAVEL_LOG_CERTIFICATE_FILE"] = str(own)
    monkeypatch.setenv("GAVEL_HOME", str(tmp_path / "home"))
    for key, value in (tls | credentials(users, "operator")).items():
        monkeypatch.setenv(key, value)

    def command() -> None:
        done = gavel("configure", "--round", "9")
        assert done.exit_code == 0, done.stderr
        if verify:
            monkeypatch.delenv("GAVEL_LOG_CERTIFICATE_FILE")
            assert "no log at tls://" in refused(1)
            return
        url = server.url
        assert "; log.ca_file (GAVEL_LOG_CA_FILE)" in refused(1, "--nats", named(url))
        monkeypatch.setenv("GAVEL_LOG_CA_FILE", str(other))
        assert "certificate verify failed" in refused(1)
        monkeypatch.delenv("GAVEL_LOG_CA_FILE")
        plain = url.replace("tls://", "nats://")
        assert "; log.ca_file (GAVEL_LOG_CA_FILE)" in refused(1, "--nats", plain)

    async def run() -> None:
        async with Cluster(tmp_path, server, "main") as cluster:
            assert server.url.startswith("tls://")
            monkeypatch.setenv("GAVEL_LOG_SERVERS", server.url)
            cluster.start("mechanism", **tls, **credentials(users, "mechanism"))
            wrong = {"GAVEL_LOG_CA_FILE": str(other)}
            cluster.start("policy", **tls | wrong, **credentials(users, "policy"))
            await cluster.until_said("mechanism", "leading")
            await asyncio.to_thread(command)
            await cluster.until_said("policy", "log.ca_file (GAVEL_LOG_CA_FILE) must have")
            assert "Traceback" not in "".join(cluster.said.values())

    server = secured(tmp_path, ca, verify=verify)
    asyncio.run(run())


def named(url: str) -> str:
    """The server by a name that its certificate has not."""
    return url.replace("127.0.0.1", "localhost")


def test_a_file_that_is_no_certificate_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its setting's key, before anybody is connected to."""
    monkeypatch.setenv("GAVEL_HOME", str(tmp_path / "home"))
    text = tmp_path / "text"
    text.write_text("text")
    for key in ("ca_file", "certificate_file"):
        for path, why in ((tmp_path / "none", ": No such file"), (text, " must have ")):
            monkeypatch.setenv(f"GAVEL_LOG_{key.upper()}", str(path))
            assert f"log.{key}: {path}{why}" in refused(2)
        monkeypatch.delenv(f"GAVEL_LOG_{key.upper()}")

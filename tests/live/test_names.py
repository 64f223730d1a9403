"""Every command that can be told a cluster's name, told one that no cluster has."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from replay.cli.__main__ import app
from services.runtime.pull import request
from tests.live.servers import connected, shared_server
from tests.live.test_services_deploy import configured, credentials, passwords
from tests.replay.command import gavel

pytestmark = pytest.mark.live

RIGHT, WRONG = "names-of-clusters", "names-of-cluster"
JOB = "--steps 1 --type 'A3C'"
COMMANDS = (
    "allocation",
    "cancel a",
    "configure --round 9",
    "diff URL URL",
    "drain --server a",
    "explain a",
    "job show a",
    "jobs --all",
    "log fetch copy.jsonl",
    "log resize 1",
    f"plan {JOB}",
    "policy set las",
    "replay URL",
    "rounds",
    "status",
    f"submit {JOB}",
    "throughputs import builtin",
    "top",
    "trace inject jobs.jsonl",
    "wait a",
    "workers",
)


def takers(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The commands that can be told a name."""
    if isinstance(command, TyperGroup):
        for name, one in command.commands.items():
            yield from takers(one, (*path, name))
    elif any("--cluster-name" in parameter.opts for parameter in command.params):
        yield path


def streams() -> list[str]:
    """What the server holds."""

    async def ask() -> list[str]:
        async with connected(RIGHT) as log:
            found: list[str] = (await request(log.inbox, "STREAM.NAMES"))["streams"]
            return found

    return asyncio.run(ask())


def test_no_command_is_left_out() -> None:
    """Each that has the option is tried below."""
    takes = list(takers(typer.main.get_command(app)))
    tried = [
        next(path for path in takes if line.split()[: len(path)] == [*path]) for line in COMMANDS
    ]
    assert sorted(tried) == sorted(takes)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_no_cluster_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """In one line with the right one, as other wrong input; no cluster is begun."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAVEL_HOME", str(tmp_path / "home"))
    Path("jobs.jsonl").write_text('{"job_id": "a", "job_type": "A3C", "total_steps": 1}\n')
    before = streams()
    words = [shared_server().url if word == "URL" else word for word in shlex.split(command)]
    if "URL" not in command:
        words += ["--nats", shared_server().url]
    result = gavel(*words, "--cluster-name", WRONG)
    assert result.exit_code == 2
    assert f"--cluster-name is '{WRONG}'; expected one of " in result.stderr
    assert result.stderr.endswith(f"; perhaps {RIGHT}\n")
    assert result.stderr.count("\n") == 1
    assert streams() == before
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.jsonl"]


def test_a_name_in_the_settings_is_refused_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the setting's key."""
    streams()
    monkeypatch.setenv("GAVEL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GAVEL_LOG_CLUSTER", WRONG)
    result = gavel("jobs", "--nats", shared_server().url)
    assert result.exit_code == 2
    assert f"log.cluster is '{WRONG}'; expected one of " in result.stderr


def test_who_may_not_list_clusters_is_told_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the least that an operator needs, before the mechanism has begun the log, and ever."""
    users = passwords(tmp_path)
    for key, value in credentials(users, "operator").items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("GAVEL_HOME", str(tmp_path / "home"))
    server = configured(tmp_path / "secrets" / "gavel.conf")
    server.start()
    try:
        for name in ("main", WRONG):
            result = gavel("jobs", "--nats", server.url, "--cluster-name", name)
            assert result.exit_code == 1
            assert f"there is no cluster '{name}' yet, or none that this user" in result.stderr
            assert result.stderr.count("\n") == 1
    finally:
        server.stop()

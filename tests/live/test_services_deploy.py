"""What lies under ``deploy/``: read as its readers would, the server's configuration for real."""

from __future__ import annotations

import asyncio
import configparser
import json
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml

from schemas.domain import JobSpec
from schemas.events import JobCompleted, JobSubmitted
from services.runtime import config
from services.runtime.config import Settings
from services.runtime.embedded import find_binary
from services.runtime.jetstream import JetStreamLog
from services.runtime.live_log import LogUnavailableError
from tests.live.cluster import TABLE, Cluster
from tests.live.shells import Outsider

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
SERVICES = ("policy", "mechanism", "estimator", "worker")
#: What a service must start without: the others' extras.
FOREIGN = {
    "policy": ("torch", "typer", "rich"),
    "mechanism": ("torch", "cvxpy", "highspy", "clarabel", "scipy", "typer", "rich"),
    "estimator": ("cvxpy", "highspy", "clarabel", "scipy", "typer", "rich"),
    "worker": ("torch", "cvxpy", "highspy", "clarabel", "scipy", "typer", "rich"),
}


def check_variables(variables: dict[str, str]) -> None:
    """Each variable is a setting, and its value makes sense."""
    known = {
        f"GAVEL_{section.name}_{key.name}".upper()
        for section in msgspec.structs.fields(Settings)
        for key in msgspec.structs.fields(section.type)
    }
    assert variables.keys() <= known
    config.check(config.load(Settings, None, variables))


class ConfiguredServer:
    """A server by the configuration, on loopback and over a folder of the test."""

    def __init__(self, configuration: Path) -> None:
        self.url = ""
        self._configuration = configuration
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """See ``Server``."""
        folder = self._configuration.parent
        options: list[str | Path] = [
            "-a",
            "127.0.0.1",
            "-p",
            "-1",
            "-m",
            "-1",
            "--ports_file_dir",
            folder,
        ]
        with (folder / "server.log").open("wb") as lines:
            self._process = subprocess.Popen(
                [find_binary(), "-c", self._configuration, *options], stderr=lines
            )
        deadline = time.monotonic() + 10.0
        while not (found := list(folder.glob("*.ports"))):
            assert self._process.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline
        self.url = json.loads(found[0].read_text())["nats"][0]

    def stop(self) -> None:
        """See ``Server``."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(10)


def passwords(folder: Path) -> dict[str, Path]:
    """{user: file of its password}, made as an operator makes them, beside the configuration."""
    shutil.copy(DEPLOY / "make-passwords", folder)
    subprocess.run([folder / "make-passwords"], check=True, capture_output=True)
    text = (DEPLOY / "nats" / "gavel.conf").read_text()
    assert text.count('"/data"') == 1
    store = json.dumps(str(folder / "store"))
    (folder / "secrets" / "gavel.conf").write_text(text.replace('"/data"', store))
    users = [path for path in (folder / "secrets").iterdir() if path.suffix != ".conf"]
    return {path.name: path for path in users}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_starts_without_what_only_others_need(service: str) -> None:
    """Its module is imported where the packages of other extras cannot be."""
    blocked = f"sys.modules.update(dict.fromkeys({FOREIGN[service]!r}))"
    code = f"import sys; {blocked}; import services.{service}.__main__"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_each_image_is_unprivileged_and_says_how_it_is() -> None:
    """Each service has a target with a user, a health check and the service's command."""
    text = (DEPLOY / "Dockerfile").read_text()
    head, *stages = re.split(r"^FROM base AS ", text, flags=re.MULTILINE)
    found = {stage.split()[0]: stage for stage in stages}
    assert found.keys() == {*SERVICES, "cli"}
    assert "HEALTHCHECK" in head
    port = re.search(r"GAVEL_SERVICE_HEALTH_PORT=(\d+)", head)
    assert port is not None
    assert f"127.0.0.1:{port[1]}/ready" in head
    for name, stage in found.items():
        assert re.search(r"^USER gavel$", stage, re.MULTILINE), name
        entry = re.search(r'^ENTRYPOINT \["(.*)"\]', stage, re.MULTILINE)
        assert entry is not None
        assert entry[1] in SCRIPTS
    for copied in re.findall(r"^COPY (.+) \S+$", head, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())


def test_the_compose_file_names_targets_settings_and_secrets_that_exist(tmp_path: Path) -> None:
    """And each service reads the password of its own user."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    targets = set(
        re.findall(r"^FROM base AS (\w+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    )
    users = passwords(tmp_path)
    for name in (*SERVICES, "cli"):
        service = compose["services"][name]
        assert service["build"]["target"] in targets
        variables = service["environment"]
        check_variables(variables)
        (secret,) = service["secrets"]
        assert secret == variables["GAVEL_LOG_USER"]
        assert secret in users
        assert compose["secrets"][secret]["file"] == f"./secrets/{secret}"
    for mount in compose["services"]["nats"]["volumes"]:
        source = mount.split(":")[0]
        assert not source.startswith("./nats") or (DEPLOY / source).exists()


@pytest.mark.parametrize("service", SERVICES)
def test_a_unit_starts_its_service_with_settings_that_exist(service: str) -> None:
    """Its command is the service's, its variables are settings."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # as documented
    text = (DEPLOY / "systemd" / f"gavel-{service}.service").read_text()
    unit.read_string(text)
    command = Path(unit["Service"]["ExecStart"].split()[0]).name
    assert command == f"gavel-{service}"
    assert command in SCRIPTS
    lines = re.findall(r"^Environment=(.+)$", text, re.MULTILINE)
    pairs = [pair.replace("%H", "host") for line in lines for pair in line.split()]
    check_variables(dict(pair.split("=", 1) for pair in pairs))


def test_the_settings_file_is_one() -> None:
    """It loads, and passes the checks."""
    config.check(config.load(Settings, DEPLOY / "gavel.toml", {}))


def test_the_server_takes_its_configuration(tmp_path: Path) -> None:
    """With the passwords that are made for it."""
    passwords(tmp_path)
    done = subprocess.run(
        [find_binary(), "-t", "-c", tmp_path / "secrets" / "gavel.conf"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.live
def test_a_cluster_runs_on_the_least_that_each_user_may(tmp_path: Path) -> None:
    """A job completes under the configuration's users; what is not theirs, users may not append."""
    users = passwords(tmp_path)

    async def run() -> None:
        server = ConfiguredServer(tmp_path / "secrets" / "gavel.conf")
        async with Cluster(tmp_path, server, "main") as cluster:
            # Nobody else may make the stream.
            cluster.start("mechanism", **credentials(users, "mechanism"))
            await cluster.until_said("mechanism", "restored")
            await cluster.connect("operator", users["operator"].read_text())
            for name in ("policy", "estimator"):
                cluster.start(name, **credentials(users, name))
            cluster.start_workers("v100=1", "worker-gpu1", **credentials(users, "worker-gpu1"))
            await cluster.configure(round_s=1.0, table=TABLE)
            await cluster.submit("job", steps=50.0)
            await cluster.until_count(JobCompleted, 1)
            await cluster.check_log()
            await check_forgery(cluster, users)

    asyncio.run(run())


def credentials(users: dict[str, Path], user: str) -> dict[str, str]:
    """Settings by which a service is let in."""
    return {"GAVEL_LOG_USER": user, "GAVEL_LOG_PASSWORD_FILE": str(users[user])}


async def check_forgery(cluster: Cluster, users: dict[str, Path]) -> None:
    """A worker's user submits no jobs; nobody gets in without a password."""
    log = await JetStreamLog.connect(
        cluster.server.url,
        "main",
        name="worker",
        credentials={"user": "worker-gpu1", "password": users["worker-gpu1"].read_text()},
        try_timeout_s=0.5,
        patience_s=1.0,
    )
    job = JobSpec(job_id="forged", job_type="small", total_steps=1.0)
    with pytest.raises(LogUnavailableError, match="ermission"):
        await Outsider(log, "client.forged").append(JobSubmitted(job=job))
    await log.close()
    with pytest.raises(LogUnavailableError, match="uthorization"):
        await JetStreamLog.connect(cluster.server.url, "main", connect_timeout_s=1.0)

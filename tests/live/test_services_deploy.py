"""What lies under ``deploy/``: read as its readers would, the server's configuration for real."""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from replay.cli.__main__ import app
from schemas.domain import JobSpec, TaskProgress
from schemas.events import (
    AnyEvent,
    DrainRequested,
    JobCompleted,
    JobSubmitted,
    ProgressReported,
    StopStepAgreed,
    StopStepProposed,
    WorkerRegistered,
)
from services.runtime import config
from services.runtime.actor import Writer
from services.runtime.config import Settings
from services.runtime.embedded import find_binary
from services.runtime.jetstream import JetStreamLog
from services.runtime.live_log import LogUnavailableError
from tests.live.cluster import TABLE, Cluster
from tests.live.extras import closure, environment
from tests.live.servers import NatsServer

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
SERVICES = ("policy", "mechanism", "estimator", "worker")
EMULATED = {
    "GAVEL_WORKER_TASKS": "emulated",
    "GAVEL_WORKER_ADDRESS": "127.0.0.1",
    "GAVEL_WORKER_CHECKPOINT_GRACE_S": "60",
}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
#: Imports whatever a service consists of; the SDK is a distribution of its own.
IMPORT_ALL = """
import importlib, pkgutil, sys
for name in ("schemas", "services.runtime", sys.argv[1]):
    package = importlib.import_module(name)
    for module in pkgutil.iter_modules(package.__path__, name + "."):
        if not module.name.endswith((".sdk", ".paced_job")):
            importlib.import_module(module.name)
"""


def check_variables(variables: dict[str, str]) -> None:
    """Each variable is a setting, and its value makes sense."""
    known = {
        f"GAVEL_{section.name}_{key.name}".upper()
        for section in msgspec.structs.fields(Settings)
        for key in msgspec.structs.fields(section.type)
    }
    assert variables.keys() <= known
    config.check(config.load(Settings, None, variables))


def configured(configuration: Path) -> NatsServer:
    """A server by the configuration, over a folder of the test."""
    store = {"NATS_STORE": str(configuration.parent / "store")}
    return NatsServer("-c", configuration, "-m", "-1", environment=store)


def passwords(folder: Path) -> dict[str, Path]:
    """{user: file of its password}, made as an operator makes them, beside the configuration."""
    shutil.copy(DEPLOY / "make-passwords", folder)
    subprocess.run([folder / "make-passwords"], check=True, capture_output=True)
    text = (DEPLOY / "nats" / "gavel.conf").read_text()
    (folder / "secrets" / "gavel.conf").write_text(text)
    users = [path for path in (folder / "secrets").iterdir() if path.suffix != ".conf"]
    return {path.name: path for path in users}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_is_content_with_its_own_extra(tmp_path: Path, service: str) -> None:
    """All of its modules are imported in an environment that has nothing else installed."""
    python = environment(tmp_path, service)
    module = f"services.{service}"
    variables = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, "-P", "-c", IMPORT_ALL, module],
        check=False,
        capture_output=True,
        text=True,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    others = {"torch", "cvxpy"} - closure(service).keys()
    absent = f"import {', '.join(sorted(others))}"
    assert subprocess.run([python, "-P", "-c", absent], check=False, capture_output=True).returncode


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
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    targets = set(re.findall(r"^FROM base AS (\w+)", dockerfile, re.MULTILINE))
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
    for name in SERVICES:
        service = compose["services"][name]
        mounts = {folder: volume for volume, folder in (m.split(":") for m in service["volumes"])}
        assert mounts.keys() >= {service["environment"]["GAVEL_SERVICE_SNAPSHOT_FOLDER"]}
        for folder, volume in mounts.items():
            assert volume in compose["volumes"]
            assert f"mkdir {folder} && chown gavel {folder}" in dockerfile
    nats = compose["services"]["nats"]
    folders = [mount.split(":")[1] for mount in nats["volumes"]]
    assert nats["environment"]["NATS_STORE"] in folders
    for mount in nats["volumes"]:
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
    # What it may write to under its own user is made for it.
    kept = re.search(r"GAVEL_SERVICE_SNAPSHOT_FOLDER=(?:%S|/var/lib)/([\w-]+)", text)
    assert kept is not None
    assert kept[1] == unit["Service"]["StateDirectory"]


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
        env=os.environ | {"NATS_STORE": str(tmp_path / "store")},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.live
def test_a_cluster_runs_on_the_least_that_each_service_may_and_needs(tmp_path: Path) -> None:
    """A gang over two hosts stops at one step, a job completes; each service is a user of its own.

    Each runs in an environment of its own, with its extra and nothing else; what is not theirs,
    users may not append.
    """
    users = passwords(tmp_path)

    async def run() -> None:
        server = configured(tmp_path / "secrets" / "gavel.conf")
        async with Cluster(tmp_path, server, "main") as cluster:
            for name in SERVICES:
                cluster.pythons[name] = environment(tmp_path / f"venv-{name}", name)
            # Nobody else may make the stream.
            cluster.start("mechanism", **credentials(users, "mechanism"))
            await cluster.until_said("mechanism", "restored")
            await cluster.connect("operator", users["operator"].read_text())
            for name in ("policy", "estimator"):
                cluster.start(name, **credentials(users, name))
            for name in ("worker-gpu1", "worker-gpu2"):
                cluster.start_workers("v100=1", name, **EMULATED, **credentials(users, name))
            await cluster.until_count(WorkerRegistered, 2)
            await cluster.configure(round_s=2.0, table=TABLE)
            await cluster.submit("gang", steps=1e6, scale_factor=2)
            await cluster.until(lambda _: any(r.steps for r in rows(cluster)))
            await cluster.order(DrainRequested(server_id="gpu1"))
            await cluster.until_count(StopStepAgreed, 1)
            await cluster.cancel("gang")
            await cluster.submit("job", steps=50.0)
            await cluster.until_count(JobCompleted, 1)
            await cluster.check_log()
            await check_forgery(cluster, users)

    asyncio.run(run())


def rows(cluster: Cluster) -> list[TaskProgress]:
    """All reports of tasks."""
    return [row for report in cluster.events(ProgressReported) for row in report.rows]


def credentials(users: dict[str, Path], user: str) -> dict[str, str]:
    """Settings by which a service is let in."""
    return {"GAVEL_LOG_USER": user, "GAVEL_LOG_PASSWORD_FILE": str(users[user])}


async def check_forgery(cluster: Cluster, users: dict[str, Path]) -> None:
    """A worker's user speaks for no client, service or other worker; nobody is in unasked."""
    log = await JetStreamLog.connect(
        cluster.server.url,
        "main",
        name="worker",
        credentials={"user": "worker-gpu1", "password": users["worker-gpu1"].read_text()},
        try_timeout_s=0.5,
        patience_s=1.0,
    )
    job = JobSpec(job_id="forged", job_type="small", total_steps=1.0)
    (agreed,) = cluster.events(StopStepAgreed)
    theirs = next(e for e in cluster.events(StopStepProposed) if e.reporter == "worker.gpu2")
    forged: dict[str, AnyEvent] = {
        "client.forged": JobSubmitted(job=job),
        "mechanism": agreed,
        "worker.gpu2": theirs,
    }
    last = await log.last_seq()
    for actor, event in forged.items():
        epoch = 0 if actor.startswith("client") else 1
        with pytest.raises(LogUnavailableError, match="ermission"):
            await log.append(Writer(actor, epoch).draft(last * epoch, 0, 0, event))
    await log.close()
    with pytest.raises(LogUnavailableError, match="uthorization"):
        await JetStreamLog.connect(cluster.server.url, "main", connect_timeout_s=3.0)


# --- three hosts ----------------------------------------------------------------------------------

GUIDE = (DEPLOY / "three-hosts" / "README.md").read_text()
COMMANDS = [line.strip().split() for line in GUIDE.splitlines() if line.startswith("    ")]


def installed() -> set[str]:
    """Files that the guide's commands put in place."""
    found = set()
    for command in COMMANDS:
        if command[0] == "install" and "-d" not in command:
            *sources, target = (word for word in command[1:] if "/" in word)
            whole = target.endswith("/")
            found |= {target + Path(s).name for s in sources} if whole else {target}
    return found | {"/etc/gavel/secrets/worker"}  # copied by hand from another host


def test_the_guide_installs_what_there_is(tmp_path: Path) -> None:
    """Each file it copies exists, or is a secret that it has had made; each extra is one."""
    made = {*passwords(tmp_path), "passwords.conf"}
    for command in COMMANDS:
        for word in command:
            if word.startswith("deploy/secrets/"):
                assert Path(word).name in made, word
            elif word.startswith(("deploy/", "./")) or word == "constraints.txt":
                assert (ROOT / word).exists(), word
            elif (extras := re.fullmatch(r"'\.\[([\w,]+)\]'", word)) is not None:
                assert set(extras[1].split(",")) <= EXTRAS.keys(), word
    assert any("make-passwords" in word for command in COMMANDS for word in command)


def test_the_guide_s_units_find_what_they_name() -> None:
    """Each unit that is started is installed; its settings, passwords and commands are too."""
    files = installed()
    started = {unit for c in COMMANDS if c[:2] == ["systemctl", "enable"] for unit in c[3:]}
    assert started == {f"gavel-{name}" for name in (*SERVICES, "nats")}
    for unit in started:
        assert f"/etc/systemd/system/{unit}.service" in files
        text = (DEPLOY / "systemd" / f"{unit}.service").read_text()
        for path in re.findall(r"/etc/gavel/[\w./-]+", text):
            assert path in files, path
    for command in COMMANDS:
        if command[:2] == ["systemctl", "restart"]:
            assert set(command[2:]) <= started


def test_the_guide_s_commands_are_commands() -> None:
    """Each ``gavel`` command has the options that the guide gives it."""
    asked = [command[1:] for command in COMMANDS if command[0] == "/opt/gavel/bin/gavel"]
    assert len(asked) > 4
    groups = {"config", "log"}
    for words in asked:
        path = words[: 2 if words[0] in groups else 1]
        said = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"}).stdout
        assert "Usage" in said, words
        for option in (word for word in words if word.startswith("--")):
            assert option in said, words
    variables = {
        pair.split("=", 1)[0]: pair.split("=", 1)[1]
        for command in COMMANDS
        if command[0] == "export"
        for pair in command[1:]
    }
    check_variables(variables)

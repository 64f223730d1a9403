"""The command line against a cluster that it has started itself."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.worker.system import tasks_under

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
TYPE = "ResNet-18 (batch size 32)"


class Gavel:
    """The command, with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        own = {key: value for key, value in os.environ.items() if not key.startswith("GAVEL_")}
        self.environment = own | {"GAVEL_HOME": str(home), "PYTHONPATH": str(ROOT)}

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run one command to its end; what it printed, on standard output and error."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "replay.cli", *arguments],
            cwd=self.home.parent,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert done.returncode == code, (
            f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout + done.stderr

    def json(self, *arguments: str) -> Any:
        """What a command says with ``--json``."""
        return json.loads(self(*arguments, "--json"))

    def up_file(self) -> dict[str, Any]:
        """What runs, as it says itself."""
        found: dict[str, Any] = json.loads((self.home / "up.json").read_text())
        return found


@pytest.fixture(scope="module")
def gavel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gavel]:
    """A cluster of three imagined accelerators."""
    command = Gavel(tmp_path_factory.mktemp("cli") / "home")
    command("up", "--emulate", "v100=2,k80=1", "--round", "2", "--detach")
    yield command
    command("down")


def test_a_job_is_submitted_and_waited_for(gavel: Gavel) -> None:
    """It is admitted, runs, completes; its row, its shares and its rounds can be asked for."""
    said = gavel.json("submit", "--type", TYPE, "--steps", "60")
    # It says after 2 s that the mechanism is away, which a busy machine's may seem to be.
    assert said["status"].startswith(("admitted", "stored"))
    assert gavel.json("wait", said["job_id"])["status"] == "completed"
    (job,) = [j for j in gavel.json("jobs", "--all") if j["job_id"] == said["job_id"]]
    assert job["steps"] == job["total_steps"] == 60
    assert gavel.json("rounds")
    assert said["job_id"] in gavel("job", "show", said["job_id"])
    assert said["job_id"] not in gavel("jobs")


def test_a_command_prints_into_its_log(gavel: Gavel, tmp_path: Path) -> None:
    """A job from a file runs its command; what it prints can be read; its failure has a reason."""
    path = tmp_path / "job.toml"
    path.write_text(
        f'job_id = "talker"\njob_type = "{TYPE}"\ntotal_steps = 10\nmax_attempts = 1\n'
        '[environment]\nWHO = "a; b"\n'
    )
    code = "import os; print('hello', os.environ['WHO']); raise SystemExit(7)"
    gavel("submit", "--file", str(path), "--", sys.executable, "-c", code)
    assert "exit code 7" in gavel("wait", "talker", code=1)
    assert gavel("logs", "talker").splitlines() == ["hello a; b"]


def test_a_running_job_is_cancelled(gavel: Gavel) -> None:
    """It ends, twice cancelled or not; one that has ended, or never was, is refused by name."""
    gavel("submit", "--id", "long", "--type", TYPE, "--steps", "1e6")
    gavel("cancel", "long")
    assert "cancelled" in gavel("wait", "long", code=1)
    assert "has ended" in gavel("cancel", "long", code=1)
    assert "'lang'" in gavel("cancel", "lang", code=2)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--type", TYPE, "--steps", "1", "--workers", "8"), 1, "asks for 8 workers of one type"),
        (("--type", "ResNet-18", "--steps", "1"), 1, "no throughput of job type 'ResNet-18'"),
        (("--steps", "1"), 2, "job_type is missing"),
        (("--type", TYPE, "--steps", "1", "--id", "a b"), 2, "job_id is 'a b'"),
        (("--type", TYPE, "--steps", "1", "--env", "API_KEY=x"), 2, "looks like a secret"),
        (("--type", TYPE, "--steps", "1", "--env", "X"), 2, "NAME=VALUE"),
        (("--type", TYPE), 2, "total_steps is missing"),
        (("--type", TYPE, "--steps", "nan"), 2, "submit: total_steps is nan"),
        (("--type", TYPE, "--steps", "1", "--weight", "-1"), 2, "priority_weight is -1.0"),
    ],
)
def test_what_cannot_run_is_refused_at_once(
    gavel: Gavel, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """With the numbers, the option or the key; nothing is submitted."""
    before = gavel.json("status")["jobs"]
    assert said in gavel("submit", *arguments, code=code)
    assert gavel.json("status")["jobs"] == before


def test_a_misspelt_key_of_a_job_file_is_named(gavel: Gavel, tmp_path: Path) -> None:
    """With file, line and the nearest right one."""
    path = tmp_path / "job.toml"
    path.write_text('job_type = "x"\ntotal_step = 10\n')
    said = gavel("submit", "--file", str(path), code=2)
    assert f"{path}, line 2: 'total_step' is no key; did you mean 'total_steps'?" in said


def test_a_dry_run_submits_nothing(gavel: Gavel) -> None:
    """It prints the job as it would be submitted."""
    said = gavel("submit", "--id", "dry", "--type", TYPE, "--steps", "5", "--dry-run", "--", "x")
    assert json.loads(said)["command"] == "x"
    assert "dry" not in gavel("jobs", "--all")


def test_an_id_is_used_once(gavel: Gavel) -> None:
    """A second job of the same id is refused, finished or not."""
    arguments = ("submit", "--id", "once", "--type", TYPE, "--steps", "5")
    gavel(*arguments)
    assert "in the log already" in gavel(*arguments, code=1)


def test_the_policy_is_set_and_a_worker_drained(gavel: Gavel, tmp_path: Path) -> None:
    """The next allocation is by the new policy; the drained worker says so; the log verifies."""
    assert "did you mean" in gavel("policy", "set", "lass", code=2)
    gavel("policy", "set", "isolated")
    gavel("drain", "local-k80-0")
    gavel("submit", "--id", "after", "--type", TYPE, "--steps", "100")
    gavel("wait", "after")
    assert gavel.json("allocation")["policy"] == "isolated"
    states = {w["worker_id"]: w["state"] for w in gavel.json("workers")}
    assert states["local-k80-0"] == "drained"
    out = tmp_path / "log.jsonl.zst"
    gavel("log", "fetch", str(out))
    assert "verified" in gavel("verify", str(out))


def test_services_come_back_and_a_second_cluster_is_refused(gavel: Gavel) -> None:
    """A service killed under `gavel up` is started again; another `up` names the first."""
    assert "up already" in gavel("up", "--emulate", "v100=1", code=1)
    before = {s["service"]: s["epoch"] for s in gavel.json("status")["services"]}
    os.kill(gavel.up_file()["services"]["mechanism"]["pid"], signal.SIGKILL)
    gavel("submit", "--id", "meanwhile", "--type", TYPE, "--steps", "20")
    assert gavel.json("wait", "meanwhile")["status"] == "completed"
    after = {s["service"]: s["epoch"] for s in gavel.json("status")["services"]}
    assert after["mechanism"] == before["mechanism"] + 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_stays_behind(tmp_path: Path, number: int) -> None:
    """Whether `up` is interrupted or killed, services, server and tasks are gone soon."""
    gavel = Gavel(tmp_path / "home")
    gavel("up", "--emulate", "v100=1", "--round", "2", "--detach")
    gavel("submit", "--id", "job", "--type", TYPE, "--steps", "1e6")
    up = gavel.up_file()
    pids = [service["pid"] for service in up["services"].values()]
    pids.append(int((gavel.home / "nats" / "lock").read_text()))
    descriptors = [os.pidfd_open(pid) for pid in pids]
    os.kill(up["pid"], number)
    for descriptor in descriptors:
        assert wait_for_end(descriptor)
        os.close(descriptor)
    assert not tasks_under(gavel.home)


def test_interrupted_while_it_comes_up_nothing_stays(tmp_path: Path) -> None:
    """Ctrl-C in `up --detach` is for the cluster too: its output, a pipe here, ends."""
    gavel = Gavel(tmp_path / "home")
    gavel.home.mkdir()
    os.mkfifo(gavel.home / "up.log")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "replay.cli", "up", "--emulate", "v100=1", "--detach"],
        env=gavel.environment,
    )
    with (gavel.home / "up.log").open() as lines:
        assert "starting" in lines.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        lines.read()
    assert "nothing is up" in gavel("down", code=1)


def test_a_number_that_another_process_has_by_now_is_no_cluster(tmp_path: Path) -> None:
    """After a crash the file may name a process that is nobody's to stop."""
    gavel = Gavel(tmp_path / "home")
    gavel.home.mkdir()
    up = {"pid": os.getpid(), "started": "1", "url": "nats://127.0.0.1:1", "cluster": "main"}
    (gavel.home / "up.json").write_text(json.dumps(up))
    assert "nothing is up" in gavel("down", code=1)


def wait_for_end(descriptor: int) -> bool:
    """Whether a process ends in time."""
    return bool(select.select([descriptor], [], [], 60.0)[0])


def test_without_a_cluster_commands_say_what_would_help(tmp_path: Path) -> None:
    """They name the command that starts one."""
    gavel = Gavel(tmp_path / "home")
    assert "`gavel up`" in gavel("jobs", code=1)
    assert "nothing is up" in gavel("down", code=1)


def test_a_copy_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    """Where there is no cluster to fetch from, the earlier copy stays."""
    gavel = Gavel(tmp_path / "home")
    copy = tmp_path / "copy.jsonl"
    copy.write_text("earlier")
    nowhere = ("--nats", "nats://127.0.0.1:1")
    assert "no log at" in gavel("log", "fetch", str(copy), "--force", *nowhere, code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["copy.jsonl"]
    assert copy.read_text() == "earlier"


def test_a_home_that_is_no_folder_is_wrong_usage(tmp_path: Path) -> None:
    """One line, and exit code 2, of every command that looks there."""
    (tmp_path / "home").write_text("")
    gavel = Gavel(tmp_path / "home")
    for command in (("up", "--emulate", "v100=1"), ("down",), ("status",)):
        assert gavel(*command, code=2).endswith("up.json: Not a directory\n")

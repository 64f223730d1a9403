"""``gavel demo`` for real, in a short form; and that nothing of it is left, however it ends."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.worker.system import tasks_under
from tests.live.cluster import ROOT

pytestmark = pytest.mark.live

PATIENCE_S = 100.0


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo as a process, under a home of its own."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("GAVEL_")}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "replay.cli", "demo", *arguments],
        cwd=home.parent,
        env=own | {"GAVEL_HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_a_short_demo_runs_verifies_and_compares(tmp_path: Path) -> None:
    """Two jobs complete live and simulated; the log it leaves verifies; no process is left."""
    demo = start(tmp_path / "home", "--jobs", "2", "--round", "2")
    said, _ = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, said
    assert "log.jsonl: verified" in said
    assert re.search(r"jobs completed +2 +2", said), said
    assert re.search(r"makespan .*%", said), said
    assert not tasks_under(tmp_path)
    assert not (tmp_path / "home" / "demo" / "up.json").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_nothing_of_a_demo_is_left(tmp_path: Path, number: int, code: int) -> None:
    """Interrupted or killed while a job runs, its services, server and tasks end with it."""
    demo = start(tmp_path / "home")
    assert demo.stdout is not None
    while "leases granted" not in (line := demo.stdout.readline()):
        assert line, demo.wait()
    folder = tmp_path / "home" / "demo"
    up = json.loads((folder / "up.json").read_text())
    pids = [service["pid"] for service in up["services"].values()]
    pids.append(int((folder / "nats" / "lock").read_text()))
    descriptors = [os.pidfd_open(pid) for pid in pids]
    os.kill(demo.pid, number)
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], PATIENCE_S)[0]
        os.close(descriptor)
    said, _ = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == code, said
    assert "Traceback" not in said
    assert not tasks_under(tmp_path)

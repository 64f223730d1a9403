"""``gavel replay`` and ``gavel diff`` on a running cluster's log: as on its copy in a file."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.live.test_services_cli import TYPE, Gavel

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def gavel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gavel]:
    """A cluster of imagined accelerators that has done a job."""
    command = Gavel(tmp_path_factory.mktemp("replay") / "home")
    command("up", "--emulate", "v100=1,k80=1", "--in-process", "--round", "1", "--detach")
    command("submit", "--id", "done", "--type", TYPE, "--steps", "20")
    assert command.json("wait", "done")["status"] == "completed"
    command("log", "fetch", "log.jsonl")
    yield command
    command("down")


def test_a_running_log_is_replayed_like_its_copy(gavel: Gavel) -> None:
    """Every service, at the same record; worker services by their names."""
    url = gavel.up_file()["url"]
    services = json.loads(gavel("diff", "log.jsonl", "log.jsonl", "--json"))
    assert services["same"]
    last = services["records"]
    for service in ("mechanism", "policy", "estimator"):
        place = ("--to", str(last // 2), "--service", service)
        live, copy = (gavel.json("replay", log, *place) for log in (url, "log.jsonl"))
        assert live == copy
        assert live["seq"] == last // 2
        assert live["epoch"] > 0
    refused = gavel("replay", url, "--service", "worker.nobody", code=2)
    assert "expected one of estimator, mechanism, policy, worker." in refused


def test_a_running_log_only_goes_on_from_its_copy(gavel: Gavel) -> None:
    """What was fetched is the beginning of what is there now, record by record."""
    url = gavel.up_file()["url"]
    gavel("submit", "--id", "more", "--type", TYPE, "--steps", "20")
    assert gavel.json("wait", "more")["status"] == "completed"
    parted = gavel("diff", "log.jsonl", url, code=1)
    assert "where A ends; B goes on" in parted
    steps = gavel("replay", url, "--to", "1", "--step", "--count", "20")
    assert "mechanism: say" in steps or "policy: run Solve" in steps or "run DetectWorkers" in steps


def test_a_cluster_that_is_not_there(gavel: Gavel) -> None:
    """Is said in one line, with exit code 1; a name that no cluster has, too."""
    gone = gavel("replay", "nats://127.0.0.1:1", code=1)
    assert "127.0.0.1:1" in gone
    url = gavel.up_file()["url"]
    nobody = gavel("replay", url, "--cluster-name", "elsewhere", code=2)
    assert "expected one of main" in nobody

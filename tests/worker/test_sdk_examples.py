"""The examples are trained for real: interrupted by the end of a lease, resumed under the next."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from pathlib import Path

import pytest

from services.worker.lease_socket import Agreeable
from services.worker.ranks import Done, Progress, Stopped
from tests.worker.lease_host import EXAMPLES, Host, ended, hosting, plain_environment, task

HOUR_S = 3600.0
ENDLESS = {"EPOCHS": "1000000"}


def needs(library: str) -> pytest.MarkDecorator:
    """Skip without a library that only training needs."""
    return pytest.mark.skipif(
        importlib.util.find_spec(library) is None, reason=f"{library} is not installed"
    )


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_examples_are_short() -> None:
    """Each example has under 60 lines, and imports the SDK."""
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert scripts
    for script in scripts:
        text = script.read_text()
        assert text.count("\n") < 60, script.name
        assert "from gavel_iterator import GavelIterator" in text, script.name


@pytest.mark.parametrize(
    ("script", "environment"),
    [
        pytest.param("plain_python.py", {}, id="plain"),
        pytest.param("torch_mlp.py", {}, id="torch", marks=needs("torch")),
        pytest.param(
            "torch_mlp.py", {"LOADER_PROCESSES": "2"}, id="torch, forked", marks=needs("torch")
        ),
        pytest.param("jax_regression.py", {}, id="jax"),
    ],
)
def test_an_example_is_trained_over_two_leases(
    tmp_path: Path, script: str, environment: dict[str, str]
) -> None:
    """Stopped by its lease's end after a checkpoint, it goes on from there to the last step."""
    command, environment = [str(EXAMPLES / script)], ENDLESS | environment

    async def scenario() -> None:
        async with hosting(tmp_path) as host:
            spec = task(tmp_path, steps=1e9)
            host.socket.expect("first", spec, {0}, HOUR_S)
            process = await host.start("first", spec, command, environment=environment)
            await host.until(lambda: any(p.iteration for p in host.said(Progress)))
            host.socket.stop("first", "j")
            stopped = await host.heard(Stopped)
            code, out, err = await ended(process)
            assert code == 0, err
            assert 0 < stopped.iteration == stopped.checkpointed
            assert out

            total = stopped.iteration + 50
            spec = task(tmp_path, steps=total, resume_from="first")
            host.socket.expect("second", spec, {0}, HOUR_S)
            process = await host.start("second", spec, command, environment=environment)
            done = await host.heard(Done, where="second")
            code, out, err = await ended(process)
            assert code == 0, err
            first = host.said(Progress, where="second")[0]
            assert first.iteration == stopped.iteration
            assert first.load_s > 0
            assert done.iteration == total
            assert not host.socket.refusals, host.lines.lines

    asyncio.run(scenario())


@needs("torch")
def test_two_ranks_stop_at_one_agreed_step(tmp_path: Path) -> None:
    """Both ranks of a gang propose, stop at the agreed step, resume, and end with equal weights."""

    async def start(
        host: Host, lease_id: str, steps: float, resume_from: str
    ) -> list[asyncio.subprocess.Process]:
        spec = task(tmp_path, steps=steps, ranks=2, resume_from=resume_from)
        host.socket.expect(lease_id, spec, {0, 1}, HOUR_S)
        gang = ENDLESS | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        command = [str(EXAMPLES / "torch_ddp.py")]
        return [
            await host.start(
                lease_id,
                spec,
                command,
                rank=rank,
                environment=gang | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
            )
            for rank in (0, 1)
        ]

    async def scenario() -> None:
        async with hosting(tmp_path) as host:
            processes = await start(host, "first", 1e9, "")
            await host.until(lambda: any(p.iteration for p in host.said(Progress, rank=1)))
            host.socket.propose("first", "j")
            agreed = (await host.heard(Agreeable, rank=None)).iteration
            host.socket.stop("first", "j", at=agreed)
            stopped = [await host.heard(Stopped, rank=rank) for rank in (0, 1)]
            for process in processes:
                code, _, err = await ended(process)
                assert code == 0, err
            assert stopped == [Stopped(iteration=agreed, checkpointed=agreed)] * 2

            total = agreed + 50
            processes = await start(host, "second", 2.0 * total, "first")
            for rank in (0, 1):
                done = await host.heard(Done, rank=rank, where="second")
                assert done.iteration == total
                assert host.said(Progress, rank=rank, where="second")[0].iteration == agreed
            ends = [await ended(process) for process in processes]
            assert [code for code, _, _ in ends] == [0, 0], ends
            weights = {out.partition(":")[2] for _, out, _ in ends}
            assert len(weights) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "script",
    [
        "plain_python.py",
        pytest.param("torch_mlp.py", marks=needs("torch")),
        "jax_regression.py",
    ],
)
def test_an_example_runs_without_a_scheduler(tmp_path: Path, script: str) -> None:
    """Without the worker's variables an example trains all its epochs and leaves nothing behind."""

    async def scenario() -> None:
        host = Host(tmp_path / "never-opened")
        process = await host.start(
            "", task(tmp_path, steps=1), [str(EXAMPLES / script)], environment={"GAVEL_SOCKET": ""}
        )
        code, out, err = await ended(process)
        assert code == 0, err
        assert out

    assert "GAVEL_SOCKET" not in plain_environment()
    asyncio.run(scenario())
    assert not list(tmp_path.iterdir())

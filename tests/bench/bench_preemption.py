"""What a lease that is not renewed costs its job (§7, Table 4): `make bench` prints the figures."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pytest

from replay.cli.demo import REQUEST
from replay.run import carry_out, check
from services.runtime.log import MemoryLog
from services.worker.lease_socket import Agreeable
from services.worker.ranks import Done, Progress, Stopped
from tests.worker.lease_host import EXAMPLES, Host, ended, hosting, task

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)

ROUND_S = 360.0
#: Of a round, at most: every lease anew, and with the share of leases that are renewed.
ANEW, RENEWED = 0.03, 0.005
LEASES = 5


@dataclass(frozen=True)
class Cost:
    """Seconds of one lease that its job does not train in."""

    #: From the start of its processes until all have loaded, loading aside.
    start_s: float
    load_s: float
    save_s: float


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def run_lease(host: Host, folder: Path, script: str, ranks: int, number: int) -> Cost:
    """Start an example, let it train, stop it at a step that all of its ranks agree on."""
    name, everyone = f"r{number}-0", range(ranks)
    spec = task(folder, steps=1e9, ranks=ranks, resume_from=f"r{number - 1}-0" if number else "")
    host.socket.expect(name, spec, set(everyone), 3600.0)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "EPOCHS": "1000000"}
    began = time.monotonic()
    processes = [
        await host.start(
            name,
            spec,
            [str(EXAMPLES / script)],
            rank=rank,
            environment=meeting
            | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)},
        )
        for rank in everyone
    ]
    first = [await host.heard(Progress, rank=rank, where=name) for rank in everyone]
    loaded_s = time.monotonic() - began
    before = first[0].iteration
    await host.until(lambda: host.said(Progress, where=name)[-1].iteration > before)
    host.socket.propose(name, "j")
    agreed = await host.heard(Agreeable, rank=None, where=name)
    host.socket.stop(name, "j", at=agreed.iteration)
    for rank in everyone:
        await host.heard(Stopped, rank=rank, where=name)
    steps = host.socket.steps(name, "j")
    for process in processes:
        await ended(process)
    assert not host.said(Done)
    assert steps is not None
    return Cost(loaded_s - steps.load_s, steps.load_s, steps.save_s)


def anew() -> float:
    """Share of leases granted anew and not renewed: LAS, 36 GPUs, as many jobs as they can do."""
    figures = carry_out(check(replace(REQUEST, policy="las")), MemoryLog()).figures
    return figures.starts / (figures.starts + figures.renewals)


def test_preemption(tmp_path: Path) -> None:
    """Seconds to save, start and load the torch examples, of rounds of 360 s."""

    async def measure(script: str, ranks: int) -> list[Cost]:
        folder = tmp_path / script
        folder.mkdir()
        async with hosting(folder) as host:
            return [await run_lease(host, folder, script, ranks, n) for n in range(LEASES)]

    share = anew()
    print(f"\npreemption: of {ROUND_S:g} s rounds, without renewal / with ({share:.1%} are anew)")
    for script, ranks in (("torch_mlp.py", 1), ("torch_ddp.py", 2)):
        costs = asyncio.run(measure(script, ranks))
        # The first lease has nothing to load.
        start_s = median(cost.start_s for cost in costs)
        load_s = median(cost.load_s for cost in costs[1:])
        save_s = median(cost.save_s for cost in costs)
        overhead = (load_s + save_s) / ROUND_S
        whole = overhead + start_s / ROUND_S
        print(
            f"  {script}, {ranks} rank{'s' * (ranks > 1)}: "
            f"load {load_s:.4f} s, save {save_s:.4f} s: {overhead:.4%} / {overhead * share:.4%}; "
            f"with {start_s:.2f} s to start: {whole:.3%} / {whole * share:.3%} "
            f"(at most {ANEW:.1%} / {RENEWED:.1%})"
        )
        assert overhead <= whole <= ANEW
        assert whole * share <= RENEWED

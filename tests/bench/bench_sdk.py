"""What the training-side SDK costs: `make bench` prints the figures."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from statistics import median

import pytest

from services.worker.ranks import Done, Progress, Stopped
from tests.worker.lease_host import EXAMPLES, Host, ended, hosting, task

_STEPS = """
import json, time
from gavel_iterator import GavelIterator
loader = range(2_000_000)
it = GavelIterator(loader, load=lambda path: None, save=lambda path: open(path, "w").close())
def seconds(batches):
    started = time.perf_counter()
    for batch in batches:
        pass
    return time.perf_counter() - started
bare = min(seconds(loader) for _ in range(5))
print(json.dumps([(seconds(it) - bare) / len(loader) for _ in range(5)]))
"""


def test_step(tmp_path: Path) -> None:
    """Microseconds that a step under the scheduler takes beside one of the bare loop."""

    async def measure() -> list[float]:
        async with hosting(tmp_path) as host:
            spec = task(tmp_path, steps=1e12)
            host.socket.expect("a", spec, {0}, 3600.0)
            process = await host.start("a", spec, ["-c", _STEPS])
            code, out, err = await ended(process)
            assert code == 0, err
            found: list[float] = json.loads(out)
            return found

    per_step_us = 1e6 * median(asyncio.run(measure()))
    print(f"\nSDK: {per_step_us:.3f} us a step beside the bare loop (at most 5)")
    assert per_step_us < 5


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_checkpoint(tmp_path: Path) -> None:
    """Seconds to save and to load the torch example, as a worker service is told them."""

    async def lease(host: Host, index: int) -> tuple[float, float]:
        name = f"r{index}-0"
        spec = task(tmp_path, steps=1e9, resume_from=f"r{index - 1}-0" if index else "")
        host.socket.expect(name, spec, {0}, 3600.0)
        process = await host.start(
            name, spec, [str(EXAMPLES / "torch_mlp.py")], environment={"EPOCHS": "1000000"}
        )
        start = (await host.heard(Progress, where=name)).iteration
        await host.until(lambda: host.said(Progress, where=name)[-1].iteration > start)
        host.socket.stop(name, "j")
        await host.heard(Stopped, where=name)
        steps = host.socket.steps(name, "j")
        await ended(process)
        assert not host.said(Done)
        assert steps is not None
        return steps.load_s, steps.save_s

    async def measure() -> list[tuple[float, float]]:
        async with hosting(tmp_path) as host:
            return [await lease(host, index) for index in range(6)]

    found = asyncio.run(measure())
    load_s = median(load_s for load_s, _ in found[1:])
    save_s = median(save_s for _, save_s in found)
    print(f"\nSDK, torch example: load {load_s:.4f} s, save {save_s:.4f} s, fsynced")
    print(f"load and save of a 360 s lease: {100 * (load_s + save_s) / 360:.4f} %")

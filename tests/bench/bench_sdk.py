"""What the training-side SDK costs: `make bench` prints the figures."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from statistics import median

from tests.worker.lease_host import ended, hosting, task

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

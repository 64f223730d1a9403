"""How far live times are off those of a simulation of the same jobs: `make bench` prints it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.live.test_services_fidelity import relative_errors

_WITHIN = 0.03


def test_fidelity(tmp_path: Path) -> None:
    """Average JCT and makespan, live against simulated."""
    off = asyncio.run(relative_errors(tmp_path))
    told = ", ".join(f"{name} {error:.2%} off" for name, error in off.items())
    print(f"\nlive against simulated: {told} (at most {_WITHIN:.0%})")
    assert max(off.values()) < _WITHIN

"""What a snapshot costs, with 5,000 active jobs on 1,000 workers: `make bench` prints it."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from replay.modes import default_mode
from replay.simulate import WORKER, Simulation, build_workers, cores
from replay.traces.generate import generate
from replay.traces.tables import builtin_table
from schemas.events import RoundScheduled
from schemas.record import Record
from services.runtime.actor import Actor
from services.runtime.log import MemoryLog
from services.runtime.snapshot import Snapshots
from services.worker.view import LogView

_JOBS = 5_000
_WORKERS = {"v100": 334, "p100": 333, "k80": 333}
_ROUNDS = 3
#: On the loop of a service, which others wait for; and at a start, where nobody does.
_TAKE_MS, _RESTORE_MS = 50.0, 1000.0


def _log(policy: str) -> list[Record]:
    table = builtin_table()
    arrived = generate(_JOBS, 0.001, multi_gpu=True, seed=1, table=table)
    long = [msgspec.structs.replace(job, total_steps=1e9) for job in arrived]
    log = MemoryLog()
    rounds = 0

    def count(record: Record) -> None:
        nonlocal rounds
        rounds += isinstance(record.event, RoundScheduled)

    workers = build_workers(_WORKERS, dict.fromkeys(_WORKERS, 8), {})
    # Not one solve for each arrival.
    config = msgspec.structs.replace(default_mode(policy, 360.0), resolve_min_gap_s=100.0)
    simulation = Simulation(log, config, workers, table, long, observers=(count,))
    simulation.driver.run(until=lambda: rounds == _ROUNDS)
    return list(log.read())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["las", "las:ss"])
def test_taken_between_two_records(policy: str) -> None:
    """Taken within 50 ms of processor time, so that it may be on a service's loop."""
    records = _log(policy)
    slow = []
    for name, make in cores().items():
        actor, view = Actor(name, make()), LogView(name)
        beside = (view,) if name == WORKER else ()
        for record in records:
            actor.fold(record)
            view.take(record)
        snapshots = Snapshots(Path(), "bench", actor, beside)
        snapshots.take(records[-1])  # the first reads the sources, once for a process
        started = time.process_time()
        content = snapshots.take(records[-1])
        take_ms = 1e3 * (time.process_time() - started)
        begun = Snapshots(Path(), "bench", Actor(name, make()), (LogView(name),) if beside else ())
        started = time.process_time()
        begun.restore(content, records[-1])
        restore_ms = 1e3 * (time.process_time() - started)
        print(
            f"\n{policy} {name}: {len(content) / 1e6:.1f} MB, taken in {take_ms:.0f} ms "
            f"(at most {_TAKE_MS:.0f}), restored in {restore_ms:.0f} ms (at most {_RESTORE_MS:.0f})"
        )
        if take_ms > _TAKE_MS or restore_ms > _RESTORE_MS:
            slow.append(name)
    assert not slow

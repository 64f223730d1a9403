"""How fast a long log is read, folded and gone about in: `make bench` prints it.

The log is a simulation's, of a million records: three workers, some 80 % busy, for many years.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from replay.index import Index
from replay.modes import default_mode
from replay.places import lines_in
from replay.simulate import Simulation, build_workers
from replay.traces.generate import generate
from replay.traces.tables import builtin_table
from replay.travel.journey import Journey, LogFile, Target
from services.runtime.file_log import FileLog, read_log

RECORDS = int(os.environ.get("GAVEL_BENCH_RECORDS", "1_000_000"))
_CLUSTER = {"v100": 1, "p100": 1, "k80": 1}
#: Between arrivals, s.
_GAP_S = 30_000.0
_JUMP_S = 2.0


def _cpu_s(work: Callable[[], object]) -> float:
    """Processor time of some work; other processes may be on the machine."""
    started = time.process_time()
    work()
    return time.process_time() - started


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a simulation that is cut off once it is long enough."""
    path = tmp_path_factory.mktemp("bench") / "long.jsonl"
    table = builtin_table()
    jobs = generate(RECORDS // 100, _GAP_S, multi_gpu=False, seed=0, table=table)
    workers = build_workers(_CLUSTER, {}, {})
    file = FileLog(path)
    simulation = Simulation(file, default_mode("las", 360.0), workers, table, jobs)
    simulation.driver.run(until=lambda: file.last_seq >= RECORDS)
    file.close()
    return path


@pytest.mark.timeout(3600)
def test_a_long_log(log: Path) -> None:
    """Read and checked, folded by one service and by all; then gone to its middle and end."""
    records = lines_in(log) - 1
    megabytes = log.stat().st_size / 1e6
    print(f"\n{records:,} records, {megabytes:,.0f} MB")
    parts = {
        "lines counted": lambda: lines_in(log),
        "read and checked": lambda: sum(1 for _ in read_log(log)),
        "folded by the policy": lambda: Journey(LogFile(log), {"policy"}).go(Target()),
        "folded by the estimator": lambda: Journey(LogFile(log), {"estimator"}).go(Target()),
        "folded by the mechanism": lambda: Journey(LogFile(log, may_index=False), {"mechanism"}).go(
            Target()
        ),
        "indexed": lambda: Index(log).write(),
    }
    for name, work in parts.items():
        cpu_s = _cpu_s(work)
        print(f"  {name}: {cpu_s:.1f} s, {records / cpu_s:,.0f} records/s")
    folder = log.with_name(f"{log.name}.snapshots")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"  its snapshots: {len(list(folder.iterdir()))} files, {size / 1e6:,.0f} MB")
    for name, seq in (("middle", records // 2 - 1), ("end", records)):
        cpu_s = _jump(log, seq)
        print(f"  gavel replay --to {seq} (the {name}): {cpu_s:.2f} s (at most {_JUMP_S:.0f})")
        assert cpu_s < _JUMP_S


def _jump(log: Path, seq: int) -> float:
    """Processor time of the command, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "replay.cli", "replay", str(log), "--to", str(seq)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"after record {seq}," in done.stdout
    assert done.stderr == "", "the index is there, and fits"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

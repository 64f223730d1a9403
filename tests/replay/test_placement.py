"""Placement end to end: gangs on servers of eight, with the published throughputs of both ways."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from replay.modes import MODES
from replay.simulate import Simulation, build_workers
from replay.traces.generate import generate
from replay.verify import verify
from schemas.domain import UNCONSOLIDATED, Lease
from schemas.events import AllocationComputed, ClusterConfigured, JobCompleted, RoundScheduled
from schemas.record import Record
from schemas.servers import fewest
from services.estimator.tables import ThroughputTable, parse_table
from services.runtime.log import MemoryLog
from tests.simulation.scenario import records_of

PER_SERVER = 8
CLUSTER = {"v100": 32, "p100": 16, "k80": 16}
JOBS, GAP_S, CHECKPOINT_S, SEED = 80, 200.0, 10.0, 1


class Run(NamedTuple):
    """What came of a run."""

    average_jct_s: float
    completed: set[str]
    leases: list[Lease]
    #: Of leases of several workers, those on more servers than need be.
    spread: list[Lease]
    records: list[Record]


def consolidated_only(table: ThroughputTable) -> ThroughputTable:
    """The table without what it knows of the unconsolidated way."""
    rows = [
        msgspec.structs.replace(
            row, alone=tuple(t for t in row.alone if not t.worker_type.endswith(UNCONSOLIDATED))
        )
        for row in table.rows(pairs=False)
    ]
    return ThroughputTable.from_rows(rows, "consolidated only")


@cache
def run(policy: str, table_file: Path, mode: str = "default", ways: str = "both") -> Run:
    """A trace of which three jobs in ten need 2, 4 or 8 workers."""
    table = parse_table(table_file.read_text(), table_file.name)
    jobs = generate(JOBS, GAP_S, multi_gpu=True, seed=SEED, table=table)
    if ways == "consolidated":
        table = consolidated_only(table)
    workers = build_workers(CLUSTER, dict.fromkeys(CLUSTER, PER_SERVER), {})
    config: ClusterConfigured = MODES[mode](policy, 360.0)
    simulation = Simulation(
        MemoryLog(), config, workers, table, jobs, load_s=CHECKPOINT_S, save_s=CHECKPOINT_S
    )
    figures = simulation.run().figures()
    assert figures.average_jct_s is not None
    assert figures.failed_solves == 0
    server = {w.worker_id: w.server_id for w in workers}
    records = list(records_of(simulation.driver))
    leases = [
        lease
        for record in records
        if isinstance(record.event, RoundScheduled)
        for lease in record.event.granted
    ]
    spread = [
        lease
        for lease in leases
        if len({server[w] for w in lease.worker_ids})
        != fewest(len(lease.worker_ids), [PER_SERVER] * (CLUSTER[lease.worker_type] // PER_SERVER))
    ]
    completed = {r.event.job_id for r in records if isinstance(r.event, JobCompleted)}
    return Run(figures.average_jct_s, completed, leases, spread, records)


@pytest.fixture
def table_file(reference_data: Path) -> Path:
    """The published throughputs, which tell both ways apart."""
    return reference_data / "throughputs" / "simulation_throughputs.json"


@pytest.mark.parametrize("policy", ["las", "las:ss", "ftf", "makespan", "max-throughput"])
def test_jobs_are_done_no_later_where_placement_is_priced(policy: str, table_file: Path) -> None:
    """On average, than under the same policy when it leaves gangs where they happen to fit."""
    blind = run(policy, table_file)
    aware = run(f"{policy}:placement", table_file)
    assert len(aware.completed) == len(blind.completed) == JOBS
    assert aware.average_jct_s <= blind.average_jct_s


@pytest.mark.parametrize("policy", ["las:placement", "las:ss:placement"])
def test_gangs_are_held_as_they_are_priced(policy: str, table_file: Path) -> None:
    """Only leases for an unconsolidated share are on more servers than need be.

    Shares of both ways are on the log, and the log tells of each lease which it was granted for.
    """
    aware = run(policy, table_file)
    assert aware.spread
    assert all(lease.unconsolidated for lease in aware.spread)
    allocated = [r.event for r in aware.records if isinstance(r.event, AllocationComputed)]
    names = {name for event in allocated for row in event.rows for name in row.shares}
    assert names >= {"k80_unconsolidated", "v100"}
    assert {lease.worker_type for lease in aware.leases} == set(CLUSTER)


def test_the_log_of_such_a_run_verifies(table_file: Path) -> None:
    """Every decision follows from the log, and a second run writes the same one."""
    aware = run("las:placement", table_file)
    assert verify(aware.records).divergence is None
    assert run.__wrapped__("las:placement", table_file).records == aware.records


def test_in_paper_mode_placement_has_no_effect_on_throughput(table_file: Path) -> None:
    """There, gangs on too many servers run at full speed; by default they do not."""
    both, one = (run("las", table_file, "paper", ways) for ways in ("both", "consolidated"))
    assert both.spread
    assert both.average_jct_s == one.average_jct_s
    both, one = (run("las", table_file, "default", ways) for ways in ("both", "consolidated"))
    assert both.average_jct_s > one.average_jct_s

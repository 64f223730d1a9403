"""What a demo says of its leases and of the simulation beside it, held to a simulated log."""

from __future__ import annotations

import pytest

from replay.live.demo import workload
from replay.live.demo_report import Overheads, comparison, figures, overheads, simulate
from replay.simulate import Simulation, build_workers
from replay.traces.tables import builtin_table
from replay.views import out
from schemas.events import ClusterConfigured
from schemas.record import Record
from services.runtime.log import MemoryLog

TABLE = builtin_table()
LOAD_S, SAVE_S = 0.5, 0.25


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """The demo's jobs on its workers, simulated."""
    log = MemoryLog()
    workers = build_workers({"v100": 2, "p100": 2, "k80": 2}, {}, {})
    config = ClusterConfigured(round_duration_s=5.0)
    jobs = workload(TABLE, 16)
    Simulation(log, config, workers, TABLE, jobs, load_s=LOAD_S, save_s=SAVE_S).run()
    return list(log.read())


def test_what_leases_cost_is_read_from_their_reports(records: list[Record]) -> None:
    """Nothing but the load that the cluster was given stands between a lease and its steps."""
    cost = overheads(records, TABLE)
    assert cost.leases > 16
    assert cost.start_s == pytest.approx(0.0, abs=1e-6)
    assert cost.load_s == pytest.approx(LOAD_S)
    assert 0 < cost.save_s < SAVE_S  # what completes under a lease saves nothing more


def test_the_simulation_beside_a_run_is_of_the_same_jobs_and_workers(records: list[Record]) -> None:
    """Given the costs of a simulated run, it comes to that run's figures."""
    cost = Overheads(start_s=0.1, load_s=LOAD_S - 0.1, save_s=SAVE_S, leases=1)
    assert simulate(records, TABLE, cost) == figures(records)


def test_a_difference_is_that_of_the_simulation_from_the_run(records: list[Record]) -> None:
    """Cheaper leases come to a negative one; each figure stands in its own column."""
    live = figures(records)
    free = Overheads(start_s=0.0, load_s=0.0, save_s=0.0, leases=1)
    console = out()
    with console.capture() as capture:
        console.print(comparison(live, simulate(records, TABLE, free), free))
    (line,) = [line for line in capture.get().splitlines() if line.startswith(" average JCT")]
    assert f"{live.average_jct_s:.1f} s" in line
    assert line.rstrip().endswith("%")
    assert " -" in line


def test_the_demo_s_jobs_run_on_every_type() -> None:
    """Each has a name of its own, and a speed on each type."""
    jobs = workload(TABLE, 16)
    assert len({job.job_id for job in jobs}) == len(jobs)
    for job in jobs:
        assert all(TABLE.alone(job.job_type, 1, t) for t in ("k80", "p100", "v100")), job.job_type

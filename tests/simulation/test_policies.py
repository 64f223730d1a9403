"""Policies that ask for progress or prices, on a whole cluster as it would be run."""

from __future__ import annotations

import msgspec
import pytest

from replay.modes import MODES
from replay.simulate import Simulation, build_workers
from replay.summary import Figures
from replay.traces.generate import generate
from schemas.domain import JobSpec
from schemas.events import AllocationComputed, AllocationFailed
from schemas.record import Record
from services.policy.catalog import POLICIES
from services.runtime.log import MemoryLog
from tests.simulation.scenario import table

PRICES = {"k80": 0.135, "p100": 0.43, "v100": 0.74}


def jobs(slo_factor: float | None = None, count: int = 30) -> list[JobSpec]:
    """Jobs, gangs too, with a deadline at a multiple of their time on a v100, or without."""
    generated = generate(count, 600.0, multi_gpu=True, seed=3, table=table())
    if slo_factor is None:
        return generated
    return [
        msgspec.structs.replace(
            job,
            slo_s=slo_factor
            * (job.total_steps or 0.0)
            / (table().alone(job.job_type, job.scale_factor, "v100") or 1.0),
        )
        for job in generated
    ]


def run(
    policy: str, mode: str, submitted: list[JobSpec], cluster: int = 8
) -> tuple[Figures, Simulation, list[Record]]:
    """Simulate to the end on as many workers of each of three types."""
    config = msgspec.structs.replace(
        MODES[mode](policy, 360.0), prices_usd_per_h=PRICES, reference_type="v100"
    )
    workers = build_workers(dict.fromkeys(PRICES, cluster), {}, PRICES)
    solves: list[Record] = []

    def keep(record: Record) -> None:
        if isinstance(record.event, AllocationComputed | AllocationFailed):
            solves.append(record)

    simulation = Simulation(
        MemoryLog(), config, workers, table(), submitted, load_s=5.0, save_s=5.0, observers=(keep,)
    )
    return simulation.run().figures(), simulation, solves


@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize(
    "policy",
    [
        name
        for name in sorted(POLICIES)
        if name.partition(":")[0]
        in {"cost", "cost-slo", "ftf", "makespan", "max-throughput", "sjf"}
    ],
)
def test_every_job_of_a_small_trace_completes(policy: str, mode: str) -> None:
    """On the grid and in paper mode; and no solve fails."""
    submitted = jobs(slo_factor=3.0)
    figures, simulation, solves = run(policy, mode, submitted)
    assert figures.outcomes == {"completed": len(submitted)}
    assert not [r for r in solves if isinstance(r.event, AllocationFailed)]
    assert simulation.summary.done


def test_slos_are_met_for_less_money_than_most_throughput_takes() -> None:
    """Half as long again as on a v100, and an hour: cost alone is late, max-throughput dearer."""
    submitted = [
        msgspec.structs.replace(job, slo_s=(job.slo_s or 0.0) + 3600.0) for job in jobs(1.5)
    ]
    cost, late = {}, {}
    for policy in ("cost", "cost-slo", "max-throughput"):
        figures, simulation, _ = run(policy, "default", submitted, cluster=16)
        cost[policy] = figures.cost_usd
        done = simulation.summary.jobs
        late[policy] = {
            job.job_id for job in submitted if (done[job.job_id].jct_s or 0.0) > (job.slo_s or 0.0)
        }
    assert late["cost"]
    assert not late["cost-slo"]
    assert cost["cost-slo"] < 0.95 * cost["max-throughput"]


def test_jobs_whose_slo_cannot_be_met_are_named_on_the_log() -> None:
    """At half of the time on a v100 most cannot be met, and the log says which and how far off."""
    submitted = jobs(slo_factor=0.5)
    figures, _, solves = run("cost-slo", "default", submitted)
    assert figures.outcomes == {"completed": len(submitted)}
    named = {
        job_id
        for record in solves
        if isinstance(record.event, AllocationComputed)
        for job_id in record.event.unmet
    }
    assert len(named) > len(submitted) / 2


def test_the_makespan_policy_has_the_least_makespan() -> None:
    """Sixty jobs that are all there at once, against the policies that aim at something else."""
    submitted = [msgspec.structs.replace(job, arrival_s=0.0) for job in jobs(count=60)]
    makespans = {
        policy: run(policy, "default", submitted)[0].makespan_s or 0.0
        for policy in ("makespan", "makespan:agnostic", "las", "ftf", "sjf", "fifo")
    }
    assert min(makespans, key=makespans.__getitem__) == "makespan"

"""The estimator among the other services, in simulation."""

from __future__ import annotations

import dataclasses
import math
import random
import subprocess
import sys
from functools import cache
from typing import Any

import msgspec
import pytest

from replay.modes import default_mode
from replay.simulate import Simulation, build_workers
from replay.traces.generate import generate
from replay.traces.tables import builtin_table
from replay.verify import verify
from schemas.domain import UNCONSOLIDATED, JobSpec
from schemas.events import (
    ClaimRefuted,
    LeaderElected,
    LeasesChanged,
    ThroughputEstimated,
    ThroughputMeasured,
)
from schemas.record import Record, encode
from services.estimator.tables import ThroughputTable
from services.runtime.log import MemoryLog
from tests.simulation.invariants import violations
from tests.simulation.scenario import Scenario, contended, records_of, run_on

TYPES = ("k80", "p100", "v100")
TABLE = builtin_table()


def run(
    jobs: list[JobSpec], policy: str = "las", *, profile_workers: int = 6, **options: Any
) -> Simulation:
    """Simulate jobs on four workers of each type; settings and options by name."""
    names = ("believed", "noise", "window")
    own = {name: options.pop(name) for name in names if name in options}
    config = msgspec.structs.replace(default_mode(policy, 360.0), **options)
    workers = build_workers(dict.fromkeys(TYPES, 4), {}, {}, profile_workers)
    simulation = Simulation(MemoryLog(), config, workers, TABLE, jobs, **own)
    simulation.run()
    return simulation


def jobs_of(count: int, gap_s: float = 2000.0, seed: int = 0) -> list[JobSpec]:
    """Jobs of one worker each."""
    return generate(count, gap_s, multi_gpu=False, seed=seed, table=TABLE)


def learned(seed: int) -> Scenario:
    """Contended, gangs and faults included; every job profiled, on workers left idle."""
    scenario = contended(seed, num_jobs=16, policy="las:ss")
    config = msgspec.structs.replace(
        scenario.config, estimator="learned", trust_job_types=False, profile_s=3.0
    )
    return dataclasses.replace(scenario, config=config)


@cache
def undisturbed(seed: int) -> tuple[Record, ...]:
    """The log of a run without lag or kills."""
    simulation = learned(seed).simulation()
    simulation.run()
    return tuple(records_of(simulation.driver))


def test_a_learned_log_verifies_and_is_the_same_again() -> None:
    """Decided anew, every record is there; run again, every byte is."""
    records = undisturbed(3)
    kinds = {type(record.event) for record in records}
    assert kinds >= {ThroughputMeasured, LeasesChanged}
    assert verify(records).divergence is None
    simulation = learned(3).simulation()
    simulation.run()
    assert list(map(encode, records_of(simulation.driver))) == list(map(encode, records))


@pytest.mark.parametrize("seed", range(4))
def test_profiles_take_nobody_else_s_workers(seed: int) -> None:
    """No worker under two leases at once, no job run after its end, none left undone."""
    assert violations(undisturbed(seed)) == []


@pytest.mark.parametrize("lag_seed", range(4))
def test_lag_and_learning(lag_seed: int) -> None:
    """Profiles that come late, after a job's end, or out of turn, keep no job from its end."""
    simulation = learned(lag_seed).simulation(lag_seed=lag_seed)
    simulation.run()
    assert simulation.summary.done


@pytest.mark.parametrize("victim", ["estimator", "mechanism", "worker.simulated"])
def test_killed_while_profiles_are_out(victim: str) -> None:
    """A service killed once, at any of some places, goes on to the same events."""
    calm = [r.event for r in undisturbed(3) if not isinstance(r.event, LeaderElected)]
    for position in range(30, len(calm), len(calm) // 7):
        simulation = learned(3).simulation()
        run_on(simulation, position - simulation.driver.log.last_seq)
        simulation.driver.restart(victim)
        simulation.run()
        records = records_of(simulation.driver)
        assert [r.event for r in records if not isinstance(r.event, LeaderElected)] == calm


def test_the_oracle_needs_no_torch() -> None:
    """Simulating with known throughputs does not even import it."""
    script = (
        "import sys; from replay.cli.__main__ import app; from typer.testing import CliRunner;"
        "done = CliRunner().invoke(app, 'simulate --generate --jobs 3 --cluster v100=2'.split());"
        "sys.exit(done.exit_code or 9 * ('torch' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize("worker_type", TYPES)
def test_a_table_wrong_by_two_is_put_right_within_five_rounds(
    worker_type: str, noise: float
) -> None:
    """Once a class has run on a type for five rounds, its estimate there is within 5 %."""
    rows = [
        msgspec.structs.replace(
            row,
            alone=tuple(
                msgspec.structs.replace(cell, steps_per_s=cell.steps_per_s * 2)
                if cell.worker_type == worker_type
                else cell
                for cell in row.alone
            ),
        )
        for row in TABLE.rows(pairs=False)
    ]
    wrong = ThroughputTable.from_rows(rows, "wrong")
    simulation = run(jobs_of(40), estimator="learned", believed=wrong, noise=noise)
    estimates: dict[str, float] = {}
    for record in records_of(simulation.driver):
        event = record.event
        if isinstance(event, ThroughputEstimated) and not event.job_id:
            rates = {cell.worker_type: cell.steps_per_s for cell in event.row.alone}
            estimates[event.row.job_type] = rates[worker_type]
    off = {}
    for job_type in _rounds_on(simulation, worker_type, least=5):
        truth = TABLE.alone(job_type, 1, worker_type)
        assert truth
        off[job_type] = abs(math.log(estimates[job_type] / truth))
    assert len(off) > 3
    assert max(off.values()) < math.log(1.05)


def _rounds_on(simulation: Simulation, worker_type: str, least: int) -> list[str]:
    """Job types that were measured on a type in so many rounds at least."""
    counts: dict[str, int] = {}
    job_types = {job_id: line.job_type for job_id, line in simulation.summary.jobs.items()}
    leases = {}
    for record in records_of(simulation.driver):
        event = record.event
        for lease in getattr(event, "granted", ()):
            leases[lease.lease_id] = lease
        for row in getattr(event, "rows", ()):
            lease = leases.get(getattr(row, "lease_id", ""))
            if lease is not None and lease.worker_type == worker_type:
                job_type = job_types[row.job_id]
                counts[job_type] = counts.get(job_type, 0) + 1
    return [job_type for job_type, count in sorted(counts.items()) if count >= least]


def test_lying_pays_unless_claims_are_checked() -> None:
    """Under the policy that maximises throughput, every fifth owner says that a K80 is no use.

    Believed, the liars' jobs are done much sooner than honest ones; checked, each is found out
    and their jobs take as long as if they had told the truth; no honest owner is accused.
    """
    honest, believed, checked = (_jct_of_every_fifth(*way) for way in _WAYS)
    assert believed[0] < 0.8 * honest[0]
    assert checked[0] == pytest.approx(honest[0], rel=0.02)
    assert (honest[1], believed[1]) == (0, 0)
    assert checked[1] == _LIARS


_LIARS = 16
#: (factor that liars declare of the truth on k80, whether claims are checked).
_WAYS = ((1.0, "check"), (0.1, "believe"), (0.1, "check"))


def _jct_of_every_fifth(factor: float, claims: str) -> tuple[float, int]:
    """Mean JCT of the liars' jobs, s, and how many claims were refuted."""
    jobs = []
    for i, job in enumerate(jobs_of(5 * _LIARS, 3000.0)):
        truth = {name: TABLE.alone(job.job_type, 1, name) or 0.0 for name in TYPES}
        said = {**truth, "k80": truth["k80"] * (1.0 if i % 5 else factor)}
        jobs.append(msgspec.structs.replace(job, declared_throughputs=said))
    simulation = run(jobs, "max-throughput", estimator="declared", claims=claims)
    liars = [simulation.summary.jobs[job.job_id].jct_s or 0.0 for job in jobs[::5]]
    refuted = [r for r in records_of(simulation.driver) if isinstance(r.event, ClaimRefuted)]
    return sum(liars) / len(liars), len(refuted)


#: Mean seconds between arrivals on four workers of each type: low, medium, high load.
_GAPS_S = (4500.0, 3600.0, 2500.0)


@pytest.mark.parametrize("gap_s", _GAPS_S)
def test_learned_space_sharing_is_nearly_the_oracle_s(gap_s: float) -> None:
    """A fifth of the pairs profiled: within 3 % of the average JCT of who knows all pairs.

    Also where half of the job types have never been seen before; and always better than no space
    sharing at all.
    """
    settings: dict[str, Any] = {
        "estimator": "learned",
        "trust_job_types": False,
        "profile_fraction": 0.2,
    }
    jobs = jobs_of(60, gap_s)
    names = sorted({job_type for job_type, _ in TABLE.classes()})
    some = set(random.Random(0).sample(names, len(names) // 2))
    rows = TABLE.rows([key for key in TABLE.classes() if key[0] in some])
    half = ThroughputTable.from_rows(rows, "half of the job types")
    alone, oracle = (_average_jct_s(jobs, policy) for policy in ("las", "las:ss"))
    assert oracle < alone
    for believed in (TABLE, half):
        learning = _average_jct_s(jobs, "las:ss", believed=believed, **settings)
        assert learning <= 1.03 * oracle
        assert learning < alone


def _average_jct_s(jobs: list[JobSpec], policy: str, **options: Any) -> float:
    """Over the jobs in the middle, while others come and go."""
    found = run(jobs, policy, window=(15, 45), **options).summary.figures().average_jct_s
    assert found is not None
    return found


def test_gangs_far_apart_are_measured_as_such() -> None:
    """Both ways a gang may be placed are put right, each by leases of its own way.

    The table has both wrong, by different factors, and all that policies see is the estimate.
    """
    wrong = {"v100": 0.5, "v100" + UNCONSOLIDATED: 2.0}
    truth = {"v100": 8.0, "v100" + UNCONSOLIDATED: 5.0}
    tables = [
        ThroughputTable("test", {("m", 2): {t: r * off.get(t, 1.0) for t, r in truth.items()}}, {})
        for off in ({}, wrong)
    ]
    jobs = [
        JobSpec(job_id=f"j{i}", job_type="m", scale_factor=2, total_steps=40_000.0)
        for i in range(9)
    ]
    config = msgspec.structs.replace(default_mode("las:placement", 360.0), estimator="learned")
    workers = build_workers({"v100": 9}, {"v100": 3}, {})
    simulation = Simulation(MemoryLog(), config, workers, tables[0], jobs, believed=tables[1])
    simulation.run()
    estimate = [
        record.event
        for record in records_of(simulation.driver)
        if isinstance(record.event, ThroughputEstimated) and not record.event.job_id
    ][-1]
    assert {c.worker_type: c.steps_per_s for c in estimate.row.alone} == pytest.approx(truth)


def test_a_gang_nobody_knows_is_profiled_in_both_ways() -> None:
    """On workers left idle, together and apart; its estimate has what each was found to make."""
    far = "v100" + UNCONSOLIDATED
    truth = {("m", 2): {"v100": 8.0, far: 7.0}, ("n", 2): {"v100": 6.0, far: 2.0}}
    table = ThroughputTable("test", truth, {})
    known = ThroughputTable("test", {("m", 2): truth["m", 2]}, {})
    jobs = [JobSpec(job_id="j", job_type="n", scale_factor=2, total_steps=40_000.0)]
    config = msgspec.structs.replace(default_mode("las:placement", 360.0), estimator="learned")
    workers = build_workers({"v100": 8}, {"v100": 4}, {})
    simulation = Simulation(MemoryLog(), config, workers, table, jobs, believed=known)
    simulation.run()
    events = [record.event for record in records_of(simulation.driver)]
    (learned,) = (e for e in events if isinstance(e, ThroughputEstimated) and e.source == "learned")
    found = {cell.worker_type: cell.steps_per_s for cell in learned.row.alone}
    assert found == pytest.approx(truth["n", 2], rel=0.011)

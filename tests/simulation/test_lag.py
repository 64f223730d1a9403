"""Under a network's delays, and restarts on top, what must hold holds: 100 seeds of each mode."""

from __future__ import annotations

import dataclasses
import random

import msgspec
import pytest

from replay.cluster import Cluster
from replay.simulate import WORKER, Simulation
from replay.verify import verify
from schemas.events import (
    JobCompleted,
)
from schemas.record import Record
from tests.simulation.invariants import violations
from tests.simulation.scenario import contended, records_of, run_on, two_jobs

SEEDS = range(100)
KILL_SEEDS = range(50)
#: A run that writes so many records will never end.
ENDLESS = 5000

MODES = pytest.mark.parametrize(("mode", "policy"), [("default", "las"), ("paper", "isolated")])


def finish(simulation: Simulation) -> list[Record]:
    """Run to the end, or so far that it has none."""
    driver = simulation.driver
    driver.run(until=lambda: simulation.summary.done or driver.log.last_seq > ENDLESS)
    records = list(records_of(driver))
    assert len(records) <= ENDLESS, "endless"
    return records


def check(records: list[Record]) -> None:
    """All that must hold of a finished run."""
    assert violations(records) == []
    assert verify(records, complete=True).divergence is None


@MODES
@pytest.mark.parametrize("seed", SEEDS)
def test_lag(seed: int, mode: str, policy: str) -> None:
    """Delays change when things happen, never whether they are right."""
    scenario = contended(seed, mode=mode, policy=policy)
    check(finish(scenario.simulation(lag_seed=seed)))


@MODES
@pytest.mark.parametrize("seed", KILL_SEEDS)
def test_lag_and_kills(seed: int, mode: str, policy: str) -> None:
    """Nor do services that are killed, one or all at once, every few records."""
    rng = random.Random(seed)
    simulation = contended(seed, mode=mode, policy=policy).simulation(lag_seed=seed)
    driver = simulation.driver
    before = -1
    names = sorted(driver.actors)
    while not simulation.summary.done and before < driver.log.last_seq < ENDLESS:
        before = driver.log.last_seq
        if run_on(simulation, rng.randint(5, 60)):
            for name in rng.sample(names, k=rng.choice((1, 1, 1, len(names)))):
                driver.restart(name)
    check(finish(simulation))


@pytest.mark.parametrize("seed", KILL_SEEDS)
def test_lag_with_any_settings(seed: int) -> None:
    """Whatever the settings of the mechanism, and if they change in mid-run."""
    rng = random.Random(seed)
    scenario = contended(
        seed,
        mode=rng.choice(("default", "paper")),
        policy=rng.choice(("las", "las:agnostic", "isolated", "fifo")),
    )
    config = msgspec.structs.replace(
        scenario.config,
        priority=rng.choice(("credit", "reset")),
        selection=rng.choice(("global", "per_type")),
        fill=rng.choice(("last", "in_order", "none")),
        new_jobs=rng.choice(("equal_share", "wait")),
        resolve_min_gap_s=rng.choice((0.0, 30.0, 100.0)),
    )
    simulation = dataclasses.replace(scenario, config=config).simulation(lag_seed=seed)
    changed = msgspec.structs.replace(config, round_duration_s=rng.choice((15.0, 60.0)))
    simulation.driver.submit(200 * rng.random(), "operator", changed)
    check(finish(simulation))


# --- found under lag; what shows in a log alone is in tests/golden ------------------------------


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_a_completion_under_a_lease_just_revoked(mode: str) -> None:
    """A job complete in truth, but not on the books, completes under its next lease."""
    scenario = two_jobs(mode)
    simulation = scenario.simulation()
    cluster = simulation.driver._executors[WORKER]
    assert isinstance(cluster, Cluster)
    cluster._saved.update({job.job_id: job.total_steps or 0.0 for job in scenario.jobs})
    records = finish(simulation)
    check(records)
    completed = {r.event.job_id for r in records if isinstance(r.event, JobCompleted)}
    assert completed == {job.job_id for job in scenario.jobs}


@pytest.mark.parametrize("seed", range(20))
def test_a_round_that_is_due_before_its_only_job_is_known(seed: int) -> None:
    """Where the estimate is late, the policy has nothing to say at first; the job runs still."""
    scenario = contended(seed, num_jobs=1, mode="paper")
    alone = dataclasses.replace(scenario, cancels=(), drains=(), outages=())
    check(finish(alone.simulation(lag_seed=seed)))


def test_fifo_without_filling_does_not_stall() -> None:
    """Once all that X serves is done, those it serves not are not left to wait for the gap."""
    scenario = two_jobs("paper", policy="fifo", fill="none", resolve_min_gap_s=1e6)
    check(finish(scenario.simulation()))

"""Small contended clusters whose jobs end near round boundaries: where ordering bugs live."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from replay.driver import Driver
from replay.modes import MODES
from replay.simulate import WORKER, Simulation, build_workers
from replay.traces.tables import builtin_table
from schemas.domain import JobSpec
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    CancelRequested,
    ClusterConfigured,
    DrainRequested,
    WorkerReturned,
    WorkerUnreachable,
)
from schemas.record import Record
from services.estimator.tables import ThroughputTable
from services.policy.core import Solve
from services.policy.solve import carry_out
from services.runtime.log import Log, MemoryLog

CLUSTER = {"v100": 4, "p100": 2, "k80": 2}
PER_SERVER = {"v100": 2, "p100": 2, "k80": 1}
#: With the shorter, the plan of a round is usually late under lag.
ROUNDS_S = (12.0, 40.0)
_SCALE_FACTORS = (1, 1, 1, 2, 2, 4)

_solved: dict[str, AllocationComputed | AllocationFailed] = {}


def solve_once(effect: Solve) -> AllocationComputed | AllocationFailed:
    """The production solver; equal problems, of which reruns are full, are solved once."""
    key = repr(effect)
    if key not in _solved:
        _solved[key] = carry_out(effect)
    return _solved[key]


@functools.cache
def table() -> ThroughputTable:
    """The table of all scenarios."""
    return builtin_table()


@dataclass(frozen=True)
class Scenario:
    """What happens to a cluster, and how it is run."""

    config: ClusterConfigured
    jobs: tuple[JobSpec, ...]
    #: (time in seconds, job id)
    cancels: tuple[tuple[float, str], ...] = ()
    #: (time in seconds, worker id)
    drains: tuple[tuple[float, str], ...] = ()
    #: (time in seconds, worker id, seconds until it is back)
    outages: tuple[tuple[float, str, float], ...] = ()
    load_s: float = 0.0
    save_s: float = 0.0

    def simulation(
        self,
        log: Log | None = None,
        lag_seed: int | None = None,
        observers: Iterable[Callable[[Record], None]] = (),
    ) -> Simulation:
        """A run of it, not yet begun."""
        simulation = Simulation(
            log or MemoryLog(),
            self.config,
            build_workers(CLUSTER, PER_SERVER, {}),
            table(),
            self.jobs,
            load_s=self.load_s,
            save_s=self.save_s,
            lag_seed=lag_seed,
            solver=solve_once,
            observers=observers,
        )
        for at, job_id in self.cancels:
            canceller = f"client.cancel-{job_id}"
            simulation.driver.submit(at, canceller, CancelRequested(job_id=job_id))
        for at, worker_id in self.drains:
            simulation.driver.submit(at, "operator", DrainRequested(worker_id=worker_id))
        for at, worker_id, away_s in self.outages:
            gone = WorkerUnreachable(worker_id=worker_id, since_s=at)
            simulation.driver.submit(at, "mechanism", gone)
            back = WorkerReturned(worker_id=worker_id, reporter=WORKER)
            simulation.driver.submit(at + away_s, WORKER, back)
        return simulation


def contended(
    seed: int, num_jobs: int = 12, mode: str = "default", policy: str = "las"
) -> Scenario:
    """Jobs of which most end within a second of a round boundary, if they run undisturbed."""
    rng = random.Random(seed)
    round_s = rng.choice(ROUNDS_S)
    jobs = []
    arrival_s = 0.0
    for i in range(num_jobs):
        scale_factor = rng.choice(_SCALE_FACTORS)
        job_type = rng.choice([t for t, scale in table().classes() if scale == scale_factor])
        rate = table().alone(job_type, scale_factor, "v100") or 1.0
        run_s = round_s * rng.randint(1, 4) + rng.choice((0.0, -1.0, 0.5, 0.0, 13.0)) * rng.random()
        jobs.append(
            JobSpec(
                job_id=f"j{i}",
                job_type=job_type,
                scale_factor=scale_factor,
                total_steps=run_s * rate,
                priority_weight=rng.choice((1.0, 1.0, 2.0)),
                arrival_s=arrival_s,
            )
        )
        arrival_s += rng.choice((0.0, round_s / 4, round_s)) * rng.random()
    config = msgspec.structs.replace(
        MODES[mode](policy, round_s), worker_lost_after_s=rng.choice((0.5, round_s / 2))
    )
    cancelled = rng.sample(jobs, k=max(1, num_jobs // 6))
    cancels = [(_near_a_boundary(job.arrival_s, round_s, rng), job.job_id) for job in cancelled]
    outages = []
    for worker_id in rng.sample([f"v100-{i}" for i in range(4)], k=2):
        away_s = round_s * rng.random()
        outages.append((_near_a_boundary(0.0, round_s, rng), worker_id, away_s))
    return Scenario(
        config=config,
        jobs=tuple(jobs),
        cancels=tuple(sorted(cancels)),
        drains=((_near_a_boundary(0.0, round_s, rng), "k80-1"),),
        outages=tuple(sorted(outages)),
        load_s=0.0 if mode == "paper" else rng.choice((0.0, 1.0, 5.0)),
        save_s=0.0 if mode == "paper" else rng.choice((0.0, 2.0)),
    )


def two_jobs(mode: str, **config: float | str) -> Scenario:
    """Two jobs of 100 s on a V100, the first of which has all four of them."""
    jobs = []
    for i, scale_factor in enumerate((4, 1)):
        job_type = next(t for t, scale in table().classes() if scale == scale_factor)
        steps_per_s = table().alone(job_type, scale_factor, "v100")
        assert steps_per_s is not None
        job = JobSpec(
            job_id=f"j{i}",
            job_type=job_type,
            scale_factor=scale_factor,
            total_steps=100 * steps_per_s,
            allowed_worker_types=("v100",),
        )
        jobs.append(job)
    settings = msgspec.structs.replace(contended(0, mode=mode).config, **config)
    return Scenario(config=settings, jobs=tuple(jobs))


def _near_a_boundary(after_s: float, round_s: float, rng: random.Random) -> float:
    return after_s + round_s * rng.randint(1, 6) + rng.choice((0.0, 1.0, -2.0, 9.0)) * rng.random()


def records_of(driver: Driver) -> Sequence[Record]:
    """The log so far."""
    return tuple(driver.log.read())


def run_on(simulation: Simulation, records: int) -> bool:
    """Run until so many more records are in the log; False when the run is over before."""
    driver = simulation.driver
    target = driver.log.last_seq + records
    driver.run(until=lambda: simulation.summary.done or driver.log.last_seq >= target)
    return driver.log.last_seq >= target and not simulation.summary.done

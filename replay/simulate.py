"""A whole simulation: a cluster, a trace and a configuration in; a log and its summary out.

This is wiring only. The cores are the ones that run live, the log is a real log, and what the
summary says it reads from the records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from replay.cluster import Cluster, Rates
from replay.driver import Driver, Executor, Report
from replay.summary import Summary
from replay.traces.rows import TimedEvent
from schemas.decisions import Effect
from schemas.domain import UNCONSOLIDATED, JobSpec, TaskSpec
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    ClusterConfigured,
    JobSubmitted,
    ThroughputTableImported,
    WorkerRegistered,
)
from schemas.record import Record
from services.estimator import effects
from services.estimator.core import EstimatorCore
from services.estimator.effects import Fingerprint, PlanProfiles
from services.estimator.tables import ThroughputTable
from services.mechanism.core import MechanismCore
from services.policy.catalog import needs
from services.policy.core import PolicyCore, Solve
from services.policy.solve import carry_out
from services.runtime.actor import Core
from services.runtime.log import Log
from services.worker.core import WorkerCore

#: The one worker service of a simulation; it holds every worker.
WORKER = "worker.simulated"

#: What answers a solve.
Solver = Callable[[Solve], AllocationComputed | AllocationFailed]


def cores() -> dict[str, Callable[[], Core]]:
    """{actor: how to make its core}, the four of a simulation."""
    return {
        "estimator": EstimatorCore,
        "policy": PolicyCore,
        "mechanism": MechanismCore,
        WORKER: lambda: WorkerCore(WORKER),
    }


class PolicyExecutor:
    """Carries out solves on the spot, in no virtual time; keeps the real time they took."""

    def __init__(self, solver: Solver = carry_out) -> None:
        self._solver = solver
        self.wall_s = 0.0

    def carry_out(self, effect: Effect, now: float, report: Report) -> None:
        """See ``replay.driver.Executor``."""
        assert isinstance(effect, Solve)
        started = time.perf_counter()
        event = self._solver(effect)
        self.wall_s += time.perf_counter() - started
        report(now, 0, event)


class EstimatorExecutor:
    """Carries out what the estimator has computed, on the spot, in no virtual time."""

    def carry_out(self, effect: Effect, now: float, report: Report) -> None:
        """See ``replay.driver.Executor``."""
        assert isinstance(effect, PlanProfiles | Fingerprint)
        report(now, 0, effects.carry_out(effect))


class NoEffects:
    """Executor of cores that have no effects."""

    def carry_out(self, effect: Effect, now: float, report: Report) -> None:
        """See ``replay.driver.Executor``."""
        raise TypeError(f"no effect {type(effect).__name__} is expected here")


def build_workers(
    cluster: Mapping[str, int],
    per_server: Mapping[str, int],
    prices: Mapping[str, float],
    profile_workers: int = 0,
) -> tuple[WorkerRegistered, ...]:
    """Workers by type, ``per_server`` to a server (default 1); the last server may hold fewer.

    ``profile_workers`` more, of each type in turn, are there for profiles only.
    """
    types = [worker_type for worker_type in sorted(cluster) if cluster[worker_type]]
    for_profiles = (types[i % len(types)] for i in range(profile_workers if types else 0))
    return (
        *(
            WorkerRegistered(
                worker_id=f"profile-{worker_type}-{i}",
                worker_type=worker_type,
                server_id=f"profile-s{i}",
                reporter=WORKER,
                usd_per_h=prices.get(worker_type),
                profiles_only=True,
            )
            for i, worker_type in enumerate(for_profiles)
        ),
        *_of_cluster(cluster, per_server, prices),
    )


def _of_cluster(
    cluster: Mapping[str, int], per_server: Mapping[str, int], prices: Mapping[str, float]
) -> tuple[WorkerRegistered, ...]:
    return tuple(
        WorkerRegistered(
            worker_id=f"{worker_type}-{i}",
            worker_type=worker_type,
            server_id=f"{worker_type}-s{i // per_server.get(worker_type, 1)}",
            reporter=WORKER,
            usd_per_h=prices.get(worker_type),
        )
        for worker_type in sorted(cluster)
        for i in range(cluster[worker_type])
    )


def table_rates(table: ThroughputTable) -> Rates:
    """The simulated accelerators' true speeds: what the table says, 0 where it says nothing."""

    def rates(tasks: Sequence[TaskSpec], worker_type: str) -> Sequence[float]:
        first = tasks[0]
        # What is not known of the unconsolidated way is taken to be as in the other.
        ways = (worker_type, worker_type.removesuffix(UNCONSOLIDATED))
        if len(tasks) == 1:
            alone = (table.alone(first.job_type, first.scale_factor, way) for way in ways)
            return (next((speed for speed in alone if speed is not None), 0.0),)
        names = (first.job_type, tasks[1].job_type, first.scale_factor)
        both = (table.beside(*names, way) for way in ways)
        return next((pair for pair in both if pair is not None), (0.0, 0.0))

    return rates


class Simulation:
    """One run; ``run`` returns when all jobs, or those of the window, are done.

    Parameters
    ----------
    log : where the records go
    config : how the cluster is run
    workers : its accelerators
    table : throughputs, the truth that the simulated cluster runs on
    jobs : what is submitted, sorted by arrival
    load_s, save_s : checkpoint seconds
    window : (first, last) job positions that metrics are over; arrivals go on until those are done
    lag_seed : see ``Driver``
    solver : what answers solves; the production chain by default
    believed : the table that the estimator is given; ``table`` by default
    noise, noise_seed : see ``Cluster``
    events : what else happens: outages, drains, cancellations
    """

    def __init__(
        self,
        log: Log,
        config: ClusterConfigured,
        workers: Sequence[WorkerRegistered],
        table: ThroughputTable,
        jobs: Sequence[JobSpec],
        *,
        load_s: float = 0.0,
        save_s: float = 0.0,
        window: tuple[int, int] | None = None,
        lag_seed: int | None = None,
        solver: Solver = carry_out,
        observers: Iterable[Callable[[Record], None]] = (),
        believed: ThroughputTable | None = None,
        noise: float = 0.0,
        noise_seed: int = 0,
        events: Sequence[TimedEvent] = (),
    ) -> None:
        first, last = window or (0, len(jobs))
        self.summary = Summary(measured=[job.job_id for job in jobs[first:last]])
        self.policy_executor = PolicyExecutor(solver)
        cluster = Cluster(
            workers,
            table_rates(table),
            load_s=load_s,
            save_s=save_s,
            noise=noise,
            seed=noise_seed,
        )
        executors: dict[str, Executor] = {
            "estimator": EstimatorExecutor(),
            "policy": self.policy_executor,
            "mechanism": NoEffects(),
            WORKER: cluster,
        }
        self.driver = Driver(
            log,
            cores(),
            executors,
            observers=(self.summary.take, *observers),
            lag_seed=lag_seed,
        )
        told = believed or table
        classes = sorted({(job.job_type, job.scale_factor) for job in jobs})
        if config.estimator == "learned":
            scales = {scale_factor for _, scale_factor in classes}
            classes = [known for known in told.classes() if known[1] in scales]
        rows = told.rows(classes, pairs=needs(config.policy, "pairs"))
        self.driver.submit(0.0, "operator", config)
        imported = ThroughputTableImported(source=told.source, rows=tuple(rows))
        self.driver.submit(0.0, "operator", imported)
        self.driver.run()
        for job in jobs:
            self.driver.submit(job.arrival_s, f"client.{job.job_id}", JobSubmitted(job=job))
        for at_s, actor, event in events:
            self.driver.submit(at_s, actor, event)

    def run(self) -> Summary:
        """Simulate to the end."""
        self.driver.run(until=lambda: self.summary.done)
        return self.summary

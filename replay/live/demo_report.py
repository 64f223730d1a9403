"""A live run and its simulation side by side: what leases cost, and what both schedules come to.

All of it is read from the run's records, and so holds of any log of one job a lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from replay.simulate import WORKER, Simulation
from replay.summary import Figures, Summary
from replay.views import duration
from schemas.domain import TaskProgress
from schemas.events import (
    ClusterConfigured,
    JobSubmitted,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    WorkerRegistered,
)
from schemas.record import Record
from services.estimator.tables import ThroughputTable
from services.runtime.log import MemoryLog


@dataclass(frozen=True, kw_only=True)
class Overheads:
    """Seconds that a lease takes from training, means over leases."""

    #: From the lease's start until its process trains, loading aside; the wait at its end too.
    start_s: float
    load_s: float
    save_s: float
    leases: int


@dataclass
class _Use:
    """What a lease's reports add up to."""

    rate: float
    before: float
    steps: float
    run_s: float = 0.0
    load_s: float = 0.0
    save_s: float = 0.0

    def add(self, row: TaskProgress) -> None:
        self.steps = max(self.steps, row.steps)
        self.run_s += row.run_s
        self.load_s += row.load_s
        self.save_s += row.save_s

    @property
    def start_s(self) -> float:
        trained_s = (self.steps - self.before) / self.rate
        return max(0.0, self.run_s - self.load_s - self.save_s - trained_s)


def overheads(records: Iterable[Record], table: ThroughputTable) -> Overheads:
    """What leases cost: the time they were held less the time that their steps take.

    Parameters
    ----------
    records : of a run whose tasks keep the table's pace
    table : steps/s
    """
    uses: dict[str, _Use] = {}
    saved: dict[str, float] = {}
    for record in records:
        event = record.event
        if isinstance(event, RoundScheduled):
            for lease in event.granted:
                (task,) = lease.tasks
                rate = table.alone(task.job_type, task.scale_factor, lease.worker_type)
                steps = saved.get(task.job_id, 0.0)
                if rate:
                    uses[lease.lease_id] = _Use(rate, steps, steps)
        rows = event.rows if isinstance(event, ProgressReported) else ()
        for row in (event.task,) if isinstance(event, TaskStopped) else rows:
            saved[row.job_id] = max(saved.get(row.job_id, 0.0), row.checkpointed_steps)
            if row.lease_id in uses:
                uses[row.lease_id].add(row)
    used = [use for use in uses.values() if use.run_s > 0]
    count = max(1, len(used))
    return Overheads(
        start_s=sum(use.start_s for use in used) / count,
        load_s=sum(use.load_s for use in used) / count,
        save_s=sum(use.save_s for use in used) / count,
        leases=len(used),
    )


def figures(records: Iterable[Record]) -> Figures:
    """What a run comes to."""
    summary = Summary()
    for record in records:
        summary.take(record)
    return summary.figures()


def simulate(records: Sequence[Record], table: ThroughputTable, cost: Overheads) -> Figures:
    """The same jobs at the same times on the same workers, simulated at the same costs.

    Parameters
    ----------
    records : of the run; the last configuration in them counts
    table : steps/s
    cost : what leases cost
    """
    config = ClusterConfigured()
    workers: dict[str, WorkerRegistered] = {}
    jobs = []
    for record in records:
        event = record.event
        if isinstance(event, ClusterConfigured):
            config = event
        elif isinstance(event, WorkerRegistered):
            workers[event.worker_id] = msgspec.structs.replace(event, reporter=WORKER)
        elif isinstance(event, JobSubmitted):
            jobs.append((record.at, event.job))
    first_s = min((at for at, _ in jobs), default=0.0)
    simulation = Simulation(
        MemoryLog(),
        config,
        tuple(workers.values()),
        table,
        [msgspec.structs.replace(job, arrival_s=at - first_s) for at, job in jobs],
        load_s=cost.start_s + cost.load_s,
        save_s=cost.save_s,
    )
    return simulation.run().figures()


def comparison(live: Figures, simulated: Figures, cost: Overheads) -> RenderableType:
    """Both side by side, and the seconds that the simulation was given."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in ("", "live", "simulated", "difference"):
        table.add_column(column, justify="left" if not column else "right")
    for name in ("average_jct_s", "makespan_s"):
        was, would_be = getattr(live, name), getattr(simulated, name)
        off = f"{would_be / was - 1:+.1%}" if was and would_be is not None else "-"
        label = {"average_jct_s": "average JCT", "makespan_s": "makespan"}[name]
        table.add_row(label, duration(was), duration(would_be), off)
    for label, name in (("jobs completed", "jobs"), ("leases", "starts"), ("renewed", "renewals")):
        table.add_row(label, f"{getattr(live, name)}", f"{getattr(simulated, name)}", "")
    note = (
        f"A lease cost {cost.start_s:.2f} s to start, {cost.load_s:.3f} s to load and "
        f"{cost.save_s:.3f} s to save, means over {cost.leases} leases; the simulation was told so."
    )
    return Group(table, note)

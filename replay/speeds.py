"""How fast tasks ran, as a log shows it: a fold.

In this order: as measured under leases; by the reference table, times the factor by which the job
was off it elsewhere; as profiled, estimated or declared. What is measured and differs from the
table by rounding alone is what the table says, so that a simulation comes back to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from replay.cluster import Rates
from replay.simulate import table_rates
from schemas.domain import UNCONSOLIDATED, JobSpec, Lease, TaskProgress, TaskSpec, ThroughputRow
from schemas.events import (
    ClusterConfigured,
    Event,
    JobSubmitted,
    LeasesChanged,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    ThroughputEstimated,
    ThroughputMeasured,
    ThroughputTableImported,
    WorkerRegistered,
)
from schemas.servers import Servers
from services.estimator.tables import ThroughputTable

#: Relative difference that sums of floats may make.
_ROUNDING = 1e-6
#: Shorter stretches say nothing about speed, s.
_TELLING_S = 1.0

#: (job id of who shares the workers, or ""; worker type, in one of the two ways to hold it)
_Where = tuple[str, str]


@dataclass(slots=True)
class _Work:
    """Steps made, and the seconds they took."""

    steps: float = 0.0
    seconds: float = 0.0


@dataclass(slots=True)
class _Out:
    """A lease that is out: what its jobs had done when they last said so."""

    lease: Lease
    #: Jobs of it that run still.
    running: set[str]
    #: {job id: steps in its last report under this lease}
    steps: dict[str, float] = field(default_factory=dict)
    #: A job of it ended in this round: the others' reports mix two speeds.
    mixed: bool = False


class Speeds:
    """Folds events into speeds."""

    #: {(job type, scale factor): reference throughputs}, and where they are from.
    rows: dict[tuple[str, int], ThroughputRow]
    source: str
    _servers: Servers
    #: In paper mode no job is slower for being spread.
    _whole_steps: bool
    _jobs: dict[str, JobSpec]
    #: {job id: {where: what it did there}}
    _work: dict[str, dict[_Where, _Work]]
    _saved: dict[str, float]
    _out: dict[str, _Out]
    #: Leases whose last report is still to come.
    _ending: set[str]
    #: {job id: {worker type: steps/s alone}}, as estimated.
    _estimates: dict[str, dict[str, float]]
    #: {(job id, other job type, worker type): steps/s of each}, as profiled.
    _profiles: dict[tuple[str, str, str], tuple[float, float]]

    def __init__(self) -> None:
        self.rows, self.source = {}, ""
        self._servers, self._whole_steps = Servers(), False
        self._jobs, self._work, self._saved, self._out = {}, {}, {}, {}
        self._ending = set()
        self._estimates, self._profiles = {}, {}
        self._takes: dict[type[Event], Callable[..., None]] = {
            ClusterConfigured: self._configure,
            WorkerRegistered: self._register,
            JobSubmitted: self._submit,
            ThroughputTableImported: self._import,
            ThroughputEstimated: self._estimate,
            ThroughputMeasured: self._profile,
            RoundScheduled: self._plan,
            LeasesChanged: self._change,
            ProgressReported: self._book_round,
            TaskStopped: self._book_stop,
        }

    def take(self, event: Event) -> None:
        """Take in the next event."""
        take = self._takes.get(type(event))
        if take is not None:
            take(event)

    def table(self) -> ThroughputTable:
        """The reference throughputs."""
        return ThroughputTable.from_rows(self.rows.values(), self.source)

    def expected(self) -> Rates:
        """How fast tasks are expected to run, whatever was measured of them under leases."""
        of_table = table_rates(self.table())
        return lambda tasks, worker_type: self._expected(tasks, worker_type, of_table)

    def rates(self, table: ThroughputTable | None = None) -> Rates:
        """How fast tasks run; ``table``: other reference throughputs than the log's."""
        of_table = table_rates(table or self.table())
        factors = {job_id: self._factor(job_id, of_table) for job_id in self._work}

        def rates(tasks: Sequence[TaskSpec], worker_type: str) -> Sequence[float]:
            expected = self._expected(tasks, worker_type, of_table)
            found = []
            for task, speed in zip(tasks, expected, strict=True):
                others = [other.job_id for other in tasks if other is not task]
                where = (others[0] if others else "", worker_type)
                work = self._work.get(task.job_id, {}).get(where)
                if work is None or work.seconds < _TELLING_S:
                    found.append(speed * factors.get(task.job_id, 1.0))
                else:
                    found.append(_unless_same(work.steps / work.seconds, speed))
            return found

        return rates

    def _expected(
        self, tasks: Sequence[TaskSpec], worker_type: str, of_table: Rates
    ) -> Sequence[float]:
        """Steps/s of each task without regard to what was measured under leases."""
        speeds = of_table(tasks, worker_type)
        if any(speeds):
            return speeds
        job_id, ways = tasks[0].job_id, (worker_type, worker_type.removesuffix(UNCONSOLIDATED))
        if len(tasks) == 2:
            keys = ((job_id, tasks[1].job_type, way) for way in ways)
            return next((self._profiles[key] for key in keys if key in self._profiles), speeds)
        spec = self._jobs.get(job_id)
        declared = spec.declared_throughputs if spec is not None else {}
        for known in (self._estimates.get(job_id, {}), declared):
            for way in ways:
                if way in known:
                    return (known[way],)
        return speeds

    def _factor(self, job_id: str, of_table: Rates) -> float:
        """How many times as fast as expected the job was, wherever it ran alone."""
        spec = self._jobs.get(job_id)
        if spec is None:
            return 1.0
        task = TaskSpec(
            job_id=job_id,
            job_type=spec.job_type,
            scale_factor=spec.scale_factor,
            total_steps=spec.total_steps or 0.0,
        )
        steps = expected_steps = 0.0
        for (beside, way), work in self._work[job_id].items():
            (speed,) = self._expected([task], way, of_table)
            if not beside and speed > 0 and work.seconds >= _TELLING_S:
                steps += work.steps
                expected_steps += speed * work.seconds
        return _unless_same(steps / expected_steps, 1.0) if expected_steps else 1.0

    # --- events ----------------------------------------------------------------------------------

    def _configure(self, event: ClusterConfigured) -> None:
        self._whole_steps = event.round_end == "last_task"

    def _register(self, event: WorkerRegistered) -> None:
        self._servers.add(event)

    def _submit(self, event: JobSubmitted) -> None:
        self._jobs.setdefault(event.job.job_id, event.job)

    def _import(self, event: ThroughputTableImported) -> None:
        """Rows replace what was known of their classes, pairs with others included."""
        self.source = event.source
        new = {(row.job_type, row.scale_factor): row for row in event.rows}
        for key, row in self.rows.items():
            kept = tuple(p for p in row.beside if (p.other_job_type, row.scale_factor) not in new)
            if len(kept) < len(row.beside):
                self.rows[key] = msgspec.structs.replace(row, beside=kept)
        self.rows |= new

    def _estimate(self, event: ThroughputEstimated) -> None:
        if event.job_id:
            alone = {cell.worker_type: cell.steps_per_s for cell in event.row.alone}
            self._estimates[event.job_id] = alone

    def _profile(self, event: ThroughputMeasured) -> None:
        if event.outcome == "measured" and event.beside:
            key = (event.job_id, event.beside, event.worker_type)
            self._profiles[key] = (event.steps_per_s, event.other_steps_per_s)

    def _plan(self, event: RoundScheduled) -> None:
        self._ending.update(lease_id for lease_id in event.ended if lease_id in self._out)
        for lease in event.granted:
            self._out[lease.lease_id] = _Out(lease, {task.job_id for task in lease.tasks})

    def _change(self, event: LeasesChanged) -> None:
        for lease_id in event.revoked:
            self._out.pop(lease_id, None)

    def _book_round(self, event: ProgressReported) -> None:
        for row in event.rows:
            self._book(row, event.reporter)
        for row in event.rows:
            if row.lease_id in self._ending:
                self._ending.discard(row.lease_id)
                self._out.pop(row.lease_id, None)
            elif row.lease_id in self._out:
                self._out[row.lease_id].mixed = False

    def _book_stop(self, event: TaskStopped) -> None:
        row = event.task
        out = self._out.get(row.lease_id)
        if out is None:
            self._save(row)
            return
        out.mixed |= event.reason == "cancelled"
        self._book(row, event.reporter)
        out.mixed = True
        out.running.discard(row.job_id)
        if not out.running:
            del self._out[row.lease_id]

    def _book(self, row: TaskProgress, reporter: str) -> None:
        out = self._out.get(row.lease_id)
        if out is None or out.lease.reporters[0] != reporter or row.job_id not in out.running:
            self._save(row)
            return
        before = out.steps.get(row.job_id, self._saved.get(row.job_id, 0.0))
        out.steps[row.job_id] = row.steps
        self._save(row)
        seconds = row.run_s - row.load_s - row.save_s
        if out.mixed or seconds <= 0 or row.steps < before:
            return
        others = [task.job_id for task in out.lease.tasks if task.job_id != row.job_id]
        shared = others[0] if others and others[0] in out.running else ""
        way = out.lease.worker_type if self._whole_steps else self._servers.way(out.lease)
        work = self._work.setdefault(row.job_id, {}).setdefault((shared, way), _Work())
        work.steps += row.steps - before
        work.seconds += seconds

    def _save(self, row: TaskProgress) -> None:
        self._saved[row.job_id] = max(self._saved.get(row.job_id, 0.0), row.checkpointed_steps)


def _unless_same(seen: float, expected: float) -> float:
    return expected if math.isclose(seen, expected, rel_tol=_ROUNDING) else seen

"""Short ways to write down what the mechanism is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from schemas.decisions import Decision, Emit
from schemas.domain import (
    AllocationRow,
    Combination,
    JobSpec,
    Lease,
    PairThroughput,
    TaskProgress,
    TaskSpec,
    Throughput,
    ThroughputRow,
)
from schemas.events import (
    AllocationComputed,
    AnyEvent,
    JobSubmitted,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    ThroughputEstimated,
    TimerFired,
    WorkerRegistered,
)
from services.mechanism.core import MechanismCore

#: The worker service all workers belong to, unless said otherwise.
REPORTER = "worker.a"
#: Job type, and whole-job steps, of all jobs, unless said otherwise.
JOB_TYPE, STEPS = "m", 1000.0


def worker(
    worker_id: str, worker_type: str = "v100", *, server: str = "s0", reporter: str = REPORTER
) -> WorkerRegistered:
    """One accelerator."""
    return WorkerRegistered(
        worker_id=worker_id, worker_type=worker_type, server_id=server, reporter=reporter
    )


def workers(count: int, worker_type: str = "v100") -> list[WorkerRegistered]:
    """So many of one type, all on one server."""
    return [worker(f"{worker_type}-{i}", worker_type) for i in range(count)]


def job(
    job_id: str,
    scale_factor: int = 1,
    *,
    job_type: str = JOB_TYPE,
    max_attempts: int = 3,
    weight: float = 1.0,
) -> JobSubmitted:
    """A job is submitted."""
    spec = JobSpec(
        job_id=job_id,
        job_type=job_type,
        scale_factor=scale_factor,
        total_steps=STEPS,
        max_attempts=max_attempts,
        priority_weight=weight,
    )
    return JobSubmitted(job=spec)


def estimate(
    speeds: Mapping[str, float],
    scale_factor: int = 1,
    *,
    job_type: str = JOB_TYPE,
    beside: Iterable[PairThroughput] = (),
) -> ThroughputEstimated:
    """What is known of a class: {worker type: steps/s}."""
    row = ThroughputRow(
        job_type=job_type,
        scale_factor=scale_factor,
        alone=tuple(Throughput(*cell) for cell in sorted(speeds.items())),
        beside=tuple(beside),
    )
    return ThroughputEstimated(row=row, source="table")


def allocation(shares: Mapping[Combination, Mapping[str, float]]) -> AllocationComputed:
    """X, as the policy puts it on the log."""
    rows = tuple(AllocationRow((combination,), dict(x)) for combination, x in shares.items())
    return AllocationComputed(policy="las", rows=rows)


def timer(name: str, due_s: float) -> TimerFired:
    """A timer is due."""
    return TimerFired(timer=name, due_s=due_s)


def progress(round_id: int, *rows: TaskProgress, reporter: str = REPORTER) -> ProgressReported:
    """A service's report of a round."""
    return ProgressReported(reporter=reporter, round_id=round_id, rows=rows)


def stopped(
    lease_id: str,
    job_id: str,
    reason: str,
    *,
    steps: float = 0.0,
    run_s: float = 0.0,
    exit_code: int | None = None,
) -> TaskStopped:
    """A task ended inside its lease."""
    saved = steps if reason == "completed" else 0.0
    task = TaskProgress(lease_id, job_id, steps, saved, run_s)
    return TaskStopped(reporter=REPORTER, task=task, reason=reason, exit_code=exit_code)


def lease(
    lease_id: str,
    job_ids: Sequence[str],
    worker_ids: Sequence[str],
    worker_type: str = "v100",
    *,
    priority: float = 0.0,
    resume_from: str = "",
) -> Lease:
    """A lease of jobs as ``job`` makes them; each on as many workers as the lease has."""
    return Lease(
        lease_id=lease_id,
        tasks=tuple(
            TaskSpec(
                job_id=job_id,
                job_type=JOB_TYPE,
                scale_factor=len(worker_ids),
                total_steps=STEPS,
                resume_from=resume_from,
            )
            for job_id in job_ids
        ),
        worker_type=worker_type,
        worker_ids=tuple(worker_ids),
        reporters=(REPORTER,),
        priority=priority,
    )


def told(core: MechanismCore, at: float, *events: AnyEvent) -> list[Decision]:
    """What the core decides on these events, all of them at one time."""
    return [decision for event in events for decision in core.handle(event, at)]


def emitted(decisions: Iterable[Decision]) -> list[AnyEvent]:
    """The events among the decisions."""
    return [decision.event for decision in decisions if isinstance(decision, Emit)]


def plan(core: MechanismCore, round_id: int, at: float) -> RoundScheduled:
    """The plan that the core makes when its timer is due."""
    events = emitted(told(core, at, timer(f"round/{round_id}", at)))
    plans = [event for event in events if isinstance(event, RoundScheduled)]
    assert len(plans) == 1, f"one plan of round {round_id} at {at}, not {events}"
    return plans[0]

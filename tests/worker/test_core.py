"""The worker service's core: a round's leases become one effect, a revoked lease another."""

from __future__ import annotations

from schemas.decisions import Decision, Run
from schemas.domain import Lease, TaskSpec
from schemas.events import (
    AnyEvent,
    ClusterConfigured,
    LeaderElected,
    LeasesChanged,
    RoundScheduled,
    WorkerDisappeared,
    WorkerRegistered,
)
from services.worker.core import DetectWorkers, RunRound, StopTask, WorkerCore

NAME, OTHER = "worker.a", "worker.b"
ELECTED = LeaderElected(epoch=1, replica="r", behaviour=1)


def lease(lease_id: str, *job_ids: str, reporters: tuple[str, ...] = (NAME,)) -> Lease:
    """A lease of these jobs on workers of these services."""
    return Lease(
        lease_id=lease_id,
        tasks=tuple(
            TaskSpec(job_id=job_id, job_type="m", scale_factor=1, total_steps=9.0)
            for job_id in job_ids
        ),
        worker_type="v100",
        worker_ids=tuple(f"w-{reporter}" for reporter in reporters),
        reporters=reporters,
    )


def scheduled(
    round_id: int, *granted: Lease, renewed: tuple[str, ...] = (), ended: tuple[str, ...] = ()
) -> RoundScheduled:
    """A round of 360 s."""
    return RoundScheduled(
        round_id=round_id,
        starts_at_s=360.0 * round_id,
        ends_at_s=360.0 * (round_id + 1),
        granted=granted,
        renewed=renewed,
        renewed_priorities=(0.0,) * len(renewed),
        ended=ended,
    )


def run(
    round_id: int,
    granted: tuple[Lease, ...],
    renewed: tuple[Lease, ...] = (),
    whole_steps_in_s: float | None = None,
) -> list[Decision]:
    """The decision to run such a round."""
    return [
        Run(
            RunRound(
                reporter=NAME,
                round_id=round_id,
                starts_at_s=360.0 * round_id,
                ends_at_s=360.0 * (round_id + 1),
                whole_steps_in_s=whole_steps_in_s,
                granted=granted,
                renewed=renewed,
            )
        )
    ]


def told(core: WorkerCore, *events: AnyEvent) -> list[Decision]:
    """What the core decides on these events."""
    return [decision for event in events for decision in core.handle(event, 0.0)]


def test_at_each_start_it_looks_for_accelerators_and_says_what_it_knows() -> None:
    """Known are its own that have not disappeared, by name, as last registered."""

    def registered(worker_id: str, reporter: str, memory_gib: float) -> WorkerRegistered:
        return WorkerRegistered(
            worker_id=worker_id,
            worker_type="v100",
            server_id="s",
            reporter=reporter,
            memory_gib=memory_gib,
        )

    core = WorkerCore(NAME)
    assert told(core, ELECTED) == [Run(DetectWorkers(NAME, ()))]
    told(core, registered("w2", NAME, 16.0), registered("w1", NAME, 16.0))
    told(core, registered("x", OTHER, 16.0), registered("w2", NAME, 32.0))
    assert told(core, ELECTED) == [
        Run(DetectWorkers(NAME, (registered("w1", NAME, 16.0), registered("w2", NAME, 32.0))))
    ]
    told(core, WorkerDisappeared(worker_id="w1", reporter=NAME))
    told(core, WorkerDisappeared(worker_id="w2", reporter=OTHER))
    assert told(core, ELECTED) == [Run(DetectWorkers(NAME, (registered("w2", NAME, 32.0),)))]


def test_a_round_is_one_effect_with_the_leases_of_its_own_workers() -> None:
    """Granted and renewed leases that name the service; others are not its business."""
    core = WorkerCore(NAME)
    mine, shared = lease("l1", "a"), lease("l2", "b", reporters=(OTHER, NAME))
    foreign = lease("l3", "c", reporters=(OTHER,))
    assert told(core, scheduled(1, mine, shared, foreign)) == run(1, (mine, shared))
    new = lease("l4", "d")
    plan = scheduled(2, new, renewed=("l1", "l3"), ended=("l2",))
    assert told(core, plan) == run(2, (new,), (mine,))
    assert told(core, scheduled(3, renewed=("l1", "l2"))) == run(3, (), (mine,))


def test_a_round_without_leases_of_its_own_is_nothing_to_do() -> None:
    """Neither an effect nor a report."""
    core = WorkerCore(NAME)
    told(core, scheduled(1, lease("l1", "a")))
    assert told(core, scheduled(2, lease("l2", "b", reporters=(OTHER,)), ended=("l1",))) == []


def test_rounds_that_end_with_their_last_task_say_what_steps_must_fit() -> None:
    """``last_task``: whole steps in the round duration; on the grid, none are counted."""
    core = WorkerCore(NAME)
    mine = lease("l1", "a")
    told(core, ClusterConfigured(round_end="last_task", round_duration_s=120.0))
    assert told(core, scheduled(1, mine)) == run(1, (mine,), whole_steps_in_s=120.0)
    told(core, ClusterConfigured(round_duration_s=120.0))
    assert told(core, scheduled(2, renewed=("l1",))) == run(2, (), (mine,))


def test_every_task_of_a_revoked_lease_is_stopped_at_once() -> None:
    """Both of two that share a worker, with the reason; a lease not held here is not stopped."""
    core = WorkerCore(NAME)
    told(core, scheduled(1, lease("l1", "a", "b"), lease("l2", "c", reporters=(OTHER,))))
    revoked = LeasesChanged(round_id=1, revoked=("l1", "l2", "l9"), reason="worker w is lost")
    assert told(core, revoked) == [
        Run(StopTask(NAME, "l1", "a", "worker w is lost")),
        Run(StopTask(NAME, "l1", "b", "worker w is lost")),
    ]
    assert told(core, revoked, scheduled(2, renewed=("l1",))) == []

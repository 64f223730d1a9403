"""The figures of a hand-made log, worked out by hand beside it."""

from __future__ import annotations

import pytest

from replay.summary import JobLine, Summary
from schemas.domain import JobSpec, Lease, TaskProgress, TaskSpec
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    AnyEvent,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobRejected,
    JobSubmitted,
    ProgressReported,
    RoundScheduled,
    TaskStopped,
    WorkerRegistered,
)
from schemas.record import Record

NAME = "worker.a"


def summary_of(*story: tuple[float, AnyEvent], measured: list[str] | None = None) -> Summary:
    """The fold of events at their times."""
    summary = Summary(measured)
    for seq, (at, event) in enumerate(story, start=1):
        summary.take(Record(seq=seq, at=at, actor="x", digest="", event=event))
    return summary


def registered(worker_id: str, worker_type: str, usd_per_h: float) -> WorkerRegistered:
    """One accelerator."""
    return WorkerRegistered(
        worker_id=worker_id,
        worker_type=worker_type,
        server_id="s",
        reporter=NAME,
        usd_per_h=usd_per_h,
    )


def submitted(job_id: str, scale_factor: int = 1) -> JobSubmitted:
    """A job."""
    return JobSubmitted(
        job=JobSpec(job_id=job_id, job_type="m", scale_factor=scale_factor, total_steps=9.0)
    )


def lease(lease_id: str, worker_ids: tuple[str, ...], worker_type: str, *job_ids: str) -> Lease:
    """A lease of these jobs."""
    return Lease(
        lease_id=lease_id,
        tasks=tuple(
            TaskSpec(job_id=job, job_type="m", scale_factor=len(worker_ids), total_steps=9.0)
            for job in job_ids
        ),
        worker_type=worker_type,
        worker_ids=worker_ids,
        reporters=(NAME,),
    )


def a_round(
    round_id: int,
    starts_at_s: float,
    *granted: Lease,
    renewed: tuple[str, ...] = (),
    ended: tuple[str, ...] = (),
) -> RoundScheduled:
    """A round of 100 s."""
    return RoundScheduled(
        round_id=round_id,
        starts_at_s=starts_at_s,
        ends_at_s=starts_at_s + 100.0,
        granted=granted,
        renewed=renewed,
        ended=ended,
    )


def progress(round_id: int, *rows: TaskProgress) -> ProgressReported:
    """The report of a round."""
    return ProgressReported(reporter=NAME, round_id=round_id, rows=rows)


def completed(row: TaskProgress) -> TaskStopped:
    """A job is done."""
    return TaskStopped(reporter=NAME, task=row, reason="completed")


#: Two jobs on one v100, then each by itself; a gang of two on k80s; one job rejected.
STORY: tuple[tuple[float, AnyEvent], ...] = (
    (0.0, registered("v", "v100", 3.6)),
    (0.0, registered("k0", "k80", 0.9)),
    (0.0, registered("k1", "k80", 0.9)),
    (0.0, registered("v", "v100", 7.2)),
    (100.0, submitted("a")),
    (110.0, submitted("b")),
    (120.0, submitted("gang", 2)),
    (130.0, submitted("bad")),
    (130.0, JobRejected(job_id="bad", reason="asks for too much")),
    (140.0, AllocationFailed(policy="las", reason="infeasible")),
    (150.0, AllocationComputed(policy="las", rows=())),
    (
        200.0,
        a_round(
            1,
            200.0,
            lease("ab", ("v",), "v100", "a", "b"),
            lease("g", ("k0", "k1"), "k80", "gang"),
        ),
    ),
    (280.0, completed(TaskProgress("ab", "a", 9.0, 9.0, 80.0, 10.0))),
    (280.0, JobCompleted(job_id="a", steps=9.0)),
    (290.0, a_round(2, 300.0, lease("b", ("v",), "v100", "b"), renewed=("g",), ended=("ab",))),
    (
        300.0,
        progress(
            1,
            TaskProgress("ab", "b", 4.0, 4.0, 100.0, 10.0, 5.0),
            TaskProgress("g", "gang", 5.0, 0.0, 100.0, 10.0),
        ),
    ),
    (340.0, completed(TaskProgress("g", "gang", 9.0, 9.0, 40.0))),
    (340.0, JobCompleted(job_id="gang", steps=9.0)),
    (350.0, completed(TaskProgress("b", "b", 9.0, 9.0, 50.0, 10.0))),
    (350.0, JobCompleted(job_id="b", steps=9.0)),
)


def test_times_of_jobs() -> None:
    """Arrival, first start, completion and the seconds on workers, job by job."""
    jobs = summary_of(*STORY).jobs
    assert jobs["b"] == JobLine(
        job_id="b",
        job_type="m",
        scale_factor=1,
        arrival_s=110.0,
        first_start_s=200.0,
        completion_s=350.0,
        outcome="completed",
        run_s=100.0 + 50.0,
        load_s=10.0 + 10.0,
        save_s=5.0,
    )
    assert {job_id: line.jct_s for job_id, line in jobs.items()} == {
        "a": 280.0 - 100.0,
        "b": 350.0 - 110.0,
        "gang": 340.0 - 120.0,
        "bad": None,
    }


def test_figures_of_a_schedule() -> None:
    """JCT, makespan, utilisation and cost, from the times above."""
    figures = summary_of(*STORY).figures()
    jcts = [180.0, 220.0, 240.0]
    assert figures.average_jct_s == pytest.approx(sum(jcts) / 3)
    assert figures.median_jct_s == 220.0
    assert figures.p99_jct_s == pytest.approx(220.0 + 0.98 * 20.0)
    makespan_s = 350.0 - 100.0
    assert figures.makespan_s == makespan_s
    # The v100 was held by a pair for 100 s, not by two jobs for 180 s; the gang held two k80s.
    v100_s, k80_s = 100.0 + 50.0, 2 * (100.0 + 40.0)
    assert figures.utilisation_by_type == {
        "k80": k80_s / (2 * makespan_s),
        "v100": v100_s / makespan_s,
    }
    assert figures.utilisation == pytest.approx((v100_s + k80_s) / (3 * makespan_s))
    assert figures.cost_usd == pytest.approx(k80_s / 3600 * 0.9 + v100_s / 3600 * 7.2)
    assert (figures.run_s, figures.load_s, figures.save_s) == (80 + 150 + 140.0, 40.0, 5.0)


def test_time_spent_adds_up_to_the_job_completion_times() -> None:
    """Waiting, running, loading and saving of complete jobs are all there is to their JCTs."""
    figures = summary_of(*STORY).figures()
    spent = figures.time_spent_s
    assert spent == {"waiting": 640.0 - 370.0, "running": 325.0, "loading": 40.0, "saving": 5.0}
    assert sum(spent.values()) == sum((180.0, 220.0, 240.0))


def test_counts() -> None:
    """Rounds, solves, leases and outcomes."""
    figures = summary_of(*STORY).figures()
    assert (figures.rounds, figures.starts, figures.renewals, figures.preemptions) == (2, 3, 1, 1)
    assert (figures.solves, figures.failed_solves) == (1, 1)
    assert figures.last_solve_failure == "infeasible"
    assert figures.jobs == 3
    assert figures.outcomes == {"completed": 3, "rejected": 1}
    assert figures.reasons == {"asks for too much": 1}


def test_figures_are_over_the_measured_jobs() -> None:
    """And the summary is done when those are, whatever else still runs."""
    measured = ["a", "gang"]
    assert [
        summary_of(*STORY[:end], measured=measured).done for end in (1, len(STORY) - 2, len(STORY))
    ] == [False, True, True]
    figures = summary_of(*STORY, measured=measured).figures()
    assert figures.average_jct_s == pytest.approx((180.0 + 220.0) / 2)
    assert figures.outcomes == {"completed": 2}


def test_jobs_that_end_otherwise_end_the_wait_but_have_no_completion_time() -> None:
    """Rejected, cancelled and failed jobs are counted under their names."""
    summary = summary_of(
        *((0.0, submitted(name)) for name in "abc"),
        (1.0, JobRejected(job_id="a", reason="r")),
        (1.0, JobCancelled(job_id="b")),
        (1.0, JobFailed(job_id="c", attempts=3, reason="f")),
        measured=["a", "b", "c"],
    )
    assert summary.done
    figures = summary.figures()
    assert figures.outcomes == {"rejected": 1, "cancelled": 1, "failed": 1}
    assert (figures.average_jct_s, figures.makespan_s, figures.jobs) == (None, None, 0)


def test_an_empty_log_has_no_figures() -> None:
    """No division by nothing."""
    figures = summary_of().figures()
    assert (figures.average_jct_s, figures.utilisation, figures.cost_usd) == (None, 0.0, 0.0)


def test_a_worker_that_changes_its_type_is_counted_where_it_is_now() -> None:
    """One worker registered three times is one worker."""
    summary = summary_of(
        (0.0, registered("w", "k80", 1.0)),
        (0.0, registered("w", "v100", 1.0)),
        (0.0, registered("w", "v100", 1.0)),
        (0.0, submitted("a")),
        (0.0, a_round(1, 0.0, lease("l", ("w",), "v100", "a"))),
        (50.0, completed(TaskProgress("l", "a", 9.0, 9.0, 50.0))),
        (50.0, JobCompleted(job_id="a", steps=9.0)),
    )
    assert summary.figures().utilisation_by_type == {"k80": 0.0, "v100": 1.0}
    assert summary.figures().utilisation == 1.0

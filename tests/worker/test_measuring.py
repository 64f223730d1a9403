"""What a profile's processes make of it."""

from __future__ import annotations

import pytest

from schemas.domain import Lease, TaskSpec
from services.worker.hands import Ending
from services.worker.measuring import copies, found

JOB = TaskSpec(
    job_id="a",
    job_type="new",
    scale_factor=1,
    total_steps=100.0,
    resume_from="r7",
    command="python train.py",
    checkpoint_dir="of-a",
)
REFERENCE = TaskSpec(job_id="", job_type="A3C", scale_factor=1, total_steps=0.0)


def lease(*tasks: TaskSpec) -> Lease:
    """A profile of these."""
    return Lease(
        lease_id="p3",
        tasks=tasks,
        worker_type="v100",
        worker_ids=("w",),
        reporters=("worker.a",),
        profile=True,
    )


def paced(
    steps_per_s: float, first_s: float = 2.0, until_s: float = 10.0
) -> list[tuple[float, float]]:
    """What is heard of a process that loads for 1 s, then steps; every 0.25 s."""
    course = [(1.0, 0.0)]
    for quarter in range(int(4 * first_s), int(4 * until_s) + 1):
        steps = 1.0 + (quarter / 4 - first_s) * steps_per_s
        if int(steps) > course[-1][1]:
            course.append((quarter / 4, float(int(steps))))
    return course


def test_a_copy_has_no_past_no_end_and_a_folder_of_its_own() -> None:
    """Else as the job; the reference has the operator's command, and a name."""
    job, reference = copies(lease(JOB, REFERENCE), {"A3C": "python a3c.py"}).tasks
    assert (job.job_id, job.command, job.resume_from) == ("a", "python train.py", "")
    assert job.total_steps > 1e12
    assert (reference.job_id, reference.command) == ("reference", "python a3c.py")
    assert {job.checkpoint_dir, reference.checkpoint_dir}.isdisjoint({"", "of-a"})
    assert job.checkpoint_dir != reference.checkpoint_dir


def test_a_job_of_that_name_is_not_the_reference() -> None:
    """Two tasks of a lease have two names."""
    job = TaskSpec(job_id="reference", job_type="new", scale_factor=1, total_steps=1.0)
    names = {task.job_id for task in copies(lease(job, REFERENCE), {}).tasks}
    assert len(names) == 2


@pytest.mark.parametrize("steps_per_s", [0.5, 1.0, 4.0, 400.0])
def test_a_speed_is_read_from_the_first_step_on(steps_per_s: float) -> None:
    """The start, and however long the first step takes, do not count; nor does the last wait."""
    profile = found([paced(steps_per_s)], [None])
    assert profile.outcome == "measured"
    assert list(profile.speeds) == pytest.approx([steps_per_s], rel=0.01)
    assert 5.0 <= profile.seconds <= 8.0


def test_of_two_only_the_time_counts_in_which_both_train() -> None:
    """Alone, before the other's first step, one is as fast as it will not be again."""
    one = [(0.5, 0.0), (1.0, 1.0), (6.0, 1001.0), (8.0, 1021.0), (10.0, 1041.0)]
    profile = found([one, paced(2.0, first_s=6.0)], [None, None])
    assert list(profile.speeds) == pytest.approx([10.0, 2.0], rel=0.01)
    assert profile.seconds == pytest.approx(4.0, abs=0.5)


@pytest.mark.parametrize(
    "course", [[], [(1.0, 0.0)], [(1.0, 0.0), (9.0, 1.0)], [(1.0, 0.0), (9.0, 1.0), (9.5, 2.0)]]
)
def test_too_little_to_say_is_a_failure_that_says_so(course: list[tuple[float, float]]) -> None:
    """Nothing heard; no step; one step: no speed, and not a speed of 0 either."""
    for courses in ([course], [course, paced(1.0)]):
        profile = found(courses, [None] * len(courses))
        assert (profile.outcome, profile.speeds) == ("failed", ())
        assert "at least 1 s are needed" in profile.detail


@pytest.mark.parametrize(
    ("detail", "outcome"),
    [
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "does_not_fit",
        ),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate", "does_not_fit"),
        ("ModuleNotFoundError: No module named 'torch'", "failed"),
    ],
)
def test_only_memory_is_a_fact_about_the_job(detail: str, outcome: str) -> None:
    """Whichever of the two broke, and however far it had come; the reason is told."""
    broken = Ending("failed", 5.0, 1, detail)
    profile = found([paced(1.0), paced(1.0)], [None, broken])
    assert (profile.outcome, profile.speeds, profile.detail) == (outcome, (), detail)

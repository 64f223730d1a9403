"""What finish-time fairness remembers: the time that steps done would have taken in isolation."""

from __future__ import annotations

import pytest

from schemas.decisions import Decision
from schemas.domain import TaskProgress
from schemas.events import AllocationComputed, ClusterConfigured, ProgressReported
from services.policy.core import PolicyCore
from tests.policy.test_core import admitted, estimated, problems, registered, told

ANSWER = AllocationComputed(policy="ftf", rows=())


def progress(**steps: float) -> ProgressReported:
    """Jobs have done so many steps."""
    rows = tuple(TaskProgress(f"lease-{job}", job, n, n, 1.0) for job, n in steps.items())
    return ProgressReported(reporter="worker.a", round_id=1, rows=rows)


def isolated_s(decisions: list[Decision]) -> dict[str, float]:
    """{job id: isolated seconds} in the problem of the one solve asked for."""
    (problem,) = problems(decisions)
    return {
        job_id: seconds
        for job_class in problem.classes
        for job_id, seconds in zip(job_class.job_ids, job_class.isolated_s, strict=True)
    }


@pytest.mark.parametrize(
    ("policy", "steps_per_s"), [("ftf", 1.0 + 2.0), ("ftf:agnostic", 2.0 + 2.0)]
)
def test_steps_count_at_the_isolated_speed_of_the_solve_before_them(
    policy: str, steps_per_s: float
) -> None:
    """4 k80s at 1 step/s, 4 v100s at 2: alone at both speeds, later on a third, then half, of all.

    Blind to types, a k80 counts as fast as the reference type, the v100.
    """
    workers = [registered(f"{t}-{i}", t) for t in ("k80", "v100") for i in range(4)]
    config = ClusterConfigured(policy=policy, reference_type="v100")
    core = PolicyCore()
    told(core, 0.0, config, *workers, estimated(k80=1.0, v100=2.0))
    # A whole of each is more than all of the job's time: it is scaled to one, 1/2 and 1/2.
    of_one = steps_per_s / 2
    assert isolated_s(told(core, 0.0, *admitted("a"))) == {"a": 0.0}
    told(core, 0.0, ANSWER)

    told(core, 10.0, progress(a=30.0))
    arrival = told(core, 20.0, *admitted("b"))
    assert isolated_s(arrival) == pytest.approx({"a": 30.0 / of_one, "b": 0.0})
    told(core, 20.0, ANSWER)

    told(core, 30.0, progress(a=36.0, b=9.0))
    arrivals = told(core, 40.0, *admitted("c"))
    assert isolated_s(arrivals) == pytest.approx({"a": 36.0 / of_one, "b": 9.0 / of_one, "c": 0.0})


def test_with_more_jobs_than_workers_steps_count_for_more() -> None:
    """Three jobs share one worker of 3 steps/s: a step is worth a second of the third part."""
    core = PolicyCore()
    told(core, 0.0, ClusterConfigured(policy="ftf"), registered("w"), estimated(v100=3.0))
    told(core, 0.0, *admitted("a"), ANSWER, *admitted("b"), ANSWER, *admitted("c"), ANSWER)
    told(core, 10.0, progress(a=15.0))
    assert isolated_s(told(core, 10.0, estimated(v100=6.0)))["a"] == pytest.approx(15.0)
    told(core, 20.0, ANSWER, progress(a=25.0))
    assert isolated_s(told(core, 20.0, estimated(v100=6.0)))["a"] == pytest.approx(15.0 + 5.0)


def test_other_policies_do_not_count() -> None:
    """What nobody asks for is not kept."""
    core = PolicyCore()
    told(core, 0.0, ClusterConfigured(policy="makespan"), registered("w"), estimated(v100=3.0))
    told(core, 0.0, *admitted("a"), ANSWER, progress(a=15.0))
    assert isolated_s(told(core, 10.0, *admitted("b"))) == {"a": 0.0, "b": 0.0}

"""Gangs over several worker services: they stop at one step, and fail together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.domain import TaskProgress
from schemas.events import (
    CancelRequested,
    ClusterConfigured,
    JobRequeued,
    LeasesChanged,
    StopStepAgreed,
    StopStepProposed,
    TaskStopped,
)
from services.mechanism.core import MechanismCore
from tests.mechanism.events import emitted, estimate, job, plan, told, worker

HOSTS = ("worker.a", "worker.b", "worker.c")


def gang() -> MechanismCore:
    """A core whose one job holds a worker of each host."""
    core = MechanismCore()
    here = [worker(f"{host}-0", server=host, reporter=host) for host in HOSTS]
    told(core, 0.0, ClusterConfigured(), *here, estimate({"v100": 1.0}, len(HOSTS)))
    told(core, 0.0, job("j", len(HOSTS)))
    planned = plan(core, 1, 10.0)
    assert planned.granted[0].reporters == HOSTS
    return core


def proposal(host: str, iteration: int, round_id: int = 1) -> StopStepProposed:
    """A service says where its ranks of the gang could stop."""
    return StopStepProposed(
        reporter=host, round_id=round_id, lease_id="r1-0", job_id="j", iteration=iteration
    )


def agreement(iteration: int, round_id: int = 1) -> StopStepAgreed:
    """All ranks of the gang stop there."""
    return StopStepAgreed(round_id=round_id, lease_id="r1-0", job_id="j", iteration=iteration)


@given(
    st.lists(
        st.tuples(st.sampled_from((*HOSTS, "worker.stranger")), st.integers(0, 1000)), max_size=12
    )
)
def test_the_highest_of_all_first_words_is_agreed_once(words: list[tuple[str, int]]) -> None:
    """Whatever comes twice, late, or from who has no rank: one answer, and no rank is past it."""
    core = gang()
    answers = [emitted(told(core, 300.0, proposal(*word))) for word in words]
    first: dict[str, int] = {}
    for (host, iteration), answer in zip(words, answers, strict=True):
        completes = host in HOSTS and host not in first and len(first) == len(HOSTS) - 1
        if host in HOSTS:
            first.setdefault(host, iteration)
        assert answer == ([agreement(max(first.values()))] if completes else [])


def test_a_lease_that_was_renewed_after_all_is_asked_anew() -> None:
    """What was agreed at the end of one round says nothing about the end of another."""
    core = gang()
    for host in HOSTS:
        told(core, 365.0, proposal(host, 50))
    answers = [told(core, 725.0, proposal(host, 90, round_id=2)) for host in HOSTS]
    assert [emitted(answer) for answer in answers] == [[], [], [agreement(90, round_id=2)]]


def test_nothing_is_agreed_for_a_lease_that_is_over() -> None:
    """A word that comes after the job's end is ignored, and counted."""
    core = gang()
    told(core, 300.0, proposal(HOSTS[0], 5), proposal(HOSTS[1], 5))
    told(core, 301.0, CancelRequested(job_id="j"))
    ignored = core._leases.ignored
    assert emitted(told(core, 302.0, proposal(HOSTS[2], 5))) == []
    assert core._leases.ignored == ignored + 1


@pytest.mark.parametrize("host", HOSTS)
def test_a_rank_that_fails_anywhere_ends_all_of_its_gang(host: str) -> None:
    """The lease is revoked everywhere, the job tried again; that the others fail too is no news."""
    core = gang()
    row = TaskProgress("r1-0", "j", 60.0, 0.0, 20.0)
    decided = told(core, 50.0, failure(host, row))
    requeued, revoked = emitted(decided)
    assert isinstance(requeued, JobRequeued)
    assert (requeued.attempt, requeued.steps) == (1, 0.0)
    assert isinstance(revoked, LeasesChanged)
    assert revoked.revoked == ("r1-0",)
    assert [told(core, 51.0, failure(other, row)) for other in HOSTS] == [[], [], []]


def failure(host: str, row: TaskProgress) -> TaskStopped:
    """A rank under a service has failed."""
    return TaskStopped(reporter=host, task=row, reason="failed", exit_code=3)


def test_only_the_first_rank_s_service_tells_of_steps_and_of_the_end() -> None:
    """That a job is complete, or has come this far, is not another service's to say."""
    core = gang()
    row = TaskProgress("r1-0", "j", 900.0, 900.0, 20.0)
    for reason in ("completed", "lost", "cancelled"):
        assert told(core, 50.0, TaskStopped(reporter=HOSTS[1], task=row, reason=reason)) == []
    (requeued, _) = emitted(told(core, 51.0, failure(HOSTS[1], row)))
    assert isinstance(requeued, JobRequeued)
    assert requeued.steps == 0.0

"""Where a gang over several worker services stops: at the highest step that any has proposed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.events import (
    CancelRequested,
    ClusterConfigured,
    StopStepAgreed,
    StopStepProposed,
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

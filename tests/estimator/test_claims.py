"""What owners declare of their jobs: believed until measured, then checked."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.domain import JobSpec, ProfileCell, Throughput, ThroughputRow
from schemas.events import (
    AnyEvent,
    ClaimRefuted,
    ClusterConfigured,
    JobSubmitted,
    ProfileRequested,
    ThroughputTableImported,
    WorkerRegistered,
)
from services.estimator.jobs import capped
from tests.estimator.play import REPORTER, Play, estimates, rates

TRUTH = {"k80": 1.0, "p100": 3.0, "v100": 5.0}
WORKERS = tuple(
    WorkerRegistered(worker_id=name, worker_type=name, server_id="s", reporter=REPORTER)
    for name in TRUTH
)


def declaring(
    claim: Mapping[str, float], claims: str = "check", *, types: tuple[str, ...] = ()
) -> Play:
    """A core that has been told of a job, ``a``, and what its owner says."""
    spec = JobSpec(
        job_id="a",
        job_type="?",
        total_steps=1e6,
        declared_throughputs=dict(claim),
        allowed_worker_types=types,
    )
    config = ClusterConfigured(estimator="declared", claims=claims)
    return Play(config, *WORKERS, JobSubmitted(job=spec))


def checked(play: Play) -> list[AnyEvent]:
    """Measure what was asked for, truly."""
    return play.profile(play.asked("a"), lambda cell: (TRUTH[cell.worker_type], 0.0))


def refuted(events: list[AnyEvent]) -> list[ClaimRefuted]:
    """Claims found untrue."""
    return [event for event in events if isinstance(event, ClaimRefuted)]


def test_a_claim_is_believed_until_it_is_measured() -> None:
    """Published as it stands, and a check on every type is asked for, on its own source."""
    play = declaring({"v100": 50.0, "k80": 1.0})
    (claim,) = estimates(play.said)
    assert (claim.source, rates(claim)) == ("declared", {"k80": 1.0, "v100": 50.0})
    assert play.asked("a").cells == tuple(ProfileCell(name, "") for name in sorted(TRUTH))


@given(
    worker_type=st.sampled_from(sorted(TRUTH)),
    factor=st.floats(1.2, 1e6) | st.floats(1e-6, 0.8) | st.just(0.0),
)
def test_every_lie_about_one_type_is_corrected_and_said(worker_type: str, factor: float) -> None:
    """Faster, slower, or "it does not run there": the job's throughputs are the measured ones."""
    play = declaring({**TRUTH, worker_type: TRUTH[worker_type] * factor})
    said = checked(play)
    assert rates(estimates(said)[-1]) == pytest.approx(TRUTH)
    (lie,) = refuted(said)
    assert worker_type in (lie.worker_type, lie.base_type)
    assert lie.measured_ratio == pytest.approx(TRUTH[lie.worker_type] / TRUTH[lie.base_type])


@given(factor=st.floats(0.1, 10.0), off=st.floats(0.94, 1.06))
def test_an_honest_owner_is_not_called_a_liar(factor: float, off: float) -> None:
    """Steps counted in other units, or measured a few per cent off: ratios are as they were."""
    claim = {name: rate * factor for name, rate in TRUTH.items()}
    said = checked(declaring({**claim, "v100": claim["v100"] * off}))
    assert not refuted(said)


def test_what_is_left_out_is_measured_too() -> None:
    """A job said to run on one type only turns out to run on all; none of it was a lie."""
    said = checked(declaring({"v100": 5.0}))
    assert rates(estimates(said)[-1]) == pytest.approx(TRUTH)
    assert not refuted(said)


def test_types_the_job_may_not_use_are_not_measured() -> None:
    """That is the owner's wish, and no claim."""
    play = declaring({"v100": 5.0, "p100": 3.0}, types=("p100", "v100"))
    assert [cell.worker_type for cell in play.asked("a").cells] == ["p100", "v100"]


def test_real_leases_refute_a_claim_as_well() -> None:
    """Two types, measured as the job runs; said once, however often it is seen again."""
    play = declaring({**TRUTH, "v100": 50.0})
    assert not refuted(play.run_round("a", "v100", TRUTH["v100"]))
    (lie,) = refuted(play.run_round("a", "k80", TRUTH["k80"]))
    assert lie.declared_ratio == 50.0
    assert lie.measured_ratio == pytest.approx(5.0)
    assert not refuted(play.run_round("a", "p100", TRUTH["p100"]))


def test_believing_is_a_setting() -> None:
    """Nothing is checked, nothing corrected: what lying gains can be measured."""
    play = declaring({**TRUTH, "v100": 50.0}, "believe")
    assert not any(isinstance(event, ProfileRequested) for event in play.said)
    assert play.run_round("a", "v100", TRUTH["v100"]) == []


def test_a_cap_keeps_claims_within_what_references_do() -> None:
    """Until measured, no type is faster beside the slowest than for the fastest reference."""
    row = ThroughputRow(
        job_type="m",
        scale_factor=1,
        alone=tuple(Throughput(name, rate) for name, rate in TRUTH.items()),
    )
    play = declaring({}, "cap")
    play.tell(ThroughputTableImported(source="references", rows=(row,)))
    spec = JobSpec(
        job_id="b",
        job_type="?",
        total_steps=1.0,
        declared_throughputs={"k80": 2.0, "p100": 4.0, "v100": 200.0},
    )
    (claim,) = estimates(play.tell(JobSubmitted(job=spec)))
    assert rates(claim) == {"k80": 2.0, "p100": 4.0, "v100": pytest.approx(10.0)}


def test_a_cap_without_references_caps_nothing() -> None:
    """There is nothing to compare with."""
    assert capped({"k80": 1.0, "v100": 9.0}, {}) == {"k80": 1.0, "v100": 9.0}

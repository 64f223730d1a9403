"""What jobs make beside each other, put right by the leases that they share."""

from __future__ import annotations

import pytest

from schemas.domain import JobSpec, PairThroughput, Throughput, ThroughputRow
from schemas.events import (
    ClusterConfigured,
    JobCompleted,
    JobSubmitted,
    ThroughputTableImported,
    WorkerRegistered,
)
from tests.estimator.play import REPORTER, Play, beside, estimates, rates

LEARNED = ClusterConfigured(policy="las:ss", estimator="learned")
WORKER = WorkerRegistered(worker_id="w", worker_type="v100", server_id="s", reporter=REPORTER)


def table(m: float = 4.0, n: float = 10.0, together: float = 0.5) -> ThroughputTableImported:
    """Two classes, m and n, that keep a fraction of their speeds together, and m with itself."""
    alone = {"m": m, "n": n}
    rows = [
        ThroughputRow(
            job_type=name,
            scale_factor=1,
            alone=(Throughput("k80", rate / 4), Throughput("v100", rate)),
            beside=tuple(
                PairThroughput("v100", other, rate * together, alone[other] * together)
                for other in others
            ),
        )
        for (name, rate), others in zip(alone.items(), (("m",), ("m",)), strict=True)
    ]
    return ThroughputTableImported(source="test", rows=tuple(rows))


def job(job_id: str, job_type: str = "") -> JobSubmitted:
    """A job whose id's first letter is its type, unless told otherwise."""
    return JobSubmitted(job=JobSpec(job_id=job_id, job_type=job_type or job_id[0], total_steps=1e9))


def test_a_lease_that_two_jobs_share_corrects_their_classes() -> None:
    """The row of the later class is published anew; nothing is said while it stays so."""
    play = Play(LEARNED, WORKER, table(), job("m"), job("n"))
    (found,) = estimates(play.share_round("v100", m=3.0, n=6.0))
    assert (found.job_id, found.row.job_type, found.source) == ("", "n", "measured")
    assert beside(found, "m") == {"v100": (6.0, 3.0)}
    assert rates(found) == {"k80": 2.5, "v100": 10.0}
    assert play.share_round("v100", m=3.05, n=5.9) == []


def test_two_jobs_of_one_class_correct_it_beside_itself() -> None:
    """The two sides are one figure: the middle of what the jobs made."""
    play = Play(LEARNED, WORKER, table(), job("m0"), job("m1"))
    (found,) = estimates(play.share_round("v100", m0=3.0, m1=3.0))
    assert beside(found, "m") == {"v100": (3.0, 3.0)}


def test_two_that_make_no_step_together_do_not_fit() -> None:
    """Both zero: a fact about their classes, if several steps were due, which no policy misses."""
    play = Play(LEARNED, WORKER, table(), job("m"), job("n"))
    (found,) = estimates(play.share_round("v100", m=0.0, n=0.0))
    assert beside(found, "m") == {"v100": (0.0, 0.0)}


def test_no_step_where_none_was_due_says_nothing() -> None:
    """A step that takes longer than what was measured over: it may have been under way."""
    play = Play(LEARNED, WORKER, table(m=0.01), job("m"), job("n"))
    assert play.share_round("v100", m=0.0, n=0.0) == []


def test_a_job_faster_than_its_class_speaks_for_it_in_proportion() -> None:
    """Twice as fast alone and beside others: its class keeps the fraction that it keeps."""
    play = Play(LEARNED, WORKER, table(), *(job(f"m{i}") for i in range(3)), job("n"))
    for job_id in ("m0", "m1"):
        play.run_round(job_id, "v100", 4.0)
    (own,) = estimates(play.run_round("m2", "v100", 8.0))
    assert own.job_id == "m2"
    (found,) = estimates(play.share_round("v100", m2=6.0, n=5.0))
    ((n, m),) = beside(found, "m").values()
    assert n == 5.0
    assert m == pytest.approx(3.0, rel=0.02)


def test_a_measurement_of_a_pair_a_million_times_off_changes_nothing() -> None:
    """Its next honest one is taken as before."""
    play = Play(LEARNED, WORKER, table(), job("m"), job("n"))
    assert play.share_round("v100", m=2e6, n=5e6) == []
    assert play.share_round("v100", m=2.0, n=5.0) == []


def test_a_class_found_slower_is_slower_beside_others_too() -> None:
    """A table wrong by two is wrong in its pairs as well; those measured already stand."""
    play = Play(LEARNED, WORKER, table(), job("m"), job("n"))
    play.share_round("v100", m=3.0, n=6.0)
    found = estimates(play.run_round("m", "v100", 2.0))
    assert [rates(each)["v100"] for each in found if each.row.job_type == "m"] == [2.0]
    assert [beside(each, "m") for each in found if each.row.job_type == "m"] == [
        {"v100": (1.0, 1.0)}
    ]
    assert not [each for each in found if each.row.job_type == "n"]


def test_jobs_that_are_over_or_unknown_say_nothing_of_pairs() -> None:
    """A report may come after a job's end."""
    play = Play(LEARNED, WORKER, table(), job("m"), job("n"))
    play.tell(JobCompleted(job_id="n", steps=1.0))
    assert play.share_round("v100", m=3.0, n=6.0) == []


def test_a_claim_never_measured_says_nothing_of_pairs() -> None:
    """What its class would have made cannot be told from what its owner says."""
    config = ClusterConfigured(policy="las:ss", estimator="declared")
    play = Play(config, WORKER, table())
    play.tell(job("n"))
    spec = JobSpec(job_id="m", job_type="m", total_steps=1e9, declared_throughputs={"v100": 40.0})
    play.tell(JobSubmitted(job=spec))
    assert play.share_round("v100", m=2.0, n=5.0) == []


def test_the_oracle_does_not_look_at_pairs() -> None:
    """A simulation with it is what its table says."""
    play = Play(ClusterConfigured(), WORKER, table(), job("m"), job("n"))
    assert play.share_round("v100", m=3.0, n=6.0) == []


def test_a_table_imported_anew_replaces_what_was_measured() -> None:
    """The operator knows better; what follows is measured against it."""
    play = Play(LEARNED, WORKER, table(), job("m"), job("n"))
    play.share_round("v100", m=3.0, n=6.0)
    found = estimates(play.tell(table()))
    assert [beside(each, "m") for each in found if each.row.job_type == "n"] == [
        {"v100": (5.0, 2.0)}
    ]
    assert estimates(play.share_round("v100", m=3.0, n=6.0))

"""Jobs nobody knows: profiled, matched, and measured while they run."""

from __future__ import annotations

import random
from typing import Any

import pytest

from replay.traces.tables import builtin_table
from schemas.domain import JobSpec, PairThroughput, ProfileCell, Throughput, ThroughputRow
from schemas.events import (
    ClusterConfigured,
    JobCompleted,
    JobSubmitted,
    LeasesChanged,
    ProfileRequested,
    ThroughputEstimated,
    ThroughputTableImported,
    WorkerRegistered,
)
from services.estimator import learning
from services.estimator.effects import Fingerprint, MeasuredCell, give_up
from services.estimator.jobs import JobEstimate
from tests.estimator.play import REPORTER, Find, Play, estimates, rates

LEARNED = ClusterConfigured(policy="las:ss", estimator="learned")
UNNAMED = ClusterConfigured(policy="las:ss", estimator="learned", trust_job_types=False)
TABLE = builtin_table()
IMPORTED = ThroughputTableImported(source="built-in", rows=TABLE.rows())
KNOWN = next(job_type for job_type, _ in TABLE.classes() if job_type.startswith("ResNet-18"))


def worker(worker_type: str) -> WorkerRegistered:
    """One accelerator."""
    return WorkerRegistered(
        worker_id=worker_type, worker_type=worker_type, server_id="s", reporter=REPORTER
    )


WORKERS = tuple(map(worker, ("k80", "p100", "v100")))


def submitted(job_type: str = "?", job_id: str = "a", **facts: Any) -> JobSubmitted:
    """A job of one worker."""
    spec = JobSpec(job_id=job_id, job_type=job_type, total_steps=1e6, **facts)
    return JobSubmitted(job=spec)


def as_if(job_type: str, times: float = 1.0) -> Find:
    """Profiles of a job that is a known one, so many times as fast."""

    def find(cell: ProfileCell) -> tuple[float, float] | str:
        if not cell.beside:
            return (times * (TABLE.alone(job_type, 1, cell.worker_type) or 0.0), 0.0)
        pair = TABLE.beside(job_type, cell.beside, 1, cell.worker_type)
        assert pair is not None
        return (times * pair[0], pair[1])

    return find


def test_an_unknown_job_runs_on_a_provisional_estimate_until_it_is_matched() -> None:
    """First what jobs make on average, without confidence; then class, multiplier, confidence."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    first, request = play.tell(submitted())
    assert isinstance(first, ThroughputEstimated)
    assert (first.source, first.confidence, first.row.job_type) == ("provisional", 0.0, "")
    assert all(rate > 0 for rate in rates(first).values())
    assert isinstance(request, ProfileRequested)
    learned, of_class = estimates(play.profile(request, as_if(KNOWN, times=2.0)))
    assert (learned.source, learned.job_id, learned.row.job_type) == ("learned", "a", KNOWN)
    assert learned.multiplier == pytest.approx(2.0, rel=0.01)
    assert 0 < learned.confidence <= 1
    for worker_type, rate in rates(learned).items():
        known = TABLE.alone(KNOWN, 1, worker_type)
        assert known is not None
        assert rate == pytest.approx(2 * known, rel=0.011)
    assert (of_class.job_id, of_class.row.job_type) == ("", KNOWN)


def like_none(cell: ProfileCell) -> tuple[float, float] | str:
    """Profiles of a job as fast as a known one, that never gives way and lets nobody by."""
    alone, of_other = (TABLE.alone(name, 1, cell.worker_type) for name in (KNOWN, cell.beside))
    assert alone is not None
    return (0.98 * alone, 0.02 * of_other) if of_other else (alone, 0.0)


def anything(seed: int) -> Find:
    """Profiles of a job like no other."""
    rng = random.Random(seed)
    return lambda _cell: (rng.random(), rng.random())


def test_a_job_like_no_reference_is_a_reference_from_then_on() -> None:
    """Its class has its type's name and all pairs; the next of the name is believed, unprofiled."""
    play = Play(LEARNED, *WORKERS, IMPORTED, submitted(KNOWN, "other"))
    play.tell(submitted("new"))
    learned, of_class = estimates(play.profile(play.asked("a"), like_none))
    assert (learned.row.job_type, of_class.row.job_type) == ("new", "new")
    assert (of_class.job_id, of_class.source) == ("", "learned")
    pairs = {pair.other_job_type for pair in of_class.row.beside}
    assert pairs == {KNOWN, "new"}
    assert play.tell(submitted("new", "b")) == []
    assert play.tell(JobCompleted(job_id="a", steps=1.0), submitted("new", "c")) == []


def test_where_names_are_not_trusted_the_next_is_found_to_be_alike() -> None:
    """It is profiled as well, and joins the class of the first."""
    play = Play(UNNAMED, *WORKERS, IMPORTED)
    for job_id in ("a", "b"):
        play.tell(submitted("x", job_id))
    one, other = (estimates(play.profile(play.asked(j), like_none))[0] for j in ("a", "b"))
    assert (one.job_id, one.row.job_type) == ("a", "job a")
    assert (other.job_id, other.row.job_type) == ("b", "job a")
    assert not other.row.beside


def test_where_no_two_jobs_are_alike_not_all_are_remembered() -> None:
    """Each would know all before it; the class of a job that is there is kept, however old."""
    play = Play(UNNAMED, *WORKERS, IMPORTED)
    for number in range(40):
        play.tell(submitted("x", f"j{number}"))
        play.profile(play.asked(f"j{number}"), anything(number))
        if number:
            play.tell(JobCompleted(job_id=f"j{number}", steps=1.0))
    (newest, *_) = [each for each in reversed(play.effects) if isinstance(each, Fingerprint)]
    names = {row.job_type for row in newest.learned}
    assert {"job j0", "job j38"} <= names
    assert "job j1" not in names
    assert len(names) <= 34


def test_jobs_alike_but_for_noise_get_equal_estimates() -> None:
    """Rates within 1 % of the class's are the class's: policies then see one class of jobs."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    found = []
    for job_id, times in (("a", 1.0), ("b", 1.006), ("c", 0.995)):
        play.tell(submitted(job_id=job_id))
        found += estimates(play.profile(play.asked(job_id), as_if(KNOWN, times)))
    rows = [each.row for each in found if each.job_id]
    assert len(rows) == 3
    assert rows[0] == rows[1] == rows[2]


def test_a_name_the_table_knows_is_believed_unless_told_otherwise() -> None:
    """By name: the class, and no profile. Names not trusted: profiled like any other."""
    trusting, wary = (Play(config, *WORKERS, IMPORTED) for config in (LEARNED, UNNAMED))
    (estimate,) = trusting.tell(submitted(KNOWN))
    assert isinstance(estimate, ThroughputEstimated)
    assert (estimate.source, estimate.job_id) == ("table", "")
    provisional, request = wary.tell(submitted(KNOWN))
    assert isinstance(provisional, ThroughputEstimated)
    assert provisional.row.job_type == ""
    assert isinstance(request, ProfileRequested)


def test_without_workers_an_unknown_job_waits() -> None:
    """Nothing can be measured anywhere; with the first workers it goes on."""
    play = Play(LEARNED, IMPORTED)
    assert play.tell(submitted()) == []
    provisional, request = play.tell(worker("v100"))
    assert isinstance(provisional, ThroughputEstimated)
    assert isinstance(request, ProfileRequested)
    assert {cell.worker_type for cell in request.cells} == {"v100"}


def test_a_type_that_no_table_has_is_tried_like_any_other() -> None:
    """Before anything is measured there, nothing says that the job cannot run on it."""
    play = Play(LEARNED, IMPORTED, worker("b200"), submitted())
    (provisional,) = estimates(play.said)
    assert rates(provisional)["b200"] > 0
    (request,) = (each for each in play.said if isinstance(each, ProfileRequested))
    (found,) = estimates(play.profile(request, lambda _cell: (40.0, 0.0)))
    assert rates(found)["b200"] == pytest.approx(40.0, rel=0.02)


def test_without_references_a_job_is_what_it_is_measured_to_be() -> None:
    """Profiled alone on each type; there is nothing to match it with."""
    play = Play(LEARNED, *WORKERS)
    provisional, request = play.tell(submitted())
    assert isinstance(provisional, ThroughputEstimated)
    assert rates(provisional) == {"k80": 1.0, "p100": 1.0, "v100": 1.0}
    assert isinstance(request, ProfileRequested)
    truth = {"k80": 2.0, "p100": 3.0, "v100": 5.0}
    (found,) = estimates(play.profile(request, lambda cell: (truth[cell.worker_type], 0.0)))
    assert rates(found) == truth


def test_a_job_that_runs_nowhere_is_said_to() -> None:
    """It fits on no type: a row of zeros, which admission rejects with the numbers."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    (found,) = estimates(play.profile(play.asked("a"), lambda _: "does_not_fit"))
    assert set(rates(found).values()) == {0.0}


@pytest.mark.parametrize(
    "nothing", ["failed", (0.0, 0.0), (float("nan"), 1.0), (-1.0, 0.0), (float("inf"), 0.0)]
)
def test_a_profile_that_fails_says_nothing(nothing: tuple[float, float] | str) -> None:
    """It failed, counted no step, or reported no number: the others must do."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    request = play.asked("a")
    lost = request.cells[-1]
    find = as_if(KNOWN)
    learned, _ = estimates(
        play.profile(request, lambda cell: nothing if cell == lost else find(cell))
    )
    assert learned.row.job_type == KNOWN
    assert len(play.effects[-1].measured) == len(request.cells) - 1  # type: ignore[union-attr] # the last effect is the match


def test_a_job_whose_profiles_all_fail_keeps_its_provisional_estimate() -> None:
    """Until its own leases say more."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    assert play.profile(play.asked("a"), lambda _: "failed") == []
    (found,) = estimates(play.run_round("a", "v100", 7.0))
    assert rates(found)["v100"] == pytest.approx(7.0)


def test_a_profile_that_never_returns_is_not_waited_for_for_ever() -> None:
    """The mechanism revokes its lease; the job is matched with what the others found."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    *cells, lost = play.asked("a").cells
    lease_id = play.grant("a", lost)
    find = as_if(KNOWN)
    for cell in cells:
        assert play.measure("a", cell, find(cell)) == []
    over = LeasesChanged(round_id=0, revoked=(lease_id,), reason="no word")
    assert estimates(play.tell(over))[0].row.job_type == KNOWN


def test_where_no_worker_is_ever_idle_a_job_is_matched_by_what_its_leases_show() -> None:
    """After ten rounds; a profile that comes after all is taken in, too."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    (k80, *_) = play.asked("a").cells
    truth = {t: TABLE.alone(KNOWN, 1, t) or 0.0 for t in ("k80", "p100", "v100")}
    rounds = [play.run_round("a", "v100", truth["v100"]) for _ in range(10)]
    assert not any(each.source == "learned" for said in rounds[:-1] for each in estimates(said))
    learned, _ = (each for each in estimates(rounds[-1]) if each.source != "provisional")
    assert (learned.source, learned.job_id) == ("learned", "a")
    assert rates(learned)["v100"] == pytest.approx(truth["v100"], rel=0.011)
    assert not estimates(play.run_round("a", "v100", truth["v100"]))
    again = estimates(play.measure("a", k80, (truth["k80"], 0.0)))[0]
    assert again.source == "learned"
    assert rates(again)["k80"] == pytest.approx(truth["k80"], rel=0.011)


@pytest.mark.parametrize("refers", [(IMPORTED,), ()])
def test_a_job_whose_profiles_all_failed_is_matched_by_what_its_leases_show(
    refers: tuple[ThroughputTableImported, ...],
) -> None:
    """Once, after ten rounds, as if they had never been taken."""
    play = Play(LEARNED, *WORKERS, *refers)
    play.tell(submitted())
    play.profile(play.asked("a"), lambda _: "failed")
    truth = TABLE.alone(KNOWN, 1, "v100")
    assert truth is not None
    rounds = [play.run_round("a", "v100", truth) for _ in range(15)]
    matched = ["learned" in (each.source for each in estimates(said)) for said in rounds]
    assert matched == [False] * 9 + [True] + [False] * 5


def test_without_references_ten_rounds_are_as_good_as_a_profile() -> None:
    """The job is what its leases show, and says so."""
    play = Play(LEARNED, *WORKERS)
    play.tell(submitted())
    rounds = [play.run_round("a", "v100", 5.0) for _ in range(10)]
    said = [estimate for said in rounds for estimate in estimates(said)]
    assert [each.source for each in said] == ["provisional", "learned"]
    assert rates(said[-1])["v100"] == 5.0


def test_profiles_of_a_job_that_is_over_are_no_news() -> None:
    """They may come late; nothing follows from them."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    request = play.asked("a")
    play.tell(JobCompleted(job_id="a", steps=1.0))
    assert play.profile(request, as_if(KNOWN)) == []


def test_what_is_measured_while_profiles_are_out_is_not_lost() -> None:
    """A lease's measurement on one type stands beside the match."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    play.run_round("a", "v100", 7.0)
    learned = estimates(play.profile(play.asked("a"), as_if(KNOWN)))[0]
    assert learned.row.job_type == KNOWN
    again = estimates(play.run_round("a", "v100", 7.0))
    assert [rates(each)["v100"] for each in again] == [pytest.approx(7.0, rel=0.011)]


def test_a_learned_job_that_doubles_its_batch_is_followed() -> None:
    """Half the steps per second, three rounds in a row: a new estimate, of the job alone."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    play.profile(play.asked("a"), as_if(KNOWN))
    truth = TABLE.alone(KNOWN, 1, "v100")
    assert truth is not None
    for _ in range(3):
        assert play.run_round("a", "v100", truth) == []
    said = [play.run_round("a", "v100", truth / 2) for _ in range(3)]
    (found,) = (
        each for each in estimates([event for each in said for event in each]) if each.job_id
    )
    assert (found.source, found.row.job_type) == ("measured", KNOWN)
    assert rates(found)["v100"] == pytest.approx(truth / 2, rel=0.02)


# --- classes --------------------------------------------------------------------------------------


def wrong(factor: float) -> ThroughputTableImported:
    """One class, whose rate on v100 is wrong by a factor; its truth is 4."""
    cells = (Throughput("k80", 1.0), Throughput("v100", 4.0 * factor))
    pair = PairThroughput("v100", "m", 3.0 * factor, 3.0 * factor)
    row = ThroughputRow(job_type="m", scale_factor=1, alone=cells, beside=(pair,))
    return ThroughputTableImported(source="wrong", rows=(row,))


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_table_wrong_by_two_is_put_right_by_the_first_round(factor: float) -> None:
    """The class is corrected for all its jobs; nothing more is said while it stays so."""
    play = Play(LEARNED, *WORKERS, wrong(factor), submitted("m"), submitted("m", "b"))
    (found,) = estimates(play.run_round("a", "v100", 4.0))
    assert (found.job_id, found.source) == ("", "measured")
    assert rates(found) == {"k80": 1.0, "v100": pytest.approx(4.0)}
    assert play.run_round("a", "v100", 4.05) == []
    assert play.run_round("b", "v100", 3.95) == []


def test_one_odd_job_does_not_speak_for_its_class() -> None:
    """The middle of the last jobs counts; a job far from it gets an estimate of its own."""
    play = Play(LEARNED, *WORKERS, wrong(1.0), *(submitted("m", job_id) for job_id in "abc"))
    for job_id in "ab":
        assert play.run_round(job_id, "v100", 4.0) == []
    (found,) = estimates(play.run_round("c", "v100", 8.0))
    assert (found.job_id, found.row.job_type) == ("c", "m")
    assert found.multiplier == pytest.approx(2.0, rel=0.02)
    assert rates(found) == pytest.approx({"k80": 2.0, "v100": 8.0}, rel=0.02)


def test_a_job_too_fast_to_be_believed_yet_says_nothing_of_its_class() -> None:
    """Nor, when its class has moved on meanwhile, of itself; the third time, it is on its own."""
    play = Play(LEARNED, *WORKERS, wrong(0.5), *(submitted("m", job_id) for job_id in "abc"))
    assert play.run_round("a", "v100", 12.0) == []
    for job_id in "bc":
        play.run_round(job_id, "v100", 4.0)
    assert play.run_round("a", "v100", 12.0) == []
    (found,) = estimates(play.run_round("a", "v100", 12.0))
    assert (found.job_id, found.row.job_type) == ("a", "m")
    assert rates(found)["v100"] == pytest.approx(12.0, rel=0.02)


def test_the_oracle_learns_nothing() -> None:
    """What leases show is not even looked at: a simulation then is what its table says."""
    play = Play(ClusterConfigured(), *WORKERS, wrong(2.0), submitted("m"))
    assert play.run_round("a", "v100", 4.0) == []


def test_a_measurement_a_million_times_off_changes_nothing() -> None:
    """Of a class, and of a learned job; its next honest one is taken as before."""
    play = Play(LEARNED, *WORKERS, wrong(1.0), submitted("m"))
    play.run_round("a", "v100", 4.0)
    assert play.run_round("a", "v100", 4e6) == []
    assert play.run_round("a", "v100", 4.0) == []


def test_a_profile_that_is_over_while_its_job_is_matched_counts() -> None:
    """The match cannot know of it, nor of its worker type where no table has that."""
    job = JobEstimate(submitted(declared_throughputs={"k80": 1.0}).job)
    job.believe(job.spec.declared_throughputs, "provisional")
    job.profiled.append(MeasuredCell(ProfileCell("b200", ""), 40.0, 0.0))
    alone = (Throughput("k80", 1.0),)
    row = ThroughputRow(job_type=KNOWN, scale_factor=1, alone=alone)
    job.learned(ThroughputEstimated(row=row, job_id="a", source="learned"))
    assert {t: rate.value for t, rate in job.rates.items()} == {"k80": 1.0, "b200": 40.0}


def test_effects_are_pure() -> None:
    """Carried out again, they give the same to the bit; and what they are given is not changed."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    play.profile(play.asked("a"), as_if(KNOWN))
    before = [repr(effect) for effect in play.effects]
    assert [learning.carry_out(effect) for effect in play.effects] == [
        event
        for event in play.said
        if isinstance(event, ProfileRequested)
        or (isinstance(event, ThroughputEstimated) and event.source == "learned")
    ]
    assert [repr(effect) for effect in play.effects] == before


def test_without_the_computing_process_a_job_is_known_by_itself() -> None:
    """It ends again and again: profiles alone are asked for, and what they find is believed."""
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(submitted())
    asked = give_up(play.effects[0], "killed")
    assert isinstance(asked, ProfileRequested)
    assert [cell.beside for cell in asked.cells] == ["", "", ""]
    play.profile(play.asked("a"), as_if(KNOWN))
    estimate = give_up(play.effects[-1], "killed")
    assert isinstance(estimate, ThroughputEstimated)
    assert rates(estimate) == {t: TABLE.alone(KNOWN, 1, t) for t in ("k80", "p100", "v100")}
    assert play.tell(estimate) == []

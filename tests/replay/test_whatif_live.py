"""What-if of a live cluster's log: the model is held to what really happened."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from replay.moment import Moment
from replay.verify import verify_log
from replay.whatif.answer import what_if
from replay.whatif.change import Change
from replay.world import World
from schemas.domain import TaskSpec
from schemas.events import JobSubmitted
from schemas.record import Record
from services.runtime.file_log import read_log

LOG = Path(__file__).with_name("logs") / "live.jsonl"


def records() -> Iterator[Record]:
    """The kept log."""
    return read_log(LOG)


def test_the_kept_log_is_a_live_one_that_verifies() -> None:
    """Written by services over a network, and by no simulation."""
    assert verify_log(LOG).ok
    world = World()
    for record in records():
        world.take(record)
    assert not world.is_simulated


def test_unchanged_it_comes_back_to_three_per_cent() -> None:
    """Average JCT, makespan and time received, with start, load and save seconds as measured."""
    answer = what_if(records, Change())
    recorded, unchanged = answer.recorded.figures, answer.unchanged.figures
    assert abs(answer.off or math.inf) < 0.03
    assert unchanged.average_jct_s == pytest.approx(recorded.average_jct_s, rel=0.03)
    assert unchanged.makespan_s == pytest.approx(recorded.makespan_s, rel=0.03)
    assert unchanged.run_s == pytest.approx(recorded.run_s, rel=0.03)
    assert unchanged.preemptions == recorded.preemptions


@pytest.mark.parametrize("at", range(6, 94, 6))
def test_from_any_record_on_it_comes_back_to_less_than_a_round(at: int) -> None:
    """Tasks under way are taken over from where they were; a near choice may fall the other way."""
    answer = what_if(records, Change(), at)
    recorded, unchanged = answer.recorded.figures, answer.unchanged.figures
    assert unchanged.average_jct_s == pytest.approx(recorded.average_jct_s, abs=3.0)


def test_what_was_measured_is_what_it_goes_on_with() -> None:
    """Load and save seconds are above 0, and speeds near the table that the tasks were paced by."""
    world = World()
    for record in records():
        world.take(record)
    assert 0 < world.load_s < 1
    assert 0 < world.save_s < 1
    rates = world.speeds.rates()
    for name, job in world.jobs.items():
        task = TaskSpec(job_id=name, job_type=job.job_type, scale_factor=1, total_steps=1.0)
        assert rates([task], "v100") == pytest.approx([100.0], rel=0.1)


@pytest.mark.parametrize(
    "change", [Change(policy="fifo"), Change(cluster={"v100": 1}), Change(round_s=1.5)]
)
def test_a_live_log_can_be_changed(change: Change) -> None:
    """All jobs end, at other times."""
    answer = what_if(records, change)
    assert answer.changed.figures.outcomes == {"completed": 7}
    assert any(abs(gain) > 0.5 for gain in answer.gains().values())


def test_more_workers_make_a_live_cluster_faster() -> None:
    """With a second V100 no job waits as long on average."""
    answer = what_if(records, Change(cluster={"v100": 1}))
    changed, unchanged = answer.changed.figures, answer.unchanged.figures
    assert (changed.average_jct_s or 0) < 0.8 * (unchanged.average_jct_s or 0)


def test_a_moment_of_it_knows_its_worker_services() -> None:
    """Those that started late in the log have folded what was there before."""
    moment = Moment(records)
    for record in records():
        moment.take(record)
    assert set(moment.actors) == {"estimator", "policy", "mechanism", "worker.a"}
    assert {actor.last_seq for actor in moment.actors.values()} == {sum(1 for _ in records())}
    assert len(moment.world.jobs) == sum(isinstance(r.event, JobSubmitted) for r in records())

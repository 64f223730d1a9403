"""From a log cut after any record, the cores and a simulated cluster go on to the very same end."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache

import pytest

from replay.moment import Moment, Onward
from replay.world import World
from schemas.events import AnyEvent, LeaderElected, LeasesChanged, TaskStopped
from schemas.record import Record
from tests.simulation.scenario import Scenario, contended, records_of, solve_once

#: Records between two cuts; prime, so that cuts meet every phase of a round.
STRIDE = 61

#: What must not change: (at, actor, what it answers, event).
Line = tuple[float, str, int, AnyEvent]


@cache
def scenario(mode: str) -> Scenario:
    """Gangs, pairs of jobs on one worker, cancelled jobs, workers that are lost and come back."""
    outages = tuple((60.3 + 70 * i, f"v100-{i}", 50.0) for i in range(4))
    load_s, save_s = (0.0, 0.0) if mode == "paper" else (5.0, 2.0)
    policy = "las:ss" if mode == "sharing" else "las"
    of_mode = "paper" if mode == "paper" else "default"
    made = contended(12, num_jobs=60, mode=of_mode, policy=policy)
    return dataclasses.replace(made, outages=outages, load_s=load_s, save_s=save_s)


@cache
def log(mode: str) -> tuple[Record, ...]:
    """The whole log."""
    simulation = scenario(mode).simulation()
    simulation.run()
    return tuple(records_of(simulation.driver))


@cache
def world(mode: str) -> World:
    """What lies outside the cores, by the whole log."""
    found = World()
    for record in log(mode):
        found.take(record)
    return found


def lines(records: Sequence[Record]) -> tuple[Line, ...]:
    """Records without the starts of services, and without the shift these bring to sequences."""
    kept = [record for record in records if not isinstance(record.event, LeaderElected)]
    places = {record.seq: place for place, record in enumerate(kept, start=1)}
    return tuple((each.at, each.actor, places.get(each.cause, 0), each.event) for each in kept)


def moment_at(mode: str, cut: int) -> Moment:
    """The log folded up to a record."""
    moment = Moment(lambda: iter(log(mode)))
    for record in log(mode)[:cut]:
        moment.take(record)
    return moment


def gone_on(mode: str, moment: Moment) -> list[Record]:
    """What comes of a moment, with the rest of what came from outside."""
    whole = world(mode)
    records: list[Record] = []
    onward = Onward(
        moment,
        whole.speeds.rates(),
        load_s=whole.load_s,
        save_s=whole.save_s,
        outside=[each for each in whole.outside if each.seq > moment.world.last_seq],
        workers=tuple(whole.workers.values()),
        solver=solve_once,
        observers=(records.append,),
    )
    onward.driver.run()
    return records


@pytest.mark.parametrize("mode", ["default", "paper", "sharing"])
def test_cut_after_any_record_it_goes_on_to_the_same_end(mode: str) -> None:
    """Nothing but the log is needed: progress, plans, timers and checkpoints are all in it."""
    expected = lines(log(mode))
    for cut in range(1, len(log(mode)), STRIDE):
        records = gone_on(mode, moment_at(mode, cut))
        # The recorded run stops at its last job's end.
        found = lines([*log(mode)[:cut], *records])[: len(expected)]
        assert found == expected, f"cut after record {cut}"


@pytest.mark.parametrize("mode", ["default", "paper", "sharing"])
def test_from_an_empty_moment_all_is_decided_anew_and_alike(mode: str) -> None:
    """What comes from outside, and how the world behaves, make the whole log again."""
    expected = lines(log(mode))
    assert lines(gone_on(mode, Moment()))[: len(expected)] == expected


def test_a_moment_goes_on_as_often_as_one_likes() -> None:
    """It is left as it is: the second time comes to what the first did."""
    moment = moment_at("default", len(log("default")) // 2)
    first = gone_on("default", moment)
    assert gone_on("default", moment) == first


@pytest.mark.parametrize("mode", ["default", "paper", "sharing"])
def test_the_logs_have_what_is_hard_to_go_on_from(mode: str) -> None:
    """Revoked leases, jobs that end in mid-round, gangs; under ``las:ss`` pairs as well."""
    assert any(isinstance(record.event, LeasesChanged) for record in log(mode))
    assert any(isinstance(record.event, TaskStopped) for record in log(mode))
    leases = [lease for record in log(mode) for lease in getattr(record.event, "granted", ())]
    assert any(len(lease.worker_ids) > 1 for lease in leases)
    assert any(len(lease.tasks) > 1 for lease in leases) == (mode == "sharing")


def test_checkpoint_seconds_come_back_as_they_were_typed() -> None:
    """Of a simulated log, measured load and save seconds are the simulation's own."""
    assert (world("default").load_s, world("default").save_s) == (5.0, 2.0)
    assert world("default").is_simulated

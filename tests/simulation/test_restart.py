"""Killed at any record, any service or all of them go on as if nothing had happened.

What runs where: here, every record of two logs of over 1,000 records has each service killed
after it, all kills of one service in one run (*cumulative*: it never lives longer than one record),
restored from snapshots; and single kills at a stride, restored from the whole log. With
``GAVEL_LONG_TESTS`` set, single kills after every record, by service and all at once.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from replay.simulate import WORKER, Simulation, cores
from replay.verify import verify
from schemas.events import AnyEvent, LeaderElected
from schemas.record import Record
from services.runtime.actor import Actor
from services.runtime.snapshot import Snapshots
from tests.simulation.scenario import Scenario, contended, records_of, run_on

ALL = "all"
VICTIMS = ("estimator", "policy", "mechanism", WORKER, ALL)
#: Records between two single kills; prime, so that kills meet every phase of a round.
STRIDE = 211
#: Records between two snapshots of the cumulative runs; also odd to the rhythm of rounds.
SNAPSHOT_EVERY = 17

#: What must not change: (at, actor, what it answers, index, n, event).
Line = tuple[float, str, int, int, int, AnyEvent]


@cache
def scenario(mode: str) -> Scenario:
    """Jobs enough for over 1,000 records; workers that are lost while they run some of them."""
    outages = tuple((60.3 + 70 * i, f"v100-{i}", 50.0) for i in range(4))
    load_s, save_s = (0.0, 0.0) if mode == "paper" else (5.0, 2.0)
    return dataclasses.replace(
        contended(12, num_jobs=120, mode=mode), outages=outages, load_s=load_s, save_s=save_s
    )


@cache
def undisturbed(mode: str) -> tuple[Line, ...]:
    """The log of an uncrashed run."""
    simulation = scenario(mode).simulation()
    simulation.run()
    return lines(records_of(simulation.driver))


def lines(records: Sequence[Record]) -> tuple[Line, ...]:
    """Records without the starts of services, and without the shift these bring to sequences."""
    kept = [record for record in records if not isinstance(record.event, LeaderElected)]
    places = {record.seq: place for place, record in enumerate(kept, start=1)}
    return tuple(
        (each.at, each.actor, places.get(each.cause, 0), each.index, _n(each), each.event)
        for each in kept
    )


def _n(record: Record) -> int:
    """Outside reports are numbered by sequence, which shifts."""
    return record.n if record.cause else 0


def kill(
    simulation: Simulation, victim: str, snapshots: dict[str, tuple[bytes, Record]] | None = None
) -> None:
    """Kill and restart a service, or all."""
    driver = simulation.driver
    for name in driver.actors if victim == ALL else (victim,):
        begun = Actor(name, cores()[name]())
        if snapshots is not None and name in snapshots:
            Snapshots(Path(), "", begun).restore(*snapshots[name])
        driver.restart(name, begun)


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_the_log_has_what_restarts_are_to_meet(mode: str) -> None:
    """Over 1,000 records, with gangs, revoked leases, lost workers and retries among them."""
    log = undisturbed(mode)
    kinds = {type(line[-1]).__name__ for line in log}
    assert len(log) > 1000
    assert kinds >= {"LeasesChanged", "WorkerLost", "JobRequeued", "JobCancelled", "WorkerDrained"}
    assert any(job.scale_factor > 1 for job in scenario(mode).jobs)


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("mode", ["default", "paper"])
def test_killed_after_every_record_of_one_run(mode: str, victim: str) -> None:
    """A service that never lives longer than one record leaves the log of one that never died."""
    simulation = scenario(mode).simulation()
    names = list(cores()) if victim == ALL else [victim]
    shadows = {name: Actor(name, cores()[name]()) for name in names}
    snapshots: dict[str, tuple[bytes, Record]] = {}
    kills = 0
    while run_on(simulation, 1):
        if kills % SNAPSHOT_EVERY == 0:
            for name, shadow in shadows.items():
                unread = tuple(simulation.driver.log.read(after=shadow.last_seq))
                for record in unread:
                    shadow.fold(record)
                snapshots[name] = Snapshots(Path(), "", shadow).take(unread[-1]), unread[-1]
        kill(simulation, victim, snapshots)
        kills += 1
    assert kills > 1000
    assert lines(records_of(simulation.driver)) == undisturbed(mode)


def killed_once(mode: str, victim: str, first: int, stride: int) -> None:
    """Compare runs killed once, after records ``first``, ``first + stride`` ..."""
    for position in range(first, len(undisturbed(mode)), stride):
        simulation = scenario(mode).simulation()
        run_on(simulation, position - simulation.driver.log.last_seq)
        kill(simulation, victim)
        simulation.run()
        records = records_of(simulation.driver)
        assert lines(records) == undisturbed(mode), f"killed after record {position}"


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("mode", ["default", "paper"])
def test_killed_once(mode: str, victim: str) -> None:
    """Killed once, a service goes on from nothing but the log to the same log."""
    killed_once(mode, victim, 1 + VICTIMS.index(victim) * STRIDE // len(VICTIMS), STRIDE)


@pytest.mark.skipif(
    "GAVEL_LONG_TESTS" not in os.environ,
    reason="over 10,000 simulations take half an hour; set GAVEL_LONG_TESTS to run them",
)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("mode", ["default", "paper"])
def test_killed_once_after_any_record(mode: str, victim: str) -> None:
    """So it does whichever the record it was killed after."""
    killed_once(mode, victim, 1, 1)


def test_restarted_runs_verify() -> None:
    """A log of many starts is one that its cores would write."""
    simulation = scenario("default").simulation()
    while run_on(simulation, 10):
        kill(simulation, ALL)
    assert verify(records_of(simulation.driver), complete=True).divergence is None

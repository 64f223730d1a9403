"""Writes the golden logs anew: ``python -m tests.golden.write`` from the root of the repository.

To be done when a release changes what cores decide (and raises ``BEHAVIOUR``), or a scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from replay.simulate import WORKER, Simulation
from schemas.events import (
    CancelRequested,
    LeasesChanged,
    RoundScheduled,
    TasksStarted,
    TaskStopped,
    TimerFired,
    WorkerReturned,
    WorkerUnreachable,
)
from schemas.record import Record
from tests.simulation.forge import redigest, write_file
from tests.simulation.scenario import records_of, two_jobs

FOLDER = Path(__file__).parent

GONE = WorkerUnreachable(worker_id="v100-0", since_s=5.0)
BACK = WorkerReturned(worker_id="v100-0", reporter=WORKER)


def _run_until(simulation: Simulation, found: Callable[[Record], bool]) -> None:
    driver = simulation.driver
    driver.run(until=lambda: found(records_of(driver)[-1]))


def restart_in_round() -> Simulation:
    """The worker service is killed in mid-round, after some of the round's reports."""
    simulation = two_jobs("default").simulation()
    _run_until(simulation, lambda record: isinstance(record.event, TasksStarted))
    simulation.driver.restart(WORKER)
    return simulation


def stopped_twice() -> Simulation:
    """The worker service is killed between an order to stop and the report that it has."""
    simulation = two_jobs("default").simulation()
    simulation.driver.submit(30.0, "client.cancel", CancelRequested(job_id="j1"))
    _run_until(simulation, lambda record: isinstance(record.event, LeasesChanged))
    simulation.driver.restart(WORKER)
    return simulation


def return_overtakes_loss() -> Simulation:
    """A worker's return is logged between the decision to give it up and the record of it."""
    simulation = two_jobs("default", worker_lost_after_s=1.0, fill="none").simulation()
    simulation.driver.submit(5.0, "mechanism", GONE)
    _run_until(
        simulation,
        lambda record: (
            isinstance(record.event, TimerFired) and record.event.timer.startswith("lost/")
        ),
    )
    simulation.driver.submit(simulation.driver.now, WORKER, BACK)
    return simulation


def outage_after_return() -> Simulation:
    """News of an outage is logged after the worker's return from it."""
    simulation = two_jobs("default").simulation()
    simulation.driver.submit(6.0, WORKER, BACK)
    simulation.driver.submit(7.0, "mechanism", GONE)
    return simulation


def complete_under_a_revoked_lease() -> Simulation:
    """A completion is reported just after its lease was revoked for a lost worker."""
    scenario = two_jobs("paper", worker_lost_after_s=0.0)
    undisturbed = scenario.simulation()
    _run_until(undisturbed, lambda record: isinstance(record.event, TaskStopped))
    completed_s = undisturbed.driver.now
    simulation = scenario.simulation()
    gone = msgspec.structs.replace(GONE, since_s=completed_s - 1.0)
    simulation.driver.submit(completed_s - 1.0, "mechanism", gone)
    simulation.driver.submit(completed_s + 5.0, WORKER, BACK)
    return simulation


def new_books() -> Simulation:
    """The round's duration changes while new jobs wait for a solve that is far off."""
    scenario = two_jobs("paper", resolve_min_gap_s=1e6)
    simulation = scenario.simulation()
    changed = msgspec.structs.replace(scenario.config, round_duration_s=15.0)
    simulation.driver.submit(20.0, "operator", changed)
    return simulation


#: {file name: the run it holds}
SOUND: dict[str, Callable[[], Simulation]] = {
    "restart-in-round": restart_in_round,
    "stopped-twice": stopped_twice,
    "return-overtakes-loss": return_overtakes_loss,
    "outage-after-return": outage_after_return,
    "complete-under-a-revoked-lease": complete_under_a_revoked_lease,
    "new-books": new_books,
}


def must_fail() -> Iterable[Record]:
    """A log whose second plan ends a lease that the mechanism renewed; chains put right."""
    simulation = two_jobs("default").simulation()
    simulation.run()
    records = list(records_of(simulation.driver))
    plans = [i for i, record in enumerate(records) if isinstance(record.event, RoundScheduled)]
    record = records[plans[1]]
    event = record.event
    assert isinstance(event, RoundScheduled)
    forged = msgspec.structs.replace(event, renewed=(), renewed_priorities=(), ended=event.renewed)
    records[plans[1]] = msgspec.structs.replace(record, event=forged)
    return redigest(records)


def main() -> None:
    """Write all of them."""
    for name, begin in SOUND.items():
        simulation = begin()
        simulation.run()
        write_file(FOLDER / f"{name}.jsonl", records_of(simulation.driver))
    write_file(FOLDER / "must-fail.jsonl", must_fail())


if __name__ == "__main__":
    main()

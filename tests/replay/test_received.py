"""The time received since the newest allocation is what the paper's mechanism ranks by."""

from __future__ import annotations

import numpy as np

from replay.moment import Cores
from schemas.events import AllocationComputed, ProgressReported, TaskStopped
from services.mechanism.core import MechanismCore
from services.mechanism.planning import Planner
from services.mechanism.priorities import ResetPriorities
from services.runtime.snapshot import state_of
from tests.simulation.scenario import contended, records_of


def planner_of(cores: Cores) -> Planner:
    """The mechanism's planner, as it stands."""
    core = cores.actors["mechanism"].core
    assert isinstance(core, MechanismCore)
    planner = state_of(core)["_planner"]
    assert isinstance(planner, Planner)
    return planner


def test_it_is_what_the_paper_ranks_by() -> None:
    """Job by job and pair by pair, at the end of every round, as the mechanism's own books say.

    Its books leave out what is reported of a task that stopped by itself, or of a revoked lease.
    """
    simulation = contended(5, num_jobs=30, mode="paper", policy="las:ss").simulation()
    simulation.run()
    cores = Cores(lambda: iter(records_of(simulation.driver)))
    compared = pairs = 0
    stopped: set[str] = set()
    for record in records_of(simulation.driver):
        cores.take(record)
        planner = planner_of(cores)
        if isinstance(record.event, TaskStopped):
            stopped.add(record.event.task.job_id)
        priorities, claims = planner._priorities, planner._claims
        if not isinstance(record.event, ProgressReported) or claims is None:
            continue
        assert isinstance(priorities, ResetPriorities)
        if planner._solved_at is not None:
            continue  # The books move to the newest allocation with the next plan.
        own_s = priorities._received_s - priorities._head_start_s
        for combination, of_types in cores.received.seconds.items():
            if stopped & set(combination):
                continue
            for way, seconds in of_types.items():
                row, column = claims.row[combination], claims.worker_types.index(way)
                assert np.isclose(own_s[row, column], seconds, atol=1e-6)
                compared += 1
                pairs += len(combination) == 2
    assert compared > 50
    assert pairs > 0


def test_an_allocation_starts_it_anew() -> None:
    """Before the first report nothing is received; fractions of a type sum to one."""
    simulation = contended(5, num_jobs=30).simulation()
    simulation.run()
    cores = Cores(lambda: iter(records_of(simulation.driver)))
    seen = 0
    for record in records_of(simulation.driver):
        cores.take(record)
        received = cores.received
        if isinstance(record.event, AllocationComputed):
            assert received.since_s == record.at
            assert received.seconds == {}
        of_types: dict[str, float] = {}
        for fractions in received.fractions().values():
            for way, fraction in fractions.items():
                of_types[way] = of_types.get(way, 0.0) + fraction
        assert np.allclose(list(of_types.values()), 1.0)
        seen += len(of_types)
    assert seen > 0

"""Where the time went of every job of our own runs of the published cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.explain.history import Histories
from replay.explain.waterfall import waterfall
from replay.modes import MODES
from replay.traces.tables import read_table
from replay.world import World
from schemas.events import JobCompleted
from tests.paper.test_artifact_runs import CASES, Artifact


@pytest.fixture(scope="module")
def artifact(reference_data: Path) -> Artifact:
    """The published inputs."""
    table = read_table(reference_data / "throughputs" / "simulation_throughputs.json")
    return Artifact(reference_data, table)


#: All of them as published; some as a real cluster runs them, with checkpoints.
RUNS = [(case, "paper") for case in CASES]
RUNS += [(case, "default") for case in CASES if not case.startswith("c_")]


@pytest.mark.parametrize(("case", "mode"), RUNS)
def test_the_parts_of_every_job_sum_to_its_completion_time(
    artifact: Artifact, case: str, mode: str
) -> None:
    """Within a second; waiting is measured between leases, and is never what is left over."""
    histories, world = Histories(), World()
    recorded = artifact.result(case, "max_min_fairness_perf")["window"]
    window = (recorded["start"], recorded["end"]) if recorded else None
    simulation = artifact.simulation(
        case,
        MODES[mode]("las", 360.0),
        window=window,
        observers=(histories.take, world.take),
        **({"load_s": 5.0, "save_s": 5.0} if mode == "default" else {}),
    )
    summary = simulation.run()
    expected = world.speeds.expected()
    done = [h for h in histories.jobs.values() if isinstance(h.ending, JobCompleted)]
    assert len(done) >= summary.figures().jobs
    for history in done:
        parts = waterfall(history, expected, world.registered)
        assert history.ended_s is not None
        jct_s = history.ended_s - history.submitted_s
        assert abs(sum(parts.values()) - jct_s) < 1.0, history.spec.job_id
        assert all(parts[name] >= 0 for name in parts if name.startswith("queue"))

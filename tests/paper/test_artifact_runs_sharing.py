"""Held against the published artifact's simulator where two jobs may share workers."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from replay.modes import paper_mode
from replay.simulate import Simulation, build_workers
from replay.summary import Figures
from services.runtime.log import MemoryLog
from tests.paper.test_artifact_objectives import _Runs as Runs
from tests.paper.test_artifact_runs import CASES, Artifact, artifact

__all__ = ["artifact"]

#: Our policy, and the artifact's names for it.
POLICIES = {
    "ftf:ss": ("finish_time_fairness_packed",),
    "las:ss": ("max_min_fairness_packed", "max_min_fairness_water_filling_packed"),
    "makespan:ss": ("min_total_duration_packed",),
}
SHORT, DEBUG, MIXED = "a_artifact_evaluation_222", "a_debug_222", "a_max_min_fairness_8.16.24"
#: Runs that the artifact has not, and those whose makespan hangs on one thing, tested below.
MISSING = {(MIXED, "max_min_fairness_water_filling_packed")}
DECIDED_BY_LITTLE = {
    ("las:ss", SHORT): "the order of jobs that arrive together",
    ("makespan:ss", MIXED): "one job's wait for a solve",
    ("ftf:ss", DEBUG): "when solves fall",
}
#: How far above the artifact's figures is close enough.
LIMIT = 1.02


def run(artifact: Artifact, case: str, policy: str) -> Figures:
    """Our figures."""
    return artifact.simulation(case, paper_mode(policy, 360.0)).run().figures()


@pytest.mark.parametrize(
    ("case", "policy", "name"),
    [
        (case, policy, name)
        for case in CASES
        for policy, names in POLICIES.items()
        for name in names
        if case.startswith("a_") and (case, name) not in MISSING
    ],
)
def test_no_run_is_worse_than_the_artifacts(
    artifact: Artifact, case: str, policy: str, name: str
) -> None:
    """Average JCT is at most 2 % above, and makespan where it does not hang on one thing."""
    recorded = artifact.result(case, name)
    figures = run(artifact, case, policy)
    assert figures.average_jct_s is not None
    assert figures.average_jct_s <= LIMIT * recorded["avg_jct_s"]
    assert figures.makespan_s is not None
    if (policy, case) not in DECIDED_BY_LITTLE:
        assert figures.makespan_s <= LIMIT * recorded["makespan_s"]


def test_on_the_short_trace_order_decides(artifact: Artifact) -> None:
    """Which of the 15 jobs counts as the first spans the artifact's makespans, both of them.

    All arrive at time 0. As in the artifact, the first solve's time counts as "none yet", so that
    a second one follows at once when the first job is done. What is left of a job whose partner
    is done only fills, and is put on the first type visited, which may be its slowest.
    """
    config = paper_mode("las:ss", 360.0)
    hasty = msgspec.structs.replace(config, resolve_min_gap_s=0.0)
    recorded = [artifact.result(SHORT, name) for name in POLICIES["las:ss"]]
    makespans, jcts = [], []
    for seed in range(40):
        jobs = artifact.jobs(SHORT)
        assert {job.arrival_s for job in jobs} == {0.0}
        Random(seed).shuffle(jobs)
        workers = build_workers({"v100": 2, "p100": 2, "k80": 2}, {}, {})
        simulation = Simulation(MemoryLog(), hasty, workers, artifact.table, jobs)
        first_done = min(float(job["completion"]) for job in recorded[0]["jobs"])
        second_solve_s = 360.0 * (1 + first_done // 360.0)
        simulation.driver.submit(second_solve_s + 1, "operator", config)
        figures = simulation.run().figures()
        makespans.append(figures.makespan_s or 0.0)
        jcts.append(figures.average_jct_s or 0.0)

    for result in recorded:
        assert min(makespans) < result["makespan_s"] < max(makespans)
        assert min(jcts) < result["avg_jct_s"] < max(jcts)


def test_sharing_shortens_every_run_of_single_worker_jobs(artifact: Artifact) -> None:
    """On average, jobs are done earlier than without sharing."""
    for case in (DEBUG, MIXED):
        shared, alone = run(artifact, case, "las:ss"), run(artifact, case, "las")
        assert shared.average_jct_s is not None
        assert alone.average_jct_s is not None
        assert shared.average_jct_s < alone.average_jct_s


def test_the_makespan_of_the_mixed_cluster_is_one_jobs_wait_for_a_solve(artifact: Artifact) -> None:
    """It arrives last and ends last in both runs, and there becomes known a round after arrival.

    Our last solve but one fell earlier, and the next was not due. Less that wait, the limit holds.
    """
    recorded = artifact.result(MIXED, "min_total_duration_packed")
    last = max(recorded["jobs"], key=lambda job: job["completion"])
    runs = Runs()
    simulation = artifact.simulation(
        MIXED, paper_mode("makespan:ss", 360.0), observers=(runs.take,)
    )
    figures = simulation.run().figures()

    job_id = str(last["id"])
    assert max(runs.completions, key=runs.completions.__getitem__) == job_id
    waited_s = runs.starts[job_id] - last["first_scheduled"]
    assert figures.makespan_s is not None
    assert figures.makespan_s > LIMIT * recorded["makespan_s"]
    assert figures.makespan_s - waited_s <= LIMIT * recorded["makespan_s"]


def test_with_a_solve_at_each_event_the_debug_trace_ends_earlier(artifact: Artifact) -> None:
    """Finish-time fairness: 2.4 % later with the artifact's gap between solves, earlier without."""
    recorded = artifact.result(DEBUG, "finish_time_fairness_packed")
    at_once = msgspec.structs.replace(paper_mode("ftf:ss", 360.0), resolve_min_gap_s=0.0)
    figures = artifact.simulation(DEBUG, at_once).run().figures()
    assert figures.makespan_s is not None
    assert figures.makespan_s <= recorded["makespan_s"]

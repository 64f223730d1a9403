"""Runs of the artifact in which chance or its solver's noise decides, taken apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from replay.modes import paper_mode
from replay.summary import Figures
from replay.traces.tables import read_table
from schemas.domain import AllocationRow
from schemas.events import AllocationComputed, ClusterConfigured, JobCompleted, RoundScheduled
from schemas.record import Record
from services.policy.core import Solve
from services.policy.solve import carry_out
from tests.paper.test_artifact_runs import Artifact

EVALUATION, DEBUG = "a_artifact_evaluation_222", "a_debug_222"
MIXED = "a_max_min_fairness_8.16.24"


@pytest.fixture(scope="module")
def artifact(reference_data: Path) -> Artifact:
    """The artifact's data, with the throughputs its simulator runs on."""
    table = read_table(reference_data / "throughputs" / "simulation_throughputs.json")
    return Artifact(reference_data, table)


class _Runs:
    """When each job first ran and when it was complete, and when each round began."""

    def __init__(self) -> None:
        self.starts: dict[str, float] = {}
        self.completions: dict[str, float] = {}
        self.rounds: list[float] = []

    def take(self, record: Record) -> None:
        event = record.event
        if isinstance(event, RoundScheduled):
            self.rounds.append(event.starts_at_s)
            for lease in event.granted:
                self.starts.setdefault(lease.tasks[0].job_id, event.starts_at_s)
        elif isinstance(event, JobCompleted):
            self.completions[event.job_id] = record.at


def test_the_makespan_of_the_mixed_cluster_is_one_jobs_wait_for_a_solve(
    artifact: Artifact,
) -> None:
    """There we are 2.3 % above: our last solve but one fell early, and the last job waited for it.

    It arrives last and ends last, in both runs; once known to the policy it runs on its fastest
    type without a break, in both. Least gap between solves left out, ours ends no later.
    """
    recorded = artifact.result(MIXED, "min_total_duration_perf")
    last = max(recorded["jobs"], key=lambda job: job["completion"])
    runs, config = _Runs(), paper_mode("makespan", 360.0)
    artifact.simulation(MIXED, config, observers=(runs.take,)).run()

    assert max(runs.completions, key=runs.completions.__getitem__) == str(last["id"])
    ran_s = runs.completions[str(last["id"])] - runs.starts[str(last["id"])]
    assert ran_s == pytest.approx(last["completion"] - last["first_scheduled"], abs=1.0)

    at_once = msgspec.structs.replace(config, resolve_min_gap_s=0.0)
    figures = artifact.simulation(MIXED, at_once).run().figures()
    assert figures.makespan_s is not None
    assert figures.makespan_s <= recorded["makespan_s"]


def _average_jct(figures: Figures) -> float:
    assert figures.average_jct_s is not None
    return figures.average_jct_s


def _makespan(figures: Figures) -> float:
    assert figures.makespan_s is not None
    return figures.makespan_s


@pytest.mark.parametrize(
    ("policy", "name", "case", "figure", "recorded_as"),
    [
        ("ftf:agnostic", "finish_time_fairness", EVALUATION, _average_jct, "avg_jct_s"),
        ("ftf:agnostic", "finish_time_fairness", EVALUATION, _makespan, "makespan_s"),
        ("ftf:agnostic", "finish_time_fairness", MIXED, _makespan, "makespan_s"),
        ("makespan:agnostic", "min_total_duration", EVALUATION, _makespan, "makespan_s"),
        ("makespan:agnostic", "min_total_duration", MIXED, _makespan, "makespan_s"),
    ],
)
def test_a_few_jobs_under_a_shuffle_are_luck(
    artifact: Artifact,
    policy: str,
    name: str,
    case: str,
    figure: Callable[[Figures], float],
    recorded_as: str,
) -> None:
    """Which type a blind policy visits first each round is drawn, and decides these figures.

    Fifteen jobs on six workers; or the last job of the mixed cluster, ten times faster on a v100
    than on a k80, on the workers that it is dealt. Over 16 seeds ours spread by more than 5 %, and
    the artifact's one draw is within the limit of them.
    """
    recorded = artifact.result(case, name)[recorded_as]
    drawn = [
        figure(artifact.simulation(case, paper_mode(policy, 360.0, seed)).run().figures())
        for seed in range(16)
    ]
    assert max(drawn) > 1.05 * min(drawn)
    assert min(drawn) <= 1.03 * recorded


@pytest.mark.parametrize(
    ("policy", "name", "case"),
    [
        ("ftf:agnostic", "finish_time_fairness", MIXED),
        ("makespan:agnostic", "min_total_duration", EVALUATION),
        ("makespan:agnostic", "min_total_duration", MIXED),
    ],
)
def test_blind_average_jct_is_no_worse_than_the_artifacts(
    artifact: Artifact, policy: str, name: str, case: str
) -> None:
    """Where only the makespan is luck, average JCT holds the limit."""
    figures = artifact.simulation(case, paper_mode(policy, 360.0)).run().figures()
    assert _average_jct(figures) <= 1.03 * artifact.result(case, name)["avg_jct_s"]


def test_most_throughput_leaves_most_jobs_to_the_order_of_fillers(artifact: Artifact) -> None:
    """On the debug trace our order of jobs without a share does no worse than the artifact's."""
    recorded = artifact.result(DEBUG, "max_sum_throughput_perf")
    figures = artifact.simulation(DEBUG, _most_steps()).run().figures()
    assert _average_jct(figures) <= 1.02 * recorded["avg_jct_s"]
    assert _makespan(figures) <= 1.02 * recorded["makespan_s"]


def test_residues_of_an_interior_point_are_a_second_scheduler(artifact: Artifact) -> None:
    """Raw steps/s on the mixed cluster: most jobs have X = 0, and the artifact runs them by noise.

    Its solver stops short of zero by a residue, the larger the less a job would cost the optimum,
    and orders what fills idle workers by that. Ours fill in order of arrival, and average JCT is
    2.8 % worse. Given such residues, ours holds the limit.
    """
    recorded = artifact.result(MIXED, "max_sum_throughput_perf")
    figures = artifact.simulation(MIXED, _most_steps(), solver=_with_residues).run().figures()
    assert _average_jct(figures) <= 1.02 * recorded["avg_jct_s"]
    assert _makespan(figures) <= 1.02 * recorded["makespan_s"]


def test_residues_and_a_solve_too_many_are_the_artifacts_evaluation_run(
    artifact: Artifact,
) -> None:
    """There it also takes a solve at time 0 for none, and so solves again after it at once."""
    recorded = artifact.result(EVALUATION, "max_sum_throughput_perf")
    config = _most_steps()
    hasty = msgspec.structs.replace(config, resolve_min_gap_s=0.0)
    runs = _Runs()
    artifact.simulation(EVALUATION, hasty, observers=(runs.take,), solver=_with_residues).run()
    first_completion_s = min(float(job["completion"]) for job in recorded["jobs"])
    second_solve_s = next(start for start in runs.rounds if start > first_completion_s)

    simulation = artifact.simulation(EVALUATION, hasty, solver=_with_residues)
    simulation.driver.submit(second_solve_s + 1, "operator", config)
    figures = simulation.run().figures()

    assert figures.solves == recorded["n_solves"]
    assert _average_jct(figures) <= 1.02 * recorded["avg_jct_s"]
    assert _makespan(figures) <= 1.02 * recorded["makespan_s"]


def test_in_terms_of_the_equal_allocation_throughput_is_better_spent(artifact: Artifact) -> None:
    """Normalised, as the paper has it, average JCT is better by over 10 % on both long traces."""
    for case in (DEBUG, MIXED):
        normalised = artifact.simulation(case, paper_mode("max-throughput", 360.0)).run()
        raw = artifact.simulation(case, _most_steps()).run()
        assert _average_jct(normalised.figures()) <= 0.9 * _average_jct(raw.figures())


def _most_steps() -> ClusterConfigured:
    return msgspec.structs.replace(
        paper_mode("max-throughput", 360.0), policy_parameters={"normalise": "none"}
    )


def _with_residues(effect: Solve) -> AllocationComputed:
    """Our answer, and beside every share of zero what a barrier would leave of it."""
    event = carry_out(effect)
    assert isinstance(event, AllocationComputed)
    classes = {job_id: c for c in effect.problem.classes for job_id in c.job_ids}
    types = effect.problem.worker_types
    rows = []
    for row in event.rows:
        for (job_id,) in row.combinations:
            job = classes[job_id]
            # What a whole share on the type gains or costs the optimum, at the workers' prices.
            surplus = {
                name: steps_per_s - job.scale_factor * event.prices[name]
                for name, steps_per_s in zip(types, job.throughputs, strict=True)
            }
            best = max(0.0, *surplus.values())
            residues = {name: 1e-9 / max(best - s, 1e-6) for name, s in surplus.items()}
            shares = {name: row.shares.get(name) or residues[name] for name in types}
            rows.append(AllocationRow(((job_id,),), shares))
    return msgspec.structs.replace(event, rows=tuple(rows))

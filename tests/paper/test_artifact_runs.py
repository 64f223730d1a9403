"""Held against the published artifact's simulator: its runs, in paper mode, on its own inputs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replay.modes import paper_mode, shuffled_orders
from replay.simulate import Simulation, Solver, build_workers
from replay.summary import Figures
from replay.traces.reader import read_trace
from replay.traces.tables import read_table
from schemas.domain import AllocationRow, JobSpec
from schemas.events import (
    AllocationComputed,
    ClusterConfigured,
    JobCompleted,
    RoundScheduled,
)
from schemas.record import Record
from services.estimator.tables import ThroughputTable
from services.policy.core import Solve
from services.policy.problem import Allocation
from services.policy.solve import as_event
from services.runtime.log import MemoryLog

_MULTI_GPU = "d_mg_16_s0_l5000"
#: {case: (trace, v100s, p100s, k80s)}
CASES = {
    "a_artifact_evaluation_222": ("physical_cluster__artifact_evaluation.trace", 2, 2, 2),
    "a_debug_222": ("physical_cluster__debug.trace", 2, 2, 2),
    "a_max_min_fairness_8.16.24": ("physical_cluster__max_min_fairness.trace", 8, 16, 24),
    "c_sg_16_s0_l1100": ("gen_sg_seed0_lam1100.json", 16, 16, 16),
    "c_sg_16_s0_l1500": ("gen_sg_seed0_lam1500.json", 16, 16, 16),
    "c_sg_16_s0_l2250": ("gen_sg_seed0_lam2250.json", 16, 16, 16),
    "c_sg_16_s0_l4500": ("gen_sg_seed0_lam4500.json", 16, 16, 16),
    _MULTI_GPU: ("gen_mg_seed0_lam5000.json", 16, 16, 16),
}
#: (our policy, the artifact's name for it, how far above its figures is close enough: the
#: artifact's own spread under another solver or another seed of its shuffle)
POLICIES = (
    ("las", "max_min_fairness_perf", 1.02),
    ("las", "max_min_fairness_water_filling_perf", 1.02),
    ("las:agnostic", "max_min_fairness", 1.03),
    ("isolated", "isolated", 1.03),
)
#: Fifteen jobs, seventeen rounds: see ``test_equal_shares_leave_the_schedule_to_noise``.
_NOISY = ("a_artifact_evaluation_222", "max_min_fairness")
RUNS = [
    (case, policy, name, limit)
    for case, (policy, name, limit) in itertools.product(CASES, POLICIES)
    if case.startswith("a_") or name in {"max_min_fairness_perf", "max_min_fairness"}
    if (case, name) != _NOISY
]
#: Deadlines; ``test_artifact_objectives.py`` has the runs that chance decides, and why.
RUNS += [
    *(
        (case, policy, name, 1.02)
        for case, (policy, name) in itertools.product(
            CASES,
            (("ftf", "finish_time_fairness_perf"), ("makespan", "min_total_duration_perf")),
        )
        if (case.startswith("a_") and (policy, case) != ("makespan", "a_max_min_fairness_8.16.24"))
        or (policy, case) == ("ftf", _MULTI_GPU)
    ),
    ("a_debug_222", "ftf:agnostic", "finish_time_fairness", 1.03),
    (_MULTI_GPU, "ftf:agnostic", "finish_time_fairness", 1.03),
    ("a_debug_222", "makespan:agnostic", "min_total_duration", 1.03),
]
#: Baselines, where chance does not decide, and water filling by the tree of entities.
RUNS += [
    *((f"c_sg_16_s0_l{gap}", "allox", "allox", 1.02) for gap in (1500, 2250, 4500)),
    *((f"c_sg_16_s0_l{gap}", "gandiva", "gandiva", 1.02) for gap in (2250, 4500)),
    ("a_artifact_evaluation_222", "gandiva", "gandiva", 1.02),
    (_MULTI_GPU, "gandiva", "gandiva", 1.02),
    *(
        (case, "hierarchical", "max_min_fairness_water_filling_perf", 1.02)
        for case in CASES
        if case.startswith("a_")
    ),
]


@dataclass(frozen=True)
class Artifact:
    """The reference data: inputs and what the artifact made of them."""

    folder: Path
    table: ThroughputTable

    def jobs(self, case: str) -> list[JobSpec]:
        """The jobs of a case."""
        name = CASES[case][0]
        if name.endswith(".trace"):
            return list(read_trace(self.folder / "traces" / "gavel" / name, self.table).jobs)
        listed = json.loads((self.folder / "golden" / "traces" / name).read_text())["jobs"]
        return [
            JobSpec(
                job_id=str(job["id"]),
                job_type=job["job_type"],
                scale_factor=job["scale_factor"],
                total_steps=float(job["total_steps"]),
                priority_weight=job["priority_weight"],
                arrival_s=job["arrival"],
            )
            for job in listed
        ]

    def result(self, case: str, policy: str) -> dict[str, Any]:
        """What the artifact made of a case."""
        path = self.folder / "golden" / "runs" / f"{case}_{policy}.json"
        result: dict[str, Any] = json.loads(path.read_text())
        return result

    def simulation(
        self,
        case: str,
        config: ClusterConfigured,
        *,
        window: tuple[int, int] | None = None,
        **more: Any,
    ) -> Simulation:
        """Our run of a case."""
        _, v100, p100, k80 = CASES[case]
        workers = build_workers({"v100": v100, "p100": p100, "k80": k80}, {}, {})
        return Simulation(
            MemoryLog(), config, workers, self.table, self.jobs(case), window=window, **more
        )


@pytest.fixture(scope="module")
def artifact(reference_data: Path) -> Artifact:
    """The artifact's data, with the throughputs its simulator runs on."""
    table = read_table(reference_data / "throughputs" / "simulation_throughputs.json")
    return Artifact(reference_data, table)


def _average_jct(figures: Figures) -> float:
    assert figures.average_jct_s is not None
    return figures.average_jct_s


def _makespan(figures: Figures) -> float:
    assert figures.makespan_s is not None
    return figures.makespan_s


@pytest.mark.parametrize(("case", "policy", "name", "limit"), RUNS)
def test_no_run_is_worse_than_the_artifacts(
    artifact: Artifact, case: str, policy: str, name: str, limit: float
) -> None:
    """Average JCT and makespan are at most 2 % (aware) or 3 % (agnostic) above the artifact's."""
    recorded = artifact.result(case, name)
    window = recorded["window"]
    span = (window["start"], window["end"]) if window else None
    simulation = artifact.simulation(case, paper_mode(policy, 360.0), window=span)

    figures = simulation.run().figures()

    jct = window["avg_jct"] if window else recorded["avg_jct_s"]
    assert _average_jct(figures) <= limit * jct
    assert _makespan(figures) <= limit * recorded["makespan_s"]


def _replaying(recorded: dict[str, Any]) -> Solver:
    """Answers each solve with the allocation that the artifact's policy gave."""
    allocations = iter(recorded["alloc_log"])

    def solve(effect: Solve) -> AllocationComputed:
        _, by_job = next(allocations)
        # A pair is written "(1, 2)".
        rows = tuple(
            AllocationRow(
                (tuple(key.strip("()").split(", ")),), {t: x for t, x in shares.items() if x > 0}
            )
            for key, shares in by_job.items()
        )
        return as_event("recorded", effect.problem, Allocation(rows=rows))

    return solve


class _Schedule:
    """What ran where, round by round, and when each job was complete."""

    def __init__(self) -> None:
        self.rounds: list[tuple[float, dict[str, str]]] = []
        self.completions: dict[str, float] = {}
        self._leases: dict[str, tuple[str, str]] = {}

    def take(self, record: Record) -> None:
        event = record.event
        if isinstance(event, RoundScheduled):
            for lease in event.granted:
                self._leases[lease.lease_id] = (lease.tasks[0].job_id, lease.worker_type)
            out = [*event.renewed, *(lease.lease_id for lease in event.granted)]
            self.rounds.append((event.starts_at_s, dict(self._leases[i] for i in out)))
        elif isinstance(event, JobCompleted):
            self.completions[event.job_id] = record.at


def _recorded_rounds(recorded: dict[str, Any]) -> list[tuple[float, dict[str, str]]]:
    return [
        (start, {job_id: where[0] for job_id, where in running.items()})
        for start, running in recorded["round_log"]
        if running
    ]


def _replay_debug_run(artifact: Artifact, name: str) -> tuple[_Schedule, dict[str, Any]]:
    recorded = artifact.result("a_debug_222", name)
    # The artifact shuffles worker types for every policy that is not its "perf" kind.
    like = "las" if name.endswith("perf") else "las:agnostic"
    config = paper_mode(like, 360.0)
    if name.startswith("fifo"):
        config = msgspec.structs.replace(config, fill="none")
    schedule = _Schedule()
    artifact.simulation(
        "a_debug_222", config, solver=_replaying(recorded), observers=(schedule.take,)
    ).run()
    return schedule, recorded


@pytest.mark.parametrize(
    "name",
    [
        "fifo_perf",
        "finish_time_fairness",
        "finish_time_fairness_perf",
        "isolated",
        "max_min_fairness",
        "max_min_fairness_perf",
        "max_min_fairness_water_filling",
        "max_min_fairness_water_filling_perf",
        "min_total_duration",
        "min_total_duration_perf",
    ],
)
def test_with_the_artifacts_allocations_every_round_is_the_artifacts(
    artifact: Artifact, name: str
) -> None:
    """Given its allocations, our mechanism makes its every decision: rounds and completions."""
    schedule, recorded = _replay_debug_run(artifact, name)

    assert schedule.rounds == _recorded_rounds(recorded)
    assert {job: round(at, 3) for job, at in schedule.completions.items()} == {
        str(job["id"]): job["completion"] for job in recorded["jobs"]
    }


def test_a_fifo_that_never_fills_is_the_artifacts_too(artifact: Artifact) -> None:
    """The artifact's base FIFO as well, whose types are visited in a fixed order."""
    recorded = artifact.result("a_debug_222", "fifo")
    schedule = _Schedule()
    config = msgspec.structs.replace(
        paper_mode("fifo", 360.0), type_orders=shuffled_orders(0), fill="none"
    )
    artifact.simulation(
        "a_debug_222", config, solver=_replaying(recorded), observers=(schedule.take,)
    ).run()

    assert schedule.rounds == _recorded_rounds(recorded)


def test_the_one_run_that_differs_hangs_on_solver_noise(artifact: Artifact) -> None:
    """max_sum_throughput: where we first differ, the two choose among jobs with X = 0.

    The artifact orders those by its solver's noise around zero, which its log leaves out; ours
    go by arrival. Nothing can tell the noise from the recorded allocation.
    """
    schedule, recorded = _replay_debug_run(artifact, "max_sum_throughput_perf")
    pairs = zip(schedule.rounds, _recorded_rounds(recorded), strict=False)

    (start, ours), (_, theirs) = next(pair for pair in pairs if pair[0] != pair[1])

    solved = [shares for at, shares in recorded["alloc_log"] if at <= start][-1]
    differing = {job for job, _ in ours.items() ^ theirs.items()}
    assert differing
    assert not differing & solved.keys()


def test_the_artifact_takes_time_zero_for_never(artifact: Artifact) -> None:
    """Why we beat it by 22 % on makespan in the evaluation trace: it solves once too often.

    There the last solve's time, while it is 0, counts as "none yet", so that the first completion
    after a solve at time 0 is followed by another at once, least gap or not. Made to do so too, we
    arrive at the artifact's figures to the last digit it gives.
    """
    recorded = artifact.result("a_artifact_evaluation_222", "max_min_fairness_perf")
    config = paper_mode("las", 360.0)
    hasty = msgspec.structs.replace(config, resolve_min_gap_s=0.0)
    figures = artifact.simulation("a_artifact_evaluation_222", config).run().figures()
    assert _makespan(figures) < 0.8 * recorded["makespan_s"]

    simulation = artifact.simulation("a_artifact_evaluation_222", hasty)
    second_solve_s = next(
        start for start, _ in _rounds_of(artifact, hasty) if start > _first_completion(recorded)
    )
    simulation.driver.submit(second_solve_s + 1, "operator", config)
    figures = simulation.run().figures()

    assert _average_jct(figures) == pytest.approx(recorded["avg_jct_s"], rel=1e-12)
    assert _makespan(figures) == pytest.approx(recorded["makespan_s"], rel=1e-12)
    assert figures.solves == recorded["n_solves"]
    assert figures.rounds == recorded["n_rounds"]


def _first_completion(recorded: dict[str, Any]) -> float:
    return min(float(job["completion"]) for job in recorded["jobs"])


def _rounds_of(
    artifact: Artifact, config: ClusterConfigured
) -> Sequence[tuple[float, dict[str, str]]]:
    schedule = _Schedule()
    artifact.simulation("a_artifact_evaluation_222", config, observers=(schedule.take,)).run()
    return schedule.rounds


def test_equal_shares_leave_the_schedule_to_noise(artifact: Artifact) -> None:
    """Agnostic LAS on the evaluation trace: the artifact's solver noise is worth 15 % of makespan.

    Blind to types, max-min fairness and the isolated allocation are one and the same X there, and
    every priority is tied with others. The artifact's two runs differ only by the noise of a
    solver in one of them; we arrive at the makespan of the other to the last digit, by either
    policy. Against the noisy one, average JCT holds the limit, makespan does not.
    """
    case, noisy_name = _NOISY
    noisy, exact = artifact.result(case, noisy_name), artifact.result(case, "isolated")

    fair = artifact.simulation(case, paper_mode("las:agnostic", 360.0)).run().figures()
    isolated = artifact.simulation(case, paper_mode("isolated", 360.0)).run().figures()

    assert fair.makespan_s == isolated.makespan_s
    assert _makespan(fair) == pytest.approx(exact["makespan_s"], rel=1e-12)
    assert _average_jct(fair) <= 1.03 * noisy["avg_jct_s"]


def test_agnostic_gains_on_the_short_trace_are_luck_of_the_shuffle(artifact: Artifact) -> None:
    """On 15 jobs and 17 rounds, the shuffle of worker types alone spans the artifact's figures."""
    case, name = _NOISY
    recorded = artifact.result(case, name)

    def figure(seed: int, of: Callable[[Figures], float]) -> float:
        return of(
            artifact.simulation(case, paper_mode("las:agnostic", 360.0, seed)).run().figures()
        )

    jcts = [figure(seed, _average_jct) for seed in range(40)]
    makespans = [figure(seed, _makespan) for seed in range(40)]

    assert min(jcts) < recorded["avg_jct_s"] < max(jcts)
    assert min(makespans) < recorded["makespan_s"] < max(makespans)


def test_alloxs_makespan_at_high_load_is_the_fate_of_one_starved_job(artifact: Artifact) -> None:
    """Average JCT holds the limit; makespan does not, and is no measure of AlloX there.

    In each of the two runs one job alone, not the same, is done long after all others: without
    it ours ends before the artifact's does.
    """
    case = "c_sg_16_s0_l1100"
    recorded = artifact.result(case, "allox")
    span = (recorded["window"]["start"], recorded["window"]["end"])
    summary = artifact.simulation(case, paper_mode("allox", 360.0), window=span).run()

    assert _average_jct(summary.figures()) <= 1.02 * recorded["window"]["avg_jct"]
    measured = [str(position) for position in range(*span)]
    ours = sorted((summary.jobs[job].completion_s or 0.0, job) for job in measured)
    theirs = sorted(
        (job["completion"], str(job["id"]))
        for job in recorded["jobs"]
        if str(job["id"]) in measured
    )
    assert ours[-1][1] != theirs[-1][1]
    assert ours[-2][0] < theirs[-1][0] < ours[-1][0]


def test_what_gandiva_pairs_is_chance_and_what_it_makes_of_pairs_is_the_artifacts(
    artifact: Artifact,
) -> None:
    """Given the artifact's pairs, its average JCT to 0.1 %; by our own draws 2 to 12 % above it.

    Its draw often fails and leaves jobs alone, which on these traces is luck: on the largest, to
    pair nobody at all gives its average JCT to 1 %, and any pairs drawn cost some of that.
    """
    recorded = artifact.result("a_debug_222", "gandiva")
    config = paper_mode("gandiva", 360.0)
    replayed = artifact.simulation("a_debug_222", config, solver=_replaying(recorded))
    assert _average_jct(replayed.run().figures()) == pytest.approx(recorded["avg_jct_s"], rel=1e-3)

    case = "a_max_min_fairness_8.16.24"
    theirs = artifact.result(case, "gandiva")["avg_jct_s"]
    nobody = msgspec.structs.replace(config, policy="isolated")
    alone = _average_jct(artifact.simulation(case, nobody).run().figures())
    assert alone == pytest.approx(theirs, rel=0.01)
    for seed in range(3):
        drawn = msgspec.structs.replace(config, policy_parameters={"seed": float(seed)})
        paired = _average_jct(artifact.simulation(case, drawn).run().figures())
        assert alone < paired <= 1.12 * theirs

"""What the paper claims of its policies and of those it compares with, seen on our own runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from replay.cli.__main__ import app
from replay.modes import default_mode, paper_mode
from replay.simulate import Simulation, build_workers
from replay.summary import JobLine, Summary
from replay.traces.tables import read_table
from schemas.domain import Entity, JobSpec
from services.policy.catalog import resolve
from services.policy.isolated import Isolated
from services.policy.las import Las
from services.policy.problem import JobClass, Problem
from services.runtime.log import MemoryLog
from tests.bench import drawn
from tests.paper.test_artifact_runs import Artifact

#: The case at which the cluster of 48 is all but full.
_HIGH_LOAD = "c_sg_16_s0_l1100"
_WINDOW = (50, 175)


@pytest.fixture(scope="module")
def artifact(reference_data: Path) -> Artifact:
    """The artifact's traces and throughputs."""
    table = read_table(reference_data / "throughputs" / "simulation_throughputs.json")
    return Artifact(reference_data, table)


def test_three_jobs_gain_a_tenth_over_isolated() -> None:
    """On one worker of each type, max-min fairness gives all three about 10 % more.

    From a K80 to a V100, ResNet-50 gains 10 times and A3C twice (§1): the first row and the last.
    The row between, and the P100s, are ours. All gain alike: nobody pays for it.
    """
    classes = tuple(
        JobClass(job_type=name, scale_factor=1, throughputs=row, job_ids=(name,))
        for name, row in (
            ("ResNet-50", (1.0, 2.0, 10.0)),
            ("Transformer", (1.0, 3.3, 4.0)),
            ("A3C", (1.0, 1.5, 2.0)),
        )
    )
    asked = Problem(worker_types=("k80", "p100", "v100"), num_workers=(1, 1, 1), classes=classes)

    def throughputs(policy: Las | Isolated) -> list[float]:
        shares = {
            combination[0]: [row.shares.get(name, 0.0) for name in asked.worker_types]
            for row in policy.solve(asked).rows
            for combination in row.combinations
        }
        return [float(np.dot(each.throughputs, shares[each.job_type])) for each in classes]

    gains = np.array(throughputs(Las())) / np.array(throughputs(Isolated()))
    assert gains == pytest.approx([1.1, 1.1, 1.1], abs=0.01)
    assert gains == pytest.approx([gains[0]] * 3, rel=1e-6)


def _run(artifact: Artifact, policy: str) -> Summary:
    return artifact.simulation(_HIGH_LOAD, paper_mode(policy, 360.0), window=_WINDOW).run()


def _slowdowns(artifact: Artifact, summary: Summary) -> list[float]:
    """JCT over the time that the job would take at its best, of the measured jobs."""
    specs = {job.job_id: job for job in artifact.jobs(_HIGH_LOAD)}

    def slowdown(line: JobLine) -> float:
        spec = specs[line.job_id]
        speeds = [artifact.table.alone(spec.job_type, 1, t) or 0.0 for t in ("k80", "p100", "v100")]
        assert line.jct_s is not None
        assert spec.total_steps is not None
        return line.jct_s / (spec.total_steps / max(speeds))

    return [slowdown(summary.jobs[str(position)]) for position in range(*_WINDOW)]


def test_at_high_load_allox_starves_long_jobs(artifact: Artifact) -> None:
    """Its unluckiest job is slowed down several times more than anybody is under LAS.

    On average the two are near each other.
    """
    allox, las = _run(artifact, "allox"), _run(artifact, "las")

    assert max(_slowdowns(artifact, allox)) > 3 * max(_slowdowns(artifact, las))
    longest = [max(line.jct_s or 0.0 for line in s.jobs.values()) for s in (allox, las)]
    assert longest[0] > 2 * longest[1]
    averages = [s.figures().average_jct_s or 0.0 for s in (allox, las)]
    assert averages[0] == pytest.approx(averages[1], rel=0.2)


def test_aware_of_types_beats_blind_on_a_mixed_cluster(artifact: Artifact) -> None:
    """Average JCT of LAS at high load is at least a third lower when it knows the types."""
    aware, blind = (_run(artifact, name).figures() for name in ("las", "las:agnostic"))

    assert aware.average_jct_s is not None
    assert blind.average_jct_s is not None
    assert aware.average_jct_s < blind.average_jct_s / 1.5


def test_first_in_first_out_inside_an_entity_keeps_order(artifact: Artifact) -> None:
    """Jobs of the entity start and end as they came; those of the fair one take turns."""
    entities = (Entity(entity_id="line", policy="fifo"), Entity(entity_id="fair"))
    config = msgspec.structs.replace(default_mode("hierarchical", 360.0), entities=entities)
    jobs = [
        JobSpec(
            job_id=f"{entity}-{position}",
            job_type="ResNet-18 (batch size 32)",
            total_steps=100_000.0,
            entity=entity,
            arrival_s=float(position),
        )
        for position in range(4)
        for entity in ("fair", "line")
    ]
    workers = build_workers({"v100": 2}, {}, {})
    summary = Simulation(MemoryLog(), config, workers, artifact.table, jobs).run()

    line = [summary.jobs[f"line-{position}"] for position in range(4)]
    starts = [job.first_start_s or 0.0 for job in line]
    ends = [job.completion_s or 0.0 for job in line]
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    fair = [summary.jobs[f"fair-{position}"].first_start_s or 0.0 for position in range(4)]
    assert max(fair) < ends[0] <= starts[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_near_saturation_policies_come_in_the_papers_order() -> None:
    """`gavel compare` on jobs that keep coming: aware beats blind, sharing beats not sharing.

    Average JCT; the cluster of twelve is busy to four fifths, with no more to be had at the end.
    """
    policies = ["las", "las:ss", "las:agnostic", "ftf", "ftf:agnostic"]
    arguments = ["compare", "--policies", ",".join(policies), "--mode", "paper", "--json"]
    jobs = ["--generate", "--jobs", "120", "--mean-gap", "2600"]
    done = CliRunner().invoke(app, [*arguments, *jobs, "--cluster", "v100=4,p100=4,k80=4"])
    assert done.exit_code == 0
    figures = {name: run["figures"] for name, run in json.loads(done.stdout).items()}
    assert figures["las"]["utilisation"] > 0.8
    jct_s = {name: each["average_jct_s"] for name, each in figures.items()}
    assert jct_s["las:ss"] < 0.9 * jct_s["las"]
    assert jct_s["las"] < 0.8 * jct_s["las:agnostic"]
    assert jct_s["ftf"] < 0.85 * jct_s["ftf:agnostic"]


def test_sharing_workers_helps_single_worker_jobs_more_than_distributed_ones(
    artifact: Artifact,
) -> None:
    """The level of LAS gains a quarter and more where nobody is distributed, less where some are.

    Of the published throughputs none is of two distributed jobs together: alone they gain nothing.
    """

    def gain(asked: Problem) -> float:
        shared, alone = (resolve(name).solve(asked).objective for name in ("las:ss", "las"))
        assert shared is not None
        assert alone is not None
        return shared / alone

    single, mixed = (
        drawn.problem(artifact.table, 256, gangs=gangs, weights=(1.0,), workers_per_job=0.25)
        for gangs in (False, True)
    )
    gangs_only = tuple(c for c in mixed.classes if c.scale_factor > 1)
    distributed = msgspec.structs.replace(mixed, classes=gangs_only, pairs={})
    assert not any(mixed.classes[c].scale_factor > 1 for c, _ in mixed.pairs)
    assert gain(single) > 1.25
    assert 1.1 < gain(mixed) < gain(single) - 0.1
    assert gain(distributed) == pytest.approx(1.0)

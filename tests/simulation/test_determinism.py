"""Equal input, equal bytes: in one process, across processes, whatever hashes come to."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from schemas.events import CancelRequested, JobAdmitted, JobSubmitted
from services.runtime.file_log import FileLog
from tests.simulation.scenario import contended, records_of

ROOT = Path(__file__).parents[2]


def write(path: Path, seed: int, mode: str, lag_seed: int | None) -> bytes:
    """The bytes of a run's log."""
    with closing(FileLog(path)) as log:
        contended(seed, mode=mode).simulation(log, lag_seed=lag_seed).run()
    return path.read_bytes()


@pytest.mark.parametrize("lag_seed", [None, 5])
@pytest.mark.parametrize("mode", ["default", "paper"])
def test_two_runs(tmp_path: Path, mode: str, lag_seed: int | None) -> None:
    """Two runs with one seed write the same bytes; another seed, others."""
    first = write(tmp_path / "first.jsonl", 7, mode, lag_seed)
    assert write(tmp_path / "second.jsonl", 7, mode, lag_seed) == first
    assert write(tmp_path / "third.jsonl", 8, mode, lag_seed) != first


def test_hash_seeds(tmp_path: Path) -> None:
    """No order of a set, and no hash, finds its way into a log."""
    script = (
        "import sys; from pathlib import Path;"
        "from tests.simulation.test_determinism import write;"
        "write(Path(sys.argv[1]), 7, 'default', 5)"
    )
    written = []
    for hash_seed in ("0", "1", "271828"):
        path = tmp_path / f"{hash_seed}.jsonl"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        subprocess.run(
            [sys.executable, "-c", script, str(path)], cwd=ROOT, env=environment, check=True
        )
        written.append(path.read_bytes())
    assert len(written[0]) > 0
    assert written[1:] == written[:1] * 2


def test_two_hundred_jobs_at_one_stamp() -> None:
    """Jobs submitted at the same instant arrive in the order of their submission, all at it."""
    scenario = contended(1, num_jobs=200)
    jobs = tuple(msgspec.structs.replace(job, arrival_s=0.0) for job in scenario.jobs)
    simulation = dataclasses.replace(scenario, jobs=jobs, cancels=(), outages=()).simulation()
    simulation.run()
    records = records_of(simulation.driver)
    submitted = [r for r in records if isinstance(r.event, JobSubmitted)]
    admitted = [r.event.job_id for r in records if isinstance(r.event, JobAdmitted)]
    assert {record.at for record in submitted} == {0.0}
    assert [r.event.job.job_id for r in submitted if isinstance(r.event, JobSubmitted)] == [
        job.job_id for job in jobs
    ]
    assert admitted == [job.job_id for job in jobs]


def test_submission_order_is_the_order_of_equal_stamps() -> None:
    """Of events submitted at one stamp, what was submitted first comes first, whoever submits."""
    names = ["zoe", "adam", "mia", "ben"]
    simulation = contended(1).simulation()
    for name in names:
        simulation.driver.submit(1e6, f"client.{name}", CancelRequested(job_id=name))
    simulation.driver.run()
    cancels = [r.actor for r in records_of(simulation.driver) if r.at == 1e6]
    assert cancels == [f"client.{name}" for name in names]

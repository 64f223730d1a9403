"""The default mode's credit against the paper's X/f, on the published generated traces.

X/f restarted at each allocation forgets what was owed; credit does not. Ten seconds of checkpoint
per move are charged, as real workers would.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from replay.modes import default_mode
from replay.simulate import Simulation, build_workers
from replay.summary import Figures
from replay.traces.tables import read_table
from schemas.domain import JobSpec
from schemas.events import AllocationComputed, JobCompleted, ProgressReported, TaskStopped
from schemas.record import Record
from services.runtime.log import MemoryLog

#: Between two solves, where each solve restarts f: what the published runs used.
_LEAST_GAP_S = 1920.0
#: What a job may be short of what X promised it, at any load: the prototype's figure.
_SHORT_AT_MOST_S = 5600.0
#: (trace, measured jobs): near saturation, half loaded, and with gangs.
_CASES = {
    "gen_sg_seed0_lam1100": (50, 175),
    "gen_sg_seed0_lam2250": (50, 175),
    "gen_mg_seed0_lam5000": (50, 150),
}


class _Promises:
    """Per completed job, seconds promised by X less seconds on workers received."""

    def __init__(self) -> None:
        self.short_s: dict[str, float] = {}
        self._share: dict[str, float] = {}
        self._since_s = 0.0
        self._owed_s: dict[str, float] = {}

    def take(self, record: Record) -> None:
        event = record.event
        if isinstance(event, AllocationComputed | JobCompleted):
            for job_id, share in self._share.items():
                owed_s = self._owed_s.get(job_id, 0.0)
                self._owed_s[job_id] = owed_s + share * (record.at - self._since_s)
            self._since_s = record.at
        if isinstance(event, AllocationComputed):
            self._share = {
                combination[0]: sum(row.shares.values())
                for row in event.rows
                for combination in row.combinations
            }
        elif isinstance(event, ProgressReported):
            for row in event.rows:
                self._owed_s[row.job_id] = self._owed_s.get(row.job_id, 0.0) - row.run_s
        elif isinstance(event, TaskStopped):
            job_id = event.task.job_id
            self._owed_s[job_id] = self._owed_s.get(job_id, 0.0) - event.task.run_s
        elif isinstance(event, JobCompleted):
            self._share.pop(event.job_id, None)
            self.short_s[event.job_id] = self._owed_s.pop(event.job_id)


def _run(reference_data: Path, trace: str, priority: str) -> tuple[Figures, _Promises]:
    table = read_table(reference_data / "throughputs" / "simulation_throughputs.json")
    listed = json.loads((reference_data / "golden" / "traces" / f"{trace}.json").read_text())
    jobs = [
        JobSpec(
            job_id=str(job["id"]),
            job_type=job["job_type"],
            scale_factor=job["scale_factor"],
            total_steps=float(job["total_steps"]),
            arrival_s=job["arrival"],
        )
        for job in listed["jobs"]
    ]
    config = default_mode("las", 360.0)
    if priority == "reset":
        config = msgspec.structs.replace(config, priority="reset", resolve_min_gap_s=_LEAST_GAP_S)
    promises = _Promises()
    simulation = Simulation(
        MemoryLog(),
        config,
        build_workers({"v100": 16, "p100": 16, "k80": 16}, {}, {}),
        table,
        jobs,
        load_s=5.0,
        save_s=5.0,
        window=_CASES[trace],
        observers=(promises.take,),
    )
    return simulation.run().figures(), promises


@pytest.mark.parametrize("trace", _CASES)
def test_credit_keeps_what_x_promises_at_no_cost(reference_data: Path, trace: str) -> None:
    """No job is short by more than the bound; average JCT is no worse; starts are far fewer."""
    credit, kept = _run(reference_data, trace, "credit")
    reset, _ = _run(reference_data, trace, "reset")

    assert max(kept.short_s.values()) <= _SHORT_AT_MOST_S
    assert credit.average_jct_s is not None
    assert reset.average_jct_s is not None
    assert credit.average_jct_s <= reset.average_jct_s
    assert credit.starts < 0.7 * reset.starts


def test_what_a_reset_forgets_adds_up(reference_data: Path) -> None:
    """Near saturation, X/f leaves some job short by several times what credit ever does."""
    _, kept = _run(reference_data, "gen_sg_seed0_lam1100", "credit")
    _, forgotten = _run(reference_data, "gen_sg_seed0_lam1100", "reset")

    assert max(forgotten.short_s.values()) > 3 * max(kept.short_s.values())

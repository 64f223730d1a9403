"""How long one point of Figure 8 takes at full scale: `make bench` prints the figures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replay.paper.workload import capacity_jobs_per_h, cluster_of
from replay.request import Request
from replay.run import carry_out, check
from replay.traces.tables import builtin_table
from services.runtime.file_log import FileLog

_EACH = 36


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("share", "most_s"), [(0.70, 60), (0.95, 300)])
def test_a_point_of_figure_8(share: float, most_s: float, tmp_path: Path) -> None:
    """36:36:36, jobs 4000 to 4999 measured, one core: 60 s at 70 % load, 300 s near saturation."""
    log = str(tmp_path / "log.jsonl.zst")
    done = subprocess.run(
        [sys.executable, "-c", f"from bench_paper import point; point({share}, {log!r})"],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[2]}"},
    )
    told = json.loads(done.stdout.splitlines()[-1])
    print(f"\nfigure 8, {share:.0%} of what can be served: {told}")
    assert told["jobs"] == 1000
    assert told["cpu_s"] < most_s


def point(share: float, log: str) -> None:
    """Run one point and print what it took; in a process of its own."""
    capacity = capacity_jobs_per_h(builtin_table(), _EACH, multi_gpu=False, aware=True)
    request = Request(
        generate=True,
        jobs=6500,
        window="4000:5000",
        mean_gap=3600 / (share * capacity),
        cluster=cluster_of(_EACH),
        policy="las",
        mode="paper",
    )
    started = time.process_time()
    figures = carry_out(check(request), FileLog(Path(log))).figures
    told = {
        "cpu_s": round(time.process_time() - started, 1),
        "jobs": figures.jobs,
        "average_jct_h": round((figures.average_jct_s or 0.0) / 3600, 1),
        "rounds": figures.rounds,
        "solves": figures.solves,
    }
    print(json.dumps(told))

"""Figure 13: how long a round may be, and how near the mechanism comes to the ideal (§7.5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from replay.paper import fluid
from replay.paper.result import Claim, Reproduction, Setup
from replay.paper.workload import capacity_jobs_per_h, cluster_of
from replay.report.charts import HOUR_S, Chart, Line
from replay.request import Request
from replay.run import check

_ROUNDS_S = (360.0, 720.0, 1440.0, 2880.0)
_SHARES = (0.5, 0.85)
_CHECKPOINT_S = "5"
#: Workers of each type, jobs, and which are measured.
_SCALED_DOWN, _FULL = (12, 500, "200:350"), (36, 6500, "4000:5000")


def figure13(setup: Setup) -> Reproduction:
    """LAS on the continuous-single trace: rounds of 6 to 48 minutes, and no rounds at all."""
    table = setup.table()
    each, jobs, window = _FULL if setup.full else _SCALED_DOWN
    capacity = capacity_jobs_per_h(table, each, multi_gpu=False, aware=True)
    loads = [share * capacity for share in _SHARES]
    requests = [
        Request(
            generate=True,
            jobs=jobs,
            window=window,
            mean_gap=3600 / load,
            seed=seed,
            cluster=cluster_of(each),
            throughputs=setup.throughputs,
            policy="las",
            round=round_s,
            checkpoint_seconds=_CHECKPOINT_S,
        )
        for load in loads
        for seed in setup.seeds
        for round_s in _ROUNDS_S
    ]
    rows = setup.simulate(requests)
    ideal = [_ideal_h(requests, load) for load in loads]
    found = [[_average_h(rows, load, round_s) for load in loads] for round_s in _ROUNDS_S]
    shortest, longest = (
        max(abs(jct / best - 1) for jct, best in zip(each_h, ideal, strict=True))
        for each_h in (found[0], found[-1])
    )
    names = [f"{round_s / 60:g} min" for round_s in _ROUNDS_S]
    return Reproduction(
        title="Figure 13: length of rounds, and the ideal mechanism",
        setting=f"{each} workers of each type, jobs {window} measured, {len(setup.seeds)} seeds, "
        f"default mode, {_CHECKPOINT_S} s to load and to save a checkpoint, {table.source}",
        claims=[
            Claim(
                what="average JCT with rounds of 6 min, off the ideal",
                paper="almost identical (§7.5)",
                ours=f"{shortest:.1%}",
                why="the ideal has neither rounds nor checkpoints; ours pays for both, and new "
                "jobs wait for a boundary",
            ),
            Claim(
                what="average JCT with rounds of 48 min, off the ideal",
                paper="longer rounds, longer JCTs (§7.5)",
                ours=f"{longest:.1%}",
            ),
        ],
        columns=("rounds", *(f"{s:.0%} of what can be served (h)" for s in _SHARES)),
        rows=[
            (name, *(f"{jct:.2f}" for jct in jcts))
            for name, jcts in zip(["ideal", *names], [ideal, *found], strict=True)
        ],
        pictures=[_picture(found, ideal)],
    )


def _picture(found: Sequence[Sequence[float]], ideal: Sequence[float]) -> Chart:
    return Chart(
        key="rounds",
        title="Average JCT by length of rounds",
        x="round (min)",
        y="average JCT over the ideal's",
        lines=[
            Line(
                name=f"{share:.0%} of what can be served",
                x=[round_s / 60 for round_s in _ROUNDS_S],
                y=[jcts[i] / ideal[i] for jcts in found],
                style="marked",
            )
            for i, share in enumerate(_SHARES)
        ],
        note="1: every job always makes the progress that its allocation promises.",
    )


def _average_h(rows: pl.DataFrame, load: float, round_s: float) -> float:
    at = rows.filter(
        ((pl.col("jobs_per_h") - load).abs() < 1e-9 * load) & (pl.col("round") == round_s)
    )
    return float(at["average_jct_s"].to_numpy().mean()) / HOUR_S


def _ideal_h(requests: list[Request], load: float) -> float:
    """Average JCT of the ideal mechanism over the seeds, hours."""
    means = []
    for request in requests:
        if request.round != _ROUNDS_S[0] or request.mean_gap != 3600 / load:
            continue
        plan = check(request)
        measured = [job.job_id for job in plan.trace.jobs[slice(*plan.window)]]
        jcts_s = fluid.jcts_s("las", plan.trace.jobs, plan.cluster, plan.table, measured)
        means.append(np.mean(list(jcts_s.values())) / HOUR_S)
    return float(np.mean(means))

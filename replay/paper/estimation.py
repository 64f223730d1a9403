"""Throughputs that are estimated instead of known (§7.6)."""

from __future__ import annotations

import polars as pl

from replay.paper.result import Claim, Reproduction, Setup
from replay.paper.workload import capacity_jobs_per_h, cluster_of
from replay.report.charts import HOUR_S, Chart, Line
from replay.request import Request

#: Policy, whom it believes, and how the lines are called.
_ARMS = (
    ("las:ss", "oracle", "LAS SS, throughputs known"),
    ("las:ss", "learned", "LAS SS, throughputs estimated"),
    ("las", "oracle", "LAS without sharing"),
)
_EACH = 4
_SHARES = (0.4, 0.6, 0.8, 0.95)
#: Jobs, and which are measured.
_SCALED_DOWN, _FULL = (260, "80:180"), (3000, "1000:2000")
_PROFILED, _PROFILERS = 0.2, 6


def estimation(setup: Setup) -> Reproduction:
    """LAS with sharing on 12 workers: what a fifth of all profiles, matched, is worth."""
    table = setup.table()
    jobs, window = _FULL if setup.full else _SCALED_DOWN
    types = {job_type for job_type, _ in table.classes()}
    references = len(types) // 2
    capacity = capacity_jobs_per_h(table, _EACH, multi_gpu=False, aware=True)
    loads = [share * capacity for share in _SHARES]
    requests = [
        Request(
            generate=True,
            jobs=jobs,
            window=window,
            mean_gap=3600 / load,
            seed=seed,
            cluster=cluster_of(_EACH),
            throughputs=setup.throughputs,
            policy=policy,
            estimator=estimator,
            profile_fraction=_PROFILED if estimator == "learned" else None,
            profile_workers=_PROFILERS if estimator == "learned" else None,
            references=references if estimator == "learned" else None,
        )
        for load in loads
        for seed in setup.seeds
        for policy, estimator, _ in _ARMS
    ]
    rows = setup.simulate(requests)
    jct_h = {
        name: [_jct_h(rows, policy, estimator, load) for load in loads]
        for policy, estimator, name in _ARMS
    }
    known, estimated, alone = (jct_h[name] for _, _, name in _ARMS)
    worst = max(e / k for e, k in zip(estimated, known, strict=True))
    gain = max(a / k for a, k in zip(alone, known, strict=True))
    kept = max(a / e for a, e in zip(alone, estimated, strict=True))
    return Reproduction(
        title="Throughput estimation: LAS with sharing on 12 workers",
        setting=f"{_EACH} workers of each type and {_PROFILERS} for profiles, jobs {window} "
        f"measured, {len(setup.seeds)} seeds, {references} of {len(types)} job types known "
        f"beforehand, {_PROFILED:.0%} of the pairs of a new job profiled, {table.source}",
        claims=[
            Claim(
                what="average JCT, throughputs estimated over known, at worst",
                paper="little above 1x (§7.6)",
                ours=f"{worst:.2f}x",
                why=f"sharing gains {gain:.2f}x if all is known, {kept:.2f}x if it is estimated",
            )
        ],
        columns=("of what can be served", *(f"{name} (h)" for name in jct_h)),
        rows=[
            (f"{share:.0%}", *(f"{jcts[i]:.1f}" for jcts in jct_h.values()))
            for i, share in enumerate(_SHARES)
        ],
        pictures=[
            Chart(
                key="estimation",
                title="Average JCT with estimated throughputs",
                x="load (jobs/h)",
                y="JCT (h)",
                lines=[
                    Line(name=name, x=loads, y=jcts, style="marked") for name, jcts in jct_h.items()
                ],
            )
        ],
    )


def _jct_h(rows: pl.DataFrame, policy: str, estimator: str, load: float) -> float:
    at = rows.filter(
        (pl.col("policy") == policy)
        & (pl.col("estimator") == estimator)
        & ((pl.col("jobs_per_h") - load).abs() < 1e-9 * load)
    )
    return float(at["average_jct_s"].to_numpy().mean()) / HOUR_S

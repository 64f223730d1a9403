"""Figures 8, 9 and 10: average JCT against load, jobs arriving all the time (§7.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from replay.paper.result import Claim, Reproduction, Setup, times
from replay.paper.workload import capacity_jobs_per_h, cluster_of
from replay.report import results_pictures
from replay.report.charts import HOUR_S
from replay.request import Request

#: Scaled down: workers of each type, jobs, which are measured, shares of what can be served.
_EACH, _JOBS, _WINDOW = 12, 500, "200:350"
_SHARES = (0.3, 0.5, 0.7, 0.85, 0.97)
#: As in the paper: 36 of each type; jobs 4000 to 4999 are measured, others go on arriving.
_FULL_EACH, _FULL_JOBS, _FULL_WINDOW = 36, 6500, "4000:5000"
_MODERATE = 0.5


@dataclass(frozen=True)
class Sweep:
    """One figure: which policies, which jobs."""

    title: str
    policies: Sequence[str]
    multi_gpu: bool
    #: Jobs per hour, as the paper's figure has them.
    full_loads: Sequence[float]


FIGURE_8 = Sweep(
    "Figure 8: LAS on the continuous-single trace",
    ("las", "las:agnostic", "las:ss", "gandiva", "allox"),
    multi_gpu=False,
    full_loads=tuple(0.4 * n for n in range(1, 16)),
)
FIGURE_9 = Sweep(
    "Figure 9: LAS on the continuous-multiple trace",
    ("las", "las:agnostic", "las:ss", "gandiva"),
    multi_gpu=True,
    full_loads=tuple(0.3 * n for n in range(1, 11)),
)
FIGURE_10 = Sweep(
    "Figure 10: finish-time fairness on the continuous-multiple trace",
    ("ftf", "ftf:agnostic", "isolated"),
    multi_gpu=True,
    full_loads=FIGURE_9.full_loads,
)


@dataclass(frozen=True)
class _Ran:
    """A sweep's rows, and what its cluster can serve."""

    rows: pl.DataFrame
    aware_per_h: float
    blind_per_h: float
    setting: str

    @property
    def loads(self) -> list[float]:
        found: list[float] = self.rows["jobs_per_h"].unique().sort().to_list()
        return found

    def jct_s(self, policy: str, load: float) -> float:
        at = self.rows.filter((pl.col("policy") == policy) & (pl.col("jobs_per_h") == load))
        return float(at["average_jct_s"].to_numpy().mean())

    def ratios(self, slow: str, fast: str) -> dict[float, float]:
        """{load: average JCT under one policy over that under the other}."""
        return {load: self.jct_s(slow, load) / self.jct_s(fast, load) for load in self.loads}

    def told(self, load: float) -> str:
        share = load / self.aware_per_h
        return f"at {load:.2f} jobs/h, {share:.0%} of what can be served"

    def moderate(self) -> float:
        return min(self.loads, key=lambda load: abs(load / self.aware_per_h - _MODERATE))

    def blind_is_full(self) -> str:
        over = [load for load in self.loads if load >= self.blind_per_h]
        steady = (
            f"aware, this cluster serves at most {self.aware_per_h:.2f} jobs/h; blind to types "
            f"{self.blind_per_h:.2f}. "
        )
        if not over:
            return steady + "No load tried lies between."
        return steady + (
            "Between the two the blind policy's queue grows for as long as jobs arrive, so there "
            "the ratio is the larger, the longer the trace"
        )


def figure8(setup: Setup) -> Reproduction:
    """LAS, one worker a job."""
    ran = _run(setup, FIGURE_8)
    moderate = ran.moderate()
    claims = [
        _largest(ran, "average JCT, LAS blind over aware", "las:agnostic", "las", "3.5x (§7.3)"),
        _largest(ran, "average JCT, Gandiva over LAS SS", "gandiva", "las:ss", "2.2x (§7.3)"),
        Claim(
            what="average JCT, LAS aware over AlloX, moderate load",
            paper="about 1x: matches the best there is (§7.3)",
            ours=times(1 / ran.ratios("allox", "las")[moderate]),
            why=ran.told(moderate),
        ),
        Claim(
            what="average JCT, AlloX over LAS aware, highest load",
            paper="above 1x: AlloX starves long jobs (§7.3)",
            ours=times(ran.ratios("allox", "las")[ran.loads[-1]]),
            why=f"{ran.told(ran.loads[-1])}; "
            "AlloX puts long jobs off, which costs the average only once the window waits for them",
        ),
    ]
    return _reproduction(FIGURE_8, ran, claims)


def figure9(setup: Setup) -> Reproduction:
    """LAS, 1 to 8 workers a job."""
    ran = _run(setup, FIGURE_9)
    claims = [
        _largest(ran, "average JCT, LAS blind over aware", "las:agnostic", "las", "2.2x (§7.3)"),
        _largest(ran, "average JCT, Gandiva over LAS SS", "gandiva", "las:ss", "2.2x (§7.3)"),
    ]
    return _reproduction(FIGURE_9, ran, claims)


def figure10(setup: Setup) -> Reproduction:
    """Finish-time fairness, 1 to 8 workers a job."""
    ran = _run(setup, FIGURE_10)
    rho: dict[float, float] = {}
    for load in ran.loads:
        at = results_pictures.named(ran.rows.filter(pl.col("jobs_per_h") == load))
        found = results_pictures.rhos(at)
        rho[load] = float(np.mean(found["ftf:agnostic"]) / np.mean(found["ftf"]))
    best = max(rho, key=rho.__getitem__)
    claims = [
        _largest(ran, "average JCT, FTF blind over aware", "ftf:agnostic", "ftf", "3x (§7.3)"),
        Claim(
            what="average rho, FTF blind over aware",
            paper="2.8x (§7.3)",
            ours=times(rho[best]),
            why=f"{ran.told(best)}; rho: JCT over JCT under isolated, the same jobs",
        ),
    ]
    return _reproduction(FIGURE_10, ran, claims)


def _largest(ran: _Ran, what: str, slow: str, fast: str, paper: str) -> Claim:
    ratios = ran.ratios(slow, fast)
    load = max(ratios, key=ratios.__getitem__)
    steady = [at for at in ran.loads if at < 0.95 * ran.blind_per_h]
    before = f"; {times(ratios[steady[-1]])} at {steady[-1]:.2f} jobs/h, blind still steady"
    return Claim(
        what=what,
        paper=paper,
        ours=times(ratios[load]),
        why=f"{ran.told(load)}{before if steady else ''}. {ran.blind_is_full()}",
    )


def _run(setup: Setup, figure: Sweep) -> _Ran:
    table = setup.table()
    each = _FULL_EACH if setup.full else _EACH
    aware, blind = (
        capacity_jobs_per_h(table, each, multi_gpu=figure.multi_gpu, aware=aware)
        for aware in (True, False)
    )
    loads = figure.full_loads if setup.full else [share * aware for share in _SHARES]
    rows = setup.simulate(list(_requests(setup, figure, loads, each)))
    setting = (
        f"{each} workers of each type, jobs {_FULL_WINDOW if setup.full else _WINDOW} measured, "
        f"{len(setup.seeds)} seeds, 360 s rounds, paper mode, {table.source}"
    )
    return _Ran(rows, aware, blind, setting)


def _requests(setup: Setup, figure: Sweep, loads: Sequence[float], each: int) -> Iterator[Request]:
    for load in loads:
        for seed in setup.seeds:
            for policy in figure.policies:
                yield Request(
                    generate=True,
                    jobs=_FULL_JOBS if setup.full else _JOBS,
                    window=_FULL_WINDOW if setup.full else _WINDOW,
                    mean_gap=3600 / load,
                    multi_gpu=figure.multi_gpu,
                    seed=seed,
                    cluster=cluster_of(each),
                    throughputs=setup.throughputs,
                    policy=policy,
                    mode="paper",
                )


def _reproduction(figure: Sweep, ran: _Ran, claims: Sequence[Claim]) -> Reproduction:
    return Reproduction(
        title=figure.title,
        setting=ran.setting,
        claims=claims,
        columns=("jobs/h", "of what can be served", *(f"{p} (h)" for p in figure.policies)),
        rows=[
            (
                f"{load:.2f}",
                f"{load / ran.aware_per_h:.0%}",
                *(f"{ran.jct_s(policy, load) / HOUR_S:.1f}" for policy in figure.policies),
            )
            for load in ran.loads
        ],
        pictures=results_pictures.pictures(results_pictures.named(ran.rows)),
    )

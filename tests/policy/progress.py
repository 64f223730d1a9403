"""Problems with jobs under way, and the same as arrays over jobs for the readable programs."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import msgspec
import numpy as np
from hypothesis import strategies as st

from services.policy.classes import SHARE_UNIT, gather
from services.policy.isolated import isolated_shares
from services.policy.problem import Allocation, JobClass, Problem
from services.policy.reference.objectives import JobArrays
from services.policy.solver import Floats
from tests.policy.problems import TYPES, problems, shares

#: Fields of ``JobClass`` that have a value for each job.
OF_JOBS = (
    "job_ids",
    "arrival_ranks",
    "steps_remaining",
    "elapsed_s",
    "isolated_s",
    "slo_remaining_s",
)


@st.composite
def underway(
    draw: st.DrawFn,
    throughput_decades: tuple[float, float] = (-1.5, 1.5),
    weight_decades: tuple[float, float] = (-1.0, 1.0),
    step_decades: tuple[float, float] = (1.0, 4.0),
    max_classes: int = 6,
) -> Problem:
    """Random problems in which jobs of a class differ in all that can set jobs apart."""
    asked = draw(problems(throughput_decades, weight_decades, max_classes))
    numbers = st.floats(*step_decades).map(lambda decade: float(f"{10**decade:.3g}"))
    steps = numbers | st.sampled_from([0.0, 100.0, 1000.0])
    seconds = st.integers(0, 5000).map(float) | st.sampled_from([0.0, 500.0])
    slos = numbers | st.sampled_from([-100.0, float("inf")])
    rank = 0
    classes = []
    for each in asked.classes:
        jobs = len(each.job_ids)

        def of_jobs(values: st.SearchStrategy[float], jobs: int = jobs) -> tuple[float, ...]:
            return tuple(draw(st.lists(values, min_size=jobs, max_size=jobs)))

        classes.append(
            msgspec.structs.replace(
                each,
                arrival_ranks=tuple(range(rank, rank + jobs)),
                steps_remaining=of_jobs(steps),
                elapsed_s=of_jobs(seconds),
                isolated_s=of_jobs(seconds),
                slo_remaining_s=of_jobs(slos),
            )
        )
        rank += jobs
    prices = draw(st.lists(st.sampled_from([0.0, 0.1, 0.5, 2.0]), min_size=4, max_size=4))
    return msgspec.structs.replace(
        asked,
        classes=tuple(classes),
        prices_usd_per_h=tuple(prices[: len(asked.worker_types)]),
        reference_type=draw(st.sampled_from(TYPES)),
    )


def in_pieces(asked: Problem, rng: Random) -> Problem:
    """The same problem with every class cut in two and all of them shuffled."""
    pieces: list[JobClass] = []
    for each in asked.classes:
        half = len(each.job_ids) // 2
        for part in (slice(half), slice(half, None)):
            changes = {field: getattr(each, field)[part] for field in OF_JOBS}
            pieces.append(msgspec.structs.replace(each, **changes))
    rng.shuffle(pieces)
    return msgspec.structs.replace(asked, classes=tuple(pieces))


@dataclass(frozen=True)
class Jobs:
    """The jobs that can run, one by one: (jobs,) all but ``arrays``."""

    ids: list[str]
    arrays: JobArrays
    steps: Floats
    elapsed_s: Floats
    isolated_s: Floats
    slo_s: Floats
    #: steps/s of the job's isolated share.
    isolated: Floats

    @classmethod
    def of(cls, asked: Problem) -> Jobs:
        """The jobs of a problem."""
        arrays, _ = gather(asked)
        served = [
            (row, each, n)
            for row, each in zip(arrays.merged_into, asked.classes, strict=True)
            for n in range(len(each.job_ids))
            if row >= 0
        ]
        rows = np.array([row for row, _, _ in served], dtype=int)

        def values(field: str, default: float) -> Floats:
            given = [(getattr(each, field), n) for _, each, n in served]
            return np.array([of_class[n] if of_class else default for of_class, n in given])

        return cls(
            ids=[each.job_ids[n] for _, each, n in served],
            arrays=JobArrays(
                arrays.throughputs[rows], arrays.scale_factors[rows], arrays.num_workers
            ),
            steps=values("steps_remaining", 0.0),
            elapsed_s=values("elapsed_s", 0.0),
            isolated_s=values("isolated_s", 0.0),
            slo_s=values("slo_remaining_s", np.inf),
            isolated=(arrays.throughputs * isolated_shares(arrays)).sum(axis=1)[rows],
        )

    def shares(self, asked: Problem, allocation: Allocation) -> Floats:
        """(jobs, worker types) X."""
        given = shares(asked, allocation)
        return np.array([given[job_id] for job_id in self.ids]).reshape(
            self.arrays.throughputs.shape
        )

    def speeds(self, asked: Problem, allocation: Allocation) -> Floats:
        """(jobs,) steps/s."""
        total: Floats = (self.arrays.throughputs * self.shares(asked, allocation)).sum(axis=1)
        return total

    @property
    def lost_by_rounding(self) -> Floats:
        """(jobs,) steps/s that rounding of shares can take."""
        lost: Floats = 1.5 * SHARE_UNIT * self.arrays.throughputs.sum(axis=1)
        return lost

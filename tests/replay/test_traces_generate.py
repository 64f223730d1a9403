"""Generated traces have the arrivals, lengths and mix they claim."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.traces.generate import (
    LONG_EXPONENTS,
    LONG_SHARE,
    SCALE_FACTOR_SHARES,
    SCALE_FACTORS,
    SHORT_EXPONENTS,
    GenerateError,
    generate,
)
from replay.traces.jobs import write_jobs
from replay.traces.reader import parse_trace
from replay.traces.tables import builtin_table
from schemas.domain import JobSpec
from services.estimator.tables import ThroughputTable, parse_csv

TABLE = builtin_table()
MANY = 20_000


def exponent(job: JobSpec, table: ThroughputTable) -> float:
    """U of the job's duration, 60 * 10^U seconds on a v100."""
    rate = table.alone(job.job_type, job.scale_factor, "v100")
    assert rate
    assert job.total_steps is not None
    return math.log10(job.total_steps / rate / 60)


@given(st.integers(0, 2**32), st.booleans())
def test_same_seed_same_jobs(seed: int, multi_gpu: bool) -> None:
    """A trace is a function of its arguments, and every trace reads back as it was drawn."""
    jobs = generate(20, 100.0, multi_gpu=multi_gpu, seed=seed, table=TABLE)
    assert jobs == generate(20, 100.0, multi_gpu=multi_gpu, seed=seed, table=TABLE)
    assert jobs != generate(20, 100.0, multi_gpu=multi_gpu, seed=seed + 1, table=TABLE)
    assert parse_trace(write_jobs(jobs), "generated", TABLE).jobs == jobs


def test_arrivals_are_poisson() -> None:
    """The first job arrives at 0; gaps have the mean asked for, and the tail of a Poisson's."""
    arrivals = [job.arrival_s for job in generate(MANY, 50.0, multi_gpu=False, seed=1, table=TABLE)]
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    assert arrivals[0] == 0.0
    assert min(gaps) >= 0
    assert fmean(gaps) == pytest.approx(50.0, rel=0.03)
    assert fmean(gap > 50.0 for gap in gaps) == pytest.approx(math.exp(-1), abs=0.02)


def test_durations_are_log_uniform_in_two_ranges() -> None:
    """80 % of jobs last 60*10^U(1.5,3) s, 20 % 60*10^U(3,4) s on the reference type."""
    drawn = [
        exponent(job, TABLE) for job in generate(MANY, 1.0, multi_gpu=True, seed=2, table=TABLE)
    ]
    boundary = LONG_EXPONENTS[0]
    short = [u for u in drawn if u < boundary]
    long = [u for u in drawn if u >= boundary]
    assert len(long) / MANY == pytest.approx(LONG_SHARE, abs=0.01)
    for found, (low, high) in ((short, SHORT_EXPONENTS), (long, LONG_EXPONENTS)):
        assert low - 1e-9 <= min(found)
        assert max(found) <= high + 1e-9
        assert fmean(found) == pytest.approx((low + high) / 2, abs=0.02)


def test_scale_factors_and_job_types_are_mixed_as_said() -> None:
    """1, 2, 4 and 8 workers at 70, 10, 15 and 5 %; all job types of a scale factor alike."""
    jobs = generate(MANY, 1.0, multi_gpu=True, seed=3, table=TABLE)
    scales = Counter(job.scale_factor for job in jobs)
    for scale_factor, share in zip(SCALE_FACTORS, SCALE_FACTOR_SHARES, strict=True):
        assert scales[scale_factor] / MANY == pytest.approx(share, abs=0.01)
        types = Counter(job.job_type for job in jobs if job.scale_factor == scale_factor)
        assert set(types) == {name for name, scale in TABLE.classes() if scale == scale_factor}
        fair = scales[scale_factor] / len(types)
        assert all(count == pytest.approx(fair, rel=0.35) for count in types.values())


def test_single_gpu_traces_share_arrivals_with_multi_gpu_ones() -> None:
    """Without ``multi_gpu`` every job needs one worker; arrivals and durations stay as they are."""
    single = generate(200, 10.0, multi_gpu=False, seed=4, table=TABLE)
    mixed = generate(200, 10.0, multi_gpu=True, seed=4, table=TABLE)
    assert {job.scale_factor for job in single} == {1}
    for one, other in zip(single, mixed, strict=True):
        assert one.arrival_s == other.arrival_s
        assert exponent(one, TABLE) == pytest.approx(exponent(other, TABLE))


def test_gap_zero_is_a_batch_and_no_jobs_are_none() -> None:
    """With a mean gap of 0 all jobs are there from the start."""
    assert {job.arrival_s for job in generate(50, 0.0, multi_gpu=True, seed=0, table=TABLE)} == {
        0.0
    }
    assert generate(0, 10.0, multi_gpu=True, seed=0, table=TABLE) == []


def test_types_that_cannot_run_on_the_reference_are_not_drawn() -> None:
    """A class whose reference throughput is 0 or unknown has no duration, so it is left out."""
    text = "job_type,scale_factor,worker_type,steps_per_s\nA,1,v100,1\nB,1,v100,0\nC,1,k80,1\n"
    jobs = generate(50, 1.0, multi_gpu=False, seed=0, table=parse_csv(text, "small"))
    assert {job.job_type for job in jobs} == {"A"}


@pytest.mark.parametrize(
    ("num_jobs", "mean_gap_s", "reference_type", "said"),
    [
        (-1, 1.0, "v100", "num_jobs is -1"),
        (1, -1.0, "v100", "mean_gap_s is -1"),
        (1, math.nan, "v100", "mean_gap_s is nan"),
        (1, 1.0, "h100", "k80, p100, v100"),
    ],
)
def test_what_cannot_be_generated_is_refused(
    num_jobs: int, mean_gap_s: float, reference_type: str, said: str
) -> None:
    """The message says what was asked for and what could be."""
    with pytest.raises(GenerateError, match=said):
        generate(
            num_jobs,
            mean_gap_s,
            multi_gpu=False,
            seed=0,
            table=TABLE,
            reference_type=reference_type,
        )

"""Synthetic traces with the arrival process and job lengths of the paper's simulations (§7.3)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from replay.options import InputError
from schemas.domain import JobSpec
from services.estimator.tables import ThroughputTable

#: Of all jobs, when there are multi-GPU jobs: as many need 1, 2, 4 and 8 workers.
SCALE_FACTORS = (1, 2, 4, 8)
SCALE_FACTOR_SHARES = (0.70, 0.10, 0.15, 0.05)
#: Durations are 60 * 10^u seconds, u uniform: of most jobs in the first range, of few in the other.
SHORT_EXPONENTS, LONG_EXPONENTS = (1.5, 3.0), (3.0, 4.0)
LONG_SHARE = 0.20


class GenerateError(InputError):
    """What was asked for cannot be generated."""


def generate(
    num_jobs: int,
    mean_gap_s: float,
    *,
    multi_gpu: bool,
    seed: int,
    table: ThroughputTable,
    reference_type: str = "v100",
) -> list[JobSpec]:
    """Draw a trace: Poisson arrivals, log-uniform durations, job types of the table.

    From ``numpy.random.default_rng(seed)`` come, each for all jobs at once and in this order: the
    gaps between arrivals (exponential), whether a job is long (20 %), the place of its exponent in
    its range, its scale factor (drawn but not used without ``multi_gpu``), and its job type,
    uniform over the table's classes of that scale factor that run on the reference type. So the
    same arguments give the same jobs, and ``multi_gpu`` leaves arrivals and durations as they are.

    Parameters
    ----------
    num_jobs
        Jobs to draw; their ids are "0", "1", ...
    mean_gap_s
        Mean seconds between arrivals; the first arrives at 0. With 0, all do.
    multi_gpu
        Whether 30 % of jobs need 2, 4 or 8 workers; else all need one.
    seed
        Of the generator.
    table
        Gives the job types, and turns durations into steps (not rounded).
    reference_type
        Worker type the durations are meant on.

    Returns
    -------
    list of JobSpec
        In order of arrival.

    Raises
    ------
    GenerateError
        ``num_jobs`` or ``mean_gap_s`` is negative or not finite, or the table has no class of a
        scale factor that was drawn.
    """
    if num_jobs < 0 or not 0 <= mean_gap_s < math.inf:
        raise GenerateError(
            f"num_jobs is {num_jobs}, mean_gap_s is {mean_gap_s}; "
            "expected 0 or more jobs, and 0 or more seconds between them"
        )
    rng = np.random.default_rng(seed)
    gaps_s = rng.exponential(mean_gap_s, num_jobs)
    gaps_s[:1] = 0.0
    arrivals_s = np.cumsum(gaps_s)
    durations_s = paper_durations_s(rng, num_jobs)
    drawn = rng.choice(SCALE_FACTORS, size=num_jobs, p=SCALE_FACTOR_SHARES)
    scale_factors = drawn if multi_gpu else np.ones(num_jobs, dtype=int)
    type_places = rng.random(num_jobs)
    rates = {
        int(scale_factor): reference_rates(table, int(scale_factor), reference_type)
        for scale_factor in np.unique(scale_factors)
    }
    columns = (arrivals_s, durations_s, scale_factors, type_places)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        _job(str(i), arrival_s, duration_s, scale_factor, type_place, rates)
        for i, (arrival_s, duration_s, scale_factor, type_place) in enumerate(rows)
    ]


def paper_durations_s(rng: np.random.Generator, num_jobs: int) -> NDArray[np.float64]:
    """(jobs,) lengths on the reference type: most from the short range, some from the long."""
    is_long = rng.random(num_jobs) < LONG_SHARE
    place = rng.random(num_jobs)
    low, high = (
        np.where(is_long, *ends) for ends in zip(LONG_EXPONENTS, SHORT_EXPONENTS, strict=True)
    )
    durations_s: NDArray[np.float64] = 60.0 * 10.0 ** (low + place * (high - low))
    return durations_s


def _job(
    job_id: str,
    arrival_s: float,
    duration_s: float,
    scale_factor: int,
    type_place: float,
    rates: Mapping[int, Sequence[tuple[str, float]]],
) -> JobSpec:
    """One job; ``type_place`` in [0, 1) is where its type lies among those of its scale factor."""
    choices = rates[scale_factor]
    job_type, steps_per_s = choices[int(type_place * len(choices))]
    return JobSpec(
        job_id=job_id,
        job_type=job_type,
        scale_factor=scale_factor,
        total_steps=duration_s * steps_per_s,
        arrival_s=arrival_s,
    )


def reference_rates(
    table: ThroughputTable, scale_factor: int, reference_type: str, only: Collection[str] = ()
) -> list[tuple[str, float]]:
    """(job type, steps/s) of the classes of a scale factor that run on the reference type.

    Raises
    ------
    GenerateError
        There is none.
    """
    rates = [
        (job_type, rate)
        for job_type, scale in table.classes()
        if scale == scale_factor
        and (not only or job_type in only)
        and (rate := table.alone(job_type, scale, reference_type))
    ]
    if not rates:
        known = ", ".join(table.worker_types())
        of = f" of {', '.join(only)}" if only else ""
        raise GenerateError(
            f"no job type{of} of {table.source} runs at scale factor {scale_factor} on "
            f"{reference_type!r}; expected one of its worker types ({known}) as reference, "
            "or a table with such a class"
        )
    return rates

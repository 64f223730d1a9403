"""What a trace asks for: jobs, arrivals, lengths, GPU-hours, and how much of a cluster that is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from schemas.domain import JobSpec
from services.estimator.tables import ThroughputTable

Floats = NDArray[np.float64]
T = TypeVar("T", int, float, str)

_HOUR_S = 3600.0
#: Of quantities over jobs.
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
#: {range of durations: where it ends, s}
_RANGES = {
    "under 1 min": 60.0,
    "1 to 10 min": 600.0,
    "10 to 60 min": _HOUR_S,
    "1 to 10 h": 10 * _HOUR_S,
    "10 to 100 h": 100 * _HOUR_S,
    "over 100 h": math.inf,
}


class Stats(msgspec.Struct, kw_only=True):
    """Figures of a trace; durations are of each job alone on workers of the reference type."""

    jobs: int
    #: From the first arrival to the last.
    span_s: float
    arrivals_per_h: float
    #: Arrivals in the busiest hour.
    peak_per_h: int
    #: {quantile: seconds between arrivals}
    gaps_s: dict[str, float]
    #: {quantile: seconds}, and the mean
    durations_s: dict[str, float]
    mean_duration_s: float
    #: {range of durations: jobs}
    durations: dict[str, int]
    reference_type: str
    #: {workers: jobs}
    scale_factors: dict[int, int]
    #: {scale factor: worker-hours on the reference type}
    worker_hours_by_scale_factor: dict[int, float]
    worker_hours: float
    job_types: dict[str, int]
    entities: dict[str, int]
    weights: dict[str, int]
    statuses: dict[str, int]
    with_slo: int
    #: Jobs that do not run on the reference type: not in durations or worker-hours.
    off_reference: int
    #: {worker type: workers} that ``load`` is on.
    cluster: dict[str, int]
    #: Worker-seconds asked for, over those that the cluster has from the first arrival to the last,
    #: each job at its speed under equal shares of the types (§4.1). None: no span, or no cluster.
    load: float | None
    #: Jobs that no type of the cluster can run: not in the load.
    off_cluster: int


def stats(
    jobs: Sequence[JobSpec],
    table: ThroughputTable,
    reference_type: str,
    cluster: Mapping[str, int],
) -> Stats:
    """Figures of jobs that are in order of arrival."""
    arrivals = np.array([job.arrival_s for job in jobs])
    span_s = float(arrivals[-1] - arrivals[0]) if len(jobs) else 0.0
    lengths = [(job, length) for job in jobs if (length := duration_s(job, table, reference_type))]
    hours: dict[int, float] = {}
    for job, length in lengths:
        worker_hours = length * job.scale_factor / _HOUR_S
        hours[job.scale_factor] = hours.get(job.scale_factor, 0.0) + worker_hours
    work_s, off_cluster = work(jobs, table, cluster)
    has_load = span_s > 0 and sum(cluster.values()) > 0
    return Stats(
        jobs=len(jobs),
        span_s=span_s,
        arrivals_per_h=len(jobs) / span_s * _HOUR_S if span_s else 0.0,
        peak_per_h=_peak(arrivals),
        gaps_s=_quantiles(np.diff(arrivals)),
        durations_s=_quantiles([length for _, length in lengths]),
        mean_duration_s=float(np.mean([length for _, length in lengths])) if lengths else 0.0,
        durations=_ranges([length for _, length in lengths]),
        reference_type=reference_type,
        scale_factors=_counts(job.scale_factor for job in jobs),
        worker_hours_by_scale_factor=dict(sorted(hours.items())),
        worker_hours=float(sum(hours.values())),
        job_types=_counts(job.job_type for job in jobs),
        entities=_counts(job.entity for job in jobs if job.entity),
        weights={
            f"{weight:g}": n for weight, n in _counts(j.priority_weight for j in jobs).items()
        },
        statuses=_counts(job.source.status for job in jobs if job.source and job.source.status),
        with_slo=sum(job.slo_s is not None for job in jobs),
        off_reference=len(jobs) - len(lengths),
        cluster=dict(cluster),
        load=work_s / (span_s * sum(cluster.values())) if has_load else None,
        off_cluster=off_cluster,
    )


def duration_s(job: JobSpec, table: ThroughputTable, worker_type: str) -> float | None:
    """Seconds the job takes alone on workers of a type; None if it does not run there."""
    rate = table.alone(job.job_type, job.scale_factor, worker_type)
    rate = rate or job.declared_throughputs.get(worker_type)
    return job.total_steps / rate if rate and job.total_steps is not None else None


def work(
    jobs: Iterable[JobSpec], table: ThroughputTable, cluster: Mapping[str, int]
) -> tuple[float, int]:
    """Worker-seconds of all jobs at their speeds under equal shares; and how many cannot run."""
    total = sum(cluster.values())
    speeds: dict[tuple[object, ...], float] = {}
    work_s, off_cluster = 0.0, 0
    for job in jobs:
        declared = tuple(sorted(job.declared_throughputs.items()))
        key = (job.job_type, job.scale_factor, job.allowed_worker_types, declared)
        if key not in speeds:
            speeds[key] = _equal_speed(job, table, cluster) / total if total else 0.0
        if speeds[key] > 0 and job.total_steps is not None:
            work_s += job.scale_factor * job.total_steps / speeds[key]
        else:
            off_cluster += 1
    return work_s, off_cluster


def _equal_speed(job: JobSpec, table: ThroughputTable, cluster: Mapping[str, int]) -> float:
    """Sum over types of steps/s times workers."""
    allowed = job.allowed_worker_types
    found = 0.0
    for worker_type, workers in cluster.items():
        if workers < job.scale_factor or (allowed and worker_type not in allowed):
            continue
        rate = table.alone(job.job_type, job.scale_factor, worker_type)
        found += workers * (rate or job.declared_throughputs.get(worker_type, 0.0))
    return found


def _peak(arrivals: Floats) -> int:
    if not len(arrivals):
        return 0
    hours = ((arrivals - arrivals[0]) // _HOUR_S).astype(np.int64)
    return int(np.unique(hours, return_counts=True)[1].max())


def _quantiles(values: Sequence[float] | Floats) -> dict[str, float]:
    if not len(values):
        return {}
    found = np.quantile(np.asarray(values, dtype=float), QUANTILES)
    return {f"{q:.0%}": float(v) for q, v in zip(QUANTILES, found, strict=True)}


def _ranges(lengths_s: Sequence[float]) -> dict[str, int]:
    counts, _ = np.histogram(lengths_s, bins=[0.0, *_RANGES.values()])
    return {name: int(n) for name, n in zip(_RANGES, counts, strict=True)}


def _counts(values: Iterable[T]) -> dict[T, int]:
    return dict(sorted(Counter(values).items()))

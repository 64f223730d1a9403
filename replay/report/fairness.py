"""Finish-time fairness of a schedule from its log alone (§4.2).

rho of a job is its JCT over the time it would have taken on its own 1/n share of the cluster, n
being the number of jobs there at each moment, in this log. Below 1, sharing was worth it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def present(changes: Iterable[tuple[float, int]]) -> tuple[Floats, Floats]:
    """(times, numbers): from each time on, so many jobs are there.

    Parameters
    ----------
    changes : (time, change of the number)
    """
    by_time: dict[float, int] = {}
    for at, change in changes:
        by_time[at] = by_time.get(at, 0) + change
    times = np.array(sorted(by_time), dtype=float)
    return times, np.cumsum([by_time[at] for at in times.tolist()]).astype(float)


def isolated_steps_per_s(
    speeds: Mapping[str, float], scale_factor: int, workers: Mapping[str, int], jobs: Floats
) -> Floats:
    """Steps/s of a job on its share of the cluster when so many jobs are there.

    Its share of each type is the n-th part of the type's workers, over its scale factor; if these
    come to more than all of its time, they shrink in proportion.

    Parameters
    ----------
    speeds : {worker type: steps/s of the whole job}
    workers : {worker type: how many there are}
    jobs : (moments,) how many jobs are there
    """
    types = sorted(workers)
    numbers = np.array([workers[name] for name in types], dtype=float)
    rates = np.array([speeds.get(name, 0.0) for name in types])
    shares = numbers[None, :] / (np.maximum(jobs, 1.0)[:, None] * scale_factor)
    shares /= np.maximum(1.0, shares.sum(axis=1, keepdims=True))
    steps: Floats = shares @ rates
    return steps


def isolated_jct_s(
    arrival_s: float, steps: float, times: Floats, steps_per_s: Floats
) -> float | None:
    """Seconds from arrival until the steps are done at the speeds that hold from each time on.

    The last speed holds for ever. None if they are never done.
    """
    start = int(np.searchsorted(times, arrival_s, side="right")) - 1
    edges = np.append(np.maximum(times[start:], arrival_s), np.inf)
    speeds = steps_per_s[start:]
    done = np.cumsum(np.append(0.0, np.diff(edges[:-1]) * speeds[:-1]))
    last = int(np.searchsorted(done, steps, side="left")) - 1
    if speeds[last] <= 0:
        return None
    return float(edges[last] + (steps - done[last]) / speeds[last] - arrival_s)


def rhos(jct_s: Sequence[float | None], isolated_s: Sequence[float | None]) -> list[float]:
    """Finish-time fairness of the jobs of which both times are known."""
    return [
        jct / isolated
        for jct, isolated in zip(jct_s, isolated_s, strict=True)
        if jct is not None and isolated
    ]

"""Colocated throughputs of a problem's classes, from the tables' rows (space sharing; §3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import mul

from schemas.domain import ThroughputRow
from services.policy.problem import PairSpeeds


def colocated_speeds(
    rows: Mapping[tuple[str, int], ThroughputRow],
    keys: Sequence[tuple[str, int]],
    own: Sequence[ThroughputRow | None],
    types: tuple[str, ...],
) -> PairSpeeds:
    """Both throughputs of each pair of classes whose jobs can run beside each other.

    Parameters
    ----------
    rows : {(job type, scale factor): throughputs, alone and beside others}
    keys : (classes,) job type and scale factor
    own : (classes,) throughputs of the class's jobs where they are not their job type's
    types : (worker types,)

    Returns
    -------
    pairs : {(class, class), ascending: ((worker types,), (worker types,)) steps/s}
    """
    factors = [_factors(rows, row, types) for row in own]
    indices: dict[tuple[str, int], list[int]] = {}
    for index, key in enumerate(keys):
        indices.setdefault(key, []).append(index)
    pairs: PairSpeeds = {}
    for key, row in rows.items():
        if key not in indices:
            continue
        by_other: dict[str, dict[str, tuple[float, float]]] = {}
        for pair in row.beside:
            if (pair.other_job_type, key[1]) not in indices:
                continue
            speeds = by_other.setdefault(pair.other_job_type, {})
            speeds[pair.worker_type] = (pair.steps_per_s, pair.other_steps_per_s)
        for other, speeds in sorted(by_other.items()):
            one = tuple(speeds.get(t, (0.0, 0.0))[0] for t in types)
            two = tuple(speeds.get(t, (0.0, 0.0))[1] for t in types)
            for c in indices[key]:
                for d in indices[other, key[1]]:
                    both = tuple(map(mul, one, factors[c])), tuple(map(mul, two, factors[d]))
                    pairs[min(c, d), max(c, d)] = both if c <= d else (both[1], both[0])
    return pairs


def _factors(
    rows: Mapping[tuple[str, int], ThroughputRow],
    row: ThroughputRow | None,
    types: tuple[str, ...],
) -> tuple[float, ...]:
    """(worker types,) throughput of a job of its own over its job type's."""
    if row is None:
        return (1.0,) * len(types)
    of_class = rows.get((row.job_type, row.scale_factor), row)
    rates = {t.worker_type: t.steps_per_s for t in row.alone}
    references = {t.worker_type: t.steps_per_s for t in of_class.alone}
    return tuple(rates.get(t, 0.0) / (references.get(t, 0.0) or 1.0) for t in types)

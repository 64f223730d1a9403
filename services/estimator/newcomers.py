"""Jobs like no reference: each is the first of a class of its own, which later ones join (§6).

A job is like a class if the pairs measured of both differ by no more than measuring does. Taken
for the nearest reference all the same, it would be put beside others by that one's figures, and
what its leases then show would be held against the wrong class.

What is not measured of a new class is guessed, and put right when jobs of it share workers: halfway
between the row completed (``completion.py``) and the nearest reference's, as the two err in
different places; beside a class that was itself made here, as beside the reference nearest to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schemas.domain import PairThroughput, Throughput, ThroughputRow
from services.estimator.fingerprint import (
    NOISE,
    Floats,
    Library,
    Match,
    Measured,
    cells_of,
    isolated,
    taken_for,
)
from services.estimator.rates import rates_of

#: Root mean square difference up to which two jobs may be of one class.
ALIKE = 2 * NOISE


def is_like(
    known: Library, references: Sequence[ThroughputRow], match: Match, job: Measured
) -> bool:
    """Whether the reference that a job is most like is what it is."""
    return known.apart(job, cells_of(references, match.job_type)) <= ALIKE


def joined(known: Library, learned: Sequence[ThroughputRow], job: Measured) -> Match | None:
    """The job as one of the classes made before; None if it is like none of them."""
    apart = [known.apart(job, cells_of([row], row.job_type)) for row in learned]
    if not apart or min(apart) > ALIKE:
        return None
    nearest = int(np.argmin(apart))
    squares = np.square(apart)
    confidence = float(1.0 / np.exp((squares[nearest] - squares) / NOISE**2).sum())
    row = learned[nearest]
    return taken_for(row.job_type, confidence, rates_of(row), job)


def first_of_its_class(
    name: str,
    known: Library,
    references: Sequence[ThroughputRow],
    learned: Sequence[ThroughputRow],
    match: Match,
    job: Measured,
) -> tuple[ThroughputRow, float]:
    """The class that a job is the first of, and how much of what it was unsure of is known now.

    Parameters
    ----------
    match
        The reference nearest to the job, all the same.
    learned
        The classes that were made so before.
    """
    nearest = known.job_types.index(match.job_type)
    completed, variance = known.complete(job)
    alone_only = {cell: rates for cell, rates in job.items() if not cell[1]}
    before = known.complete(alone_only)[1]
    guessed = (variance > 0) & known.known[nearest]
    guess = np.where(guessed, (completed + known.values[nearest]) / 2, completed)
    of_reference = cells_of(references, match.job_type)
    # Types without workers now may have some later: there it goes as the nearest reference does.
    elsewhere = {t: rate * match.multiplier for t, rate in isolated(of_reference).items()}
    alone = elsewhere | match.alone | isolated(job)
    pairs = [
        *_beside_references(known, guess, alone),
        *_elsewhere(known, of_reference, match.multiplier),
        *_beside_learned(known, guess, alone, learned, match.job_type),
        *_beside_itself(name, known, guess, alone, nearest),
    ]
    row = ThroughputRow(
        job_type=name,
        scale_factor=references[0].scale_factor,
        alone=tuple(Throughput(*cell) for cell in sorted(alone.items())),
        beside=tuple(pairs),
    )
    doubt = float(np.sqrt(variance.sum() / before.sum())) if before.any() else 1.0
    return row, max(0.0, 1.0 - doubt)


def _beside_references(
    known: Library, guess: Floats, alone: dict[str, float]
) -> list[PairThroughput]:
    pairs = []
    for worker_type, other in known.profiles():
        if alone.get(worker_type, 0.0) > 0:
            kept, kept_of_other = _kept(known, guess, worker_type, other)
            reference = _alone(known, other, worker_type)
            both = (alone[worker_type] * kept, reference * kept_of_other)
            pairs.append(PairThroughput(worker_type, other, *both))
    return pairs


def _elsewhere(known: Library, of_reference: Measured, multiplier: float) -> list[PairThroughput]:
    """Pairs where nothing is profiled, as on types held unconsolidated: the reference's."""
    return [
        PairThroughput(worker_type, other, rate * multiplier, other_rate)
        for (worker_type, other), (rate, other_rate) in of_reference.items()
        if other in known.job_types and worker_type not in known.worker_types
    ]


def _beside_learned(
    known: Library,
    guess: Floats,
    alone: dict[str, float],
    learned: Sequence[ThroughputRow],
    nearest: str,
) -> list[PairThroughput]:
    pairs = []
    for row in learned:
        cells = cells_of([row], row.job_type)
        fingerprint = known.fingerprint(cells)[0][0]
        stand_in = known.job_types[int(known.distances(fingerprint).argmin())]
        for worker_type in known.worker_types:
            rate = cells.get((worker_type, ""), (0.0, 0.0))[0]
            beside = cells.get((worker_type, nearest))
            if alone.get(worker_type, 0.0) > 0 and rate > 0 and beside is not None:
                kept = _kept(known, guess, worker_type, stand_in)[0]
                both = (alone[worker_type] * kept, beside[0])
                pairs.append(PairThroughput(worker_type, row.job_type, *both))
    return pairs


def _beside_itself(
    name: str, known: Library, guess: Floats, alone: dict[str, float], nearest: int
) -> list[PairThroughput]:
    pairs = []
    for worker_type, other in known.profiles():
        if other == known.job_types[nearest] and alone.get(worker_type, 0.0) > 0:
            rate = alone[worker_type] * _kept(known, guess, worker_type, other)[0]
            pairs.append(PairThroughput(worker_type, name, rate, rate))
    return pairs


def _kept(known: Library, guess: Floats, worker_type: str, other: str) -> tuple[float, float]:
    """Fractions of their isolated speeds that the job and a reference keep together."""
    column = known.column((worker_type, other))
    kept, of_other = guess[column], guess[column + known.num_pairs]
    return float(max(kept, 0.0)), float(max(of_other, 0.0))


def _alone(known: Library, job_type: str, worker_type: str) -> float:
    row, column = known.job_types.index(job_type), known.worker_types.index(worker_type)
    return float(known.alone[row, column])

"""Which reference job an unknown job is like, told from a few measurements of it (§6).

A job's *fingerprint* is one row of numbers that hardly depend on how long its steps are: for every
reference job and worker type, the fraction of its isolated speed that the job keeps beside the
reference, and the fraction that the reference keeps beside the job; and how its isolated speeds on
the types compare. Profiles give a few of these numbers, ``completion.py`` the others, and the
reference whose own fingerprint is nearest is the one the job is taken for. What speed it runs at,
relative to that reference, is its multiplier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from schemas.domain import ThroughputRow
from services.estimator.completion import Factors, factorise

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

#: (worker type, job type of the reference beside; empty: alone).
Cell = tuple[str, str]
#: {cell: (steps/s of the job, of the reference beside it; 0 where there is none)}
Measured = Mapping[Cell, tuple[float, float]]

#: Standard deviation of a fraction of speed kept: of measuring it, and of no two jobs being alike.
NOISE = 0.03
#: Weight of a factor e between isolated speeds, against a whole speed lost to sharing.
_WEIGHT_OF_RATIO = 0.3
#: A type on which the job cannot run counts as this much slower than another.
_SLOWEST_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class Match:
    """Which reference a job is like.

    Attributes
    ----------
    job_type : str
        Of the reference.
    confidence : float
        Likelihood of this reference among all, in (0, 1].
    multiplier : float
        The job's isolated speed over the reference's: geometric mean over the types measured.
    alone : {worker type: steps/s}
        Of the job: as measured, or as the reference runs times the multiplier.
    """

    job_type: str
    confidence: float
    multiplier: float
    alone: dict[str, float]


@dataclass(frozen=True, slots=True)
class Library:
    """Fingerprints of the reference jobs of one scale factor.

    Columns are (type, reference beside): kept by the row's job; again: kept by the reference
    beside it; then (type,): isolated speed over that on ``base_type``.

    Attributes
    ----------
    base_type : str
        Type that isolated speeds are compared with.
    alone : (references, types)
        Isolated steps/s; NaN where not known.
    values, known : (references, columns)
    """

    job_types: tuple[str, ...]
    worker_types: tuple[str, ...]
    base_type: str
    alone: Floats
    values: Floats
    known: Mask
    factors: Factors

    @property
    def num_pairs(self) -> int:
        """Columns of one direction: (types x references)."""
        return len(self.worker_types) * len(self.job_types)

    def column(self, cell: Cell) -> int:
        """First column that a cell's profile fills."""
        column = self.worker_types.index(cell[0])
        if not cell[1]:
            return 2 * self.num_pairs + column
        return column * len(self.job_types) + self.job_types.index(cell[1])

    def profiles(self) -> tuple[Cell, ...]:
        """Pairs that can be profiled: the reference runs there, and something is known of it."""
        return tuple(
            (worker_type, job_type)
            for t, worker_type in enumerate(self.worker_types)
            for r, job_type in enumerate(self.job_types)
            if self.alone[r, t] > 0 and self.known[:, self.column((worker_type, job_type))].any()
        )

    def fingerprint(self, measured: Measured) -> tuple[Floats, Mask]:
        """(1, columns) what measurements say of a job, and where they say something."""
        values = np.zeros((1, self.values.shape[1]))
        known = np.zeros(values.shape, dtype=bool)
        base = measured.get((self.base_type, ""), (0.0, 0.0))[0]
        for (worker_type, beside), (rate, other_rate) in sorted(measured.items()):
            if worker_type not in self.worker_types or (beside and beside not in self.job_types):
                continue
            column = self.column((worker_type, beside))
            if not beside:
                values[0, column] = _ratio(rate, base)
                known[0, column] = base > 0
                continue
            reference = self.alone[
                self.job_types.index(beside), self.worker_types.index(worker_type)
            ]
            isolated = measured.get((worker_type, ""), (0.0, 0.0))[0]
            for place, part, whole in (
                (column, rate, isolated),
                (column + self.num_pairs, other_rate, reference),
            ):
                if whole > 0:
                    values[0, place] = min(part / whole, 1.5)
                    known[0, place] = True
        return values, known

    def complete(self, measured: Measured) -> tuple[Floats, Floats]:
        """(columns,) the whole fingerprint of a job, and the variance of each of its numbers."""
        completed, variance = self.factors.complete(*self.fingerprint(measured))
        pairs = 2 * self.num_pairs
        completed[0, :pairs] = completed[0, :pairs].clip(0.0)
        return completed[0], variance[0]

    def match(self, measured: Measured) -> Match:
        """The reference that a job is most like, and what follows for the job."""
        completed, variance = self.complete(measured)
        distances = self.distances(completed)
        nearest = int(distances.argmin())
        doubt = NOISE**2 + float(variance.mean())
        likelihoods = np.exp((distances[nearest] - distances) / doubt)
        confidence = float(1.0 / likelihoods.sum())
        rates = zip(self.worker_types, self.alone[nearest].tolist(), strict=True)
        return taken_for(self.job_types[nearest], confidence, dict(rates), measured)

    def distances(self, row: Floats) -> Floats:
        """(references,) mean square difference of each from a fingerprint, (columns,).

        What is not known of a reference is taken to be as of all on average: else one of which
        hardly anything is known would be like everybody.
        """
        mean: Floats = self.factors.mean.cpu().numpy()
        found: Floats = ((np.where(self.known, self.values, mean) - row) ** 2).mean(1)
        return found

    def apart(self, measured: Measured, other: Measured) -> float:
        """Root mean square difference of two jobs' fingerprints, of pairs measured of both; or 0.

        What was measured of one reference is all of its row: see ``cells_of``.
        """
        (one, of_one), (two, of_two) = self.fingerprint(measured), self.fingerprint(other)
        both = (of_one & of_two)[0, : 2 * self.num_pairs]
        apart = (one - two)[0, : 2 * self.num_pairs][both]
        return float(np.sqrt(np.mean(apart**2))) if both.any() else 0.0


def taken_for(
    job_type: str, confidence: float, rates: Mapping[str, float], measured: Measured
) -> Match:
    """A job taken for one of a class, whose isolated steps/s on each type are ``rates``."""
    found = {t: rate for (t, beside), (rate, _) in measured.items() if not beside and t in rates}
    logs = [np.log(rate / rates[t]) for t, rate in found.items() if rate * rates[t] > 0]
    scale = float(np.exp(np.mean(logs))) if logs else 1.0
    for worker_type, rate in rates.items():
        if worker_type not in found and rate == rate:  # noqa: PLR0124 - false for NaN alone
            found[worker_type] = rate * scale
    return Match(job_type, confidence, scale, found)


def isolated(measured: Measured) -> dict[str, float]:
    """{worker type, or way: steps/s} that a job was measured to make alone."""
    return {way: rate for (way, beside), (rate, _) in measured.items() if not beside}


def cells_of(rows: Sequence[ThroughputRow], job_type: str) -> dict[Cell, tuple[float, float]]:
    """All that rows say of a job type, alone and beside others; a pair may stand in either row."""
    found: dict[Cell, tuple[float, float]] = {}
    for row in rows:
        if row.job_type == job_type:
            found |= {(cell.worker_type, ""): (cell.steps_per_s, 0.0) for cell in row.alone}
        for pair in row.beside:
            both = (pair.steps_per_s, pair.other_steps_per_s)
            if row.job_type == job_type:
                found[pair.worker_type, pair.other_job_type] = both
            elif pair.other_job_type == job_type:
                found[pair.worker_type, row.job_type] = (both[1], both[0])
    return found


@lru_cache(maxsize=16)
def library(
    rows: tuple[ThroughputRow, ...], worker_types: tuple[str, ...], base_type: str
) -> Library:
    """Fingerprints of references, all of one scale factor, on the given types.

    Parameters
    ----------
    rows
        One per reference; a pair may stand in the row of either.
    worker_types
        That workers are there of.
    base_type
        One of them.
    """
    job_types = tuple(row.job_type for row in rows)
    place = {job_type: r for r, job_type in enumerate(job_types)}
    column = {worker_type: t for t, worker_type in enumerate(worker_types)}
    alone = np.full((len(job_types), len(worker_types)), np.nan)
    for row in rows:
        for cell in row.alone:
            if cell.worker_type in column:
                alone[place[row.job_type], column[cell.worker_type]] = cell.steps_per_s
    #: (references, types, references): steps/s of the first beside the last.
    together = np.full((len(job_types), len(worker_types), len(job_types)), np.nan)
    for row in rows:
        for pair in row.beside:
            if pair.worker_type in column and pair.other_job_type in place:
                one, other = place[row.job_type], place[pair.other_job_type]
                together[one, column[pair.worker_type], other] = pair.steps_per_s
                together[other, column[pair.worker_type], one] = pair.other_steps_per_s
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = together / np.where(alone > 0, alone, np.nan)[:, :, None]
    beside = kept.transpose(2, 1, 0)
    values, known = _columns(kept, beside, _ratios(alone, worker_types.index(base_type)))
    factors = factorise(values, known, noise=NOISE)
    return Library(job_types, worker_types, base_type, alone, values, known, factors)


def base_type(measured: Measured, worker_types: Sequence[str]) -> str | None:
    """First type on which the job was seen to run alone."""
    for worker_type in worker_types:
        if measured.get((worker_type, ""), (0.0, 0.0))[0] > 0:
            return worker_type
    return None


def _columns(kept: Floats, beside: Floats, ratios: Floats) -> tuple[Floats, Mask]:
    rows = len(kept)
    values = np.concatenate([kept.reshape(rows, -1), beside.reshape(rows, -1), ratios], axis=1)
    known = np.isfinite(values)
    return np.where(known, values, 0.0), known


def _ratios(alone: Floats, base: int) -> Floats:
    """(references, types) weighted logarithm of each speed over that on the base type."""
    ratios = np.full(alone.shape, np.nan)
    for row, rates in enumerate(alone):
        for column, rate in enumerate(rates):
            if rates[base] > 0 and np.isfinite(rate):
                ratios[row, column] = _ratio(rate, rates[base])
    return ratios


def _ratio(rate: float, base: float) -> float:
    if base <= 0:
        return 0.0
    return _WEIGHT_OF_RATIO * float(np.log(max(rate / base, _SLOWEST_RATIO)))

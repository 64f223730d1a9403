"""Each reference job left out in turn, and guessed from a few profiles of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from services.estimator.fingerprint import Cell, Floats, Library, Mask, cells_of, library
from services.estimator.newcomers import first_of_its_class, is_like
from services.estimator.profiling import choose
from services.estimator.tables import ThroughputTable

TYPES = ("k80", "p100", "v100")


@dataclass(frozen=True)
class Figures:
    """Errors of colocated throughputs never measured, by how they were guessed.

    ``published``: what the estimator says; ``matched``: the row of the reference matched;
    ``completed``: the completed row; ``neighbour``: the row of the reference nearest on the cells
    measured; ``mean``: of all references; ``best``: the row of the reference nearest in truth.
    """

    median: dict[str, float]
    p90: dict[str, float]
    #: How often the reference chosen is the best one.
    hits: dict[str, float]
    #: Mean confidence in the match.
    confidence: float


def everything(
    table: ThroughputTable, job_type: str, known: Library
) -> dict[Cell, tuple[float, float]]:
    """All that could be measured of a job."""
    alone = {(t, ""): (table.alone(job_type, 1, t) or 0.0, 0.0) for t in known.worker_types}
    return alone | profiled(table, job_type, known, known.profiles())


def profiled(
    table: ThroughputTable, job_type: str, known: Library, cells: Iterable[Cell]
) -> dict[Cell, tuple[float, float]]:
    """What profiles of a job find: alone on every type, and these pairs."""
    found = {(t, ""): (table.alone(job_type, 1, t) or 0.0, 0.0) for t in known.worker_types}
    for worker_type, beside in cells:
        pair = table.beside(job_type, beside, 1, worker_type)
        assert pair is not None, "the tables of these tests know all pairs"
        found[worker_type, beside] = pair
    return found


def held_out(table: ThroughputTable, fraction: float) -> Figures:
    """Guess each job of scale factor 1 from a fraction of its pairs with the others."""
    job_types = [job_type for job_type, scale_factor in table.classes() if scale_factor == 1]
    errors: dict[str, list[Floats]] = {}
    hits: dict[str, list[bool]] = {}
    confidences = []
    for job_type in job_types:
        rows = table.rows([(other, 1) for other in job_types if other != job_type])
        runs_on = [t for t in TYPES if table.alone(job_type, 1, t)]
        known = library(rows, TYPES, runs_on[0])
        truth, seen = (found[0] for found in known.fingerprint(everything(table, job_type, known)))
        measured = profiled(
            table, job_type, known, choose(known, round(fraction * len(known.profiles())))
        )
        cells = known.fingerprint(measured)[1][0]
        match = known.match(measured)
        confidences.append(match.confidence)
        pairs = np.arange(len(truth)) < 2 * known.num_pairs
        best = _nearest(known, truth, seen & pairs)
        chosen = {
            "matched": known.job_types.index(match.job_type),
            "neighbour": _nearest(known, truth, cells & pairs),
        }
        for name, reference in chosen.items():
            hits.setdefault(name, []).append(reference == best)
        guesses = {name: known.values[reference] for name, reference in chosen.items()}
        guesses["best"] = known.values[best]
        guesses["mean"] = known.values.sum(0) / known.known.sum(0).clip(1)
        guesses["completed"] = known.complete(measured)[0]
        guesses["published"] = guesses["matched"]
        if not is_like(known, rows, match, measured):
            row, _ = first_of_its_class("new", known, rows, (), match, measured)
            guesses["published"] = known.fingerprint(cells_of([row], "new"))[0][0]
        unmeasured = seen & pairs & ~cells & (truth > 0)
        for name, guess in guesses.items():
            off = np.abs(guess - truth)[unmeasured] / truth[unmeasured]
            errors.setdefault(name, []).append(off)
    pooled = {name: np.concatenate(each) for name, each in errors.items()}
    return Figures(
        median={name: float(np.median(each)) for name, each in pooled.items()},
        p90={name: float(np.percentile(each, 90)) for name, each in pooled.items()},
        hits={name: float(np.mean(each)) for name, each in hits.items()},
        confidence=float(np.mean(confidences)),
    )


def _nearest(known: Library, row: Floats, columns: Mask) -> int:
    both = known.known & columns
    squares = np.where(both, (known.values - row) ** 2, 0.0)
    return int((squares.sum(1) / both.sum(1).clip(1)).argmin())

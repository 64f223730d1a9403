"""Which pairs to profile of a job nobody knows: those that leave the least to guess.

How sure one is of a row's unknowns depends on which cells are measured, not on what is found there
(``completion.py``), so all profiles of a job can be chosen, and asked for, at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schemas.domain import ProfileCell
from services.estimator.fingerprint import Cell, Floats, Library


def choose(library: Library, count: int) -> tuple[Cell, ...]:
    """Choose pairs to profile, best first, after the job has been profiled alone on every type.

    Greedy: each pair is the one that lowers the summed variance of all numbers of the
    fingerprint the most, those before it given.

    Parameters
    ----------
    count : int
        Pairs wanted; all there are, if fewer.
    """
    candidates = list(library.profiles())
    factors = library.factors
    loadings: Floats = factors.loadings.cpu().numpy()
    variance = factors.noise**2
    spread = np.linalg.inv(
        np.eye(loadings.shape[1])
        + loadings[2 * library.num_pairs :].T @ loadings[2 * library.num_pairs :] / variance
    )
    gram = loadings.T @ loadings
    columns = np.array([library.column(cell) for cell in candidates], dtype=int)
    #: (candidates, 2, rank): what the two numbers of a profile say of the unknowns.
    views = loadings[np.stack([columns, columns + library.num_pairs], axis=1)]
    chosen: list[Cell] = []
    while candidates and len(chosen) < count:
        seen = views @ spread
        doubt = seen @ views.transpose(0, 2, 1) + variance * np.eye(2)
        gains = np.trace(np.linalg.solve(doubt, seen @ gram @ seen.transpose(0, 2, 1)), 0, 1, 2)
        best = int(gains.round(12).argmax())
        chosen.append(candidates.pop(best))
        spread = spread - seen[best].T @ np.linalg.solve(doubt[best], seen[best])
        views = np.delete(views, best, axis=0)
    return tuple(chosen)


def plan(
    library: Library,
    fraction: float,
    cell_worker_s: float,
    budget_worker_s: float,
    ways: Sequence[str] = (),
) -> tuple[ProfileCell, ...]:
    """Profiles to ask for: alone on each type, then pairs, as far as fraction and budget go.

    Parameters
    ----------
    fraction : float
        Of the pairs that can be profiled, at most this share, rounded to whole profiles.
    cell_worker_s, budget_worker_s : float
        Worker-seconds that one profile takes, and that all of a job's may take.
    ways
        Of types, unconsolidated, that the job is to be measured alone in as well.
    """
    alone = [ProfileCell(worker_type, "") for worker_type in (*library.worker_types, *ways)]
    affordable = int(budget_worker_s / cell_worker_s)
    wanted = round(fraction * len(library.profiles()))
    pairs = choose(library, min(wanted, max(0, affordable - len(alone))))
    return (*alone[:affordable], *(ProfileCell(*cell) for cell in pairs))

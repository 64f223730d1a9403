"""Carries out the estimator's effects: the part that needs torch, and so is imported when needed.

The result is a pure function of the effect; what it says is recorded, and replay takes it as read.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.domain import Throughput, ThroughputRow
from schemas.events import ProfileRequested, ThroughputEstimated
from services.estimator.effects import (
    Fingerprint,
    PlanProfiles,
    by_itself,
    profiles_alone,
)
from services.estimator.fingerprint import base_type, isolated, library
from services.estimator.newcomers import first_of_its_class, is_like, joined
from services.estimator.profiling import plan
from services.estimator.rates import rates_of, snapped


def carry_out(effect: PlanProfiles | Fingerprint) -> ProfileRequested | ThroughputEstimated:
    """Do what the core asked for."""
    if isinstance(effect, PlanProfiles):
        return plan_profiles(effect)
    return fingerprint(effect)


def plan_profiles(effect: PlanProfiles) -> ProfileRequested:
    """Choose a job's profiles (``profiling.py``)."""
    types = effect.worker_types
    references = _that_run(effect)
    if not references:
        return profiles_alone(effect)
    cells = plan(
        library(references, types, _types_of(references, types)[0]),
        effect.fraction,
        effect.profile_s * effect.scale_factor,
        effect.budget_s,
        effect.ways,
    )
    return ProfileRequested(job_id=effect.job_id, cells=cells, seconds=effect.profile_s)


def fingerprint(effect: Fingerprint) -> ThroughputEstimated:
    """Say which class a job is of (``fingerprint.py``, ``newcomers.py``), and what follows for it.

    Its throughputs are whole multiples of a small step of its class's: jobs that differ by noise
    are then alike to policies, which solve for classes of jobs. A class that it is the first of
    comes with its pairs.
    """
    measured = {
        (each.cell.worker_type, each.cell.beside): (each.steps_per_s, each.other_steps_per_s)
        for each in effect.measured
    }
    references = _that_run(effect)
    base = base_type(measured, _types_of(references, effect.worker_types))
    if base is None:
        return by_itself(effect)
    known = library(references, effect.worker_types, base)
    match = known.match(measured)
    if not is_like(known, references, match, measured):
        like = joined(known, effect.learned, measured)
        if like is None:
            row, confidence = first_of_its_class(
                effect.own_class, known, references, effect.learned, match, measured
            )
            return _estimate(effect, row, confidence, 1.0)
        match = like
    of_class = next(r for r in (*references, *effect.learned) if r.job_type == match.job_type)
    # Types without workers now may have some later: there it goes as its class does.
    elsewhere = {t: rate * match.multiplier for t, rate in rates_of(of_class).items()}
    alone = snapped(elsewhere | match.alone | isolated(measured), rates_of(of_class))
    row = ThroughputRow(
        job_type=match.job_type,
        scale_factor=effect.scale_factor,
        alone=tuple(Throughput(*cell) for cell in sorted(alone.items())),
    )
    return _estimate(effect, row, match.confidence, match.multiplier)


def _that_run(effect: PlanProfiles | Fingerprint) -> tuple[ThroughputRow, ...]:
    """The references that run on any type there are workers of: the others are nobody's."""
    types = set(effect.worker_types)
    return tuple(
        row
        for row in effect.references
        if any(cell.steps_per_s > 0 and cell.worker_type in types for cell in row.alone)
    )


def _types_of(references: Sequence[ThroughputRow], types: Sequence[str]) -> list[str]:
    """Those types that any of them runs on."""
    there = {c.worker_type for row in references for c in row.alone if c.steps_per_s > 0}
    return [worker_type for worker_type in types if worker_type in there]


def _estimate(
    effect: Fingerprint, row: ThroughputRow, confidence: float, multiplier: float
) -> ThroughputEstimated:
    return ThroughputEstimated(
        row=row,
        job_id=effect.job_id,
        source="learned",
        confidence=round(confidence, 4),
        multiplier=round(multiplier, 4),
    )

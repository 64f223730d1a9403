"""Carries out the estimator's effects: the part that needs torch, and so is imported when needed.

The result is a pure function of the effect; what it says is recorded, and replay takes it as read.
"""

from __future__ import annotations

from schemas.domain import Throughput, ThroughputRow
from schemas.events import ProfileRequested, ThroughputEstimated
from services.estimator.effects import Fingerprint, PlanProfiles
from services.estimator.fingerprint import base_type, library
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
    cells = plan(
        library(effect.references, types, types[0]),
        effect.fraction,
        effect.profile_s * effect.scale_factor,
        effect.budget_s,
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
    base = base_type(measured, effect.worker_types)
    assert base is not None, "a job that ran nowhere is not fingerprinted"
    references = effect.references
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
    alone = snapped(elsewhere | match.alone, rates_of(of_class))
    row = ThroughputRow(
        job_type=match.job_type,
        scale_factor=effect.scale_factor,
        alone=tuple(Throughput(*cell) for cell in sorted(alone.items())),
    )
    return _estimate(effect, row, match.confidence, match.multiplier)


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

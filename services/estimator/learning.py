"""Carries out the estimator's effects: the part that needs torch, and so is imported when needed.

The result is a pure function of the effect; what it says is recorded, and replay takes it as read.
"""

from __future__ import annotations

from schemas.domain import Throughput, ThroughputRow
from schemas.events import ProfileRequested, ThroughputEstimated
from services.estimator.effects import Fingerprint, PlanProfiles
from services.estimator.fingerprint import base_type, library
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
    """Match a job with a reference (``fingerprint.py``), and say what follows for it.

    Its throughputs are whole multiples of a small step of the reference's: jobs that differ by
    noise are then alike to policies, which solve for classes of jobs.
    """
    measured = {
        (each.cell.worker_type, each.cell.beside): (each.steps_per_s, each.other_steps_per_s)
        for each in effect.measured
    }
    base = base_type(measured, effect.worker_types)
    assert base is not None, "a job that ran nowhere is not fingerprinted"
    match = library(effect.references, effect.worker_types, base).match(measured)
    row = next(row for row in effect.references if row.job_type == match.job_type)
    # Types without workers now may have some later: there it goes as its reference does.
    elsewhere = {t: rate * match.multiplier for t, rate in rates_of(row).items()}
    alone = snapped(elsewhere | match.alone, rates_of(row))
    return ThroughputEstimated(
        row=ThroughputRow(
            job_type=match.job_type,
            scale_factor=effect.scale_factor,
            alone=tuple(Throughput(*cell) for cell in sorted(alone.items())),
        ),
        job_id=effect.job_id,
        source="learned",
        confidence=round(match.confidence, 4),
        multiplier=round(match.multiplier, 4),
    )

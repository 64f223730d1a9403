"""What the estimator has computed outside its core: each effect carries its whole input."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from schemas.domain import ProfileCell, Throughput, ThroughputRow
from schemas.events import Event, ProfileRequested, ThroughputEstimated


class PlanProfiles(msgspec.Struct, frozen=True, kw_only=True):
    """Choose what to measure of a job nobody knows."""

    ends_with: ClassVar[tuple[type[Event], ...]] = (ProfileRequested,)
    job_id: str
    scale_factor: int
    #: Reference jobs of the scale factor.
    references: tuple[ThroughputRow, ...]
    #: Types there are workers of, by name.
    worker_types: tuple[str, ...]
    #: A gang's: unconsolidated ways that it can be held in, and that references were measured in.
    ways: tuple[str, ...] = ()
    #: Of the pairs, the share to profile.
    fraction: float
    profile_s: float
    #: Worker-seconds that all profiles may take.
    budget_s: float


class MeasuredCell(msgspec.Struct, frozen=True, array_like=True):
    """What a profile found: steps/s of the job, and of the reference beside it, if any."""

    cell: ProfileCell
    steps_per_s: float
    other_steps_per_s: float


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Find the class that a profiled job is like, or say what it is if there is none."""

    ends_with: ClassVar[tuple[type[Event], ...]] = (ThroughputEstimated,)
    job_id: str
    scale_factor: int
    references: tuple[ThroughputRow, ...]
    #: Classes of the scale factor that were made of jobs like no reference.
    learned: tuple[ThroughputRow, ...] = ()
    worker_types: tuple[str, ...]
    measured: tuple[MeasuredCell, ...]
    #: What its own class is to be called, if it is the first of one.
    own_class: str


def carry_out(effect: PlanProfiles | Fingerprint) -> ProfileRequested | ThroughputEstimated:
    """Do what the core asked for; torch is imported by the first that does."""
    from services.estimator import learning  # noqa: PLC0415 - torch, which few need

    return learning.carry_out(effect)


def give_up(
    effect: PlanProfiles | Fingerprint, _reason: str
) -> ProfileRequested | ThroughputEstimated:
    """What to do without: profile the job alone; believe what its profiles say, of itself only."""
    return profiles_alone(effect) if isinstance(effect, PlanProfiles) else by_itself(effect)


def profiles_alone(effect: PlanProfiles) -> ProfileRequested:
    """Profiles of the job alone, on every type."""
    cells = tuple(ProfileCell(worker_type, "") for worker_type in effect.worker_types)
    return ProfileRequested(job_id=effect.job_id, cells=cells, seconds=effect.profile_s)


def by_itself(effect: Fingerprint) -> ThroughputEstimated:
    """The job as measured alone, like nothing else."""
    alone = {
        each.cell.worker_type: each.steps_per_s for each in effect.measured if not each.cell.beside
    }
    row = ThroughputRow(
        job_type="",
        scale_factor=effect.scale_factor,
        alone=tuple(Throughput(*cell) for cell in sorted(alone.items())),
    )
    return ThroughputEstimated(row=row, job_id=effect.job_id, source="learned", confidence=0.0)

"""What the estimator has computed outside its core: each effect carries its whole input."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from schemas.domain import ProfileCell, ThroughputRow
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
    """Find the reference that a profiled job is like."""

    ends_with: ClassVar[tuple[type[Event], ...]] = (ThroughputEstimated,)
    job_id: str
    scale_factor: int
    references: tuple[ThroughputRow, ...]
    worker_types: tuple[str, ...]
    measured: tuple[MeasuredCell, ...]

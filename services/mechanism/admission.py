"""Whether a job can ever run here, said with numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from schemas.domain import JobSpec
from schemas.subjects import is_safe_name


def refusal(spec: JobSpec, workers: Mapping[str, int]) -> str | None:
    """Why a job can never run, or None.

    ``workers`` is {worker type: workers registered}; while it is empty nobody can tell, and the
    job waits.
    """
    if not is_safe_name(spec.job_id):
        return f"job_id {spec.job_id!r} is not 1 to 64 letters, digits, '_' or '-'"
    if spec.scale_factor < 1:
        return f"scale_factor is {spec.scale_factor}; it must be at least 1"
    if spec.total_steps is None or not 0 < spec.total_steps < math.inf:
        return f"total_steps is {spec.total_steps}; it must be a number above 0"
    if not 0 < spec.priority_weight < math.inf:
        return f"priority_weight is {spec.priority_weight}; it must be a number above 0"
    for worker_type, speed in sorted(spec.declared_throughputs.items()):
        if not 0 <= speed < math.inf:
            return f"declared_throughputs of {worker_type} is {speed}; it must be 0 or more steps/s"
    allowed = spec.allowed_worker_types or tuple(workers)
    largest = max((workers.get(t, 0) for t in allowed), default=0)
    if workers and largest < spec.scale_factor:
        counts = ", ".join(f"{t}: {workers.get(t, 0)}" for t in sorted(allowed))
        return f"asks for {spec.scale_factor} workers of one type; there are {counts}"
    return None


def hopeless(spec: JobSpec, speeds: Mapping[str, float], workers: Mapping[str, int]) -> str | None:
    """Why a job of these throughputs, {worker type: steps/s}, can never run, or None."""
    allowed = spec.allowed_worker_types
    known = ", ".join(f"{t}: {speed:g}" for t, speed in sorted(speeds.items())) or "none"
    usable = [t for t, speed in speeds.items() if speed > 0 and (not allowed or t in allowed)]
    if usable:
        if not workers or max(workers.get(t, 0) for t in usable) >= spec.scale_factor:
            return None
        counts = ", ".join(f"{t}: {workers.get(t, 0)}" for t in sorted(usable))
        return (
            f"asks for {spec.scale_factor} workers of one type that it can run on; there are "
            f"{counts} (steps/s known: {known})"
        )
    limit = f" of the allowed {', '.join(allowed)}" if allowed else ""
    return f"throughput is 0 on every worker type{limit} (steps/s known: {known})"

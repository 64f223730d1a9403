"""What baselines ask of every job."""

from __future__ import annotations

from services.policy.problem import JobClass, ProblemError


def of_each_job(job_class: JobClass, field: str, default: float | None = None) -> tuple[float, ...]:
    """(jobs,) a field of the class, which has a value for each job or, with a default, for none.

    Raises
    ------
    ProblemError
        It has not.
    """
    values: tuple[float, ...] = getattr(job_class, field)
    if not values and default is not None:
        values = (default,) * len(job_class.job_ids)
    if len(values) != len(job_class.job_ids):
        raise ProblemError(
            f"class {job_class.job_type}: {field} has {len(values)} values, must be one for each "
            f"of its {len(job_class.job_ids)} jobs"
        )
    return values

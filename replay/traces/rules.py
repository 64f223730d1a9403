"""What a job in a trace may look like, whatever format it came in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from schemas.domain import JobSpec
from schemas.subjects import is_safe_name
from services.estimator.tables import MAX_SCALE_FACTOR

#: Three centuries. Below it a float still tells microseconds apart.
MAX_S = 1e10
#: From here on a float no longer counts single steps.
MAX_STEPS = 2.0**53
MAX_ATTEMPTS = 1_000_000


class Rule(NamedTuple):
    """What numbers are right, and how to say so."""

    holds: Callable[[float], bool]
    expected: str


#: {field of ``JobSpec``: its rule}; NaN fails every one of them.
RULES = {
    "total_steps": Rule(lambda x: 0 < x <= MAX_STEPS, "a number above 0, at most 2^53"),
    "duration_s": Rule(lambda x: 0 < x <= MAX_S, f"seconds above 0, at most {MAX_S:g}"),
    "arrival_s": Rule(lambda x: 0 <= x <= MAX_S, f"seconds from 0 to {MAX_S:g}"),
    "priority_weight": Rule(lambda x: 0 < x < math.inf, "a finite number above 0"),
    "slo_s": Rule(lambda x: 0 < x <= MAX_S, f"seconds above 0, at most {MAX_S:g}"),
    "scale_factor": Rule(
        lambda x: 1 <= x <= MAX_SCALE_FACTOR and x == int(x),
        f"a whole number of workers, 1 to {MAX_SCALE_FACTOR}",
    ),
    "max_attempts": Rule(lambda x: 1 <= x <= MAX_ATTEMPTS, f"a whole number, 1 to {MAX_ATTEMPTS}"),
}
_RATE = Rule(lambda x: 0 <= x < math.inf, "a finite number of steps/s, 0 or more")

NAME = "a printable name without surrounding blanks"
_JOB_ID = "1 to 64 of the characters A-Z a-z 0-9 _ -"


def is_name(text: str) -> bool:
    """Whether ``text`` can stand in a table or a message as it is."""
    return bool(text) and text == text.strip() and text.isprintable()


def wrong(job: JobSpec) -> Iterator[tuple[str, object, str]]:
    """What is wrong with a job: (field, value, what would be right) for each thing."""
    if not is_safe_name(job.job_id):
        yield "job_id", job.job_id, _JOB_ID
    for field, rule in RULES.items():
        value = getattr(job, field)
        if value is not None and not rule.holds(value):
            yield field, value, rule.expected
    if (job.total_steps is None) == (job.duration_s is None):
        both = (job.total_steps, job.duration_s)
        yield "total_steps, duration_s", both, "exactly one of the two"
    for field, name in _names(job):
        if not is_name(name):
            yield field, name, NAME
    for name, rate in job.declared_throughputs.items():
        if not _RATE.holds(rate):
            yield f"declared_throughputs[{name}]", rate, _RATE.expected


def _names(job: JobSpec) -> Iterator[tuple[str, str]]:
    yield "job_type", job.job_type
    for field in ("reference_type", "entity", "user"):
        name = getattr(job, field)
        if name:
            yield field, name
    for field in ("allowed_worker_types", "declared_throughputs"):
        for name in getattr(job, field):
            yield field, name

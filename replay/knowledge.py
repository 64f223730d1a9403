"""What ``gavel simulate`` lets the estimator know: its options, checked."""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec

from replay import options
from replay.options import OptionError
from replay.request import Request
from schemas.events import ClusterConfigured
from services.estimator.tables import ThroughputTable

MODES = ("oracle", "declared", "learned")
CLAIMS = ("believe", "check", "cap")

#: Workers kept for profiles where none are asked for.
PROFILE_WORKERS = 6


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What the estimator is given, and how far the simulated workers are from the table."""

    profile_workers: int = 0
    #: Its table, if it is not all of the simulated cluster's.
    table: ThroughputTable | None = None
    noise: float = 0.0
    noise_seed: int = 0


def configure(request: Request, config: ClusterConfigured) -> ClusterConfigured:
    """Settings of the estimator.

    Raises
    ------
    OptionError
        There is no such mode, or an option is of another one.
    """
    mode = options.one_of("--estimator", request.estimator, MODES)
    _check_mode(request)
    fraction = 0.2 if request.profile_fraction is None else request.profile_fraction
    if not 0 <= fraction <= 1:
        raise OptionError("--profile-fraction", fraction, "a share of all pairs, 0 to 1")
    claims = options.one_of("--claims", request.claims or "check", CLAIMS)
    if mode == "oracle":
        return config
    return msgspec.structs.replace(
        config,
        estimator=mode,
        # A job's type names its row in the truth: to be learned, it must not be believed.
        trust_job_types=mode != "learned",
        profile_fraction=fraction,
        claims=claims,
    )


def knowledge(request: Request, table: ThroughputTable) -> Knowledge:
    """What the estimator is given.

    Raises
    ------
    OptionError
        A number makes no sense.
    """
    workers = request.profile_workers
    if workers is None:
        workers = 0 if request.estimator == "oracle" else PROFILE_WORKERS
    if not 0 <= workers <= options.MAX_WORKERS:
        raise OptionError("--profile-workers", workers, f"0 to {options.MAX_WORKERS}")
    if not 0 <= request.noise <= 1:
        raise OptionError("--noise", request.noise, "a relative deviation, 0 to 1")
    return Knowledge(
        profile_workers=workers,
        table=_some_of(table, request.references, request.seed),
        noise=request.noise,
        noise_seed=request.seed,
    )


def _check_mode(request: Request) -> None:
    """Refuse options that the mode would pass over in silence."""
    of_others = {
        "--profile-fraction": (request.profile_fraction, ("learned",)),
        "--profile-workers": (request.profile_workers, ("declared", "learned")),
        "--references": (request.references, ("learned",)),
        "--claims": (request.claims or None, ("declared",)),
    }
    for option, (value, modes) in of_others.items():
        if value is not None and request.estimator not in modes:
            expected = f"none with --estimator {request.estimator}: it goes with {modes[-1]}"
            raise OptionError(option, value, expected)


def _some_of(table: ThroughputTable, count: int | None, seed: int) -> ThroughputTable | None:
    """The table cut down to so many job types, drawn by seed; None: all of it."""
    if count is None:
        return None
    job_types = sorted({job_type for job_type, _ in table.classes()})
    if not 1 <= count <= len(job_types):
        raise OptionError("--references", count, f"1 to {len(job_types)}, the table's job types")
    kept = set(random.Random(seed).sample(job_types, count))
    rows = table.rows([key for key in table.classes() if key[0] in kept])
    return ThroughputTable.from_rows(rows, f"{table.source}; {count} job types of it")

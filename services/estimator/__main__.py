"""The estimator service; what it learns is computed in a process of its own.

``gavel-estimator``, or ``python -P -m services.estimator``.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from schemas.events import ProfileRequested, ThroughputEstimated
from services.estimator.core import EstimatorCore
from services.runtime.actor import Actor
from services.runtime.pool import ComputingExecutor
from services.runtime.service import Process, Service
from services.runtime.service import main as run


def wire(_: Process) -> Service:
    """The service around its core."""
    # Not before it is needed: a cluster of known jobs needs no torch.
    executor = ComputingExecutor(learn, give_up, at_once=False)
    return Service(Actor("estimator", EstimatorCore()), executor, close=executor.close)


def learn(effect: Any) -> ProfileRequested | ThroughputEstimated:
    """Carry out an effect of the core; runs in the other process."""
    from services.estimator.learning import carry_out  # noqa: PLC0415 - it imports torch

    return carry_out(effect)


def give_up(effect: Any, reason: str) -> NoReturn:
    """There is nothing true to be said of the job."""
    raise RuntimeError(f"{type(effect).__name__} of job {effect.job_id}: {reason}")


def main() -> int:
    """Entry point of the console script."""
    return run("estimator", wire)


if __name__ == "__main__":
    sys.exit(main())

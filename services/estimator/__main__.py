"""The estimator service; what it learns is computed in a process of its own.

``gavel-estimator``, or ``python -P -m services.estimator``.
"""

from __future__ import annotations

import sys

from services.estimator.core import EstimatorCore
from services.estimator.effects import carry_out, give_up
from services.runtime.actor import Actor
from services.runtime.pool import ComputingExecutor
from services.runtime.service import Process, Service
from services.runtime.service import main as run


def wire(_: Process) -> Service:
    """The service around its core."""
    # Not opened before it is needed: a cluster of known jobs needs no torch.
    executor = ComputingExecutor(carry_out, give_up)
    return Service(Actor("estimator", EstimatorCore()), executor, close=executor.close)


def main() -> int:
    """Entry point of the console script."""
    return run("estimator", wire)


if __name__ == "__main__":
    sys.exit(main())

"""The policy service: allocations, solved in a process of their own.

``gavel-policy``, or ``python -P -m services.policy``.
"""

from __future__ import annotations

import sys

from schemas.events import AllocationFailed
from services.policy.core import PolicyCore, Solve
from services.policy.solve import carry_out
from services.runtime.actor import Actor
from services.runtime.pool import ComputingExecutor
from services.runtime.service import Process, Service
from services.runtime.service import main as run


def wire(_: Process) -> Service:
    """The service around its core."""
    executor = ComputingExecutor(carry_out, give_up)
    actor = Actor("policy", PolicyCore())
    return Service(actor, executor, open=executor.open, close=executor.close)


def give_up(solve: Solve, reason: str) -> AllocationFailed:
    """A solve that ends its process: the last allocation stays in force."""
    return AllocationFailed(policy=solve.policy, reason=reason)


def main() -> int:
    """Entry point of the console script."""
    return run("policy", wire)


if __name__ == "__main__":
    sys.exit(main())

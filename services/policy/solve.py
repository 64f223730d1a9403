"""Carries out ``Solve``: from a problem to the event that tells its outcome."""

from __future__ import annotations

from schemas.domain import AllocationRow
from schemas.events import AllocationComputed, AllocationFailed
from services.policy.catalog import POLICIES, resolve
from services.policy.checks import fault
from services.policy.core import Solve
from services.policy.problem import Allocation, PolicyError, Problem


def carry_out(solve: Solve) -> AllocationComputed | AllocationFailed:
    """Solve; a policy or solver that has no answer is an outcome too, not an exception."""
    try:
        allocation = resolve(solve.policy, solve.parameters).solve(solve.problem)
    except PolicyError as error:
        return AllocationFailed(policy=solve.policy, reason=str(error))
    except Exception as error:  # noqa: BLE001  # a policy may be anybody's; the cluster goes on
        return AllocationFailed(policy=solve.policy, reason=f"{type(error).__name__}: {error}")
    if solve.policy not in POLICIES:
        wrong = fault(solve.problem, allocation)
        if wrong is not None:
            return AllocationFailed(policy=solve.policy, reason=f"it is no allocation: {wrong}")
    return as_event(solve.policy, solve.problem, allocation)


def as_event(policy: str, problem: Problem, allocation: Allocation) -> AllocationComputed:
    """The allocation as it goes on the log.

    Jobs that get nothing are listed too, in rows without shares: the mechanism then knows that
    they were considered, and may let them fill idle workers.
    """
    served = {job for row in allocation.rows for c in row.combinations for job in c}
    unserved = tuple(
        (job_id,)
        for job_class in problem.classes
        for job_id in job_class.job_ids
        if job_id not in served
    )
    rows = allocation.rows + ((AllocationRow(unserved, {}),) if unserved else ())
    return AllocationComputed(
        policy=policy,
        rows=rows,
        objective=allocation.objective,
        prices=allocation.prices,
        bottlenecked=allocation.bottlenecked,
        set_aside=allocation.set_aside,
        unmet=allocation.unmet,
    )

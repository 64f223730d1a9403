"""Finish-time fairness (§4.2): nobody finishes later than alone on their share, if it can be."""

from __future__ import annotations

from dataclasses import dataclass

from services.policy.classes import ClassArrays
from services.policy.isolated import isolated_shares
from services.policy.jobs import Jobs, blind
from services.policy.makespan import Deadlines, serve
from services.policy.pools import Ways
from services.policy.problem import Allocation, Problem


@dataclass(frozen=True)
class FinishTimeFairness:
    """min max over jobs of rho_i = (e_i + r_i / thr_i) / (C_i + r_i / iso_i).

    e_i is the time since arrival, r_i the steps that remain, iso_i the throughput of an isolated
    1/n share. C_i is the time the steps done so far would have taken at the isolated throughputs
    of their day. What the optimum leaves of the cluster goes where it adds most to
    sum thr_i / Tbar_i, with the least worker time. Prices are the rho that a further worker of
    the type takes off.
    """

    needs_progress = True
    needs_isolated = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return serve(problem, Ways.each_type, isolated_finish)


@dataclass(frozen=True)
class FinishTimeFairnessAgnostic:
    """Finish-time fairness blind to types: every speed is that on the reference type.

    Every job's share is spread over the types it can use in proportion to their workers.
    """

    needs_progress = True
    needs_isolated = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        return serve(blind(problem), Ways.blind, isolated_finish)


def isolated_finish(arrays: ClassArrays, jobs: Jobs) -> Deadlines:
    """At rho 1, done when its isolated share would have it done."""
    isolated = (arrays.throughputs * isolated_shares(arrays)).sum(axis=1)
    due_s = jobs.isolated_s + jobs.steps_remaining / isolated[jobs.rows]
    return Deadlines(due_s, jobs.elapsed_s)

"""What a policy is asked, and what it answers: ``Problem`` in, ``Allocation`` out (§3).

A problem lists job *classes*, not jobs: jobs alike in everything the solver sees have equal shares
in some optimum (average an optimum over their permutations: the feasible set is convex and
symmetric), so a class is one row however many jobs it has.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from schemas.domain import AllocationRow, Entity

#: {(class index c, class index d), c <= d: ((worker types,) steps/s of c, of d)} together.
PairSpeeds = dict[tuple[int, int], tuple[tuple[float, ...], tuple[float, ...]]]


class JobClass(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs alike in throughputs, scale factor, weight and entity."""

    job_type: str
    scale_factor: int
    priority_weight: float = 1.0
    entity: str = ""
    #: (worker types,) steps/s of one job alone; 0 where it cannot or may not run.
    throughputs: tuple[float, ...]
    #: (worker types,) the same on workers that span more servers than need be; empty unless the
    #: policy asks for ``placement`` and the job has several workers.
    unconsolidated: tuple[float, ...] = ()
    #: (jobs of the class,) in order of arrival.
    job_ids: tuple[str, ...]
    #: (jobs,) rank of arrival among all jobs of the problem; FIFO's order.
    arrival_ranks: tuple[int, ...] = ()
    #: (jobs,) whole-job steps to go; empty unless the policy asks for progress.
    steps_remaining: tuple[float, ...] = ()
    #: (jobs,) seconds since arrival.
    elapsed_s: tuple[float, ...] = ()
    #: (jobs,) seconds that the steps done would have taken on the job's 1/n share of the cluster.
    isolated_s: tuple[float, ...] = ()
    #: (jobs,) seconds that the job has held its workers.
    held_s: tuple[float, ...] = ()
    #: (jobs,) seconds left to the deadline, inf without one.
    slo_remaining_s: tuple[float, ...] = ()
    #: (jobs,) steps/s of the job over those of the class; empty where all are 1. What is asked of
    #: a job, its steps to go among it, is in terms of the class; only who counts raw steps asks.
    factors: tuple[float, ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an allocation may depend on, and nothing that it may not."""

    #: (worker types,) in name order.
    worker_types: tuple[str, ...]
    #: (worker types,) workers that can be leased.
    num_workers: tuple[int, ...]
    classes: tuple[JobClass, ...]
    #: (worker types,) USD per worker and hour; 0 where no price is known.
    prices_usd_per_h: tuple[float, ...] = ()
    pairs: PairSpeeds = {}
    #: The same on workers that span more servers than need be; 0 where that is not known.
    pairs_unconsolidated: PairSpeeds = {}
    #: The worker type whose speed heterogeneity-agnostic policies take for everywhere's.
    reference_type: str = ""
    entities: tuple[Entity, ...] = ()
    #: Rows of the allocation in force, for a policy whose class says ``needs_previous``: its
    #: memory is on the log like everything else, and equal logs give equal allocations.
    previous: tuple[AllocationRow, ...] = ()

    @property
    def num_jobs(self) -> int:
        """Jobs over all classes."""
        return sum(len(job_class.job_ids) for job_class in self.classes)


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """X, and what it means."""

    rows: tuple[AllocationRow, ...]
    objective: float | None = None
    #: {worker type: dual of its capacity}
    prices: dict[str, float] = {}
    #: Job ids that cannot gain without a job that has less losing.
    bottlenecked: tuple[str, ...] = ()
    #: {job id: why no allocation can serve it}
    set_aside: dict[str, str] = {}
    #: {job id: which of its demands is not met, and by how much}; it is served all the same.
    unmet: dict[str, str] = {}


class PolicyError(Exception):
    """Base of what can keep a policy from answering."""


class ProblemError(PolicyError):
    """The problem makes no sense; the message names the class, the field, the value."""


class SolverError(PolicyError):
    """No solver of the chain found an answer; the message holds the solvers' own words."""


class Policy(Protocol):
    """A scheduling policy: a pure function of the problem."""

    @property
    def needs_progress(self) -> bool:
        """Whether classes must carry ``steps_remaining`` and ``elapsed_s``."""
        ...

    def solve(self, problem: Problem) -> Allocation:
        """Allocate.

        Raises
        ------
        ProblemError
            The problem holds a value no policy can make sense of.
        SolverError
            No solver found an answer.
        """
        ...

"""Policies by placement: the program with two columns for each type, solved as it stands."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas.decisions import Run
from schemas.domain import UNCONSOLIDATED, JobSpec, PairThroughput, Throughput, ThroughputRow
from schemas.events import (
    AllocationFailed,
    ClusterConfigured,
    JobAdmitted,
    JobSubmitted,
    ThroughputEstimated,
    WorkerRegistered,
)
from services.policy.catalog import POLICIES, UnknownPolicyError, resolve
from services.policy.checks import fault
from services.policy.classes import SHARE_UNIT
from services.policy.core import PolicyCore, Solve
from services.policy.problem import Allocation, JobClass, Problem
from services.policy.reference import placement as reference_placement
from tests.policy.problems import TYPES, job_class, problem, problems

VARIANTS = sorted(name for name in POLICIES if ":placement" in name)


@st.composite
def placed_problems(draw: st.DrawFn, max_classes: int = 6) -> Problem:
    """``problems`` whose gangs are faster, slower or as fast on more servers than need be."""
    asked = draw(problems(max_classes=max_classes))
    factors = st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 1.1, 2.0])
    classes = [
        msgspec.structs.replace(
            c,
            unconsolidated=tuple(draw(factors) * speed for speed in c.throughputs)
            if c.scale_factor > 1 and draw(st.integers(0, 3))
            else (),
            steps_remaining=tuple(1000.0 for _ in c.job_ids),
            elapsed_s=tuple(0.0 for _ in c.job_ids),
            arrival_ranks=tuple(range(100 * place, 100 * place + len(c.job_ids))),
        )
        for place, c in enumerate(asked.classes)
    ]
    return msgspec.structs.replace(asked, classes=tuple(classes))


def servable(asked: Problem) -> Problem:
    """Only the classes that can run somewhere."""
    kept = [
        c
        for c in asked.classes
        if any(
            speed > 0 and c.scale_factor <= workers
            for speeds in (c.throughputs, c.unconsolidated or c.throughputs)
            for speed, workers in zip(speeds, asked.num_workers, strict=True)
        )
    ]
    return msgspec.structs.replace(asked, classes=tuple(kept))


def shares(asked: Problem, allocation: Allocation) -> dict[str, dict[str, float]]:
    """{job id: {name: share}} of jobs alone."""
    given_shares: dict[str, dict[str, float]] = {
        job_id: {} for c in asked.classes for job_id in c.job_ids
    }
    for row in allocation.rows:
        for combination in row.combinations:
            if len(combination) == 1:
                given_shares[combination[0]] = row.shares
    return given_shares


def speed(asked: Problem, of: JobClass, name: str) -> float:
    """Steps/s of a job of the class alone, on a type held as the name says."""
    j = asked.worker_types.index(name.removesuffix(UNCONSOLIDATED))
    spread = of.unconsolidated or of.throughputs
    return (spread if name.endswith(UNCONSOLIDATED) else of.throughputs)[j]


@settings(max_examples=100)
@given(placed_problems())
def test_agrees_with_the_readable_program(asked: Problem) -> None:
    """Levels are those of the program with a column for each way, with no more worker time.

    Each job's level comes out of its shares by their names: none is priced in another way.
    """
    asked = servable(asked)
    assume(asked.classes)
    allocation = resolve("las:placement").solve(asked)
    optimum = reference_placement.las(asked)
    assert fault(asked, allocation) is None
    assert allocation.objective == pytest.approx(optimum.levels.min(), rel=1e-6)

    given_shares = shares(asked, allocation)
    workers = np.array(asked.num_workers, dtype=float)
    worker_time = 0.0
    for c, level in zip(asked.classes, optimum.levels, strict=True):
        best = np.maximum(c.throughputs, c.unconsolidated or c.throughputs)
        best = np.where(c.scale_factor <= workers, best, 0.0)
        worth = c.scale_factor / (c.priority_weight * float(best @ workers / workers.sum()))
        lost = SHARE_UNIT * worth * float(best.sum())
        for job_id in c.job_ids:
            of_job = given_shares[job_id]
            reached = worth * sum(x * speed(asked, c, name) for name, x in of_job.items())
            assert abs(reached - level) <= 1e-6 * level + lost
            worker_time += c.scale_factor * sum(of_job.values())
    assert worker_time <= optimum.worker_time * (1 + 1e-5) + 1e-6


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=25)
@given(asked=placed_problems())
def test_no_share_is_priced_in_the_slower_way(name: str, asked: Problem) -> None:
    """Of each type a job has a share in the faster way only, consolidated if equal.

    Shares are feasible, and the same when asked again.
    """
    policy = resolve(name)
    allocation = policy.solve(asked)
    assert fault(asked, allocation) is None
    assert policy.solve(asked) == allocation
    given_shares = shares(asked, allocation)
    for c in asked.classes:
        for job_id in c.job_ids:
            for worker_type in given_shares[job_id]:
                physical = worker_type.removesuffix(UNCONSOLIDATED)
                ways = (physical, physical + UNCONSOLIDATED)
                consolidated, spread = (speed(asked, c, way) for way in ways)
                assert (worker_type == ways[1]) == (spread > consolidated)


@pytest.mark.parametrize("name", VARIANTS)
@settings(max_examples=15)
@given(asked=placed_problems())
def test_where_placement_is_not_known_to_matter_it_does_not(name: str, asked: Problem) -> None:
    """Without throughputs that differ between the ways, shares are those of the plain policy."""
    blank = tuple(msgspec.structs.replace(c, unconsolidated=()) for c in asked.classes)
    same = tuple(
        msgspec.structs.replace(c, unconsolidated=c.throughputs if c.scale_factor > 1 else ())
        for c in asked.classes
    )
    plain = resolve(name.removesuffix(":placement"))
    variant = resolve(name)
    for classes in (blank, same):
        known = msgspec.structs.replace(asked, classes=classes)
        assert variant.solve(known) == plain.solve(known)


def test_each_class_holds_a_type_in_its_own_way() -> None:
    """Two classes that look alike in their better ways, which differ, are named each by its own."""
    one = msgspec.structs.replace(job_class(4.0, ids="near", scale_factor=2), unconsolidated=(1.0,))
    other = msgspec.structs.replace(
        job_class(1.0, ids="far", scale_factor=2), unconsolidated=(4.0,)
    )
    asked = problem((2,), one, other)
    for name in VARIANTS:
        rows = resolve(name).solve(asked).rows
        assert {t for row in rows for t in row.shares if ("far",) in row.combinations} <= {
            TYPES[0] + UNCONSOLIDATED
        }
        assert {t for row in rows for t in row.shares if ("near",) in row.combinations} <= {
            TYPES[0]
        }


@pytest.mark.parametrize(("spread", "way"), [(0.9, UNCONSOLIDATED), (0.0, "")])
def test_a_pair_shares_in_the_way_that_gives_both_more(spread: float, way: str) -> None:
    """Two gangs that keep 0.6 of their speed together share; on more servers if they keep 0.9."""
    gangs = [
        msgspec.structs.replace(job_class(4.0, ids=ids, scale_factor=2), unconsolidated=(2.0,))
        for ids in ("a", "b")
    ]
    asked = msgspec.structs.replace(
        problem((2,), *gangs),
        pairs={(0, 1): ((2.4,), (2.4,))},
        pairs_unconsolidated={(0, 1): ((4.0 * spread,), (4.0 * spread,))},
    )
    rows = resolve("las:ss:placement").solve(asked).rows
    assert [(row.combinations, row.shares) for row in rows] == [
        ((("a", "b"),), {TYPES[0] + way: 1.0})
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("las:agnostic:placement", "blind to how they are held"),
        ("las:placement:agnostic", "blind to how they are held"),
        ("allox:placement", "jobs of one worker"),
        ("isolated:placement", "do not depend on throughputs"),
        ("gandiva:placement", "equal time"),
        ("tiresias:placement", "wherever they are"),
        ("las:placment", "'las:placement'"),
    ],
)
def test_a_combination_without_meaning_is_refused_with_the_reason(name: str, reason: str) -> None:
    """The message says why, or what was meant."""
    with pytest.raises(UnknownPolicyError, match=reason):
        resolve(name)


def asked_by_the_core(policy: str) -> Problem:
    """The problem of a gang of two beside a single job, with tables that know of placement."""
    alone = {"k80": 1.0, "v100": 4.0, "v100_unconsolidated": 3.0}
    beside = (
        PairThroughput("v100", "m", 2.5, 2.5),
        PairThroughput("v100_unconsolidated", "m", 2.0, 2.0),
    )
    rows = [
        ThroughputRow(
            job_type="m",
            scale_factor=scale_factor,
            alone=tuple(Throughput(*cell) for cell in sorted(alone.items())),
            beside=beside,
        )
        for scale_factor in (1, 2)
    ]
    workers = [
        WorkerRegistered(worker_id=f"{t}-{i}", worker_type=t, server_id="s", reporter="worker.a")
        for t in ("k80", "v100")
        for i in range(2)
    ]
    core = PolicyCore()
    core.handle(ClusterConfigured(policy=policy), 0.0)
    for worker in workers:
        core.handle(worker, 0.0)
    for row in rows:
        core.handle(ThroughputEstimated(row=row, source="table"), 0.0)
    gang = JobSpec(job_id="gang", job_type="m", scale_factor=2, total_steps=9.0)
    only = msgspec.structs.replace(gang, job_id="only-v100", allowed_worker_types=("v100",))
    single = msgspec.structs.replace(gang, job_id="single", scale_factor=1)
    jobs = (gang, only, single)
    for spec in jobs:
        core.handle(JobSubmitted(job=spec), 0.0)
        core.handle(JobAdmitted(job_id=spec.job_id), 0.0)
    # The first job was asked about at once; who came meanwhile is asked about next.
    (decision,) = core.handle(AllocationFailed(policy=policy, reason=""), 0.0)
    assert isinstance(decision, Run)
    assert isinstance(decision.effect, Solve)
    return decision.effect.problem


def test_the_core_asks_in_both_ways_of_jobs_of_several_workers() -> None:
    """Jobs of one worker have one way; an unknown speed is as consolidated; types stay as they are.

    On a type that it may not use, a job can run in neither way.
    """
    asked = asked_by_the_core("las:ss:placement")
    assert asked.worker_types == ("k80", "v100")
    ways = {c.job_ids[0]: (c.throughputs, c.unconsolidated) for c in asked.classes}
    assert ways == {
        "gang": ((1.0, 4.0), (1.0, 3.0)),
        "only-v100": ((0.0, 4.0), (0.0, 3.0)),
        "single": ((1.0, 4.0), ()),
    }
    gang = next(c for c, each in enumerate(asked.classes) if each.job_ids == ("gang",))
    assert asked.pairs[gang, gang] == ((0.0, 2.5), (0.0, 2.5))
    assert asked.pairs_unconsolidated[gang, gang] == ((0.0, 2.0), (0.0, 2.0))


def test_other_policies_are_not_told_of_placement() -> None:
    """Without ``:placement`` the problem is what it always was."""
    asked = asked_by_the_core("las")
    assert all(c.unconsolidated == () for c in asked.classes)
    assert asked.pairs_unconsolidated == {}

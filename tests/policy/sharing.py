"""Problems with pairs to try policies on, and what an allocation gives to whom."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import strategies as st

from services.policy.classes import SHARE_UNIT
from services.policy.problem import Allocation, JobClass, Problem
from services.policy.solver import Floats
from tests.policy.problems import problems

Shares = dict[tuple[str, ...], Floats]
#: Fields of ``JobClass`` that have a value for each job.
OF_JOBS = (
    "job_ids",
    "arrival_ranks",
    "steps_remaining",
    "elapsed_s",
    "isolated_s",
    "slo_remaining_s",
)


@st.composite
def shared_problems(
    draw: st.DrawFn,
    throughput_decades: tuple[float, float] = (-1.5, 1.5),
    weight_decades: tuple[float, float] = (-1.0, 1.0),
    max_classes: int = 6,
    kept: tuple[float, float] = (0.2, 1.0),
) -> Problem:
    """``problems`` in which most classes can share, at a random fraction of their speed."""
    asked = draw(problems(throughput_decades, weight_decades, max_classes))
    asked = msgspec.structs.replace(
        asked,
        classes=tuple(
            msgspec.structs.replace(c, scale_factor=min(c.scale_factor, 2)) for c in asked.classes
        ),
    )
    fractions = st.floats(*kept).map(lambda x: round(x, 3)) | st.sampled_from([0.0, 0.5, 1.0])
    pairs = {}
    for c, one in enumerate(asked.classes):
        for d, other in enumerate(asked.classes[c:], c):
            if one.scale_factor == other.scale_factor and draw(st.integers(0, 3)):
                mine = tuple(draw(fractions) * speed for speed in one.throughputs)
                yours = tuple(draw(fractions) * speed for speed in other.throughputs)
                pairs[c, d] = (mine, mine if c == d else yours)
    return msgspec.structs.replace(asked, pairs=pairs)


def shares(asked: Problem, allocation: Allocation) -> Shares:
    """{combination: (worker types,) share}, each combination listed once."""
    given_shares: Shares = {}
    for row in allocation.rows:
        for combination in row.combinations:
            assert combination not in given_shares
            share = [row.shares.get(name, 0.0) for name in asked.worker_types]
            given_shares[combination] = np.array(share)
    return given_shares


def violation(asked: Problem, given_shares: Shares) -> float:
    """By how much the time of a job or the workers of a type are exceeded."""
    scale = {job_id: c.scale_factor for c in asked.classes for job_id in c.job_ids}
    time = dict.fromkeys(scale, 0.0)
    used = np.zeros(len(asked.worker_types))
    for combination, share in given_shares.items():
        assert len(set(combination)) == len(combination)
        assert len({scale[job_id] for job_id in combination}) == 1
        used += scale[combination[0]] * share
        for job_id in combination:
            time[job_id] += float(share.sum())
    over = (used - np.array(asked.num_workers)).tolist()
    return float(max(max(time.values(), default=0.0) - 1.0, *over))


def throughputs(asked: Problem, given_shares: Shares) -> dict[str, float]:
    """{job id: effective throughput} of all jobs."""
    place = {job_id: c for c, each in enumerate(asked.classes) for job_id in each.job_ids}
    gained = dict.fromkeys(place, 0.0)
    for combination, share in given_shares.items():
        first, last = combination[0], combination[-1]
        c, d = place[first], place[last]
        if first == last:
            gained[first] += float(np.array(asked.classes[c].throughputs) @ share)
            continue
        of_c, of_d = asked.pairs[min(c, d), max(c, d)]
        gained[first] += float(np.array(of_c if c <= d else of_d) @ share)
        gained[last] += float(np.array(of_d if c <= d else of_c) @ share)
    return gained


def per_step(asked: Problem) -> dict[str, float]:
    """{job id: s / (w Tbar)}, the level of one step/s, of all jobs that can run."""
    workers = np.array(asked.num_workers)
    worth: dict[str, float] = {}
    for c in asked.classes:
        speeds = np.where(c.scale_factor <= workers, c.throughputs, 0.0)
        if speeds.any():
            equal = float(speeds @ workers / workers.sum())
            worth |= dict.fromkeys(c.job_ids, c.scale_factor / (c.priority_weight * equal))
    return worth


def levels(asked: Problem, given_shares: Shares) -> dict[str, float]:
    """{job id: s thr / (w Tbar)} of all jobs that can run."""
    gained = throughputs(asked, given_shares)
    return {job_id: worth * gained[job_id] for job_id, worth in per_step(asked).items()}


def lost_steps_per_s(asked: Problem, job_id: str) -> float:
    """What a job may lose in shares of 1e-8, one for each type and each class it meets."""
    speed = max(max(c.throughputs) for c in asked.classes if job_id in c.job_ids)
    return SHARE_UNIT * len(asked.worker_types) * (1 + 2 * len(asked.classes)) * speed


def lost_by_rounding(asked: Problem, job_id: str) -> float:
    """The same as a level."""
    return lost_steps_per_s(asked, job_id) * per_step(asked)[job_id]


def one_by_one(asked: Problem) -> Problem:
    """The problem with a class for every job."""
    classes: list[JobClass] = []
    of_class: list[range] = []
    for c in asked.classes:
        of_class.append(range(len(classes), len(classes) + len(c.job_ids)))
        classes += [
            msgspec.structs.replace(
                c, **{name: (getattr(c, name)[n],) for name in OF_JOBS if getattr(c, name)}
            )
            for n in range(len(c.job_ids))
        ]
    pairs = {}
    for (i, k), (one, two) in asked.pairs.items():
        for a in of_class[i]:
            for b in of_class[k]:
                if a != b:
                    pairs[min(a, b), max(a, b)] = (one, two) if a < b else (two, one)
    return msgspec.structs.replace(asked, classes=tuple(classes), pairs=pairs)

"""Gandiva, a baseline: ad-hoc space sharing, pairs tried at random, blind to worker types."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from schemas.domain import AllocationRow, Combination
from services.policy.classes import SHARE_UNIT, gather, round_to_units
from services.policy.problem import Allocation, Problem

#: (class index, job id)
_Job = tuple[int, str]


@dataclass(frozen=True)
class Gandiva:
    """Jobs share workers only when there are too few; then pairs are formed at random.

    While all jobs fit the cluster, nobody shares. When they do not, jobs of equal scale factor
    are paired in an order drawn by ``seed``; a pair stays together from one allocation to the
    next, unless it turns out a bad one: speeds together, each relative to alone and summed over
    all worker types, below 1. Time is divided evenly between what then is there, pairs and jobs
    alone, like under ``isolated``.
    """

    seed: float = 0.0
    needs_progress = False
    needs_previous = True
    needs_pairs = True

    def solve(self, problem: Problem) -> Allocation:
        """Allocate; see ``Policy``."""
        _, set_aside = gather(problem)
        jobs = [
            (index, job_id)
            for index, each in enumerate(problem.classes)
            for job_id in each.job_ids
            if job_id not in set_aside
        ]
        if not jobs:
            return Allocation(rows=(), set_aside=set_aside)
        wanted = sum(problem.classes[index].scale_factor for index, _ in jobs)
        pairs = self._pair(problem, jobs) if wanted > sum(problem.num_workers) else []
        paired = {job for pair in pairs for job in pair}
        alone = [(job,) for job in jobs if job not in paired]
        return Allocation(rows=_divide_evenly(problem, [*alone, *pairs]), set_aside=set_aside)

    def _pair(self, problem: Problem, jobs: list[_Job]) -> list[tuple[_Job, _Job]]:
        known = {job_id: (index, job_id) for index, job_id in jobs}
        kept = [
            (known[combination[0]], known[combination[1]])
            for row in problem.previous
            for combination in row.combinations
            if len(combination) == 2 and known.keys() >= set(combination)
        ]
        pairs = [pair for pair in kept if _is_good(problem, *pair)]
        paired = {job for pair in pairs for job in pair}
        waiting: dict[int, list[_Job]] = {}
        for job in sorted((job for job in jobs if job not in paired), key=self._draw):
            waiting.setdefault(problem.classes[job[0]].scale_factor, []).append(job)
        for _, queue in sorted(waiting.items()):
            tried = zip(queue[::2], queue[1::2], strict=False)
            pairs += [pair for pair in tried if _is_good(problem, *pair)]
        return pairs

    def _draw(self, job: _Job) -> tuple[bytes, str]:
        """A job's place in the random order: its own, whoever else is there."""
        return sha256(f"{self.seed:g}/{job[1]}".encode()).digest(), job[1]


def _speeds(problem: Problem, one: _Job, other: _Job) -> tuple[list[float], list[float]]:
    """Steps/s of both, by worker type, when they share; 0 where nothing is known of the pair."""
    c, d = one[0], other[0]
    first, second = problem.pairs.get((min(c, d), max(c, d)), ((), ()))
    if not first:
        nothing = [0.0] * len(problem.worker_types)
        return nothing, nothing
    return (list(first), list(second)) if c <= d else (list(second), list(first))


def _is_good(problem: Problem, one: _Job, other: _Job) -> bool:
    total = 0.0
    for job, speeds in zip((one, other), _speeds(problem, one, other), strict=True):
        alone = problem.classes[job[0]].throughputs
        total += sum(s / a for s, a in zip(speeds, alone, strict=True) if a > 0)
    return total >= 1.0


def _divide_evenly(
    problem: Problem, combinations: list[tuple[_Job, ...]]
) -> tuple[AllocationRow, ...]:
    """1/n of the cluster for each of n combinations, as far as its jobs can use it."""
    num_workers = np.array(problem.num_workers, dtype=float)
    alike: dict[tuple[int, tuple[bool, ...]], list[Combination]] = {}
    for jobs in sorted(combinations):
        scale_factor = problem.classes[jobs[0][0]].scale_factor
        speeds = [list(problem.classes[index].throughputs) for index, _ in jobs]
        if len(jobs) == 2:
            speeds += _speeds(problem, *jobs)
        fits = tuple(
            all(at) and scale_factor <= n for *at, n in zip(*speeds, num_workers, strict=True)
        )
        alike.setdefault((scale_factor, fits), []).append(tuple(job_id for _, job_id in jobs))
    looks = sorted(alike)
    scale_factors = np.array([scale_factor for scale_factor, _ in looks], dtype=float)
    shares = np.array([fits for _, fits in looks]) * num_workers / len(combinations)
    shares /= scale_factors[:, None]
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
    sizes = np.array([len(alike[look]) for look in looks])
    units = round_to_units(shares, scale_factors * sizes, num_workers)
    per_share = round(1 / SHARE_UNIT)
    return tuple(
        AllocationRow(
            tuple(alike[look]),
            {t: n / per_share for t, n in zip(problem.worker_types, row, strict=True) if n > 0},
        )
        for look, row in zip(looks, units.tolist(), strict=True)
        if any(row)
    )

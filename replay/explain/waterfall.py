"""Where a job's completion time went: parts that sum to it.

Computing is what its steps would have taken alone on the fastest type it may use. Whatever else
there was, is why it took longer: waiting, for each cause on its own; checkpoints; and of the time
that it held workers, what a slower type, a gang spread over servers, a neighbour on the workers, or
a speed other than expected have cost. With p seconds of a stretch in which it was neither loading
nor saving, g steps made, v the speed expected there and v* the fastest::

    p  =  g / v*  +  p (1 - v / v*)  +  (p v - g) / v*
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from replay.cluster import Rates
from replay.explain.history import JobHistory, Stretch
from schemas.domain import UNCONSOLIDATED, TaskSpec

#: {part: what it is}; the order in which they are told. Names are stable.
PARTS = {
    "compute": "its steps, alone on the fastest type it may use",
    "queue.estimate": "before its first start: until its throughput was known",
    "queue.round": "before its first start: until the next round began",
    "queue.workers": "before its first start: others held the workers",
    "queue.preempted": "between leases: a plan gave its workers to others",
    "queue.failure": "between leases: after a failure, or the loss of its workers",
    "queue.round-end": "between rounds: its part of one was over early, and others' were not",
    "checkpoint.load": "loading checkpoints",
    "checkpoint.save": "saving checkpoints",
    "slower-type": "on slower types than the fastest",
    "placement": "spread over more servers than need be",
    "sharing": "beside another job on its workers",
    "speed": "slower than expected (below 0: faster)",
    "redone": "steps made again, after a failure or the loss of its workers",
    "accounting": "between its last step and the record of its end",
}


def waterfall(
    history: JobHistory, expected: Rates, worker_types: Iterable[str]
) -> dict[str, float]:
    """{part: seconds} of a job that is complete; together its JCT.

    Parameters
    ----------
    history : the job's
    expected : speeds as they were expected
    worker_types : of the cluster
    """
    assert history.ended_s is not None, "asked of jobs that are complete"
    parts = dict.fromkeys(PARTS, 0.0)
    stretches = history.stretches
    if not stretches:
        parts["queue.workers"] = history.ended_s - history.submitted_s
        return parts
    _first_wait(history, parts)
    for before, after in pairwise(stretches):
        parts[_cause(history, before, after)] += max(0.0, after.starts_s - before.ends_s)
    parts["accounting"] = max(0.0, history.ended_s - stretches[-1].ends_s)
    speeds = _Speeds(history, expected, worker_types)
    for stretch in stretches:
        speeds.book(stretch, parts)
    total = history.spec.total_steps
    if speeds.best > 0 and total is not None:
        parts["redone"] = parts["compute"] - total / speeds.best
        parts["compute"] = total / speeds.best
    return parts


def _first_wait(history: JobHistory, parts: dict[str, float]) -> None:
    start_s = history.stretches[0].starts_s
    # Known before it came, or (of time 0) not at all.
    known_s = start_s if history.estimated_s is None else min(start_s, history.estimated_s)
    first_s = start_s if history.first_round_s is None else history.first_round_s
    round_s = min(start_s, max(known_s, first_s))
    parts["queue.estimate"] = max(0.0, known_s - history.submitted_s)
    parts["queue.round"] = round_s - max(known_s, history.submitted_s)
    parts["queue.workers"] = start_s - round_s


def _cause(history: JobHistory, before: Stretch, after: Stretch) -> str:
    """Why it did not go on at once."""
    partings = [p for p in history.partings if before.starts_s < p.at_s <= after.starts_s]
    if any(p.how in ("failed", "revoked") for p in partings):
        return "queue.failure"
    return "queue.round-end" if before.lease_id == after.lease_id else "queue.preempted"


class _Speeds:
    """A job's expected speeds, and what a stretch comes to by them."""

    def __init__(self, history: JobHistory, expected: Rates, worker_types: Iterable[str]) -> None:
        spec = history.spec
        task = TaskSpec(
            job_id=spec.job_id,
            job_type=spec.job_type,
            scale_factor=spec.scale_factor,
            total_steps=spec.total_steps or 0.0,
        )
        self._alone = {
            way: expected([task], way)[0]
            for worker_type in worker_types
            for way in (worker_type, worker_type + UNCONSOLIDATED)
            if not spec.allowed_worker_types or worker_type in spec.allowed_worker_types
        }
        self.best = max(self._alone.values(), default=0.0)

    def book(self, stretch: Stretch, parts: dict[str, float]) -> None:
        """Put a stretch's seconds where they belong."""
        parts["checkpoint.load"] += stretch.load_s
        parts["checkpoint.save"] += stretch.save_s
        seconds = stretch.run_s - stretch.load_s - stretch.save_s
        if self.best <= 0:
            parts["compute"] += seconds
            return
        consolidated = self._alone.get(stretch.way.removesuffix(UNCONSOLIDATED), 0.0)
        here = self._alone.get(stretch.way, consolidated)
        consolidated = max(consolidated, here)
        parts["compute"] += stretch.steps / self.best
        parts["slower-type"] += seconds * (1 - consolidated / self.best)
        parts["placement"] += seconds * (consolidated - here) / self.best
        missing = (seconds * here - stretch.steps) / self.best
        parts["sharing" if stretch.beside else "speed"] += missing

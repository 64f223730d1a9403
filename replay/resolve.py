"""Solves a log's problems once more, and compares what comes of them with what it has.

A recorded allocation is the authority: replay never solves again by itself. Here it is asked for,
from the problem that the policy's core made of the records before it. Equal problems have equal
answers to the byte on the machine that solved them; on another one, the last digits of a sum may
differ, hence the tolerances.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.decisions import Effect
from schemas.domain import Combination
from schemas.events import AllocationComputed, AllocationFailed, AnyEvent
from schemas.record import Record
from services.policy.catalog import UnknownPolicyError, resolve
from services.policy.core import Solve
from services.policy.solve import carry_out

#: Largest gap of an objective, relative to it (to 1 if that is more), and of a share of time.
OBJECTIVE_TOLERANCE = 1e-6
SHARE_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Gap:
    """How far two answers to a problem are apart."""

    #: The record that has the allocation.
    seq: int
    policy: str
    #: |recorded - again|, relative; infinite where but one of the two has an objective.
    objective: float
    #: The largest difference of a combination's share of time on a worker type.
    share: float
    #: What differs, in words; empty: less than the tolerances.
    what: str

    def __str__(self) -> str:
        """One line, for people."""
        return f"record {self.seq} ({self.policy}): {self.what}"


@dataclass(slots=True)
class Resolved:
    """What solving again comes to; fed with the results of a log's effects, in order."""

    solved: int = 0
    #: Of these: the same event, to the byte; within the tolerances; beyond them.
    same: int = 0
    close: int = 0
    other: int = 0
    #: {policy that is not installed here: solves of it, not done again}
    unknown: dict[str, int] = field(default_factory=dict)
    first: Gap | None = None
    worst_objective: Gap | None = None
    worst_share: Gap | None = None

    @property
    def ok(self) -> bool:
        """Whether all was solved again, and came to the same."""
        return not self.other and not self.unknown

    def take(self, record: Record, effect: Effect) -> None:
        """Solve again what a record answers, if it answers a solve."""
        event = record.event
        if not isinstance(effect, Solve) or not isinstance(
            event, AllocationComputed | AllocationFailed
        ):
            return
        try:
            resolve(effect.policy, effect.parameters)
        except UnknownPolicyError:
            self.unknown[effect.policy] = self.unknown.get(effect.policy, 0) + 1
            return
        again = carry_out(effect)
        self.solved += 1
        if again == event:
            self.same += 1
            return
        gap = compare(record.seq, event, again)
        if self.worst_objective is None or gap.objective > self.worst_objective.objective:
            self.worst_objective = gap
        if self.worst_share is None or gap.share > self.worst_share.share:
            self.worst_share = gap
        if not gap.what:
            self.close += 1
            return
        self.other += 1
        self.first = self.first or gap


def compare(
    seq: int,
    recorded: AllocationComputed | AllocationFailed,
    again: AllocationComputed | AllocationFailed,
) -> Gap:
    """How far what a log has and what solving again gives are apart."""
    if not (isinstance(recorded, AllocationComputed) and isinstance(again, AllocationComputed)):
        # Why a solve failed may be told in other words.
        alike = type(recorded) is type(again)
        what = "" if alike else f"recorded {_outcome(recorded)}; again {_outcome(again)}"
        apart = 0.0 if alike else float("inf")
        return Gap(seq, recorded.policy, apart, apart, what)
    objective = _objective_gap(recorded.objective, again.objective)
    before, after = _shares(recorded), _shares(again)
    where, share = _largest(before, after)
    words = []
    if objective > OBJECTIVE_TOLERANCE:
        words.append(f"objective {recorded.objective!r}, again {again.objective!r}")
    if share > SHARE_TOLERANCE:
        (combination, worker_type), same = where, "" if words else "; the objective is the same"
        old, new = before.get(where, 0.0), after.get(where, 0.0)
        of = f"job{'s' if len(combination) > 1 else ''} {', '.join(combination)}"
        words.append(f"share of {of} on {worker_type} {old:.8g}, again {new:.8g}{same}")
    return Gap(seq, recorded.policy, objective, share, "; ".join(words))


def _outcome(event: AnyEvent) -> str:
    if isinstance(event, AllocationFailed):
        return f"a failed solve ({event.reason})"
    return "an allocation"


def _objective_gap(recorded: float | None, again: float | None) -> float:
    if recorded is None or again is None:
        return 0.0 if recorded is again else float("inf")
    return abs(recorded - again) / max(1.0, abs(recorded))


def _shares(event: AllocationComputed) -> dict[tuple[Combination, str], float]:
    return {
        (combination, worker_type): share
        for row in event.rows
        for combination in row.combinations
        for worker_type, share in row.shares.items()
    }


def _largest(
    before: dict[tuple[Combination, str], float], after: dict[tuple[Combination, str], float]
) -> tuple[tuple[Combination, str], float]:
    """Where two allocations differ most, and by how much."""
    gaps = {key: abs(before.get(key, 0.0) - after.get(key, 0.0)) for key in {**before, **after}}
    nowhere: tuple[Combination, str] = ((), "")
    return max(gaps.items(), key=lambda each: each[1], default=(nowhere, 0.0))

"""An estimator core played by hand: its effects carried out, its profiles measured on a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schemas.decisions import Decision, Emit, Run
from schemas.domain import UNCONSOLIDATED, Lease, ProfileCell, TaskProgress, TaskSpec
from schemas.events import (
    AnyEvent,
    LeasesChanged,
    ProfileRequested,
    ProgressReported,
    RoundScheduled,
    ThroughputEstimated,
    ThroughputMeasured,
)
from services.estimator import learning
from services.estimator.core import EstimatorCore
from services.estimator.effects import Fingerprint, PlanProfiles

REPORTER = "worker.a"

#: What a profile finds: (steps/s, steps/s of the reference), or an outcome without.
Find = Callable[[ProfileCell], tuple[float, float] | str]


class Play:
    """A core, and everything it has said."""

    def __init__(self, *events: AnyEvent) -> None:
        self.core = EstimatorCore()
        self.said: list[AnyEvent] = []
        self.effects: list[PlanProfiles | Fingerprint] = []
        self._leases = 0
        self._steps: dict[str, float] = {}
        self._round = 0
        self.tell(*events)

    def tell(self, *events: AnyEvent) -> list[AnyEvent]:
        """Tell the core; what it says to this comes back to it, as on the log."""
        said: list[AnyEvent] = []
        for event in events:
            said += self._carry_out(self.core.handle(event, 0.0))
        return said

    def _carry_out(self, decisions: Sequence[Decision]) -> list[AnyEvent]:
        said: list[AnyEvent] = []
        for decision in decisions:
            if isinstance(decision, Run):
                assert isinstance(decision.effect, PlanProfiles | Fingerprint)
                self.effects.append(decision.effect)
                event: AnyEvent = learning.carry_out(decision.effect)
            else:
                assert isinstance(decision, Emit)
                event = decision.event
            said.append(event)
            self.said.append(event)
            said += self.tell(event)
        return said

    def profile(self, request: ProfileRequested, find: Find) -> list[AnyEvent]:
        """Grant each profile asked for, and report what it finds."""
        said: list[AnyEvent] = []
        for cell in request.cells:
            said += self.measure(request.job_id, cell, find(cell))
        return said

    def grant(self, job_id: str, cell: ProfileCell) -> str:
        """Lease workers to one profile; the lease's id."""
        self._leases += 1
        specs = [(job_id, "?")] + ([("", cell.beside)] if cell.beside else [])
        lease = Lease(
            lease_id=f"p{self._leases}",
            tasks=tuple(
                TaskSpec(job_id=i, job_type=name, scale_factor=1, total_steps=0.0)
                for i, name in specs
            ),
            worker_type=cell.worker_type.removesuffix(UNCONSOLIDATED),
            worker_ids=("w",),
            reporters=(REPORTER,),
            unconsolidated=cell.worker_type.endswith(UNCONSOLIDATED),
            profile=True,
        )
        self.tell(LeasesChanged(round_id=0, revoked=(), reason="profile", granted=(lease,)))
        return lease.lease_id

    def measure(
        self, job_id: str, cell: ProfileCell, found: tuple[float, float] | str
    ) -> list[AnyEvent]:
        """One profile, granted and over."""
        lease_id = self.grant(job_id, cell)
        outcome = found if isinstance(found, str) else "measured"
        rates = (0.0, 0.0) if isinstance(found, str) else found
        return self.tell(
            ThroughputMeasured(
                reporter=REPORTER,
                lease_id=lease_id,
                job_id=job_id,
                worker_type=cell.worker_type,
                beside=cell.beside,
                steps_per_s=rates[0],
                other_steps_per_s=rates[1],
                seconds=30.0,
                outcome=outcome,
            )
        )

    def run_round(self, job_id: str, worker_type: str, steps_per_s: float) -> list[AnyEvent]:
        """The job has a lease of its own for a round of 100 s."""
        self._round += 1
        lease = Lease(
            lease_id=f"r{self._round}",
            tasks=(TaskSpec(job_id=job_id, job_type="?", scale_factor=1, total_steps=1e9),),
            worker_type=worker_type,
            worker_ids=("w",),
            reporters=(REPORTER,),
        )
        plan = RoundScheduled(
            round_id=self._round, starts_at_s=0.0, ends_at_s=100.0, granted=(lease,)
        )
        self._steps[job_id] = steps = self._steps.get(job_id, 0.0) + 100.0 * steps_per_s
        row = TaskProgress(lease.lease_id, job_id, steps, steps, 100.0)
        report = ProgressReported(reporter=REPORTER, round_id=self._round, rows=(row,))
        return self.tell(plan, report)

    def share_round(self, worker_type: str, **steps_per_s: float) -> list[AnyEvent]:
        """Two jobs, by id, have a lease together for a round of 100 s."""
        self._round += 1
        lease = Lease(
            lease_id=f"r{self._round}",
            tasks=tuple(
                TaskSpec(job_id=job_id, job_type="?", scale_factor=1, total_steps=1e9)
                for job_id in steps_per_s
            ),
            worker_type=worker_type,
            worker_ids=("w",),
            reporters=(REPORTER,),
        )
        plan = RoundScheduled(
            round_id=self._round, starts_at_s=0.0, ends_at_s=100.0, granted=(lease,)
        )
        rows = []
        for job_id, rate in steps_per_s.items():
            self._steps[job_id] = steps = self._steps.get(job_id, 0.0) + 100.0 * rate
            rows.append(TaskProgress(lease.lease_id, job_id, steps, steps, 100.0))
        report = ProgressReported(reporter=REPORTER, round_id=self._round, rows=tuple(rows))
        return self.tell(plan, report)

    def asked(self, job_id: str) -> ProfileRequested:
        """The profiles asked for of a job."""
        (request,) = (
            event
            for event in self.said
            if isinstance(event, ProfileRequested) and event.job_id == job_id
        )
        return request


def estimates(events: Sequence[AnyEvent]) -> list[ThroughputEstimated]:
    """The estimates among events."""
    return [event for event in events if isinstance(event, ThroughputEstimated)]


def rates(estimate: ThroughputEstimated) -> dict[str, float]:
    """{worker type: isolated steps/s} of an estimate."""
    return {cell.worker_type: cell.steps_per_s for cell in estimate.row.alone}


def beside(estimate: ThroughputEstimated, other: str) -> dict[str, tuple[float, float]]:
    """{worker type: steps/s of (the class, the other)} of an estimate."""
    return {
        pair.worker_type: (pair.steps_per_s, pair.other_steps_per_s)
        for pair in estimate.row.beside
        if pair.other_job_type == other
    }

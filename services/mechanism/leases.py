"""The leases that are out: who holds which workers, and until the end of which round.

A lease stays on the books until the worker service that counts its steps has reported its last
round: a completion that was still on its way when the next round was planned is then not lost,
and a report under a lease that is no longer out is ignored, whatever it says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.domain import Combination, Lease
from schemas.events import StopStepAgreed, StopStepProposed


@dataclass(slots=True)
class Held:
    """A lease that is out."""

    lease: Lease
    combination: Combination
    #: The last round it is held in.
    until_round: int
    #: Jobs of it that still run.
    running: set[str]
    #: {(job, round): {worker service: the iteration that it could have the job stop at}}
    proposals: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Leases:
    """Leases by id."""

    held: dict[str, Held] = field(default_factory=dict)
    #: Reports under leases that are not out.
    ignored: int = 0

    def grant(self, lease: Lease, round_id: int) -> None:
        """Put a lease on the books."""
        combination = tuple(task.job_id for task in lease.tasks)
        self.held[lease.lease_id] = Held(lease, combination, round_id, set(combination))

    def in_round(self, round_id: int) -> dict[Combination, Held]:
        """Leases that are held in a round and have not ended inside it, by combination."""
        return {
            held.combination: held for held in self.held.values() if held.until_round == round_id
        }

    def of_job(self, job_id: str) -> list[Held]:
        """Leases the job still runs under."""
        return [held for held in self.held.values() if job_id in held.running]

    def of_worker(self, worker_id: str) -> list[Held]:
        """Leases that hold the worker."""
        return [held for held in self.held.values() if worker_id in held.lease.worker_ids]

    def reported(self, lease_id: str, job_id: str, reporter: str) -> Held | None:
        """The lease a report is about, if it is out and the reporter may speak for the job."""
        held = self.held.get(lease_id)
        if held is None or job_id not in held.running or held.lease.reporters[0] != reporter:
            self.ignored += 1
            return None
        return held

    def of_rank(self, lease_id: str, job_id: str, reporter: str) -> Held | None:
        """The lease, if the reporter runs ranks of the job under it, but not the first."""
        held = self.held.get(lease_id)
        here = held is not None and job_id in held.running
        return held if here and held and reporter in held.lease.reporters[1:] else None

    def propose(self, event: StopStepProposed) -> StopStepAgreed | None:
        """Take in where a service could have a gang stop; where all do, with the last.

        The highest is one that no rank anywhere is past. A service's first word counts: its ranks
        may have been told already what came of it.
        """
        held = self.held.get(event.lease_id)
        services = () if held is None else held.lease.reporters
        if held is None or event.job_id not in held.running or event.reporter not in services:
            self.ignored += 1
            return None
        said = held.proposals.setdefault((event.job_id, event.round_id), {})
        if event.reporter in said:
            return None
        said[event.reporter] = event.iteration
        if len(said) < len(services):
            return None
        return StopStepAgreed(
            round_id=event.round_id,
            lease_id=event.lease_id,
            job_id=event.job_id,
            iteration=max(said.values()),
        )

    def stop(self, held: Held, job_id: str) -> None:
        """The job no longer runs under the lease; the lease ends with its last job."""
        held.running.discard(job_id)
        if not held.running:
            self.held.pop(held.lease.lease_id, None)

    def revoke(self, leases: Iterable[Held]) -> tuple[str, ...]:
        """Take leases off the books; their ids, in order."""
        ids = tuple(held.lease.lease_id for held in leases)
        for lease_id in ids:
            self.held.pop(lease_id, None)
        return ids

    def round_over(self, reporter: str, round_id: int) -> None:
        """The service has reported a round: its leases that go no further are off the books."""
        over = [
            lease_id
            for lease_id, held in self.held.items()
            if held.until_round <= round_id and held.lease.reporters[0] == reporter
        ]
        for lease_id in over:
            del self.held[lease_id]

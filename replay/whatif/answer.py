"""What would have been: what came from outside once more, with one thing changed.

What came from outside is kept: jobs, cancellations, drains, workers coming and going, how fast
tasks ran, how long checkpoints took, which tasks failed and after how long. All that services
decided is decided anew. There are two runs, unchanged and changed, so that their difference is the
change's and nothing else's; how far the unchanged one is from what was recorded says how much to
trust them. Of a simulation's log it is the recorded outcome to the last bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from replay.moment import Moment, Onward, Read
from replay.summary import Figures, JobLine, Summary
from replay.whatif.change import Change, WhatIfError, inputs
from replay.world import Outside, World
from schemas.events import (
    AllocationComputed,
    AllocationFailed,
    ClusterConfigured,
    JobEnded,
    JobSubmitted,
    RoundScheduled,
)
from schemas.record import Record
from services.policy.catalog import resolve

#: So many rounds without a job's end, and what is left will never end.
_ROUNDS_IN_VAIN = 10_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to."""

    figures: Figures
    jobs: Mapping[str, JobLine]
    #: {job id: why the policy could not give it a share}; it may have run on what was left.
    set_aside: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was recorded, what it comes to unchanged, and what it comes to changed."""

    recorded: Outcome
    unchanged: Outcome
    changed: Outcome
    #: Whether the log is a simulation's.
    is_simulated: bool
    records: int

    @property
    def off(self) -> float | None:
        """How far the unchanged run's JCTs, summed, are off the recorded, as a fraction.

        Over the jobs whose completion is on the log; None if there are none.
        """
        pairs = [
            (was, now)
            for job_id, job in self.recorded.jobs.items()
            if (was := job.jct_s) is not None
            and (now := self.unchanged.jobs[job_id].jct_s) is not None
        ]
        recorded = sum(was for was, _ in pairs)
        return sum(now for _, now in pairs) / recorded - 1 if recorded else None

    def gains(self) -> dict[str, float]:
        """{job id: by how much sooner than unchanged it is complete, s}, where it is in both."""
        ends = {job_id: job.completion_s for job_id, job in self.unchanged.jobs.items()}
        return {
            job_id: before - job.completion_s
            for job_id, job in self.changed.jobs.items()
            if job.completion_s is not None and (before := ends.get(job_id)) is not None
        }


def what_if(
    read: Read,
    change: Change,
    at: int = 0,
    observe: Callable[[Record], None] = lambda _: None,
) -> Answer:
    """Ask it of a log.

    Parameters
    ----------
    read : reads the log
    change : what is to be another way
    at : from behind this record on; 0: from the start
    observe : called with every record of the two runs

    Raises
    ------
    WhatIfError
        The change makes no sense for the log, or the policy cannot run its jobs.
    PolicyError
        There is no such policy.
    """
    moment, whole = Moment(read), World()
    recorded, before = Summary(), Summary()
    for record in read():
        whole.take(record)
        recorded.take(record)
        if record.seq <= at:
            moment.take(record)
            before.take(record)
    if at > whole.last_seq:
        raise WhatIfError(f"--at is {at}; expected at most {whole.last_seq}, the last record")
    if not whole.jobs:
        raise WhatIfError(f"none of the log's {whole.last_seq} records submits a job")

    for given in (change, Change()):
        for each in inputs(given, moment, whole).outside:
            if isinstance(each.event, ClusterConfigured):
                resolve(each.event.policy, each.event.policy_parameters)

    def outcome(change: Change) -> Outcome:
        return _run(moment, whole, copy.deepcopy(before), change, observe)

    unchanged = outcome(Change())
    return Answer(
        recorded=Outcome(figures=recorded.figures(), jobs=recorded.jobs),
        unchanged=unchanged,
        changed=unchanged if change == Change() else outcome(change),
        is_simulated=whole.is_simulated,
        records=whole.last_seq,
    )


def _run(
    moment: Moment,
    whole: World,
    summary: Summary,
    change: Change,
    observe: Callable[[Record], None],
) -> Outcome:
    """Go on to the end of all jobs."""
    given = inputs(change, moment, whole)
    end = _End(summary, given.outside, change.policy)
    onward = Onward(
        moment,
        whole.speeds.rates(given.table),
        load_s=whole.load_s,
        save_s=whole.save_s,
        outside=given.outside,
        workers=given.workers,
        failures={
            job_id: failures[len(moment.world.failures.get(job_id, ())) :]
            for job_id, failures in whole.failures.items()
        },
        observers=(summary.take, end.take, observe),
    )
    onward.driver.run(until=lambda: end.reached)
    if end.refusal:
        raise WhatIfError(f"policy {change.policy!r} cannot run these jobs: {end.refusal}")
    return Outcome(figures=summary.figures(), jobs=summary.jobs, set_aside=end.set_aside)


class _End:
    """Notices when there is nothing more to wait for."""

    def __init__(self, summary: Summary, outside: Sequence[Outside], policy: str) -> None:
        coming = {each.event.job.job_id for each in outside if isinstance(each.event, JobSubmitted)}
        there = {job.job_id for job in summary.jobs.values()}
        ended = {j.job_id for j in summary.jobs.values() if j.outcome not in ("waiting", "running")}
        self._open = (coming | there) - ended
        self._rounds_in_vain = 0
        self._policy = policy
        #: Why the policy in question has no answer, in its own words.
        self.refusal = ""
        self.set_aside: dict[str, str] = {}

    @property
    def reached(self) -> bool:
        """All jobs have ended, or none ever will."""
        return not self._open or self._rounds_in_vain >= _ROUNDS_IN_VAIN or bool(self.refusal)

    def take(self, record: Record) -> None:
        """Take in the next record of the run."""
        event = record.event
        if isinstance(event, JobEnded):
            self._open.discard(event.job_id)
            self._rounds_in_vain = 0
        elif isinstance(event, RoundScheduled):
            self._rounds_in_vain += 1
        elif isinstance(event, AllocationFailed) and event.policy == self._policy:
            self.refusal = self.refusal or event.reason
        elif isinstance(event, AllocationComputed):
            self.set_aside |= event.set_aside

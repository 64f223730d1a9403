"""A job before it is submitted: when it would start and end, at what cost, and whom it would delay.

The cluster is simulated on twice from one moment, without the job and with it, until all jobs that
are there have ended. Nothing else is foreseen to come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

import msgspec

from replay.cluster import Rates
from replay.explain.history import Histories
from replay.moment import Moment, Onward
from replay.options import InputError
from replay.traces.tables import builtin_table
from replay.whatif.change import Change, inputs
from replay.world import Outside
from schemas.domain import UNCONSOLIDATED, JobSpec, TaskSpec, ThroughputRow
from schemas.events import (
    AllocationFailed,
    JobCompleted,
    JobEnded,
    JobRejected,
    JobSubmitted,
    ThroughputTableImported,
)
from schemas.record import Record
from services.estimator.rates import rate_on, rates_of
from services.mechanism.admission import hopeless, refusal

#: Records after which each of the two simulations gives up.
_AT_MOST = 200_000
#: Less is no delay, s.
_NOTICED_S = 1.0


class Prospect(msgspec.Struct, kw_only=True):
    """What a job is likely to come to."""

    job_id: str
    policy: str
    #: Log time of the moment, s.
    at_s: float
    #: Why it can never run; then nothing else is known.
    never: str = ""
    #: Log time, s; None: not within what was simulated.
    starts_s: float | None = None
    ends_s: float | None = None
    #: Whether nothing was left to happen: what was not seen then never comes, as things are.
    is_over: bool = False
    #: {worker type: seconds that it holds workers there}, as far as was simulated
    held_s: dict[str, float] = {}
    #: For the workers it holds; None where a price is not known.
    cost_usd: float | None = None
    #: {job id: by how much it is done later, s}; below 0: sooner.
    delays_s: dict[str, float] = {}
    #: Jobs that were there; and those of them whose end was not seen, with it or without it.
    jobs: int = 0
    unseen: tuple[str, ...] = ()
    #: Why the policy had no answer, where it had none: then old shares or equal ones hold.
    policy_fails: str = ""


@dataclass(slots=True)
class _Ends:
    """When jobs end, and whether all have; and why the policy failed, if it did."""

    open: set[str]
    ends_s: dict[str, float] = field(default_factory=dict)
    records: int = 0
    policy_fails: str = ""

    @property
    def reached(self) -> bool:
        return not self.open or self.records >= _AT_MOST

    def take(self, record: Record) -> None:
        self.records += 1
        if isinstance(record.event, JobEnded):
            self.open.discard(record.event.job_id)
            if isinstance(record.event, JobCompleted):
                self.ends_s[record.event.job_id] = record.at
        elif isinstance(record.event, AllocationFailed):
            self.policy_fails = record.event.reason


def prospect(moment: Moment, job: JobSpec, active: Sequence[str], change: Change) -> Prospect:
    """What becomes of a job that is submitted now.

    Parameters
    ----------
    moment : now
    job : the job
    active : ids of the jobs that are there and have not ended
    change : how the cluster is run from now on, if another way

    Raises
    ------
    InputError
        Nothing is known of the job's throughput, and it would be measured first.
    """
    world = moment.world
    policy = change.policy or world.config.policy
    found = Prospect(job_id=job.job_id, policy=policy, at_s=world.now, jobs=len(active))
    row = _row(moment, job)
    never = _never(moment, job, row)
    if never is not None:
        found.never = never
        return found
    if row is None and not job.declared_throughputs:
        unknown = _unknown(moment, job)
        if world.config.estimator == "learned":
            raise InputError(f"{unknown}; a cluster that learns would measure it first")
        found.never = unknown
        return found
    alone = _run(moment, change, _Ends(set(active)), _rates(moment, change, job, row))
    histories = Histories({job.job_id})
    said = [Outside(world.now, 0, f"client.{job.job_id}", JobSubmitted(job=job))]
    if row is not None and (job.job_type, job.scale_factor) not in world.speeds.rows:
        table = ThroughputTableImported(source=world.speeds.source, rows=(row,))
        said.insert(0, Outside(world.now, 0, "operator.plan", table))
    ends, rates = _Ends({*active, job.job_id}), _rates(moment, change, job, row)
    both = _run(moment, change, ends, rates, said, histories.take)
    history = histories.jobs[job.job_id]
    if isinstance(history.ending, JobRejected):
        found.never = history.ending.reason
        return found
    if history.stretches:
        found.starts_s = history.stretches[0].starts_s
    found.ends_s = both.ends_s.get(job.job_id)
    found.is_over, found.policy_fails = not both.reached, both.policy_fails
    found.unseen = tuple(sorted((alone.open | both.open) - {job.job_id}))
    for stretch in history.stretches:
        worker_type = stretch.way.removesuffix(UNCONSOLIDATED)
        found.held_s[worker_type] = found.held_s.get(worker_type, 0.0) + stretch.run_s
    found.cost_usd = _cost(moment, job, found.held_s)
    delays = {
        job_id: both.ends_s[job_id] - end_s
        for job_id, end_s in alone.ends_s.items()
        if job_id in both.ends_s
    }
    in_order = sorted(delays.items(), key=lambda item: (-item[1], item[0]))
    found.delays_s = {job_id: late for job_id, late in in_order if abs(late) > _NOTICED_S}
    return found


def _run(
    moment: Moment,
    change: Change,
    ends: _Ends,
    rates: Rates,
    said: Sequence[Outside] = (),
    observe: Callable[[Record], None] = lambda _: None,
) -> _Ends:
    given = inputs(change, moment, moment.world)
    onward = Onward(
        moment,
        rates,
        load_s=moment.world.load_s,
        save_s=moment.world.save_s,
        outside=[*given.outside, *said],
        workers=given.workers,
        observers=(ends.take, observe),
    )
    onward.driver.run(until=lambda: ends.reached)
    return ends


def _row(moment: Moment, job: JobSpec) -> ThroughputRow | None:
    """What is known of the job's class; a simulation's log has the classes of its trace only."""
    speeds, key = moment.world.speeds, (job.job_type, job.scale_factor)
    if key in speeds.rows or speeds.source != builtin_table().source:
        return speeds.rows.get(key)
    pairs = any(row.beside for row in speeds.rows.values())
    rows = builtin_table().rows([*speeds.rows, key], pairs=pairs)
    return next((row for row in rows if (row.job_type, row.scale_factor) == key), None)


def _rates(moment: Moment, change: Change, job: JobSpec, row: ThroughputRow | None) -> Rates:
    """How fast tasks run; the job itself as its class does, else as is declared."""
    given = inputs(change, moment, moment.world)
    others = moment.world.speeds.rates(given.table)
    alone = (rates_of(row) if row is not None else {}) or job.declared_throughputs

    def rates(tasks: Sequence[TaskSpec], worker_type: str) -> Sequence[float]:
        speeds = others(tasks, worker_type)
        if any(speeds) or len(tasks) > 1 or tasks[0].job_id != job.job_id:
            return speeds
        return (rate_on(alone, worker_type),)

    return rates


def _never(moment: Moment, job: JobSpec, row: ThroughputRow | None) -> str | None:
    """Why the job can never run on the cluster as it is."""
    counts = moment.world.registered
    speeds = rates_of(row) if row is not None else None
    speeds = speeds or dict(job.declared_throughputs) or None
    return refusal(job, counts) or (None if speeds is None else hopeless(job, speeds, counts))


def _unknown(moment: Moment, job: JobSpec) -> str:
    """That nothing is known of the job's speed, and what is near."""
    classes = moment.world.speeds.rows
    scales = sorted({scale for name, scale in classes if name == job.job_type})
    if scales:
        known = f" on {job.scale_factor} workers is known (on {', '.join(map(str, scales))} it is)"
    else:
        near = get_close_matches(job.job_type, {name for name, _ in classes}, n=1, cutoff=0.5)
        known = f" is known{f'; did you mean {near[0]!r}?' if near else ''}"
    return (
        f"no throughput of job type {job.job_type!r}{known}: declare it (--throughput TYPE=STEPS/S)"
    )


def _cost(moment: Moment, job: JobSpec, held_s: dict[str, float]) -> float | None:
    prices = dict(moment.world.config.prices_usd_per_h)
    for worker in moment.world.workers.values():
        if worker.usd_per_h is not None:
            prices[worker.worker_type] = worker.usd_per_h
    if any(worker_type not in prices for worker_type in held_s):
        return None
    return sum(
        seconds / 3600 * job.scale_factor * prices[worker_type]
        for worker_type, seconds in held_s.items()
    )

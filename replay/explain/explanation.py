"""Everything there is to say of a job at a moment, put together."""

from __future__ import annotations

import msgspec

from replay.explain.foresee import Future, Help, future, what_helps
from replay.explain.history import JobHistory
from replay.explain.reasons import Case, Reason, reasons
from replay.explain.standing import OnType, on_types
from replay.explain.waterfall import waterfall
from replay.moment import Moment
from schemas.domain import UNCONSOLIDATED
from schemas.events import AnyEvent, JobCompleted

#: How far to look: records simulated times jobs that are there; and for each change that might
#: help, how much further than without it, unless there was nothing further to see; and how far at
#: least.
_AHEAD, _MORE, _AT_LEAST = 50_000, 1.1, 10_000


class Likely(msgspec.Struct, kw_only=True):
    """What will become of the job if nothing more comes from outside."""

    starts_s: float | None = None
    worker_type: str = ""
    worker_ids: tuple[str, ...] = ()
    ends_s: float | None = None
    #: How it ends: ``completed`` or otherwise; empty: not seen.
    outcome: str = ""
    #: Where the simulation stopped, s: what was not seen comes later; or never, if nothing was left
    #: to happen.
    seen_to_s: float = 0.0
    is_over: bool = False


class Explanation(msgspec.Struct, kw_only=True):
    """Why a job is where it is."""

    job_id: str
    job_type: str
    scale_factor: int
    total_steps: float | None
    #: ``waiting``, ``running``, or how it ended.
    status: str
    #: The moment that is explained: log time, s, and the last record.
    at_s: float
    seq: int
    submitted_s: float
    #: Since when it waits or runs; of one that has ended, its end.
    since_s: float
    steps: float
    reasons: list[Reason]
    types: list[OnType] = []
    likely: Likely | None = None
    helps: list[Help] = []
    #: Of a complete job: {part of its JCT: s}.
    waterfall: dict[str, float] = {}


def explain(moment: Moment, history: JobHistory) -> Explanation:
    """Explain a job.

    Parameters
    ----------
    moment : the log up to when it is to be explained
    history : the job's, up to then
    """
    world, spec = moment.world, history.spec
    found = Explanation(
        job_id=spec.job_id,
        job_type=spec.job_type,
        scale_factor=spec.scale_factor,
        total_steps=spec.total_steps,
        status=_status(moment, history),
        at_s=world.now,
        seq=world.last_seq,
        submitted_s=history.submitted_s,
        since_s=_since(moment, history),
        steps=history.steps,
        reasons=[],
    )
    if history.ended_s is not None:
        nothing = Future(spec.job_id)
        found.reasons = reasons(Case(moment, history, (), nothing))
        if isinstance(history.ending, JobCompleted):
            types = {worker.worker_type for worker in world.workers.values()}
            parts = waterfall(history, world.speeds.expected(), sorted(types))
            found.waterfall = {name: seconds for name, seconds in parts.items() if seconds}
        return found
    seen = future(moment, spec.job_id, to_the_end=True, at_most=_AHEAD)
    found.types = on_types(moment, history, seen)
    found.reasons = reasons(Case(moment, history, found.types, seen))
    if any(reason.code.startswith("never.") for reason in found.reasons):
        return found
    held = moment.under_way.of_job(spec.job_id)
    if held is not None:
        seen.lease, seen.starts_s = held.lease, max(held.since_s, world.now)
    found.likely = Likely(
        starts_s=seen.starts_s,
        worker_type=seen.lease.worker_type if seen.lease is not None else "",
        worker_ids=seen.lease.worker_ids if seen.lease is not None else (),
        ends_s=seen.ends_s,
        outcome=_outcome(seen.ending),
        seen_to_s=seen.seen_to_s,
        is_over=seen.is_over,
    )
    if found.status == "running":
        found.likely.starts_s = None
    usable = {
        on.worker_type.removesuffix(UNCONSOLIDATED)
        for on in found.types
        if on.steps_per_s > 0 and on.registered
    }
    found.helps = what_helps(
        moment,
        seen,
        sorted(usable),
        spec.scale_factor,
        # Who has a lease starts when that does.
        of="start" if held is None else "end",
        at_most=_AHEAD if seen.is_over else max(_AT_LEAST, int(_MORE * seen.looked_at)),
    )
    return found


def _status(moment: Moment, history: JobHistory) -> str:
    if history.ending is not None:
        return _outcome(history.ending)
    held = moment.under_way.of_job(history.spec.job_id)
    return "running" if held is not None and held.since_s <= moment.world.now else "waiting"


def _since(moment: Moment, history: JobHistory) -> float:
    if history.ended_s is not None:
        return history.ended_s
    held = moment.under_way.of_job(history.spec.job_id)
    if held is not None and held.since_s <= moment.world.now:
        return held.since_s
    return history.stretches[-1].ends_s if history.stretches else history.submitted_s


def _outcome(ending: AnyEvent | None) -> str:
    return "" if ending is None else type(ending).__name__.removeprefix("Job").lower()

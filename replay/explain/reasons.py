"""Why a job stands where it does: reasons with stable codes, in tiers.

The first tier that has a reason decides; those below it are then of no use. ``note`` reasons stand
beside whatever decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from replay.explain.foresee import Future
from replay.explain.history import JobHistory
from replay.explain.standing import OnType, away
from replay.moment import Moment
from replay.views import duration
from schemas.domain import UNCONSOLIDATED
from schemas.events import JobCancelled, JobCompleted, JobFailed, JobRejected
from services.estimator.rates import rates_of
from services.mechanism.admission import hopeless, refusal

#: {code: what it means}. Codes are for scripts: they stay, and new ones are added. What stands
#: before the dot is the tier, in the order in which they decide.
CODES = {
    "ended.completed": "the job is complete",
    "ended.cancelled": "it was cancelled",
    "ended.failed": "all its attempts failed",
    "never.rejected": "it can never run, and was rejected",
    "never.as-is": "it cannot run on the cluster as it is now",
    "running.entitled": "it runs on the share that the policy gives it",
    "running.filling": "it runs on workers that those entitled to them leave idle",
    "held.not-admitted": "the mechanism has not seen it yet",
    "held.no-estimate": "nothing is known of its throughput yet",
    "held.no-workers": "no worker that it can use can be leased",
    "held.back-off": "it failed, and waits before the next attempt",
    "held.policy-fails": "the policy has no answer",
    "held.next-allocation": "it came after the newest allocation, and waits for the next",
    "wait.next-round": "it starts with the next round",
    "wait.gang": "it needs more workers at once than are left when its turn comes",
    "wait.placement": "workers are idle, but not together on servers",
    "wait.no-share": "the policy gives it no share: it runs on what others leave",
    "wait.behind": "others are owed more on every type that it may use",
    "note.bottlenecked": "it cannot be given more without taking from a job that has less",
    "note.all-its-time": "it is to have all of its time: it cannot use more",
    "note.price": "what one more worker of a type is worth to the policy",
    "note.set-aside": "the policy can give it nothing",
    "note.unmet": "a demand of it cannot be met",
    "note.slo": "it is likely to miss its deadline",
    "note.types": "it may use some worker types only",
    "note.away": "workers are lost, unreachable or drained",
    "note.estimate": "its throughput is a guess so far",
    "note.shared": "it shares its workers",
}

#: An estimate below this is a guess.
_SURE = 0.8
_FULL = 0.999


class Reason(msgspec.Struct, frozen=True):
    """One reason."""

    #: One of ``CODES``.
    code: str
    #: With the numbers.
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """A job at a moment, and what is known of it."""

    moment: Moment
    history: JobHistory
    types: Sequence[OnType]
    seen: Future


def reasons(case: Case) -> list[Reason]:
    """What decides, then what stands beside it."""
    for tier in (_ended, _never, _running, _held, _wait):
        found = list(tier(case))
        if found:
            is_over = tier in (_ended, _never)
            return found if is_over else [*found, *_of_the_policy(case), *_notes(case)]
    return [*_of_the_policy(case), *_notes(case)]


def _ended(case: Case) -> Iterator[Reason]:
    history = case.history
    ending = history.ending
    after = duration((history.ended_s or 0.0) - history.submitted_s)
    if isinstance(ending, JobCompleted):
        yield Reason("ended.completed", f"complete after {after}: {ending.steps:.0f} steps")
    elif isinstance(ending, JobCancelled):
        yield Reason("ended.cancelled", f"cancelled after {after}")
    elif isinstance(ending, JobFailed):
        yield Reason("ended.failed", f"failed after {ending.attempts} attempts: {ending.reason}")


def _never(case: Case) -> Iterator[Reason]:
    history = case.history
    if isinstance(history.ending, JobRejected):
        yield Reason("never.rejected", history.ending.reason)
        return
    counts = case.moment.world.registered
    why = refusal(history.spec, counts)
    if why is None and history.estimate is not None:
        why = hopeless(history.spec, rates_of(history.estimate.row), counts)
    if why is not None:
        yield Reason("never.as-is", why)


def _running(case: Case) -> Iterator[Reason]:
    moment, history = case.moment, case.history
    held = moment.under_way.of_job(history.spec.job_id)
    if held is None or held.since_s > moment.world.now:
        return
    left = duration(held.until_s - moment.world.now)
    where = f"{', '.join(held.lease.worker_ids)} for another {left} or longer"
    worker_type = held.lease.worker_type
    share = sum(history.shares.get(way, 0.0) for way in (worker_type, worker_type + UNCONSOLIDATED))
    if share > 0:
        text = f"on {where}, at priority {held.priority:g}; its share there is {share:.3f}"
        yield Reason("running.entitled", text)
    else:
        yield Reason("running.filling", f"on {where}; it has no share there")
    others = [t.job_id for t in held.lease.tasks if t.job_id != history.spec.job_id]
    if others:
        yield Reason("note.shared", f"with job {others[0]}")


def _held(case: Case) -> Iterator[Reason]:
    history = case.history
    world = case.moment.world
    if history.admitted_s is None:
        yield Reason("held.not-admitted", "submitted; the mechanism has not answered")
        return
    if history.estimate is None:
        yield Reason("held.no-estimate", f"no throughput of {history.spec.job_type!r} is known yet")
    usable = [each for each in case.types if each.steps_per_s > 0 or history.estimate is None]
    if not any(each.workers >= history.spec.scale_factor for each in usable):
        counts = ", ".join(f"{t.worker_type}: {t.workers} of {t.registered}" for t in usable)
        asked = history.spec.scale_factor
        text = f"it needs {asked} at once; can be leased now: {counts or 'none of any type'}"
        yield Reason("held.no-workers", text)
    last = history.partings[-1] if history.partings else None
    if last is not None and last.not_before_s > world.now:
        failed = sum(parting.how == "failed" for parting in history.partings)
        left = duration(last.not_before_s - world.now)
        text = f"not for another {left}: {last.reason} (failure {failed}, at most "
        yield Reason("held.back-off", f"{text}{history.spec.max_attempts} in a row)")
    if world.failure is not None and not history.is_allocated:
        yield Reason("held.policy-fails", f"{world.failure.policy}: {world.failure.reason}")
    elif not history.is_allocated and world.config.new_jobs == "wait":
        yield Reason("held.next-allocation", "it is newer than the allocation in force")


def _wait(case: Case) -> Iterator[Reason]:
    seen = case.seen
    needs = case.history.spec.scale_factor
    held = case.moment.under_way.of_job(case.history.spec.job_id)
    lease, starts_s = (
        (held.lease, held.since_s) if held is not None else (seen.lease, seen.starts_s)
    )
    is_next = held is not None or (seen.plan is not None and starts_s == seen.plan.starts_at_s)
    if is_next and lease is not None and starts_s is not None:
        where, given = ", ".join(lease.worker_ids), "has" if held is not None else "will have"
        wait = duration(max(0.0, starts_s - case.moment.world.now))
        text = f"in {wait} it {given} {where}, at priority {lease.priority:g}"
        yield Reason("wait.next-round", text)
        return
    usable = [each for each in case.types if each.steps_per_s > 0]
    idle = [each for each in usable if each.left_idle]
    for each in idle:
        left = each.left_idle or 0
        if left < needs:
            text = f"the next round leaves {left} of {each.workers} {each.worker_type} idle"
            yield Reason("wait.gang", f"{text}; it needs {needs} at once")
        elif each.crowded:
            text = f"{left} {each.worker_type} stay idle, but no {needs} of them on as few servers"
            yield Reason("wait.placement", f"{text} as they could be")
    for each in usable:
        if needs > 1 and _passed_over(each):
            text = f"on {each.worker_type} job {' and '.join(each.last_served)} is served after it"
            yield Reason(
                "wait.gang", f"{text}: fewer than {needs} of {each.workers} are left for it"
            )
    if usable and not any(each.share > 0 for each in case.types):
        yield Reason("wait.no-share", "X is 0 on every type; those with X > 0 come first")
    behind = [
        _behind(each)
        for each in usable
        if each.priority is not None and not each.left_idle and not _passed_over(each)
    ]
    if behind:
        yield Reason("wait.behind", "; ".join(behind))


def _passed_over(on: OnType) -> bool:
    """Whether the next plan serves somebody on the type whose turn comes later."""
    if on.served or on.priority is None or on.last_priority is None:
        return False
    return on.share > 0 and on.priority > on.last_priority


def _behind(on: OnType) -> str:
    text = (
        f"on {on.worker_type} (workers: {on.workers}) its priority is {on.priority:g} and "
        f"{on.before_it} claims come first"
    )
    if on.last_priority is None:
        return text
    return f"{text}; the last served, job {' and '.join(on.last_served)}, has {on.last_priority:g}"


def _of_the_policy(case: Case) -> Iterator[Reason]:
    history, solved = case.history, case.moment.world.allocation
    job_id = history.spec.job_id
    if solved is None:
        return
    total = sum(history.shares.values())
    if total >= _FULL:
        yield Reason("note.all-its-time", f"its shares add up to {total:.3f} of its time")
    elif job_id in solved.bottlenecked:
        yield Reason("note.bottlenecked", f"says {solved.policy}")
    if solved.prices:
        prices = ", ".join(f"{t}: {price:.4g}" for t, price in sorted(solved.prices.items()))
        yield Reason("note.price", f"in units of {solved.policy}'s objective: {prices}")
    if job_id in solved.set_aside:
        yield Reason("note.set-aside", solved.set_aside[job_id])
    if job_id in solved.unmet:
        yield Reason("note.unmet", solved.unmet[job_id])


def _notes(case: Case) -> Iterator[Reason]:
    history, seen = case.history, case.seen
    world, spec = case.moment.world, history.spec
    if spec.slo_s is not None and seen.ends_s is not None:
        due_s = history.submitted_s + spec.slo_s
        if seen.ends_s > due_s:
            left, late = due_s - world.now, duration(seen.ends_s - due_s)
            due = f"due in {duration(left)}" if left > 0 else f"due {duration(-left)} ago"
            yield Reason("note.slo", f"{due}, and likely done {late} after that")
    if spec.allowed_worker_types:
        yield Reason(
            "note.types", f"only {', '.join(spec.allowed_worker_types)}, as its owner says"
        )
    gone = [f"{worker_id} ({why})" for worker_id, why in sorted(away(case.moment).items())]
    if gone:
        shown = ", ".join(gone[:8]) + (" ..." if len(gone) > 8 else "")
        yield Reason("note.away", f"{len(gone)} of {len(world.workers)} workers: {shown}")
    estimate = history.estimate
    if estimate is not None and (estimate.source == "provisional" or estimate.confidence < _SURE):
        text = f"{estimate.source}, confidence {estimate.confidence:.0%}"
        yield Reason("note.estimate", text)

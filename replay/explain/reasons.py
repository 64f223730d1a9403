"""Why a job stands where it does: reasons with stable codes, in tiers.

The first tier that has a reason decides; those below it are then of no use. ``note`` reasons stand
beside whatever decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from replay.explain.foresee import Future
from replay.explain.history import JobHistory, share_on
from replay.explain.standing import OnType, away, known_workers
from replay.moment import Moment
from replay.underway import Holding
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
    "wait.placement": "workers are left when its turn comes, but not together on servers",
    "wait.no-share": "the policy gives it no share",
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
    "note.equal-share": "no allocation knows of it yet: until then its share is an equal one",
    "note.policy-fails": "the policy has no answer: what was in force stays",
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
        text = f"complete after {after}: {ending.steps:.0f} steps"
        yield Reason("ended.completed", text + _lateness(history))
    elif isinstance(ending, JobCancelled):
        yield Reason("ended.cancelled", f"cancelled after {after}")
    elif isinstance(ending, JobFailed):
        yield Reason("ended.failed", f"failed after {ending.attempts} attempts: {ending.reason}")


def _lateness(history: JobHistory) -> str:
    if history.spec.slo_s is None or history.ended_s is None:
        return ""
    left_s = history.submitted_s + history.spec.slo_s - history.ended_s
    if left_s >= 0:
        return f"; {duration(left_s)} before its deadline"
    return f"; {duration(-left_s)} after its deadline"


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
    left = duration(max(0.0, held.until_s - moment.world.now))
    where = f"on {', '.join(held.lease.worker_ids)} for another {left} or longer"
    share = share_on(held.lease.worker_type, {on.worker_type: on.share for on in case.types})
    planned = history.planned_share
    if planned is None or planned > 0:
        text = f"{where}, at priority {held.priority:g}; its share there is {share:.3f}"
        if planned is None and history.is_allocated:
            text += ", and was an equal one when that was planned"
        elif planned not in (None, share):
            text += f", and was {planned:.3f} when that was planned"
        yield Reason("running.entitled", text)
    else:
        yield Reason("running.filling", f"{where}; it had no share there when that was planned")
    yield from _shared(held, history.spec.job_id)


def _shared(held: Holding, job_id: str) -> Iterator[Reason]:
    others = [each for each in held.job_ids if each != job_id]
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
        of_type = {t.worker_type.removesuffix(UNCONSOLIDATED): t for t in usable}
        counts = ", ".join(f"{name}: {t.workers} of {t.registered}" for name, t in of_type.items())
        asked = history.spec.scale_factor
        text = f"it needs {asked} at once; can be leased now: {counts or 'none of any type'}"
        yield Reason("held.no-workers", text)
    failed = [parting for parting in history.partings if parting.how == "failed"]
    if failed and failed[-1].not_before_s > world.now:
        last = failed[-1]
        left = duration(last.not_before_s - world.now)
        text = f"not for another {left}: {last.reason} (failure {last.failures}, at most "
        yield Reason("held.back-off", f"{text}{history.spec.max_attempts} in a row)")
    if history.is_allocated or world.config.new_jobs != "wait":
        return
    if world.failure is not None:
        yield Reason("held.policy-fails", f"{world.failure.policy}: {world.failure.reason}")
    else:
        gap_s = world.config.resolve_min_gap_s
        text = f"solves lie {duration(gap_s)} or more apart" if gap_s else "the policy is to answer"
        yield Reason("held.next-allocation", text)


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
        if held is not None:
            yield from _shared(held, case.history.spec.job_id)
        return
    usable = [each for each in case.types if each.steps_per_s > 0]
    for each in usable:
        yield from _no_room(each, needs)
    if usable and not any(each.share > 0 for each in case.types):
        fills = case.moment.world.config.fill != "none"
        then = "those with X > 0 come first" if fills else "only those with X > 0 run"
        yield Reason("wait.no-share", f"X is 0 on every type; {then}")
    behind = [_behind(each) for each in usable if each.left == 0]
    if behind:
        yield Reason("wait.behind", "; ".join(behind))


def _no_room(on: OnType, needs: int) -> Iterator[Reason]:
    """Workers are left when its turn comes, and are of no use to it."""
    if not on.left:
        return
    if on.left_idle:
        left = f"the next round leaves {on.left_idle} of {on.workers} {on.worker_type} idle"
    else:
        last = " and ".join(on.last_served)
        left = f"{on.left} of {on.workers} {on.worker_type} are left when its turn comes"
        left += f", before job {last}'s" if on.last_served else ""
    if on.left < needs:
        yield Reason("wait.gang", f"{left}; it needs {needs} at once")
    elif on.crowded:
        text = f"{left}, but no {needs} of them on as few servers as they could be"
        yield Reason("wait.placement", text)


def _behind(on: OnType) -> str:
    claims = "1 claim comes" if on.before_it == 1 else f"{on.before_it} claims come"
    text = (
        f"on {on.worker_type} (workers: {on.workers}) its priority is {on.priority:g} and "
        f"{claims} first"
    )
    if on.last_priority is None:
        return text
    equal = ", and goes first of equals" if on.last_priority == on.priority else ""
    last = " and ".join(on.last_served)
    return f"{text}; the last served, job {last}, has {on.last_priority:g}{equal}"


def _of_the_policy(case: Case) -> Iterator[Reason]:
    history, solved = case.history, case.moment.world.allocation
    job_id = history.spec.job_id
    failure, waits = case.moment.world.failure, case.moment.world.config.new_jobs == "wait"
    if failure is not None and (history.is_allocated or not waits):
        yield Reason("note.policy-fails", f"{failure.policy}: {failure.reason}")
    shares = ", ".join(f"{on.worker_type}: {on.share:.3f}" for on in case.types if on.share > 0)
    if shares and not history.is_allocated:
        yield Reason("note.equal-share", shares)
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
    if spec.slo_s is not None:
        due_s = history.submitted_s + spec.slo_s
        left = due_s - world.now
        due = f"due in {duration(left)}" if left > 0 else f"due {duration(-left)} ago"
        if seen.ends_s is None and (seen.is_over or seen.seen_to_s > due_s or left <= 0):
            yield Reason("note.slo", f"{due}, and not seen to end")
        elif seen.ends_s is not None and seen.ends_s > due_s:
            late = duration(seen.ends_s - due_s)
            yield Reason("note.slo", f"{due}, and likely done {late} after that")
    if spec.allowed_worker_types:
        yield Reason(
            "note.types", f"only {', '.join(spec.allowed_worker_types)}, as its owner says"
        )
    gone = [f"{worker_id} ({why})" for worker_id, why in sorted(away(case.moment).items())]
    if gone:
        shown = ", ".join(gone[:8]) + (" ..." if len(gone) > 8 else "")
        yield Reason("note.away", f"{len(gone)} of {known_workers(case.moment)} workers: {shown}")
    estimate = history.estimate
    if estimate is not None and (estimate.source == "provisional" or estimate.confidence < _SURE):
        text = f"{estimate.source}, confidence {estimate.confidence:.0%}"
        yield Reason("note.estimate", text)

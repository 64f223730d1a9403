"""How a job stands when the next round is planned: type by type, in numbers."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
from numpy.typing import NDArray

from replay.explain.foresee import Future
from replay.explain.history import JobHistory
from replay.moment import Moment
from replay.travel.mechanism import ranking_now, where
from replay.views import duration
from schemas.domain import UNCONSOLIDATED
from schemas.events import ClusterConfigured
from schemas.subjects import MECHANISM
from services.estimator.rates import rate_on, rates_of
from services.mechanism.claims import Claims, Ints
from services.mechanism.placement import Workers
from services.mechanism.planning import Ranking
from services.runtime.snapshot import state_of


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds workers of a type."""

    job_ids: tuple[str, ...]
    worker_ids: tuple[str, ...]
    #: End of the lease if it is not renewed, s.
    until_s: float
    #: What the plan ranked it by that granted or last renewed it.
    priority: float


class OnType(msgspec.Struct, kw_only=True):
    """A job on one worker type, or in one of the two ways to hold it."""

    worker_type: str
    #: Workers that can be leased, and all that are registered.
    workers: int
    registered: int
    #: As estimated; 0: it cannot run there.
    steps_per_s: float
    #: X, the fraction of time it is to have (of a job newer than the newest allocation, the equal
    #: share, if it has one until then); and seconds promised and received since it arrived.
    share: float
    entitled_s: float
    received_s: float
    #: What one more worker would raise the policy's objective by; None: the policy does not say.
    price: float | None
    #: Of the next plan: its priority, how many claims of others are looked at before it, and who of
    #: those with X > 0 is served last on this type, by which priority.
    priority: float | None = None
    before_it: int | None = None
    last_served: tuple[str, ...] = ()
    last_priority: float | None = None
    #: Workers that the next plan leaves idle, and that are left when this job's turn comes.
    left_idle: int | None = None
    left: int | None = None
    #: Whether the next plan serves it here; and whether a gang found no room as a whole.
    served: bool = False
    crowded: bool = False
    holders: list[Holder] = []


def on_types(moment: Moment, history: JobHistory, seen: Future) -> list[OnType]:
    """The job on each type, those it may not use left out."""
    world, spec = moment.world, history.spec
    registered = world.registered
    there = _leasable(moment)
    entitled, received = history.entitled_s(world.now), _received_s(moment, history)
    shares = history.shares
    if not history.is_allocated and world.config.new_jobs == "equal_share":
        state = state_of(moment.actors[MECHANISM].core)
        shares = _alone(spec.job_id, ranking_now(state, world.now))
    named = {*entitled, *received, *shares}
    ways = [
        way
        for t in registered
        for way in (t, t + UNCONSOLIDATED)
        if (way == t or way in named)
        and (not spec.allowed_worker_types or t in spec.allowed_worker_types)
    ]
    prices = world.allocation.prices if world.allocation is not None else {}
    estimate = history.estimate
    speeds = rates_of(estimate.row) if estimate is not None else {}
    found = [
        OnType(
            worker_type=way,
            workers=there[_type(way)],
            registered=registered[_type(way)],
            steps_per_s=rate_on(speeds, way),
            share=shares.get(way, 0.0),
            entitled_s=entitled.get(way, 0.0),
            received_s=received.get(way, 0.0),
            price=prices.get(_type(way)) if prices else None,
            holders=_holders(moment, _type(way), spec.job_id),
        )
        for way in ways
    ]
    if seen.ranking is not None:
        for each in found:
            _rank(each, spec.job_id, seen.ranking, world.config)
    return found


def _received_s(moment: Moment, history: JobHistory) -> dict[str, float]:
    """{worker type: seconds that it has held workers}, what is not reported yet included."""
    received = history.received_s()
    held = moment.under_way.of_job(history.spec.job_id)
    if held is not None:
        told_s = history.stretches[-1].ends_s if history.stretches else 0.0
        more = max(0.0, moment.world.now - max(told_s, held.since_s))
        received[history.way] = received.get(history.way, 0.0) + more
    return received


def _alone(job_id: str, ranking: Ranking | None) -> dict[str, float]:
    """{worker type: X} of a job alone, as the mechanism has it."""
    if ranking is None or (job_id,) not in ranking.claims.row:
        return {}
    claims = ranking.claims
    of_job = claims.share[claims.row[job_id,]].tolist()
    return {t: share for t, share in zip(claims.worker_types, of_job, strict=True) if share > 0}


def away(moment: Moment) -> dict[str, str]:
    """{worker that the mechanism does not lease: why}."""
    workers = _workers(moment)
    return {
        worker_id: _why_away(where(workers, worker), moment.world.now)
        for worker_id, worker in workers.registered.items()
        if not workers.leasable(worker_id)
    }


def known_workers(moment: Moment) -> int:
    """Workers that the mechanism knows of, those that have disappeared included."""
    return len(_workers(moment).registered)


def _why_away(why: str, now: float) -> str:
    _, since, time_s = why.partition(" since ")
    return f"unreachable for {duration(now - float(time_s))}" if since else why


def _leasable(moment: Moment) -> Counter[str]:
    """{worker type: workers that the mechanism can lease}."""
    workers = _workers(moment)
    return Counter(
        worker.worker_type
        for worker_id, worker in workers.registered.items()
        if workers.leasable(worker_id) and not worker.profiles_only
    )


def _workers(moment: Moment) -> Workers:
    found = state_of(moment.actors[MECHANISM].core)["_workers"]
    assert isinstance(found, Workers)
    return found


def _holders(moment: Moment, worker_type: str, job_id: str) -> list[Holder]:
    return [
        Holder(
            job_ids=each.job_ids,
            worker_ids=each.lease.worker_ids,
            until_s=each.until_s,
            priority=each.priority,
        )
        for each in moment.under_way.holdings()
        if each.lease.worker_type == worker_type and job_id not in each.job_ids
    ]


def _rank(on: OnType, job_id: str, ranking: Ranking, config: ClusterConfigured) -> None:
    """Put in what the next plan has to say of the job on the type."""
    claims = ranking.claims
    pool = (
        claims.pools.index(_type(on.worker_type)) if _type(on.worker_type) in claims.pools else -1
    )
    if pool < 0:
        return
    columns = [c for c in range(len(claims.worker_types)) if claims.pool[c] == pool]
    served = [(row, column) for row, column in ranking.choices if column in columns]
    used = sum(int(claims.scale_factor[row]) for row, _ in served)
    on.left_idle = int(ranking.capacity[pool]) - used
    if on.worker_type in claims.worker_types:
        column = claims.worker_types.index(on.worker_type)
        rows = [row for row, c in enumerate(claims.combinations) if job_id in c]
        fills = config.fill != "none"
        can = [
            row
            for row in rows
            if claims.runnable[row, column] and (fills or claims.share[row, column] > 0)
        ]
        if can:
            pairs = _one_list(claims, column if config.selection == "per_type" else None)
            others = pairs[:, ~np.isin(pairs[0], rows)]
            ahead = {row: int(_is_ahead(ranking, row, column, *others).sum()) for row in can}
            best = min(can, key=lambda row: ahead[row])
            on.priority = round(float(ranking.priority[best, column]), 6)
            on.before_it = ahead[best]
            chosen = np.array(served, dtype=np.int64).reshape(-1, 2).T
            first = chosen[0][_is_ahead(ranking, best, column, *chosen)]
            on.left = int(ranking.capacity[pool] - claims.scale_factor[first].sum())
        on.served = any((row, column) in served for row in rows)
        on.crowded = column in ranking.crowded and any(claims.scale_factor[row] > 1 for row in rows)
    entitled = [(row, column) for row, column in served if claims.share[row, column] > 0]
    if entitled:
        row, column = entitled[-1]
        on.last_served = claims.combinations[row]
        on.last_priority = round(float(ranking.priority[row, column]), 6)


def _one_list(claims: Claims, column: int | None) -> Ints:
    """(2, pairs) rows and columns of all pairs that can run, or of those on one column."""
    kinds = (
        (claims.entitled, claims.fillers)
        if column is None
        else (claims.entitled_on[column], claims.fillers_on[column])
    )
    return np.concatenate([np.array(pairs, dtype=np.int64) for pairs in kinds], axis=1)


def _is_ahead(
    ranking: Ranking, row: int, column: int, rows: Ints, columns: Ints
) -> NDArray[np.bool_]:
    """(pairs,) whether each of a list is looked at before this one.

    Pairs with X > 0 come first; then by the keys they are sorted by; of equals the earlier arrival.
    """
    claims = ranking.claims
    arrival = np.broadcast_to(-claims.arrival[:, None], claims.share.shape)
    is_ahead = np.zeros(len(rows), dtype=bool)
    is_equal = np.ones(len(rows), dtype=bool)
    for key in (claims.share > 0, *ranking.keys, arrival):
        mine, theirs = key[row, column], key[rows, columns]
        is_ahead |= is_equal & (theirs > mine)
        is_equal &= theirs == mine
    return is_ahead


def _type(way: str) -> str:
    return way.removesuffix(UNCONSOLIDATED)

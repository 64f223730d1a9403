"""What a what-if changes, and what is then said from outside instead of what was said.

From the start, the operator's and the clients' words are other ones. From a record on, what was
said before it stands; the operator then says what is to change, and whoever is to go is cancelled
or drained as on a real cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

import msgspec

from replay.modes import paper_mode
from replay.moment import Moment
from replay.options import InputError
from replay.simulate import WORKER
from replay.traces.tables import builtin_table
from replay.world import Outside, World
from schemas.events import (
    AnyEvent,
    CancelRequested,
    ClusterConfigured,
    DrainRequested,
    JobSubmitted,
    ThroughputTableImported,
    WorkerRegistered,
)
from services.estimator.tables import ThroughputTable
from services.policy.catalog import needs

#: Who says what the change has the operator say.
_OPERATOR = "operator.whatif"


class WhatIfError(InputError):
    """The question makes no sense for this log; the message says why, and what would."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is to be another way; nothing, by default."""

    policy: str = ""
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    round_s: float | None = None
    #: {worker type: how many more, or fewer}
    cluster: Mapping[str, int] = field(default_factory=dict)
    #: Jobs of it, and of what lies below it, are left out.
    without_entity: str = ""
    #: Reference throughputs instead of the log's.
    table: ThroughputTable | None = None

    @property
    def of_config(self) -> bool:
        """Whether the cluster is run another way."""
        return bool(self.policy or self.parameters or self.round_s is not None)


@dataclass(frozen=True)
class Inputs:
    """What a moment goes on with."""

    outside: Sequence[Outside]
    workers: Sequence[WorkerRegistered]
    #: Reference throughputs, if others than the log's.
    table: ThroughputTable | None


def inputs(change: Change, moment: Moment, whole: World) -> Inputs:
    """What comes from outside after the moment, changed.

    Parameters
    ----------
    change : what is to be another way
    moment : from where
    whole : the world by the whole log

    Raises
    ------
    WhatIfError
        The change makes no sense for the log.
    """
    seq = moment.world.last_seq
    table = _table(change, whole)
    early, late = _workers_to_come(whole, seq)
    gone, more = _cluster(change, whole, table)
    dropped = _jobs_of(change.without_entity, whole)
    outside = sorted(
        (*(each for each in whole.outside if each.seq > seq), *late), key=lambda each: each.seq
    )
    kept = [
        Outside(each.at, each.seq, each.actor, _changed(change, each.event, whole, table))
        for each in outside
        if _worker_id(each.event) not in gone and _job_id(each.event) not in dropped
    ]
    said = _said_now(change, moment, whole, table, gone, dropped) if seq else []
    workers = [worker for worker in early if worker.worker_id not in gone]
    return Inputs([*said, *kept], [*workers, *more], table)


def _said_now(
    change: Change,
    moment: Moment,
    whole: World,
    table: ThroughputTable | None,
    gone: Collection[str],
    dropped: Collection[str],
) -> list[Outside]:
    """What the operator and the clients say at once, in the middle of a log."""
    world = moment.world
    events: list[tuple[str, AnyEvent]] = []
    if table is not None:
        old = ThroughputTableImported(source="", rows=tuple(world.speeds.rows.values()))
        events.append((_OPERATOR, _changed(change, old, whole, table)))
    if change.of_config:
        events.append((_OPERATOR, _changed(change, world.config, whole, table)))
    events += [
        (_OPERATOR, DrainRequested(worker_id=worker_id))
        for worker_id in sorted(gone)
        if worker_id in world.workers
    ]
    events += [
        (f"client.whatif-{n}", CancelRequested(job_id=job_id))
        for n, job_id in enumerate(job_id for job_id in world.jobs if job_id in dropped)
    ]
    return [Outside(world.now, 0, actor, event) for actor, event in events]


def _changed(
    change: Change, event: AnyEvent, whole: World, table: ThroughputTable | None
) -> AnyEvent:
    """What is said instead."""
    if isinstance(event, ClusterConfigured) and change.of_config:
        return _config(change, event, whole)
    if isinstance(event, ThroughputTableImported) and table is not None:
        policy = change.policy or whole.config.policy
        classes = sorted({(job.job_type, job.scale_factor) for job in whole.jobs.values()})
        classes += [(row.job_type, row.scale_factor) for row in event.rows]
        rows = table.rows(classes, pairs=needs(policy, "pairs"))
        return ThroughputTableImported(source=table.source, rows=rows)
    return event


def _config(change: Change, config: ClusterConfigured, whole: World) -> ClusterConfigured:
    if change.round_s is not None:
        lost_s = whole.load_s + whole.save_s
        if change.round_s <= lost_s:
            raise WhatIfError(
                f"--round is {change.round_s:g}; expected more than {lost_s:g} s, which is what "
                "loading and saving a checkpoint take"
            )
        lead_s = config.plan_lead_s
        config = msgspec.structs.replace(
            config,
            round_duration_s=change.round_s,
            plan_lead_s=lead_s if lead_s is None or lead_s < change.round_s else None,
        )
    if change.policy:
        config = msgspec.structs.replace(
            config, policy=change.policy, policy_parameters=dict(change.parameters)
        )
        if config.round_end == "last_task":
            paper = paper_mode(change.policy, config.round_duration_s)
            config = msgspec.structs.replace(config, fill=paper.fill, type_orders=paper.type_orders)
    elif change.parameters:
        parameters = config.policy_parameters | dict(change.parameters)
        config = msgspec.structs.replace(config, policy_parameters=parameters)
    return config


def _table(change: Change, whole: World) -> ThroughputTable | None:
    """Reference throughputs that the change needs, where the log's own are not enough."""
    if change.table is not None:
        return change.table
    has_pairs = any(row.beside for row in whole.speeds.rows.values())
    if not needs(change.policy, "pairs") or has_pairs:
        return None
    builtin = builtin_table()
    if whole.speeds.source == builtin.source:
        return builtin
    raise WhatIfError(
        f"policy {change.policy!r} needs the throughputs of jobs that share workers, and this log "
        "has none: give them by --throughputs FILE"
    )


# --- workers -------------------------------------------------------------------------------------


def _workers_to_come(whole: World, seq: int) -> tuple[list[WorkerRegistered], list[Outside]]:
    """Those that are there before there is a job, and those that come later."""
    jobs = (each for each in whole.outside if isinstance(each.event, JobSubmitted))
    first = next(jobs, None)
    early, late = [], []
    for each in whole.first_seen.values():
        if each.seq > seq and isinstance(each.event, WorkerRegistered):
            if first is None or each.seq < first.seq or each.at <= first.at:
                early.append(each.event)
            else:
                late.append(each)
    return early, late


def _cluster(
    change: Change, whole: World, table: ThroughputTable | None
) -> tuple[set[str], list[WorkerRegistered]]:
    """Ids of workers taken away, and workers that are there besides."""
    known = (table or whole.speeds.table()).worker_types()
    gone: set[str] = set()
    more: list[WorkerRegistered] = []
    for worker_type, number in change.cluster.items():
        alike = [
            worker
            for worker in whole.workers.values()
            if worker.worker_type == worker_type and not worker.profiles_only
        ]
        if worker_type not in known and not alike:
            raise WhatIfError(
                f"--cluster names {worker_type!r}; {_one_of(worker_type, known)}, for which this "
                "log has throughputs; --throughputs FILE gives others"
            )
        if -number > len(alike):
            raise WhatIfError(
                f"--cluster takes {-number} {worker_type} away; expected at most {len(alike)}, as "
                "many as there are"
            )
        gone.update(worker.worker_id for worker in alike[len(alike) + min(number, 0) :])
        more += _like(alike, worker_type, number, whole)
    return gone, more


def _like(
    alike: Sequence[WorkerRegistered], worker_type: str, number: int, whole: World
) -> list[WorkerRegistered]:
    """So many more workers, on servers as large as those there are."""
    per_server = max(Counter(worker.server_id for worker in alike).values(), default=1)
    anyone = next(iter(whole.workers.values()), None)
    example = alike[0] if alike else None
    price = whole.config.prices_usd_per_h.get(worker_type)
    speaker = example or anyone
    return [
        WorkerRegistered(
            worker_id=f"whatif-{worker_type}-{n}",
            worker_type=worker_type,
            server_id=f"whatif-{worker_type}-s{n // per_server}",
            reporter=WORKER if speaker is None else speaker.reporter,
            usd_per_h=price if example is None else example.usd_per_h,
        )
        for n in range(max(number, 0))
    ]


# --- jobs ----------------------------------------------------------------------------------------


def _jobs_of(entity: str, whole: World) -> set[str]:
    """Ids of the jobs of an entity, and of all entities below it."""
    if not entity:
        return set()
    parents = {each.entity_id: each.parent for each in whole.config.entities}
    named = {job.entity for job in whole.jobs.values() if job.entity}
    known = sorted(named | parents.keys())
    if entity not in known:
        listed = _one_of(entity, known) if known else "none: no job of this log has an entity"
        raise WhatIfError(f"--without-entity is {entity!r}; {listed}")
    below = {entity}
    while True:
        more = {name for name, parent in parents.items() if parent in below} - below
        if not more:
            break
        below |= more
    return {job.job_id for job in whole.jobs.values() if job.entity in below}


def _worker_id(event: AnyEvent) -> str:
    return str(getattr(event, "worker_id", ""))


def _job_id(event: AnyEvent) -> str:
    if isinstance(event, JobSubmitted):
        return event.job.job_id
    return event.job_id if isinstance(event, CancelRequested) else ""


def _one_of(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    hint = f"; perhaps {near[0]}" if near else ""
    return f"expected one of {', '.join(known)}{hint}"

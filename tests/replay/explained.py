"""Jobs on small clusters, and what is said of them: for the tests of explain and plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from replay.cluster import Failure
from replay.explain.explanation import Explanation, explain
from replay.explain.history import Histories
from replay.explain.reasons import CODES
from replay.modes import MODES
from replay.moment import Moment, Onward
from replay.simulate import Simulation, build_workers, table_rates
from replay.traces.tables import builtin_table
from replay.world import Outside
from schemas.domain import JobSpec
from schemas.events import (
    AnyEvent,
    ClusterConfigured,
    JobSubmitted,
    ThroughputTableImported,
)
from schemas.record import Record
from services.runtime.log import MemoryLog
from tests.simulation.scenario import records_of

CLUSTER = {"v100": 2, "k80": 2}
RESNET = "ResNet-50 (batch size 64)"


def job(name: str, hours: float, **fields: object) -> JobSpec:
    """A job of so many hours on a V100."""
    spec = JobSpec(job_id=name, job_type=RESNET, **fields)  # type: ignore[arg-type] # as they are there
    steps_per_s = builtin_table().alone(spec.job_type, spec.scale_factor, "v100") or 1.0
    return msgspec.structs.replace(spec, total_steps=3600 * hours * steps_per_s)


def run(
    jobs: Iterable[JobSpec],
    said: Iterable[tuple[float, str, AnyEvent]] = (),
    cluster: dict[str, int] = CLUSTER,
    config: ClusterConfigured | None = None,
    per_server: int = 2,
    **more: object,
) -> tuple[Record, ...]:
    """The log of a simulation of these jobs, with what else is said from outside."""
    simulation = Simulation(
        MemoryLog(),
        config or MODES["default"]("las", 360.0),
        build_workers(cluster, {"v100": per_server}, {"v100": 0.74, "k80": 0.135}),
        builtin_table(),
        tuple(jobs),
        load_s=5.0,
        save_s=5.0,
        **more,  # type: ignore[arg-type] # as they are there
    )
    for at, actor, event in said:
        simulation.driver.submit(at, actor, event)
    simulation.run()
    return tuple(records_of(simulation.driver))


def run_failing(
    jobs: Iterable[JobSpec], failures: dict[str, list[Failure]], cluster: dict[str, int]
) -> tuple[Record, ...]:
    """The log of jobs that all come at once, whose tasks fail after so many seconds."""
    records: list[Record] = []
    table = builtin_table()
    classes = sorted({(job.job_type, job.scale_factor) for job in jobs})
    known = ThroughputTableImported(source=table.source, rows=table.rows(classes))
    said_first: list[AnyEvent] = [MODES["default"]("las", 360.0), known]
    outside = [Outside(0.0, 0, "operator", event) for event in said_first]
    outside += [Outside(0.0, 0, f"client.{job.job_id}", JobSubmitted(job=job)) for job in jobs]
    onward = Onward(
        Moment(),
        table_rates(table),
        load_s=5.0,
        save_s=5.0,
        outside=outside,
        workers=build_workers(cluster, {}, {}),
        failures=failures,
        observers=(records.append,),
    )
    onward.driver.run()
    return tuple(records)


def at(records: Sequence[Record], time_s: float, name: str) -> Explanation:
    """A job explained as of a time."""
    moment, histories = Moment(lambda: iter(records)), Histories({name})
    for record in records:
        if record.at > time_s:
            moment.world.now = time_s
            break
        moment.take(record)
        histories.take(record)
    return explain(moment, histories.jobs[name])


def codes(found: Explanation) -> list[str]:
    """The codes of its reasons."""
    assert {reason.code for reason in found.reasons} <= CODES.keys()
    return [reason.code for reason in found.reasons]


def said(found: Explanation, code: str) -> str:
    """What is said under a code."""
    return next(reason.text for reason in found.reasons if reason.code == code)


@cache
def contention() -> tuple[Record, ...]:
    """Eight jobs, all there after ten minutes, for four workers."""
    return run(job(f"j{n}", 1.0 + n / 3, arrival_s=75.0 * n) for n in range(8))

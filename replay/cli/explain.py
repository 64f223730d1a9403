"""``gavel explain`` and ``gavel plan``: why a job is where it is, and where one would be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.cli.shared import (
    ClusterName,
    JobFile,
    JobName,
    JobType,
    Json,
    Nats,
    On,
    Steps,
    Throughput,
    Weight,
    Workers,
    as_typed,
)
from replay.options import OptionError, one_of

if TYPE_CHECKING:
    from replay.moment import Read

_Log = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, readable=True, help="A log file (the running cluster's log)."
    ),
]
_At = Annotated[
    str,
    typer.Option(metavar="TIME", help="Then: 5400, 90m, 1.5h into the log, or a date (its end)."),
]


def explain(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job id.")] = "",
    *,
    log: _Log = None,
    at: _At = "",
    codes: Annotated[
        bool, typer.Option("--codes", help="List the codes of reasons, and what they mean.")
    ] = False,
    nats: Nats = "",
    cluster: ClusterName = "",
    json: Json = False,
) -> int:
    """Say why a job waits, what it is owed and who has it, when it will start, what would help.

    What will become of it is simulated on from the log's state, as if nothing else came. Of a job
    that is complete: where its time went, in parts that sum to its JCT.
    """
    from replay import views  # noqa: PLC0415 - numpy and the solvers take their time to load
    from replay.explain import reasons, waterfall, words  # noqa: PLC0415 - as above

    if codes:
        if json:
            views.print_json({**reasons.CODES, **waterfall.PARTS})
        else:
            views.out().print(words.codes())
        return 0
    if not job:
        raise OptionError("JOB", job, "a job id; `gavel jobs` lists those of a running cluster")
    from replay.explain.explanation import explain as explained  # noqa: PLC0415 - as above
    from replay.explain.scene import scene, scene_of_file  # noqa: PLC0415 - as above

    _check_source(log, nats, cluster)
    if log is not None:
        seen = scene_of_file(log, at, job)
    else:
        seen = scene(_source(log, nats, cluster), at, {job})
    history = seen.jobs.get(job)
    if history is None:
        if seen.comes_after_s is not None:
            expected = f"{seen.comes_after_s:g} or later, when job {job} is submitted"
            raise OptionError("--at", at, expected)
        one_of(f"JOB by --at {at}" if at else "JOB", job, seen.moment.world.jobs)
        raise AssertionError("a job that is there has a history")
    found = explained(seen.moment, history)
    if json:
        views.print_json(found)
    else:
        views.out().print(words.told(found))
    return 0


def plan(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="What each rank would run.")
    ] = None,
    *,
    file: JobFile = None,
    id: JobName = "",  # noqa: A002 - as the option is called
    type: JobType = "",  # noqa: A002 - as above
    steps: Steps = None,
    workers: Workers = None,
    weight: Weight = None,
    on: On = "",
    throughput: Throughput = None,
    policy: Annotated[str, typer.Option(help="As if the cluster were run by this policy.")] = "",
    log: _Log = None,
    at: _At = "",
    nats: Nats = "",
    cluster: ClusterName = "",
    json: Json = False,
) -> int:
    """Say when a job would start and end, on which types, at what cost, and whom it would delay.

    Nothing is submitted: the cluster is simulated on from its state now, without the job and with
    it. The options are those of `gavel submit`. Exit code 1: it never runs, as things are.
    """
    from replay import own_policy, views  # noqa: PLC0415 - as for `explain`
    from replay.explain import plan_words  # noqa: PLC0415 - as for `explain`
    from replay.explain.planned import prospect  # noqa: PLC0415 - as for `explain`
    from replay.explain.scene import scene  # noqa: PLC0415 - as for `explain`
    from replay.live.jobs import job_of  # noqa: PLC0415 - as for `explain`
    from replay.whatif.change import Change  # noqa: PLC0415 - as for `explain`
    from services.policy.catalog import resolve  # noqa: PLC0415 - as for `explain`

    typed = as_typed(id, type, steps, workers, weight, on, throughput)
    job = job_of(typed, command or (), file, "plan")
    if policy:
        own_policy.load(policy)
        resolve(policy)
    _check_source(log, nats, cluster)
    seen = scene(_source(log, nats, cluster), at, None)
    if job.job_id in seen.moment.world.jobs:
        raise OptionError("--id", job.job_id, "a name that no job of the log has")
    active = [name for name, each in seen.jobs.items() if each.ended_s is None]
    found = prospect(seen.moment, job, active, Change(policy=policy))
    if json:
        views.print_json(found)
    else:
        views.out().print(plan_words.told(found))
    return 1 if found.never or (found.is_over and found.starts_s is None) else 0


def _check_source(log: Path | None, nats: str, cluster: str) -> None:
    if log is not None and (nats or cluster):
        raise OptionError("--log", str(log), "none with --nats or --cluster-name")


def _source(log: Path | None, nats: str, cluster: str) -> Read:
    """Reads the log that is meant."""
    if log is not None:
        from replay.log_source import reader  # noqa: PLC0415 - as for `explain`

        return reader(log)
    from replay.live.actions import records_now  # noqa: PLC0415 - the network takes a while to load

    records = records_now(nats, cluster)
    return lambda: iter(records)

"""The commands that ask or tell a running cluster something; the work is in ``replay/live``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
from replay.options import examples

job_app = typer.Typer(no_args_is_help=True, help="Look at one job.")
config_app = typer.Typer(no_args_is_help=True, help="Look at settings of services.")
policy_app = typer.Typer(no_args_is_help=True, help="Change how the cluster is shared.")

JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job id.")]
Round = Annotated[float | None, typer.Option(help="Seconds a round lasts (360, or as it was).")]
Policy = Annotated[str, typer.Option(help="One of `gavel policies` (las, or as it was).")]
Estimator = Annotated[
    str,
    typer.Option(
        metavar="oracle|declared|learned",
        help="Whom to believe about throughputs (oracle, or as it was).",
    ),
]
Throughputs = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="Steps/s (a built-in table).")
]


def up(
    *,
    emulate: Annotated[
        str, typer.Option(metavar="TYPE=N,...", help="Imagine accelerators; tasks keep their pace.")
    ] = "",
    server_size: Annotated[int, typer.Option(min=0, help="Workers to an imagined server.")] = 0,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="No processes either: tasks are sums.")
    ] = False,
    round: Round = None,  # noqa: A002 - as the option is called
    policy: Policy = "",
    estimator: Estimator = "",
    throughputs: Throughputs = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once it is up, and leave it running.")
    ] = False,
) -> int:
    """Start a cluster on this machine: log, services, workers. State is under GAVEL_HOME."""
    from replay.live import actions  # noqa: PLC0415 - numpy and the network take a while to load
    from replay.live.up import Options  # noqa: PLC0415 - as above

    options = Options(
        emulate=emulate,
        server_size=server_size,
        in_process=in_process,
        round_s=round,
        policy=policy,
        estimator=estimator,
        throughputs=throughputs,
    )
    return actions.up(options, detach=detach)


def configure(
    *,
    round: Round = None,  # noqa: A002 - as above
    policy: Policy = "",
    estimator: Estimator = "",
    throughputs: Throughputs = None,
    nats: Nats = "",
    cluster: ClusterName = "",
    json: Json = False,
) -> int:
    """Say how a cluster is run whose services are started one by one."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`
    from replay.live.up import Options  # noqa: PLC0415 - as for `up`

    options = Options(round_s=round, policy=policy, estimator=estimator, throughputs=throughputs)
    return actions.configure(options, nats, cluster, json=json)


def down() -> int:
    """Stop the cluster of this machine; tasks save first. Its log stays."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.down()


def status(nats: Nats = "", cluster: ClusterName = "", *, json: Json = False) -> int:
    """Print which services there are, who leads, how far behind each is, and the last round."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.status(nats, cluster, json=json)


def submit(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="What each rank runs.")
    ] = None,
    *,
    file: JobFile = None,
    id: JobName = "",  # noqa: A002 - as above
    type: JobType = "",  # noqa: A002 - as above
    steps: Steps = None,
    workers: Workers = None,
    weight: Weight = None,
    on: On = "",
    throughput: Throughput = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Variable; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check it and print it; submit nothing.")
    ] = False,
    nats: Nats = "",
    cluster: ClusterName = "",
    json: Json = False,
) -> int:
    """Submit a job; returns once it is stored and admitted."""
    from replay.live import job_actions  # noqa: PLC0415 - as for `up`
    from replay.live.jobs import pairs  # noqa: PLC0415 - as for `up`

    given = {
        **as_typed(id, type, steps, workers, weight, on, throughput),
        "environment": pairs("--env", env or []) or None,
    }
    request = job_actions.Submission(given, tuple(command or ()), file, dry_run=dry_run)
    return job_actions.submit(request, nats, cluster, json=json)


def jobs(
    nats: Nats = "",
    cluster: ClusterName = "",
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    json: Json = False,
) -> int:
    """List jobs."""
    from replay.live import job_actions  # noqa: PLC0415 - as for `up`

    return job_actions.jobs(nats, cluster, everything=everything, json=json)


@job_app.command("show")
def job_show(job: JobId, nats: Nats = "", cluster: ClusterName = "", *, json: Json = False) -> int:
    """Print what there is to know of a job: how far, where, what it is entitled to."""
    from replay.live import job_actions  # noqa: PLC0415 - as for `up`

    return job_actions.job_show(job, nats, cluster, json=json)


def workers(nats: Nats = "", cluster: ClusterName = "", *, json: Json = False) -> int:
    """List workers, and what runs on each."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.workers(nats, cluster, json=json)


def allocation(nats: Nats = "", cluster: ClusterName = "", *, json: Json = False) -> int:
    """Print the shares that the policy wants jobs to have now."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.allocation(nats, cluster, json=json)


def rounds(
    nats: Nats = "",
    cluster: ClusterName = "",
    *,
    number: Annotated[int, typer.Option("-n", min=1, max=1000, help="How many.")] = 20,
    json: Json = False,
) -> int:
    """List the last rounds."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.rounds(nats, cluster, number, json=json)


def cancel(job: JobId, nats: Nats = "", cluster: ClusterName = "", *, json: Json = False) -> int:
    """Cancel a job."""
    from replay.live import job_actions  # noqa: PLC0415 - as for `up`

    return job_actions.cancel(job, nats, cluster, json=json)


def drain(
    worker: Annotated[str, typer.Argument(help="A worker id.")] = "",
    nats: Nats = "",
    cluster: ClusterName = "",
    *,
    server: Annotated[str, typer.Option(help="All workers of a server instead.")] = "",
    json: Json = False,
) -> int:
    """Empty a worker, or a server's, at the end of the round; it is leased no more."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.drain(worker, server, nats, cluster, json=json)


def logs(
    job: JobId,
    *,
    rank: Annotated[int, typer.Option(min=0, help="Of which rank.")] = 0,
    lines: Annotated[int, typer.Option("-n", min=0, help="How many; 0: all.")] = 100,
) -> int:
    """Print what a job has printed on this machine, under its newest lease."""
    from replay.live import job_actions  # noqa: PLC0415 - as for `up`

    return job_actions.logs(job, rank, lines)


def wait(
    job: JobId,
    nats: Nats = "",
    cluster: ClusterName = "",
    *,
    timeout: Annotated[float | None, typer.Option(help="Seconds, then give up.")] = None,
    json: Json = False,
) -> int:
    """Wait for a job's end; exit code 0 if it is complete, 1 otherwise."""
    from replay.live import job_actions  # noqa: PLC0415 - as for `up`

    return job_actions.wait(job, timeout, nats, cluster, json=json)


@policy_app.command("set")
def policy_set(
    name: Annotated[str, typer.Argument(help="One of `gavel policies`.")],
    nats: Nats = "",
    cluster: ClusterName = "",
    *,
    parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be repeated.")
    ] = None,
    json: Json = False,
) -> int:
    """Share the cluster by another policy, from the next round on."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`
    from replay.live.jobs import pairs  # noqa: PLC0415 - as for `up`

    parameters = pairs("--parameter", parameter or [])
    return actions.policy_set(name, parameters, nats, cluster, json=json)


def top(nats: Nats = "", cluster: ClusterName = "") -> int:
    """Watch jobs and workers; Ctrl-C ends it."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.top(nats, cluster)


@config_app.command("check")
def config_check(
    file: Annotated[Path, typer.Argument(help="Settings, TOML; the environment goes before.")],
) -> int:
    """Check a settings file of services; print what it comes to."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.config_check(file)


def service(
    name: Annotated[str, typer.Argument(help="policy, mechanism, estimator or worker.")],
    *,
    config: Annotated[Path | None, typer.Option(help="Settings, TOML.")] = None,
) -> int:
    """Run one service here; the same as gavel-NAME."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.service(name, config)


def fetch(
    out: Annotated[Path, typer.Argument(help="A log file; compressed if it ends in .zst.")],
    nats: Nats = "",
    cluster: ClusterName = "",
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> int:
    """Write the cluster's log to a file, to be verified, replayed, kept."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.fetch(out, nats, cluster, force=force)


def resize(
    size: Annotated[
        float, typer.Argument(metavar="GB", min=0.001, max=1e6, help="Room, 10^9 bytes.")
    ],
    nats: Nats = "",
    cluster: ClusterName = "",
) -> int:
    """Give the cluster's log more room; a full one takes no records."""
    from replay.live import actions  # noqa: PLC0415 - as for `up`

    return actions.resize(size, nats, cluster)


def add_to(app: typer.Typer, log_app: typer.Typer) -> None:
    """Make the commands known."""
    app.command(epilog=examples("gavel up --emulate v100=2 --round 10 --detach"))(up)
    app.command(
        epilog=examples(
            "gavel submit --file job.toml",
            "gavel submit --type 'ResNet-18 (batch size 64)' --steps 5000 -- python train.py",
        )
    )(submit)
    for command in (
        down,
        configure,
        status,
        jobs,
        workers,
        allocation,
        rounds,
        cancel,
        drain,
        logs,
        wait,
        top,
        service,
    ):
        app.command()(command)
    app.add_typer(config_app, name="config")
    app.add_typer(job_app, name="job")
    app.add_typer(policy_app, name="policy")
    log_app.command(epilog=examples("gavel log fetch today.jsonl.zst"))(fetch)
    log_app.command(epilog=examples("gavel log resize 8"))(resize)

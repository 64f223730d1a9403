"""``gavel trace``: its options, which are also its manual. See ``trace_run.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from replay.cli.shared import ClusterName, Force, Json, Nats
from replay.cli.trace_generate import CLUSTER, generate
from replay.options import examples, trace_file

app = typer.Typer(
    no_args_is_help=True,
    help="Traces of jobs: read other clusters' (see `formats`), look at them, make them up, play "
    "them into a cluster.",
)

_file: dict[str, Any] = {"callback": trace_file}
File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="A trace, plain, .gz or .zst; a folder of PAI tables; or -.", **_file
    ),
]
Format = Annotated[
    str, typer.Option("--format", help="One of `gavel trace formats` (as the file looks).")
]
Table = Annotated[
    str,
    typer.Option("--throughputs", metavar="FILE|NAME", help="Steps/s: a file, builtin, catalogue."),
]
Reference = Annotated[
    str, typer.Option("--reference-type", help="Worker type that durations are meant on.")
]
Unknown = Annotated[
    str,
    typer.Option(
        metavar="reject|skip|clamp",
        help="Jobs without throughput at their number of workers: no trace, leave them out, or "
        "fewer workers (reject for our own formats, clamp for others).",
    ),
]
JobTypes = Annotated[
    str,
    typer.Option(metavar="NAME,...", help="Job types to draw from (all that fit)."),
]
TypeNames = Annotated[
    str,
    typer.Option(metavar="THEIRS=OURS,...", help="Worker types under other names: T4=k80,G2=p100."),
]
AnyType = Annotated[bool, typer.Option("--any-type", help="Drop what GPU types jobs ask for.")]
Zone = Annotated[
    str, typer.Option(help="Of dates without one: Asia/Shanghai, UTC (the format's own).")
]
Processors = Annotated[
    int, typer.Option(min=1, help="SWF: so many processors count as one worker.")
]
Seed = Annotated[int, typer.Option(min=0, help="Of what is drawn.")]
Cluster = Annotated[str, typer.Option(metavar="TYPE=N,...", help="Workers that a load is on.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write here (standard output).")]


@app.command()
def formats() -> None:
    """List the formats that are read; most are told by what is in the file."""
    from replay.traces.formats import FORMATS  # noqa: PLC0415 - not needed for --help

    for name, each in FORMATS.items():
        print(f"{name:14}{each.title}")


@app.command(
    epilog="Rows that are no jobs are left out, and counted with their lines; what was put right "
    "is counted too. Our own formats, and the paper artifact's, are refused whole if a row is "
    "wrong.\n\nA source that names no job types of the table gets them by seed, from those that "
    "fit the number of workers (equal models, equal types); steps are what the job makes in its "
    "time on the reference type.\n\n"
    + examples(
        "gavel trace convert cluster_job_log --out philly.jsonl",
        "gavel trace convert philly.csv --only 0:10000 --load 0.7 --cluster v100=64,k80=64",
        "gavel trace convert openb_pod_list_default.csv.gz --throughputs catalogue "
        "--reference-type v100-16gb --type-names P100=v100-16gb",
    )
)
def convert(
    file: File,
    out: Out = None,
    *,
    format: Format = "",  # noqa: A002 - as the option is called
    throughputs: Table = "builtin",
    reference_type: Reference = "v100",
    unknown: Unknown = "auto",
    job_types: JobTypes = "",
    type_names: TypeNames = "",
    any_type: AnyType = False,
    zone: Zone = "",
    processors: Processors = 1,
    seed: Seed = 0,
    only: Annotated[
        str, typer.Option(metavar="FIRST:LAST", help="Jobs FIRST to LAST - 1 by arrival (all).")
    ] = "",
    jobs_only: Annotated[
        bool, typer.Option("--jobs-only", help="Leave out outages, drains and cancellations.")
    ] = False,
    load: Annotated[
        float | None, typer.Option(help="Move arrivals so that jobs ask for so much of --cluster.")
    ] = None,
    stretch: Annotated[
        float | None, typer.Option(help="Move arrivals: so many times as late.")
    ] = None,
    cluster: Cluster = CLUSTER,
    force: Force = False,
    json: Json = False,
) -> int:
    """Write a trace of any format as JSON lines, which `gavel simulate --trace` reads."""
    from replay.cli import trace_run as work  # noqa: PLC0415 - numpy takes its time to load
    from replay.reading import Reading  # noqa: PLC0415 - as above

    reading = Reading(
        format=format,
        throughputs=throughputs,
        reference_type=reference_type,
        unknown=unknown,
        job_types=job_types,
        type_names=type_names,
        any_type=any_type,
        zone=zone,
        processors=processors,
        seed=seed,
    )
    moved = work.Moved(only=only, jobs_only=jobs_only, load=load, stretch=stretch, cluster=cluster)
    return work.convert(file, reading, moved, out, force=force, json=json)


@app.command(
    epilog=examples(
        "gavel trace stats philly.jsonl --cluster v100=64,p100=64,k80=64",
        "gavel trace generate --jobs 1000 | gavel trace stats - --json",
    )
)
def stats(
    file: File,
    *,
    format: Format = "",  # noqa: A002 - as the option is called
    throughputs: Table = "builtin",
    reference_type: Reference = "v100",
    unknown: Unknown = "auto",
    seed: Seed = 0,
    cluster: Cluster = CLUSTER,
    json: Json = False,
) -> int:
    """Print jobs, arrivals, lengths, widths, GPU-hours, and the load on a cluster."""
    from replay.cli import trace_run as work  # noqa: PLC0415 - as for `convert`
    from replay.reading import Reading  # noqa: PLC0415 - as for `convert`

    reading = Reading(
        format=format,
        throughputs=throughputs,
        reference_type=reference_type,
        unknown=unknown,
        seed=seed,
    )
    return work.stats(file, reading, cluster, json=json)


app.command(
    epilog="With cancellations, failures or churn the output is event lines, else a job a line; "
    "`gavel simulate --trace` reads both. Equal arguments write equal bytes.\n\n"
    + examples(
        "gavel trace generate --jobs 1000 --mean-gap 600 --seed 7 --out jobs.jsonl",
        "gavel trace generate --arrivals diurnal --durations lognormal:3600:1.5 --weights 1=8,5=2",
        "gavel trace generate --slos none=1,1.2=1,2=1,10=1 --cancelled 0.1",
        "gavel trace generate --regime 86400:rate=3,length=0.5 --regime 172800:rate=1",
        "gavel trace generate --cluster v100=8,k80=8 --servers v100=4 --up-hours 200 "
        "--away-hours 2",
    )
)(generate)


@app.command(
    epilog="Into a running cluster, each job is submitted when its time has come, counted from "
    "now; all are checked before the first. Begun again after an interruption, it goes on where it "
    "was: jobs that are in the log already are left as they are.\n\n"
    + examples(
        "gavel trace inject jobs.jsonl --speed 60 --prefix monday-",
        "gavel trace inject burst.jsonl --into jobs.jsonl --at 86400 --prefix b- --out both.jsonl",
        "gavel simulate --trace jobs.jsonl --inject burst.jsonl",
    )
)
def inject(
    file: File,
    *,
    into: Annotated[
        Path | None, typer.Option(help="Another trace, instead of a running cluster.", **_file)
    ] = None,
    at: Annotated[float, typer.Option(help="All of it so many seconds later.")] = 0.0,
    speed: Annotated[float, typer.Option(help="Live: trace seconds to a second.")] = 1.0,
    prefix: Annotated[str, typer.Option(help="Put before each job id.")] = "",
    commands: Annotated[
        bool, typer.Option("--commands", help="Live: run the trace's commands (none are run).")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Live: check all jobs, submit none.")
    ] = False,
    out: Out = None,
    format: Format = "",  # noqa: A002 - as the option is called
    throughputs: Table = "builtin",
    reference_type: Reference = "v100",
    unknown: Unknown = "auto",
    seed: Seed = 0,
    nats: Nats = "",
    cluster_name: ClusterName = "",
    force: Force = False,
    json: Json = False,
) -> int:
    """Submit a trace to a running cluster at its times, or put it into another trace."""
    from replay.cli import trace_run as work  # noqa: PLC0415 - as for `convert`
    from replay.reading import Reading, read  # noqa: PLC0415 - as for `convert`

    reading = Reading(
        format=format,
        throughputs=throughputs,
        reference_type=reference_type,
        unknown=unknown,
        seed=seed,
    )
    if into is not None:
        return work.inject(file, into, reading, at, prefix, out, force=force)
    from replay.live import inject as live  # noqa: PLC0415 - the network takes a while to load

    trace = read(file, reading)
    request = live.Request(
        trace=trace, at_s=at, speed=speed, prefix=prefix, commands=commands, dry_run=dry_run
    )
    return live.inject(request, nats, cluster_name, json=json)

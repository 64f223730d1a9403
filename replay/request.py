"""What is to be simulated, as it is typed: the options of ``gavel simulate``, and their manual."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from replay.options import trace_file

# One help panel each.
_jobs, _cluster, _run, _known, _output = (
    functools.partial(typer.Option, rich_help_panel=panel)
    for panel in ("Jobs", "Cluster", "How it is run", "What is known of jobs", "Output")
)
_file: dict[str, Any] = {"exists": True, "dir_okay": False, "readable": True}
_trace: dict[str, Any] = {"callback": trace_file}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for: each option as it was typed, not yet checked."""

    trace: Annotated[
        Path | None,
        _jobs(
            help="Trace to submit, in one of `gavel trace formats`, plain, .gz or .zst; or -.",
            **_trace,
        ),
    ] = None
    generate: Annotated[
        bool,
        _jobs("--generate", help="Draw jobs instead: Poisson arrivals, lengths as in the paper."),
    ] = False
    jobs: Annotated[int | None, _jobs(help="With --generate: how many (100).")] = None
    mean_gap: Annotated[
        float | None, _jobs(help="With --generate: mean seconds between arrivals (1800).")
    ] = None
    multi_gpu: Annotated[
        bool, _jobs("--multi-gpu", help="With --generate: 30 % of jobs need 2, 4 or 8 workers.")
    ] = False
    seed: Annotated[
        int,
        _jobs(
            min=0,
            help="Of jobs drawn, job types where a trace has none, paper mode's worker types.",
        ),
    ] = 0
    format: Annotated[
        str, _jobs(metavar="NAME", help="Of the trace, where it is not told by what is in it.")
    ] = ""
    job_types: Annotated[
        str, _jobs(metavar="NAME,...", help="For jobs of a trace that has none (all that fit).")
    ] = ""
    inject: Annotated[
        Path | None, _jobs(help="Another trace: more jobs, outages, cancellations.", **_trace)
    ] = None
    inject_at: Annotated[float, _jobs(help="All of --inject so many seconds later.")] = 0.0
    unknown: Annotated[
        str,
        _jobs(
            metavar="reject|skip|clamp",
            help="A job class without throughput: no run, leave it out, or fewer workers (reject "
            "for our formats and the artifact's, clamp for others).",
        ),
    ] = "auto"
    cluster: Annotated[str, _cluster(metavar="TYPE=N,...", help="Workers of each type.")] = (
        "v100=36,p100=36,k80=36"
    )
    servers: Annotated[
        str,
        _cluster(
            metavar="TYPE=N,...", help="Workers to a server (1); the last server may hold fewer."
        ),
    ] = ""
    prices: Annotated[
        str,
        _cluster(
            metavar="TYPE=USD,...",
            help="Per worker and hour (k80=0.135, p100=0.43, v100=0.74).",
        ),
    ] = ""
    throughputs: Annotated[
        Path | None,
        _cluster(
            help="Steps/s: the paper artifact's JSON, our CSV or our JSON (a built-in table).",
            **_file,
        ),
    ] = None
    reference_type: Annotated[
        str, _cluster(help="Worker type that durations in a trace are meant on.")
    ] = "v100"
    policy: Annotated[
        str,
        _run(metavar="NAME|FILE.py:CLASS", help="One of `gavel policies`, or one of your own."),
    ] = "las"
    parameters: Annotated[
        str, _run(metavar="NAME=VALUE,...", help="Of the policy; `gavel policies` lists them.")
    ] = ""
    entities: Annotated[
        str,
        _run(
            metavar="NAME=WEIGHT[:POLICY],...",
            help="Of policy hierarchical: lab=2,lab/vision=1:fifo,... Jobs of a JSON trace name "
            "theirs.",
        ),
    ] = ""
    mode: Annotated[
        str,
        _run(metavar="default|paper", help="How a real cluster runs, or the paper's simulator."),
    ] = "default"
    round: Annotated[float, _run(help="Seconds a round lasts.")] = 360.0
    window: Annotated[
        str,
        _run(
            metavar="FIRST:LAST",
            help="Measure jobs FIRST to LAST - 1, counted from 0 by arrival (all); others "
            "keep arriving until these are done.",
        ),
    ] = ""
    checkpoint_seconds: Annotated[
        str,
        _run(metavar="S|LOAD,SAVE", help="To load and to save a checkpoint when a job moves (0)."),
    ] = ""
    lag: Annotated[
        int | None,
        _run(metavar="SEED", min=0, help="Delay appends and deliveries, as a network would."),
    ] = None
    estimator: Annotated[
        str,
        _known(
            metavar="oracle|declared|learned",
            help="The table; what each job of a JSON trace declares; or what profiles show.",
        ),
    ] = "oracle"
    profile_fraction: Annotated[
        float | None, _known(help="With learned: share of its pairs profiled of a new job (0.2).")
    ] = None
    profile_workers: Annotated[
        int | None,
        _known(help="With declared or learned: workers beside the cluster, for profiles (6)."),
    ] = None
    references: Annotated[
        int | None,
        _known(help="With learned: so many job types of the table are known beforehand (all)."),
    ] = None
    claims: Annotated[
        str,
        _known(
            metavar="check|cap|believe",
            help="With declared: measure what is declared; cap it until then; or neither (check).",
        ),
    ] = ""
    noise: Annotated[
        float, _known(help="Relative deviation of the simulated workers from the table, by seed.")
    ] = 0.0
    log: Annotated[
        Path | None, _output(help="Write the log here; .zst at its end means compressed.")
    ] = None
    jobs_json: Annotated[Path | None, _output(help="Write every job's times and outcome here.")] = (
        None
    )
    json: Annotated[bool, _output("--json", help="Print one JSON object, no tables.")] = False
    force: Annotated[bool, _output("--force", help="Replace files that exist.")] = False

"""``gavel trace generate``: its options, which are also its manual. See ``trace_draw.py``."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from replay.cli.shared import Force

#: Of clusters in examples and defaults.
CLUSTER = "v100=36,p100=36,k80=36"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for: each option as it was typed, not yet checked."""

    out: Annotated[Path | None, typer.Option(help="Write here (standard output).")] = None
    jobs: Annotated[int, typer.Option(min=1, help="How many.")] = 100
    mean_gap: Annotated[float, typer.Option(help="Mean seconds between arrivals; 0: none.")] = (
        1800.0
    )
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="poisson|bursty[:N]|diurnal[:PART]",
            help="One by one; N at a time on average (5); or by the hour, PART of the mean up and "
            "down (0.8).",
        ),
    ] = "poisson"
    durations: Annotated[
        str,
        typer.Option(
            metavar="paper|lognormal:MEDIAN:SIGMA|FILE",
            help="On the reference type: the paper's, log-normal (s), or those of a trace.",
        ),
    ] = "paper"
    scale_factors: Annotated[str, typer.Option(metavar="N=PART,...", help="Workers of jobs.")] = (
        "1=70,2=10,4=15,8=5"
    )
    weights: Annotated[
        str, typer.Option(metavar="W=PART,...", help="Priority weights; the paper has 1=8,5=2.")
    ] = "1=1"
    slos: Annotated[
        str,
        typer.Option(
            metavar="N|none=PART,...",
            help="Deadlines, N times a job's length after it came; the paper has 1.2=1,2=1,10=1.",
        ),
    ] = "none=1"
    regime: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AT:rate=R,length=L",
            help="From AT seconds on, R times as many jobs, L times as long. Again for more.",
        ),
    ] = None
    cancelled: Annotated[
        float, typer.Option(min=0, max=1, help="Part of the jobs that are cancelled.")
    ] = 0.0
    cluster: Annotated[
        str, typer.Option(metavar="TYPE=N,...", help="Workers that fail, leave or join.")
    ] = CLUSTER
    servers: Annotated[str, typer.Option(metavar="TYPE=N,...", help="Workers to a server (1).")] = (
        ""
    )
    up_hours: Annotated[
        float, typer.Option(min=0, help="Mean hours of a server between failures (0: none).")
    ] = 0.0
    away_hours: Annotated[float, typer.Option(help="Mean hours that it is away then.")] = 1.0
    leaving: Annotated[
        float, typer.Option(min=0, max=1, help="Part of the servers that are drained for good.")
    ] = 0.0
    joining: Annotated[
        float, typer.Option(min=0, max=1, help="Part of the servers that join late.")
    ] = 0.0
    horizon_hours: Annotated[
        float | None,
        typer.Option(help="Until when servers fail, leave and join (twice the last arrival)."),
    ] = None
    job_types: Annotated[
        str, typer.Option(metavar="NAME,...", help="Job types to draw from (all that fit).")
    ] = ""
    throughputs: Annotated[
        str, typer.Option(metavar="FILE|NAME", help="Steps/s: a file, builtin, catalogue.")
    ] = "builtin"
    reference_type: Annotated[str, typer.Option(help="Worker type that durations are on.")] = "v100"
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 0
    force: Force = False


def generate(**options: Any) -> int:
    """Draw a trace by seed: arrivals, lengths, widths, weights, deadlines; failures and churn."""
    from replay.cli import trace_draw  # noqa: PLC0415 - numpy takes its time to load

    return trace_draw.generate(Request(**options))


# The fields of the request are the options of the command.
vars(generate)["__signature__"] = inspect.signature(Request, eval_str=True)
generate.__annotations__ = get_type_hints(Request, include_extras=True)

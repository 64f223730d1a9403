"""Options that several commands have, and what a job is by those that say it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Nats = Annotated[
    str, typer.Option("--nats", metavar="URL,...", help="Servers of another cluster's log.")
]
ClusterName = Annotated[str, typer.Option("--cluster-name", help="Its name, where not `main`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, no tables.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]

JobFile = Annotated[Path | None, typer.Option(help="A job in TOML; options go before.")]
JobName = Annotated[str, typer.Option(help="Its name (one is made up).")]
JobType = Annotated[str, typer.Option(help="Job type, by which its speed is known.")]
Steps = Annotated[float | None, typer.Option(help="Steps in all, over all ranks.")]
Workers = Annotated[int | None, typer.Option(help="Workers it runs on at once (1).")]
Weight = Annotated[float | None, typer.Option(help="Priority weight (1).")]
On = Annotated[str, typer.Option(metavar="TYPE,...", help="Worker types it may use.")]
Throughput = Annotated[
    list[str] | None,
    typer.Option(metavar="TYPE=STEPS/S", help="Declare its speed; may be repeated."),
]


def as_typed(
    name: str,
    job_type: str,
    steps: float | None,
    workers: int | None,
    weight: float | None,
    on: str,
    throughput: list[str] | None,
) -> dict[str, Any]:
    """A job's fields as ``JobSpec`` has them; None where an option was not given."""
    from replay.live.jobs import pairs  # noqa: PLC0415 - the network takes a while to load

    return {
        "job_id": name or None,
        "job_type": job_type or None,
        "total_steps": steps,
        "scale_factor": workers,
        "priority_weight": weight,
        "allowed_worker_types": [part for part in on.split(",") if part] or None,
        "declared_throughputs": pairs("--throughput", throughput or []) or None,
    }

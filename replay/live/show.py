"""What ``gavel status``, ``jobs`` and the like print: text and layout of a ``Picture``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from replay.live.picture import ENDED, Estimate, JobLine, Picture, RoundLine, WorkerLine
from replay.views import duration
from schemas.events import AllocationComputed

#: Rows of each table of `gavel top`.
_SHOWN = 30


class ServiceLine(msgspec.Struct, kw_only=True):
    """One service."""

    service: str
    #: The replica that leads; empty if none answers.
    leader: str
    epoch: int
    #: Of those started by `gavel up` on this machine.
    lag_records: int | None = None
    open_decisions: int | None = None


class Status(msgspec.Struct, kw_only=True):
    """A cluster at a glance."""

    cluster: str
    services: list[ServiceLine]
    records: int
    log_bytes: int
    log_max_bytes: int
    jobs: dict[str, int]
    workers: dict[str, int]
    last_round: RoundLine | None


def job_counts(picture: Picture) -> dict[str, int]:
    """{status: jobs}."""
    return dict(sorted(Counter(job.status for job in picture.jobs.values()).items()))


def worker_counts(picture: Picture) -> dict[str, int]:
    """{``TYPE STATE``: workers}."""
    found = Counter(f"{w.worker_type} {w.state}" for w in picture.workers.values())
    return dict(sorted(found.items()))


def status(found: Status) -> RenderableType:
    """The services, and a few lines on everything else."""
    table = _table("service", "leader", "epoch", "lag", "open")
    for line in found.services:
        leader = line.leader or Text("away", style="bold red")
        table.add_row(
            line.service,
            leader,
            str(line.epoch),
            _or_dash(line.lag_records),
            _or_dash(line.open_decisions),
        )
    share = found.log_bytes / found.log_max_bytes
    lines = [
        f"log: {found.records:,} records, {found.log_bytes / 1e6:.1f} MB, {share:.1%} of its room",
        f"jobs: {_listed(found.jobs)}",
        f"workers: {_listed(found.workers)}",
    ]
    if found.last_round is not None:
        lines.append(of_round(found.last_round))
    return Group(table, *lines)


def of_round(line: RoundLine) -> str:
    """One round in words."""
    return (
        f"round {line.round_id}: jobs {line.jobs}; leases granted {line.granted}, "
        f"renewed {line.renewed}, ended {line.ended}"
    )


def top(picture: Picture) -> RenderableType:
    """What runs and waits, and where."""
    active = [job for job in picture.jobs.values() if job.status not in ENDED]
    counts = f"jobs: {_listed(job_counts(picture))}; workers: {_listed(worker_counts(picture))}"
    last = picture.rounds[-1] if picture.rounds else None
    policy = picture.config.policy if picture.config is not None else "-"
    head = f"round {last.round_id if last else '-'}, policy {policy}, record {picture.last_seq}"
    return Group(
        head,
        counts,
        jobs(active[:_SHOWN], picture.at_s),
        workers(list(picture.workers.values())[:_SHOWN]),
    )


def jobs(lines: Sequence[JobLine], now_s: float) -> RenderableType:
    """One job a line."""
    table = _table("job", "type", "workers", "status", "done", "for", "on")
    for job in lines:
        table.add_row(
            job.job_id,
            job.job_type,
            str(job.scale_factor),
            job.status + (", claim refuted" if job.claim_refuted else ""),
            _done(job),
            duration((job.ended_s or now_s) - job.submitted_s),
            ", ".join(job.worker_ids[:2]) + (" ..." if len(job.worker_ids) > 2 else ""),
        )
    return table


def job(line: JobLine, picture: Picture) -> RenderableType:
    """All of one job."""
    table = _table("", "")
    table.show_header = False
    estimate = picture.estimate(line)
    speeds = estimate.steps_per_s
    shown = {
        "job": line.job_id,
        "type": line.job_type,
        "workers": str(line.scale_factor),
        "weight": f"{line.priority_weight:g}",
        "status": line.status + (f": {line.reason}" if line.reason else ""),
        "steps": f"{line.steps:g} of {line.total_steps:g}, {line.checkpointed_steps:g} saved"
        if line.total_steps
        else "-",
        "for": duration((line.ended_s or picture.at_s) - line.submitted_s),
        "leases": str(line.leases),
        "on": ", ".join(line.worker_ids) or "-",
        "share": _listed({t: round(share, 3) for t, share in sorted(line.shares.items())}),
        "steps/s": _listed({t: round(rate, 3) for t, rate in sorted(speeds.items())}),
        "estimate": _estimate(estimate),
        "command": line.command or "-",
    }
    if estimate.profiles:
        shown["profiles"] = _listed(estimate.profiles)
    if estimate.last_failure:
        shown["last failure"] = estimate.last_failure
    lie = picture.refuted.get(line.job_id)
    if lie is not None:
        shown["claim"] = (
            f"refuted: {lie.worker_type} is {lie.measured_ratio:.3g} times {lie.base_type}, "
            f"declared {lie.declared_ratio:.3g}"
        )
    for name, value in shown.items():
        table.add_row(name, value)
    return table


def workers(lines: Sequence[WorkerLine]) -> RenderableType:
    """One worker a line."""
    table = _table("worker", "type", "server", "service", "state", "runs")
    for worker in lines:
        table.add_row(
            worker.worker_id,
            worker.worker_type,
            worker.server_id,
            worker.reporter,
            worker.state,
            ", ".join(worker.job_ids),
        )
    return table


def allocation(found: AllocationComputed, picture: Picture) -> RenderableType:
    """Shares by job and worker type."""
    types = sorted({t for row in found.rows for t in row.shares} | set(picture.counts))
    table = _table("jobs", *types)
    for row in found.rows:
        for combination in row.combinations:
            cells = [f"{row.shares[t]:.3f}" if t in row.shares else "" for t in types]
            table.add_row(" + ".join(combination), *cells)
    notes = [f"policy {found.policy}, {duration(picture.at_s - picture.allocated_at_s)} old"]
    if found.prices:
        notes.append(f"prices: {_listed({t: round(p, 6) for t, p in found.prices.items()})}")
    notes += [f"{job_id}: {why}" for job_id, why in found.set_aside.items()]
    return Group(table, *notes)


def rounds(lines: Sequence[RoundLine], now_s: float) -> RenderableType:
    """One round a line."""
    table = _table("round", "started", "lasts", "jobs", "granted", "renewed", "ended")
    for line in lines:
        ago_s = now_s - line.starts_at_s
        table.add_row(
            str(line.round_id),
            f"{duration(ago_s)} ago" if ago_s >= 0 else f"in {duration(-ago_s)}",
            duration(line.ends_at_s - line.starts_at_s),
            *map(str, (line.jobs, line.granted, line.renewed, line.ended)),
        )
    return table


def _estimate(found: Estimate) -> str:
    """Where a job's throughputs come from, and how sure they are."""
    if not found.source or found.source in ("declared", "provisional"):
        return found.source or "none yet"
    if found.source.startswith("its class"):
        return found.source
    like = f"like {found.job_class}, times {found.multiplier:.3g}"
    if found.first_of_class:
        like = "like no job before"
    elif not found.job_class:
        like = "by itself"
    return f"{found.source}: {like}, confidence {found.confidence:.0%}"


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def _done(job: JobLine) -> str:
    return f"{job.steps / job.total_steps:.1%}" if job.total_steps else "-"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _listed(found: dict[str, int] | dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in found.items()) or "none"

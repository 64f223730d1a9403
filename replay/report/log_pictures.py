"""From a log to pictures of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from replay import views
from replay.options import InputError
from replay.report import over_time
from replay.report.charts import HOUR_S, Bars, Chart, Line, Picture, Report, Span, Timeline, cdf
from replay.report.fairness import isolated_jct_s, isolated_steps_per_s, present, rhos
from replay.report.log_fold import CAUSES, Held, LogFold
from replay.summary import JobLine
from schemas.record import Record

#: Leases of a timeline: more cannot be seen, and slow a page.
_SPANS = 4000

Floats = NDArray[np.float64]


class NothingToShowError(InputError):
    """The log has no job."""


def fold(records: Iterable[Record]) -> LogFold:
    """All records of a log, folded."""
    folded = LogFold()
    for record in records:
        folded.take(record)
    folded.close()
    return folded


def report_of(folded: LogFold, source: str) -> Report:
    """Everything there is to show of a log.

    Raises
    ------
    NothingToShowError
        No job was ever submitted.
    """
    if not folded.jobs:
        raise NothingToShowError(
            f"{source} has {folded.records} records and no job: there is nothing to show"
        )
    figures = folded.summary.figures()
    config = folded.config
    counts = _workers_by_type(folded)
    cluster = ", ".join(f"{number} {name}" for name, number in counts.items()) or "no workers"
    done = [line for line in folded.summary.jobs.values() if line.jct_s is not None]
    pictures: list[Picture] = [_timeline(folded)]
    if done:
        pictures += [_jct(done), *_fairness(folded, done, counts), _received(folded, done)]
    pictures += [over_time.presence(folded), *over_time.use(folded, counts), _waiting(folded)]
    notes = [f"jobs rejected or failed: {n} ({why})" for why, n in figures.reasons.items()]
    if not done:
        notes.append("no job finished, so there are no job times")
    return Report(
        title=f"{config.policy} on {cluster}",
        subtitle=f"{source}: {folded.records:,} records, {len(folded.jobs):,} jobs, "
        f"rounds of {config.round_duration_s:g} s",
        figures=_named(views.rows(figures)),
        pictures=[picture for picture in pictures if _has_content(picture)],
        notes=notes,
    )


def _named(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Rows in which an indented name is told with the one it belongs to."""
    named, above = [], ""
    for name, value in rows:
        above = above if name.startswith(" ") else name
        named.append((f"{above}: {name.strip()}" if name.startswith(" ") else name, value))
    return named


def _has_content(picture: Picture) -> bool:
    if isinstance(picture, Chart):
        return any(len(line.x) for line in picture.lines)
    if isinstance(picture, Timeline):
        return bool(picture.spans)
    return any(any(sizes) for sizes in picture.parts.values())


def _workers_by_type(folded: LogFold) -> dict[str, int]:
    leasable = (w.worker_type for w in folded.workers.values() if not w.profiles_only)
    return dict(sorted(Counter(leasable).items()))


def _timeline(folded: LogFold) -> Timeline:
    """Each lease on each of its workers; the first few thousand."""
    workers = sorted(folded.workers.values(), key=lambda w: (w.worker_type, _natural(w.worker_id)))
    row_of = {worker.worker_id: row for row, worker in enumerate(workers)}
    spans: list[Span] = []
    total = sum(len(held.lease.worker_ids) for held in folded.held)
    for held in folded.held:
        if len(spans) >= _SPANS:
            break
        owner = " + ".join(task.job_id for task in held.lease.tasks)
        for worker_id in held.lease.worker_ids:
            if worker_id in row_of:
                start, end = held.start_s / HOUR_S, (held.end_s or held.start_s) / HOUR_S
                spans.append(Span(row_of[worker_id], start, end, owner, _told(held, owner)))
    cut = ""
    if len(spans) < total:
        until = max(span.start for span in spans)
        spans = [replace(span, end=min(span.end, until)) for span in spans if span.start < until]
        cut = f" The first {len(spans):,} of {total:,} leases: up to {until:,.0f} h."
    return Timeline(
        key="timeline",
        title="Workers by round: who held what",
        x="time (h)",
        rows=[worker.worker_id for worker in workers],
        groups=[worker.worker_type for worker in workers],
        spans=spans,
        note="A bar is a lease, from grant to end over all its renewals; one job, one colour."
        + cut,
    )


def _told(held: Held, owner: str) -> str:
    tasks = held.lease.tasks
    kinds = " + ".join(task.job_type for task in tasks)
    return (
        f"{held.kind or 'job'} {owner}: {kinds}, {tasks[0].scale_factor} x "
        f"{held.lease.worker_type}, lease {held.lease.lease_id}, "
        f"{views.duration((held.end_s or held.start_s) - held.start_s)}"
    )


def _natural(name: str) -> tuple[str, int]:
    """Orders v100-2 before v100-10."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() and len(number) < 10 else (name, 0)


def _jct(done: list[JobLine]) -> Chart:
    by_size: dict[int, list[float]] = {}
    for line in done:
        by_size.setdefault(line.scale_factor, []).append((line.jct_s or 0.0) / HOUR_S)
    everybody = [jct for jcts in by_size.values() for jct in jcts]
    lines = [cdf(f"all {len(everybody):,} jobs", everybody)]
    if len(by_size) > 1:
        lines += [
            cdf(f"{size} worker{'s' if size > 1 else ''} ({len(jcts):,})", jcts)
            for size, jcts in sorted(by_size.items())
        ]
    return Chart(
        key="jct",
        title="Job completion times",
        x="JCT (h)",
        y="share of jobs",
        lines=lines,
        note="From arrival to completion.",
        log_x=True,
        y_top=1.0,
    )


def _fairness(folded: LogFold, done: list[JobLine], workers: Mapping[str, int]) -> list[Chart]:
    times, numbers = present(folded.coming_and_going)
    steps_per_s: dict[tuple[str, int], Floats] = {}
    isolated: list[float | None] = []
    for line in done:
        job = folded.jobs[line.job_id]
        key = (job.job_type, job.scale_factor)
        if key not in steps_per_s:
            speeds = folded.speeds.get(key, {})
            steps_per_s[key] = isolated_steps_per_s(speeds, job.scale_factor, workers, numbers)
        steps = job.total_steps or 0.0
        isolated.append(isolated_jct_s(line.arrival_s, steps, times, steps_per_s[key]))
    found = rhos([line.jct_s for line in done], isolated)
    if not found:
        return []
    worse = float(np.mean(np.array(found) > 1.0))
    return [
        Chart(
            key="fairness",
            title="Finish-time fairness",
            x="rho: JCT over JCT on an isolated 1/n share",
            y="share of jobs",
            lines=[cdf(f"{len(found):,} jobs, average {np.mean(found):.2f}", found)],
            note=f"n: the jobs there at each moment in this log. {worse:.1%} of jobs are above 1: "
            "they would have been done sooner on a share of their own.",
            log_x=True,
            y_top=1.0,
        )
    ]


def _received(folded: LogFold, done: list[JobLine]) -> Chart:
    promised = [folded.promised_s[line.job_id] / HOUR_S for line in done]
    received = [line.run_s / HOUR_S for line in done]
    short = [p - r for p, r in zip(promised, received, strict=True)]
    return Chart(
        key="received",
        title="Time received against time promised",
        x="promised by allocations (h)",
        y="received on workers (h)",
        lines=[
            Line(
                name="a job",
                x=promised,
                y=received,
                style="points",
                labels=[f"job {line.job_id}: {line.job_type}" for line in done],
            )
        ],
        note=f"X summed over the time it was in force. Most short of its promise: "
        f"{max(short):.2f} h. Above the line: rounds that others left idle.",
        diagonal=True,
    )


def _waiting(folded: LogFold) -> Bars:
    sizes = sorted({job.scale_factor for job in folded.jobs.values()})
    groups = ["all jobs", *(f"{n} worker{'s' if n > 1 else ''}" for n in sizes)]
    members = [list(folded.jobs)] + [
        [job_id for job_id, job in folded.jobs.items() if job.scale_factor == size]
        for size in sizes
    ]
    if len(sizes) == 1:
        groups, members = groups[:1], members[:1]
    return Bars(
        key="waiting",
        title="Waiting, by cause",
        y="hours a job, on average",
        groups=groups,
        parts={
            cause: [
                sum(folded.waited_s[job_id][cause] for job_id in ids) / len(ids) / HOUR_S
                for ids in members
            ]
            for cause in CAUSES
        },
        note="Between arrival and completion, while a job held no worker.",
    )

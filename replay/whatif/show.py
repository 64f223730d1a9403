"""What a what-if comes to, for people: a table, the jobs it matters to, pictures."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from replay import views
from replay.report.charts import HOUR_S, Chart, Line, Report, cdf
from replay.whatif.answer import Answer

#: Jobs named at either end of the list.
_NAMED = 5
#: Less is no difference, s.
_NOTICED_S = 1.0


def table(answer: Answer, change: str) -> RenderableType:
    """Figures as recorded, decided anew, and changed; then the jobs that it matters to most."""
    columns = {"recorded": answer.recorded, "decided anew": answer.unchanged}
    if answer.changed is not answer.unchanged:
        columns[change] = answer.changed
    shown = Table(box=box.SIMPLE, pad_edge=False)
    shown.add_column("figure", no_wrap=True)
    for name in (*columns, "change"):
        shown.add_column(name, justify="right")
    figures = [dict(views.rows(outcome.figures)) for outcome in columns.values()]
    for name in dict.fromkeys(chain.from_iterable(figures)):
        values = (each.get(name, "-") for each in figures)
        shown.add_row(name, *values, _difference(answer, name))
    return Group(shown, *_jobs(answer), *(_note(note) for note in notes(answer)))


def notes(answer: Answer) -> list[str]:
    """How far the answer is to be trusted, and what is odd in it."""
    found = []
    off = answer.off
    log = "simulated" if answer.is_simulated else "live"
    if off is None:
        found.append("no job of the log is complete: there is nothing to hold the model against")
    else:
        exact = "exactly" if answer.recorded.jobs == answer.unchanged.jobs else f"to {abs(off):.2%}"
        found.append(f"decided anew, this {log} log's JCTs come back {exact}")
    left = len(answer.unchanged.jobs) - sum(
        job.outcome not in ("waiting", "running") for job in answer.recorded.jobs.values()
    )
    if left > 0:
        found.append(f"jobs whose end is not on the log: {left}; the runs go on until they end")
    for why, jobs in Counter(answer.changed.set_aside.values()).items():
        found.append(
            f"jobs that the policy gives no share, and that take what is left: {jobs} ({why})"
        )
    undone = [j for j in answer.changed.jobs.values() if j.outcome in ("waiting", "running")]
    if undone:
        found.append(f"jobs that would never end: {len(undone)}, {undone[0].job_id} among them")
    return found


def as_json(answer: Answer, change: dict[str, Any]) -> dict[str, Any]:
    """All of it, by job too."""
    gains = answer.gains()
    return {
        "change": change,
        "recorded": msgspec.to_builtins(answer.recorded.figures),
        "unchanged": msgspec.to_builtins(answer.unchanged.figures),
        "changed": msgspec.to_builtins(answer.changed.figures),
        "off": answer.off,
        "is_simulated": answer.is_simulated,
        "jobs": {
            job_id: {
                "recorded_jct_s": _jct(answer.recorded.jobs.get(job_id)),
                "unchanged_jct_s": _jct(answer.unchanged.jobs.get(job_id)),
                "changed_jct_s": job.jct_s,
                "sooner_s": gains.get(job_id),
                "outcome": job.outcome,
            }
            for job_id, job in answer.changed.jobs.items()
        },
        "notes": notes(answer),
    }


def report(answer: Answer, change: str, source: str) -> Report:
    """Pictures: each job before and after, and all of them."""
    return Report(
        title=f"What if: {change}",
        subtitle=f"{source}, decided anew without and with the change",
        figures=list(views.rows(answer.changed.figures)),
        pictures=[jobs_chart(answer, change), _jct_chart(answer, change)],
        notes=notes(answer),
    )


def jobs_chart(answer: Answer, change: str, key: str = "jobs") -> Chart:
    """One point a job: JCT unchanged and changed."""
    gains = answer.gains()
    before = [(answer.unchanged.jobs[job_id].jct_s or 0.0) / HOUR_S for job_id in gains]
    after = [(answer.changed.jobs[job_id].jct_s or 0.0) / HOUR_S for job_id in gains]
    sooner = sum(gain > _NOTICED_S for gain in gains.values())
    later = sum(gain < -_NOTICED_S for gain in gains.values())
    name = f"{sooner} jobs sooner, {later} later, {len(gains) - sooner - later} alike"
    return Chart(
        key=key,
        title="Each job's completion time",
        x="JCT unchanged (h)",
        y=f"JCT with {change} (h)",
        lines=[Line(name=name, x=before, y=after, style="points", labels=list(gains))],
        note=f"{name}. Below the line: done sooner.",
        diagonal=True,
    )


def _jct_chart(answer: Answer, change: str) -> Chart:
    both = (("unchanged", answer.unchanged), (change, answer.changed))
    return Chart(
        key="jct",
        title="Job completion times",
        x="JCT (h)",
        y="share of jobs",
        lines=[
            cdf(
                name,
                [j.jct_s / HOUR_S for j in outcome.jobs.values() if j.jct_s is not None],
            )
            for name, outcome in both
        ],
        log_x=True,
        y_top=1.0,
    )


def _difference(answer: Answer, name: str) -> str:
    before, after = answer.unchanged.figures, answer.changed.figures
    values = {
        "average JCT": (before.average_jct_s, after.average_jct_s),
        "median JCT": (before.median_jct_s, after.median_jct_s),
        "99th percentile JCT": (before.p99_jct_s, after.p99_jct_s),
        "makespan": (before.makespan_s, after.makespan_s),
        "cost": (before.cost_usd, after.cost_usd),
        "sum of JCTs": (sum(before.time_spent_s.values()), sum(after.time_spent_s.values())),
    }
    old, new = values.get(name, (None, None))
    return f"{new / old - 1:+.1%}" if old and new is not None else ""


def _jobs(answer: Answer) -> list[RenderableType]:
    gains = {job_id: gain for job_id, gain in answer.gains().items() if abs(gain) > _NOTICED_S}
    if not gains:
        return [Text("no job ends at another time")] if answer.gains() else []
    in_order = sorted(gains.items(), key=lambda item: -item[1])
    sooner = [f"{j} {views.duration(g)}" for j, g in in_order[:_NAMED] if g > 0]
    later = [f"{j} {views.duration(-g)}" for j, g in in_order[::-1][:_NAMED] if g < 0]
    counts = Counter(gain > 0 for gain in gains.values())
    lines = []
    if sooner:
        lines.append(Text(f"sooner: {counts[True]} jobs, most of all {', '.join(sooner)}"))
    if later:
        lines.append(Text(f"later: {counts[False]} jobs, most of all {', '.join(later)}"))
    return list(lines)


def _jct(job: Any) -> float | None:
    return None if job is None else job.jct_s


def _note(note: str) -> Text:
    return Text("note: ", style="bold yellow").append(note, style="not bold")

"""What simulations came to, for people: tables of one run, and of two."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from replay.run import Result
from replay.views import rows, shown, table


def result(done: Result) -> RenderableType:
    """One run: figures, how it was run, what else there is to know."""
    found = table("figure", done.plan.config.policy)
    for name, value in rows(done.figures):
        found.add_row(name, value)
    found.add_row("records", f"{done.records:,}")
    found.add_row("simulated in", f"{done.wall_s:.1f} s, {done.solve_wall_s:.1f} s of it solving")
    return Group(found, _settings(done), *(_note(note) for note in done.notes()))


def comparison(before: Result, after: Result) -> RenderableType:
    """Two runs over the same jobs, and how many times better the second is."""
    found = table("figure", before.plan.config.policy, after.plan.config.policy, "improvement")
    better = {
        "average JCT": (before.figures.average_jct_s, after.figures.average_jct_s),
        "median JCT": (before.figures.median_jct_s, after.figures.median_jct_s),
        "99th percentile JCT": (before.figures.p99_jct_s, after.figures.p99_jct_s),
        "makespan": (before.figures.makespan_s, after.figures.makespan_s),
        "cost": (before.figures.cost_usd, after.figures.cost_usd),
    }
    for (name, old), (_, new) in zip(rows(before.figures), rows(after.figures), strict=True):
        was, is_now = better.get(name, (None, None))
        found.add_row(name, old, new, f"{was / is_now:.2f}x" if was and is_now else "")
    found.add_row("simulated in", f"{before.wall_s:.1f} s", f"{after.wall_s:.1f} s", "")
    return found


def _settings(done: Result) -> RenderableType:
    """The settings as name=value; long, but a figure without them is worth nothing."""
    settings = done.plan.settings() | {"trace": done.plan.trace.source}
    given = {name: value for name, value in settings.items() if value not in ("", None, {}, (), [])}
    return Text(
        "settings: " + ", ".join(f"{name}={shown(value)}" for name, value in given.items()),
        style="dim",
    )


def _note(note: str) -> Text:
    return Text("note: ", style="bold yellow").append(note, style="not bold")

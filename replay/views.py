"""Results for people, as tables, and for scripts. Layout only: figures are computed elsewhere."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from replay.summary import Figures
from schemas.events import JobCancelled, JobCompleted, JobFailed, JobRejected
from schemas.record import Record
from services.policy.catalog import MakePolicy, parameters_of

if TYPE_CHECKING:
    from replay.cli_compare import Outcome
    from replay.cli_run import Result

#: Of a line that is not on a terminal, so that a table in a file does not depend on who wrote it.
_PLAIN_WIDTH = 100
#: Records between two updates of a progress bar.
_PROGRESS_EVERY = 500
_ENDINGS = (JobCompleted, JobRejected, JobCancelled, JobFailed)


def out() -> Console:
    """Where results go: the terminal's width, or a fixed one where there is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def print_json(content: object) -> None:
    """Print what ``--json`` asks for."""
    print(msgspec.json.format(msgspec.json.encode(content)).decode())


def duration(seconds: float | None) -> str:
    """Seconds as people read them; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 600:
        return f"{seconds:.1f} s"
    return f"{seconds / 3600:.2f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.2f} d"


def rows(figures: Figures) -> Iterator[tuple[str, str]]:
    """(what it is, its value) of each figure, in the order people ask for them."""
    yield "average JCT", duration(figures.average_jct_s)
    yield "median JCT", duration(figures.median_jct_s)
    yield "99th percentile JCT", duration(figures.p99_jct_s)
    yield "makespan", duration(figures.makespan_s)
    yield "jobs", ", ".join(f"{n} {name}" for name, n in sorted(figures.outcomes.items())) or "none"
    yield "utilisation", f"{figures.utilisation:.1%}"
    for worker_type, utilisation in figures.utilisation_by_type.items():
        yield f"  {worker_type}", f"{utilisation:.1%}"
    yield "cost", f"{figures.cost_usd:,.2f} USD"
    whole = sum(figures.time_spent_s.values())
    yield "sum of JCTs", duration(whole)
    for name, spent_s in figures.time_spent_s.items():
        yield f"  {name}", f"{spent_s / whole:.2%}" if whole else "-"
    yield "rounds", f"{figures.rounds:,}"
    yield "  leases granted", f"{figures.starts:,}"
    yield "  leases renewed", f"{figures.renewals:,}"
    yield "  preemptions", f"{figures.preemptions:,}"
    yield "solves", f"{figures.solves:,}"


def result(done: Result) -> RenderableType:
    """One run: figures, how it was run, what else there is to know."""
    table = _table("figure", done.plan.config.policy)
    for name, value in rows(done.figures):
        table.add_row(name, value)
    table.add_row("records", f"{done.records:,}")
    table.add_row("simulated in", f"{done.wall_s:.1f} s, {done.solve_wall_s:.1f} s of it solving")
    return Group(table, _settings(done), *(_note(note) for note in notes(done)))


def comparison(before: Result, after: Result) -> RenderableType:
    """Two runs over the same jobs, and how many times better the second is."""
    table = _table("figure", before.plan.config.policy, after.plan.config.policy, "improvement")
    better = {
        "average JCT": (before.figures.average_jct_s, after.figures.average_jct_s),
        "median JCT": (before.figures.median_jct_s, after.figures.median_jct_s),
        "99th percentile JCT": (before.figures.p99_jct_s, after.figures.p99_jct_s),
        "makespan": (before.figures.makespan_s, after.figures.makespan_s),
        "cost": (before.figures.cost_usd, after.figures.cost_usd),
    }
    for (name, old), (_, new) in zip(rows(before.figures), rows(after.figures), strict=True):
        was, is_now = better.get(name, (None, None))
        table.add_row(name, old, new, f"{was / is_now:.2f}x" if was and is_now else "")
    table.add_row("simulated in", f"{before.wall_s:.1f} s", f"{after.wall_s:.1f} s", "")
    return table


def policies_compared(outcomes: Mapping[str, Outcome]) -> RenderableType:
    """One line a policy: what its schedule of the same jobs comes to (JCT: its average)."""
    columns = ("JCT", "median", "99 %", "makespan", "jobs", "used", "USD", "preempted", "solving")
    table = _table("policy", *columns)
    for name, outcome in outcomes.items():
        figures = outcome.figures
        table.add_row(
            name,
            duration(figures.average_jct_s),
            duration(figures.median_jct_s),
            duration(figures.p99_jct_s),
            duration(figures.makespan_s),
            f"{figures.jobs:,}",
            f"{figures.utilisation:.1%}",
            f"{figures.cost_usd:,.0f}",
            f"{figures.preemptions:,}",
            f"{outcome.solve_wall_s:.1f} s",
        )
    return table


def progress_line(text: str) -> None:
    """Tell a terminal how far a long command is; files and scripts are not told."""
    console = Console(stderr=True)
    if console.is_terminal:
        console.print(text, style="dim", highlight=False)


def notes(done: Result) -> list[str]:
    """What a reader must know so as not to misread the figures."""
    plan, figures = done.plan, done.figures
    found = [f"rows of the trace put right: {n} ({how})" for how, n in plan.trace.repaired.items()]
    found += [f"jobs left out: {n} ({why})" for why, n in plan.trace.refused.items()]
    found += [f"jobs that can never run: {n} ({why})" for why, n in figures.reasons.items()]
    empty = [name for name, count in sorted(plan.cluster.items()) if not count]
    if not plan.workers:
        found.append("the cluster has no workers: jobs wait for one to register")
    elif empty:
        found.append(f"no workers of type {', '.join(empty)}")
    left = sum(figures.outcomes.get(name, 0) for name in ("waiting", "running"))
    if left:
        found.append(f"jobs left undone when nothing more was to happen: {left}")
    if not figures.jobs:
        found.append("no job finished, so there are no job times")
    if figures.failed_solves:
        found.append(f"failed solves: {figures.failed_solves} (last: {figures.last_solve_failure})")
    unpriced = sorted({w.worker_type for w in plan.workers if w.usd_per_h is None})
    if unpriced:
        found.append(f"no price for {', '.join(unpriced)}: the cost leaves them out")
    return found


def policy_lines(catalogue: Mapping[str, MakePolicy]) -> list[tuple[str, ...]]:
    """(name, the paper's section, parameters with defaults, what it does) of each policy."""
    lines: list[tuple[str, ...]] = []
    for name, policy in sorted(catalogue.items()):
        said = inspect.getdoc(policy) or ""
        module = inspect.getmodule(policy)
        section = re.search(r"§[0-9.]*[0-9]", said + (module.__doc__ or "" if module else ""))
        defaults = ", ".join(f"{k}={_shown(v)}" for k, v in parameters_of(policy).items())
        what = said.partition("\n\n")[0].replace("\n", " ").replace("``", "`")
        lines.append((name, section[0] if section else "-", defaults or "-", what))
    return lines


def policies(catalogue: Mapping[str, MakePolicy]) -> RenderableType:
    """Names, where the paper has them, their parameters, and what they say of themselves."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("policy", style="bold", no_wrap=True)
    table.add_column("paper", no_wrap=True)
    table.add_column("parameters")
    table.add_column("what it does")
    for name, section, parameters, what in policy_lines(catalogue):
        table.add_row(name, section, parameters, escape(what))
    return table


def policies_in_markdown(catalogue: Mapping[str, MakePolicy]) -> str:
    """The same as the README has it."""
    head: list[tuple[str, ...]] = [("policy", "paper", "parameters", "what it does"), ("---",) * 4]
    body: list[tuple[str, ...]] = [(f"`{name}`", *rest) for name, *rest in policy_lines(catalogue)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in head + body)


@contextlib.contextmanager
def job_progress(jobs: int, *, quiet: bool, what: str = "") -> Iterator[Callable[[Record], None]]:
    """Show on a terminal how many jobs have ended and what time it is in the simulation."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _record: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TextColumn("jobs, {task.fields[clock]}"), console=console, transient=True
    ) as bar:
        task = bar.add_task(what or "simulating", total=jobs, clock="0 s")

        def observe(record: Record) -> None:
            if isinstance(record.event, _ENDINGS):
                bar.update(task, advance=1, clock=duration(record.at))

        yield observe


class _Speed(ProgressColumn):
    """Records a second, once it is known."""

    def render(self, task: Task) -> Text:
        """See ``ProgressColumn``."""
        return Text("records" + ("" if task.speed is None else f", {task.speed:,.0f}/s"))


@contextlib.contextmanager
def record_progress(total: int | None, what: str) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many records of a log are done, how fast, and the time left.

    What it yields is called with a record's sequence, as often as one likes.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _seq: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, _Speed(), TimeRemainingColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task(what, total=total)

        def show(seq: int) -> None:
            if seq % _PROGRESS_EVERY == 0:
                bar.update(task, completed=seq)

        yield show


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _settings(done: Result) -> RenderableType:
    """The settings as name=value; long, but a figure without them is worth nothing."""
    settings = done.plan.settings() | {"trace": done.plan.trace.source}
    given = {name: value for name, value in settings.items() if value not in ("", None, {}, (), [])}
    return Text(
        "settings: " + ", ".join(f"{name}={_shown(value)}" for name, value in given.items()),
        style="dim",
    )


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "+".join(f"{name}:{_shown(number)}" for name, number in value.items())
    if isinstance(value, list | tuple):
        return ":".join(_shown(each) for each in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _note(note: str) -> Text:
    return Text("note: ", style="bold yellow").append(note, style="not bold")

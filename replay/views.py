"""Results for people, as tables, and for scripts. Layout only: figures are computed elsewhere."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
from rich import box
from rich.console import Console, RenderableType
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
from schemas.events import JobEnded
from schemas.record import Record
from services.policy.catalog import MakePolicy, parameters_of

if TYPE_CHECKING:
    pass

#: Of a line that is not on a terminal, so that a table in a file does not depend on who wrote it.
_PLAIN_WIDTH = 100
#: Records between two updates of a progress bar.
_PROGRESS_EVERY = 500


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


def table(first: str, *others: str) -> Table:
    """An empty one: a column of names, and columns of figures."""
    found = Table(box=box.SIMPLE, pad_edge=False)
    found.add_column(first, no_wrap=True)
    for name in others:
        found.add_column(name, justify="right")
    return found


def progress_line(text: str) -> None:
    """Tell a terminal how far a long command is; files and scripts are not told."""
    console = Console(stderr=True)
    if console.is_terminal:
        console.print(text, style="dim", highlight=False)


def policy_lines(catalogue: Mapping[str, MakePolicy]) -> list[tuple[str, ...]]:
    """(name, the paper's section, parameters with defaults, what it does) of each policy."""
    lines: list[tuple[str, ...]] = []
    for name, policy in sorted(catalogue.items()):
        said = inspect.getdoc(policy) or ""
        module = inspect.getmodule(policy)
        section = re.search(r"§[0-9.]*[0-9]", said + (module.__doc__ or "" if module else ""))
        defaults = ", ".join(f"{k}={shown(v)}" for k, v in parameters_of(policy).items())
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
            if isinstance(record.event, JobEnded):
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


def shown(value: object) -> str:
    """A setting's value on a line of many."""
    if isinstance(value, dict):
        return "+".join(f"{name}:{shown(number)}" for name, number in value.items())
    if isinstance(value, list | tuple):
        return ":".join(shown(each) for each in value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)

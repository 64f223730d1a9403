"""``gavel compare``: several policies on the same jobs, in parallel processes, in one table."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields, replace
from multiprocessing import get_context
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from replay.request import Request

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Options of ``simulate`` that make no sense for several runs at once.
_OF_ONE_RUN = ("policy", "log", "jobs_json", "force")


@dataclass(frozen=True, kw_only=True)
class _Compare(Request):
    """What was asked for: the options of ``simulate``, and which policies to run them under."""

    policies: Annotated[
        str, typer.Option(metavar="NAME,NAME,...", help="Some of `gavel policies`.")
    ] = "las,las:agnostic,fifo,isolated"
    processes: Annotated[
        int, typer.Option(min=0, help="Runs at a time; 0: as many as there are processors.")
    ] = 0


def compare(**options: Any) -> int:
    """Run several policies on the same jobs; print what each schedule comes to, in one table."""
    return _run(_Compare(**options))


# The fields of the request are the options of the command.
_hints = get_type_hints(_Compare, include_extras=True)
vars(compare)["__signature__"] = inspect.Signature(
    [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=_hints[f.name]
        )
        for f in fields(_Compare)
        if f.name not in _OF_ONE_RUN
    ]
)
compare.__annotations__ = _hints


def _run(request: _Compare) -> int:
    """Compare; returns the exit code.

    Raises
    ------
    OptionError, TraceError, TableError, GenerateError, PolicyError
        What was asked makes no sense for one of the policies; nothing was run.
    """
    from replay import run, views  # noqa: PLC0415 - numpy and the solvers take a while to load
    from replay.options import OptionError  # noqa: PLC0415 - as above

    names = list(
        dict.fromkeys(name.strip() for name in request.policies.split(",") if name.strip())
    )
    if not names:
        raise OptionError("--policies", request.policies, "names of policies, separated by commas")
    if "-" in (str(request.trace), str(request.inject)):
        raise OptionError("--trace", "-", "a file: each run reads it anew")
    shared = {f.name: getattr(request, f.name) for f in fields(Request)}
    requests = {name: replace(Request(**shared), policy=name) for name in names}
    for each in requests.values():
        run.check(each)
    processes = request.processes or min(len(names), os.cpu_count() or 1)
    outcomes: dict[str, Outcome] = {}
    for name, outcome in _outcomes(requests, processes):
        outcomes[name] = outcome
        if not request.json:
            views.progress_line(f"{name}: {len(outcomes)} of {len(names)} done")
    in_order = {name: outcomes[name] for name in names}
    if request.json:
        told = {name: asdict(outcome) for name, outcome in in_order.items()}
        views.print_json(told)
    else:
        views.out().print(_told(in_order))
    return 0 if all(outcome.succeeded for outcome in outcomes.values()) else 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy's figures, and what they took to compute."""

    figures: Any
    wall_s: float
    solve_wall_s: float
    succeeded: bool


def _told(outcomes: Mapping[str, Outcome]) -> RenderableType:
    """One line a policy: what its schedule of the same jobs comes to (JCT: its average)."""
    from replay.views import duration, table  # noqa: PLC0415 - as above

    columns = ("JCT", "median", "99 %", "makespan", "jobs", "used", "USD", "preempted", "solving")
    found = table("policy", *columns)
    for name, outcome in outcomes.items():
        figures = outcome.figures
        found.add_row(
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
    return found


def _outcomes(requests: dict[str, Request], processes: int) -> Iterator[tuple[str, Outcome]]:
    """(policy, its outcome) as they come in; Ctrl-C stops what has not begun."""
    # Spawned, not forked: numpy's and the solvers' threads do not survive a fork.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures: dict[Future[Outcome], str] = {
            pool.submit(_simulate, request): name for name, request in requests.items()
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _simulate(request: Request) -> Outcome:
    from pathlib import Path  # noqa: PLC0415 - runs in a process of its own
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - as above

    from replay import run  # noqa: PLC0415 - as above
    from services.runtime.file_log import FileLog  # noqa: PLC0415 - as above

    with TemporaryDirectory() as folder:
        done = run.carry_out(run.check(request), FileLog(Path(folder) / "log.jsonl.zst"))
    return Outcome(done.figures, done.wall_s, done.solve_wall_s, done.succeeded)

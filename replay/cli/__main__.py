"""The ``gavel`` command: what there is, how errors are told, what exit codes mean.

A command's module is imported when the command is used, so that ``gavel --help`` is quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from replay.cli import live, log, throughputs, trace
from replay.cli.compare import compare
from replay.cli.explain import explain, plan
from replay.cli.paper import paper
from replay.cli.replay import diff, replay
from replay.cli.report import export, report
from replay.cli.simulate import simulate
from replay.cli.sweep import sweep
from replay.cli.whatif import whatif
from replay.options import InputError, examples

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130

_EXIT_CODES = f"""\
Exit codes: {OK} done; {FAILED} what was asked for failed (no job finished, a log does not verify, \
a disk is full); {WRONG_USAGE} wrong usage or bad input, nothing was done; {INTERRUPTED} \
interrupted, the log written so far is whole."""


#: What the system says of a path that the user has named, and that is not what it must be.
_WRONG_PATH = FileNotFoundError | PermissionError | NotADirectoryError | IsADirectoryError
#: Errors by name: what has not been imported, nobody needs to import to see that it was not raised.
_BY_NAME = {
    "replay.live.place.LiveError": FAILED,
    "schemas.record.NewerSchemaError": WRONG_USAGE,
    "services.estimator.tables.TableError": WRONG_USAGE,
    "services.policy.problem.PolicyError": WRONG_USAGE,
    "services.runtime.config.ConfigError": WRONG_USAGE,
    "services.runtime.embedded.EmbeddedServerError": FAILED,
    "services.runtime.log.LogError": WRONG_USAGE,
}
#: {package: the extra that brings it}, of packages that only some commands need.
_EXTRAS = {
    **dict.fromkeys(("clarabel", "cvxpy", "highspy", "scipy"), "replay"),
    **dict.fromkeys(("joblib", "matplotlib", "plotly", "polars", "psutil"), "research"),
    **dict.fromkeys(("nats", "structlog"), "live"),
    "torch": "estimator",
}


class _Commands(TyperGroup):
    """Commands whose errors are one red line, and an exit code that says whose fault it was."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run one command, and exit."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except Exception as error:  # noqa: BLE001 - what is not the user's is raised again
            code = _tell(error)
        if code == INTERRUPTED:
            _print_red("interrupted")
        sys.exit(code or OK)


def _tell(error: Exception) -> int:
    """Say what is wrong, if it is a matter for the user; our own bugs are raised again."""
    code = _blame(error)
    if code is None:
        raise error
    message = (
        error.format_message() if isinstance(error, typer.TyperException) else _in_words(error)
    )
    if type(error).__name__ == "NoArgsIsHelpError":
        return code
    _print_red(message)
    return code


def _print_red(message: str) -> None:
    line = Text("gavel: ", "bold red").append(message, "not bold")
    Console(stderr=True, soft_wrap=True, highlight=False).print(line)


def _blame(error: Exception) -> int | None:
    """Exit code of an error that is not a bug of ours, else None."""
    if isinstance(error, typer.TyperException | InputError | _WRONG_PATH):
        return WRONG_USAGE
    if isinstance(error, OSError):
        return FAILED
    if isinstance(error, ModuleNotFoundError):
        return WRONG_USAGE if error.name in _EXTRAS else None
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)
    return next((_BY_NAME[name] for name in names if name in _BY_NAME), None)


def _in_words(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        extra = _EXTRAS[str(error.name)]
        return f"this needs {error.name}: pip install 'gavel-scheduler[{extra}]'"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="A scheduler for deep-learning training on mixed accelerators, its log and its simulator.",
    epilog="\n\n".join(
        (
            examples(
                "gavel demo",
                "gavel simulate --generate --jobs 50 --cluster v100=8,k80=8 --log run.jsonl",
                "gavel log story run.jsonl 17",
                "gavel verify run.jsonl",
            ),
            _EXIT_CODES,
        )
    ),
)
app.command(
    epilog=examples(
        "gavel simulate --generate --multi-gpu --jobs 200 --seed 1 --log run.jsonl.zst",
        "gavel simulate --trace jobs.trace --throughputs rates.json --policy las:agnostic",
        "gavel simulate --trace jobs.jsonl --cluster v100=8,k80=16 --servers v100=4 --json",
        "gavel simulate --trace jobs.trace --mode paper --window 4000:5000",
    )
)(simulate)
app.command(
    epilog=examples(
        "gavel compare --policies las,las:agnostic,ftf --generate --jobs 200 --mean-gap 900",
        "gavel compare --policies las,las:ss,allox --trace jobs.trace --mode paper --json",
    )
)(compare)
app.command(
    epilog="A file of 12 cells:\n\n"
    '  policy = \\["las", "las:agnostic"]\n'
    "  jobs_per_h = \\[2, 4]\n"
    "  seed = \\[0, 1, 2]\n"
    '  cluster = "v100=12,p100=12,k80=12"\n\n'
    + examples(
        "gavel sweep experiment.toml", "gavel sweep experiment.toml --on dask=tcp://head:8786"
    )
)(sweep)
app.command(
    epilog=examples(
        "gavel report run.jsonl.zst",
        "gavel report experiment-results --out sweep.html --figures figures --format pdf",
    )
)(report)
app.command(
    epilog=examples(
        "gavel paper figure8",
        "gavel paper figure8 --full --throughputs simulation_throughputs.json --processes 16",
        "gavel paper table3 --artifact gavel/scheduler/traces",
    )
)(paper)
app.command(epilog=examples("gavel export run.jsonl --perfetto run.trace.json"))(export)
app.command(
    epilog=examples(
        "gavel replay run.jsonl.zst --to 1.5h",
        "gavel replay run.jsonl.zst --to 4000 --service policy --json",
        "gavel replay run.jsonl.zst --to 4000 --step",
        "gavel replay nats://head:4222 --service worker.gpu1",
    )
)(replay)
app.command(
    epilog=examples("gavel diff monday.jsonl tuesday.jsonl", "gavel diff a.jsonl b.jsonl --json")
)(diff)
app.command(
    epilog=examples(
        "gavel whatif run.jsonl --policy ftf",
        "gavel whatif run.jsonl --cluster +v100=8 --plot more.html",
        "gavel whatif run.jsonl --round 120 --at 4000 --json",
    )
)(whatif)
app.command(
    epilog=examples(
        "gavel explain 17",
        "gavel explain 17 --log run.jsonl --at 1.5h",
        "gavel explain --codes",
    )
)(explain)
app.command(
    epilog=examples(
        "gavel plan --type 'ResNet-18 (batch size 64)' --steps 5000 -- python train.py",
        "gavel plan --file job.toml --policy ftf --log run.jsonl --at 1.5h",
    )
)(plan)
app.add_typer(log.app, name="log")
app.add_typer(throughputs.app, name="throughputs")
app.add_typer(trace.app, name="trace")
live.add_to(app, log.app)


@app.command(epilog=examples("gavel demo", "gavel demo --simulated"))
def demo(
    *,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Two policies on 36 GPUs instead, in seconds.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, max=100, help="Jobs of the live cluster.")] = 16,
    round: Annotated[  # noqa: A002 - as the option is called
        float, typer.Option(min=1.0, help="Seconds a round of it lasts.")
    ] = 5.0,
) -> int:
    """Run a live cluster on imagined GPUs for a minute; then simulate the same, and compare."""
    if simulated:
        from replay.cli import demo  # noqa: PLC0415 - numpy and the solvers take time to load

        return demo.run()
    from replay.live import demo as live_demo  # noqa: PLC0415 - as above

    return live_demo.run(jobs, round)


@app.command()
def policies(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the README has it.")] = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """List the policies that --policy takes, and what each optimises."""
    from replay import views  # noqa: PLC0415 - the policies import numpy and the solvers
    from services.policy import catalog  # noqa: PLC0415 - as above

    catalogue = {name: catalog.find(name) for name in catalog.names()}
    if markdown:
        print(views.policies_in_markdown(catalogue))
    else:
        views.out().print(views.policies(catalogue))


@app.command(
    epilog=examples("gavel verify run.jsonl.zst", "gavel verify run.jsonl --resolve --json")
)
def verify(
    log: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A log file.")],
    *,
    resolve: Annotated[
        bool, typer.Option("--resolve", help="Also solve every allocation again, and compare.")
    ] = False,
    policy: Annotated[
        str, typer.Option(metavar="FILE.py:CLASS", help="A policy of your own that the log names.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Decide everything in a log anew, and compare: records, digests, the file's own seal."""
    from replay.cli import verify  # noqa: PLC0415 - numpy and the solvers take their time to load

    return verify.run(log, resolve=resolve, policy=policy, json=json)


@app.command()
def version() -> None:
    """Print the versions of the program, of the log's schema and of the cores' behaviour."""
    from importlib import metadata  # noqa: PLC0415 - seldom needed

    from schemas.record import SCHEMA  # noqa: PLC0415 - as above
    from services.runtime.actor import BEHAVIOUR  # noqa: PLC0415 - as above

    try:
        release = metadata.version("gavel-scheduler")
    except metadata.PackageNotFoundError:
        release = "(not installed)"
    print(f"gavel {release}, schema {SCHEMA}, behaviour {BEHAVIOUR}")


def main() -> NoReturn:
    """Entry point of the console script."""
    app(prog_name="gavel")
    raise AssertionError("a command exits by itself")


if __name__ == "__main__":
    main()

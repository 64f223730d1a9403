"""``gavel whatif``: a log's jobs once more, with one thing changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replay.options import OptionError, new_file

if TYPE_CHECKING:
    from replay.whatif.answer import Answer
    from replay.whatif.change import Change

_PLOTS = (".png", ".pdf", ".html")


def whatif(
    log: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A log file.")
    ],
    *,
    policy: Annotated[str, typer.Option(help="Another policy: one of `gavel policies`.")] = "",
    parameters: Annotated[
        str, typer.Option(metavar="NAME=VALUE,...", help="Other parameters of the policy.")
    ] = "",
    cluster: Annotated[
        str,
        typer.Option(metavar="+TYPE=N,-TYPE=N", help="So many workers more, or fewer, of a type."),
    ] = "",
    round: Annotated[  # noqa: A002 - as the option is called
        float | None, typer.Option(help="Another length of rounds, s.")
    ] = None,
    without_entity: Annotated[
        str, typer.Option(metavar="NAME", help="Leave out an entity's jobs, and those below it.")
    ] = "",
    throughputs: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Steps/s that the log does not have."),
    ] = None,
    at: Annotated[
        int,
        typer.Option(min=0, metavar="SEQ", help="Change it after this record, not from the start."),
    ] = 0,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw each job's JCT before and after: .png, .pdf, or an .html page."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, no table.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a plot that exists.")] = False,
) -> int:
    """Decide a log anew with one thing changed; print what that would have made of it.

    Kept is what came from outside: jobs, cancellations, workers coming and going, how fast tasks
    ran and how long their checkpoints took. Decided anew is the rest, once as it was and once
    changed: the difference is the change's. Without a change it shows how exact that is.
    """
    if plot is not None:
        new_file("--plot", plot, force=force)
        if plot.suffix not in _PLOTS:
            raise OptionError("--plot", str(plot), f"a file ending in {', '.join(_PLOTS)}")
    asked = {
        "--policy": policy,
        "--parameters": parameters,
        "--cluster": cluster,
        "--round": round,
        "--without-entity": without_entity,
        "--throughputs": throughputs,
        "--at": at,
    }
    given = {name: value for name, value in asked.items() if value not in (None, "")}
    return _answer(log, given, plot, json=json)


def _answer(log: Path, given: dict[str, Any], plot: Path | None, *, json: bool) -> int:
    """Ask, and tell."""
    from replay import views  # noqa: PLC0415 - numpy and the solvers take their time to load
    from replay.log_source import reader  # noqa: PLC0415 - as above
    from replay.whatif.answer import what_if  # noqa: PLC0415 - as above

    change = _change(given)
    with views.job_progress(0, quiet=json, what="deciding anew") as observe:
        answer = what_if(reader(log), change, given["--at"], observe)
    _tell(answer, given, json=json)
    if plot is not None:
        _draw(answer, _in_words(given), log, plot)
    return 0


def _change(given: dict[str, Any]) -> Change:
    """What is asked for.

    Raises
    ------
    OptionError, PolicyError, TableError
        It makes no sense.
    """
    from replay import options, own_policy  # noqa: PLC0415 - as above
    from replay.traces.tables import read_table  # noqa: PLC0415 - as above
    from replay.whatif.change import Change  # noqa: PLC0415 - as above

    parameters, table = given.get("--parameters"), given.get("--throughputs")
    own_policy.load(given.get("--policy", ""))
    return Change(
        policy=given.get("--policy", ""),
        parameters=options.parameters("--parameters", parameters) if parameters else {},
        round_s=options.round_length(given["--round"]) if "--round" in given else None,
        cluster=_more(given["--cluster"]) if "--cluster" in given else {},
        without_entity=given.get("--without-entity", ""),
        table=None if table is None else read_table(table),
    )


def _in_words(given: dict[str, Any]) -> str:
    listed = (f"{name.removeprefix('--')} {value}" for name, value in given.items() if value)
    return ", ".join(listed) or "nothing changed"


def _tell(answer: Answer, given: dict[str, Any], *, json: bool) -> None:
    from replay import views  # noqa: PLC0415 - as above
    from replay.whatif.show import as_json, table  # noqa: PLC0415 - as above

    if json:
        said = {name: str(v) if isinstance(v, Path) else v for name, v in given.items() if v}
        views.print_json(as_json(answer, said))
    else:
        views.out().print(table(answer, _in_words(given)))


def _draw(answer: Answer, words: str, log: Path, plot: Path) -> None:
    from replay.report import page, printed  # noqa: PLC0415 - only where drawn
    from replay.whatif.show import jobs_chart, report  # noqa: PLC0415 - as above

    if plot.suffix == ".html":
        plot.write_text(page.render(report(answer, words, log.name)))
    else:
        chart = jobs_chart(answer, words, key=plot.stem)
        printed.write([chart], plot.parent, [plot.suffix[1:]])


def _more(text: str) -> dict[str, int]:
    """Read ``+v100=8,-k80=2`` as numbers of workers more and fewer.

    Raises
    ------
    OptionError
        A part is no such change, or a type comes twice.
    """
    found: dict[str, int] = {}
    for part in text.split(","):
        parsed = re.fullmatch(r"\s*([+-])([^=+-][^=]*)=([0-9]{1,6})\s*", part)
        if parsed is None or parsed[2] in found or not int(parsed[3]):
            expected = "+TYPE=N or -TYPE=N, N from 1, each type once, as in +v100=8,-k80=2"
            raise OptionError("--cluster", text, expected)
        found[parsed[2]] = int(parsed[3]) * (1 if parsed[1] == "+" else -1)
    return found

"""``gavel replay`` and ``gavel diff``: what was known at any record, and where two logs part."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replay.options import InputError, OptionError, one_of

if TYPE_CHECKING:
    from replay.travel.journey import Journey, Source

_LIVE = ("nats://", "tls://")
_MECHANISM = "mechanism"

_Log = Annotated[
    str,
    typer.Argument(metavar="LOG", help="A log file, or nats://HOST:PORT of a running cluster."),
]
_Name = Annotated[str, typer.Option("--cluster-name", help="The live one's, where not `main`.")]
_NoIndex = Annotated[
    bool, typer.Option("--no-index", help="Of a long log, do not make LOG.snapshots.")
]


def replay(
    log: _Log,
    *,
    to: Annotated[
        str,
        typer.Option(metavar="SEQ|TIME", help="Record 4000; 90m or 5400s into the log; or a date."),
    ] = "",
    service: Annotated[
        str, typer.Option(help="mechanism, policy, estimator, or a worker service as worker.gpu1.")
    ] = "",
    step: Annotated[
        bool, typer.Option("--step", help="Go on from there, record by record.")
    ] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="Of --step: print so many records (10), do not ask.")
    ] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="All rows of long tables.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON; of --step a line a record.")] = False,
    no_index: _NoIndex = False,
    cluster_name: _Name = "",
) -> int:
    """Show what a service knew after a record: jobs, workers, leases, X, t, f and priorities.

    It is the mechanism, or --service. With --step, each record is followed by what every service
    decided on it; on a terminal: enter or n for the next, a number to jump, s for the state, q.
    """
    if count is not None and not step:
        raise OptionError("--count", count, "it only with --step")
    from replay.travel.journey import Journey, target_of  # noqa: PLC0415 - numpy takes its time

    source = _source(log, cluster_name, may_index=not no_index)
    target = target_of("--to", to, source)
    wanted = service or _MECHANISM
    journey = Journey(source, None if step else {wanted})
    journey.go(target)
    one_of("--service", wanted, journey.cores.services)
    if not step:
        _show(journey, wanted, all_rows=all_rows, json=json)
    elif count is None and not json and sys.stdin.isatty() and sys.stdout.isatty():
        _walk(journey, wanted, source, all_rows=all_rows)
    else:
        _list(journey, count or 10, service, json=json)
    return 0


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A log file, or nats://HOST:PORT.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    *,
    service: Annotated[str, typer.Option(help="Show all that this service knew before.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    cluster_name: _Name = "",
) -> int:
    """Show where two logs part: the first other record, field by field, and what was known before.

    The exit code is 0 if there is no difference, and 1 if there is one.
    """
    from replay import views  # noqa: PLC0415 - as for `replay`
    from replay.travel import show  # noqa: PLC0415 - as for `replay`
    from replay.travel.diff import diff as compared  # noqa: PLC0415 - as for `replay`

    sources = [_source(log, cluster_name, may_index=False) for log in (a, b)]
    with views.record_progress(None, "comparing") as progress:
        found = compared(sources[0], sources[1], (a, b), progress)
    if isinstance(found, int):
        if json:
            views.print_json({"same": True, "records": found})
        else:
            print(f"A ({a}) and B ({b}) are the same: {found} records")
        return 0
    known = {each.service: each for each in found.services}
    if service:
        one_of("--service", service, known)
    if json:
        views.print_json({"same": False, **_fields_of(found)})
        return 1
    views.out().print(show.difference(found), soft_wrap=True)
    if service:
        views.out().print(show.state(known[service]))
    return 1


def _source(log: str, cluster_name: str, *, may_index: bool) -> Source:
    """The log that is meant.

    Raises
    ------
    InputError
        There is no such file.
    """
    from replay.travel.journey import LogFile, Records  # noqa: PLC0415 - as for `replay`

    if not log.startswith(_LIVE):
        path = Path(log)
        if cluster_name:
            raise OptionError("--cluster-name", cluster_name, f"it only with {_LIVE[0]}HOST:PORT")
        if not path.is_file():
            why = "it is no ordinary file" if path.exists() else "there is no file"
            raise InputError(f"{log}: expected a log file, or {_LIVE[0]}HOST:PORT; {why}")
        return LogFile(path, may_index=may_index)
    from replay.live.actions import records_now  # noqa: PLC0415 - the network takes a while to load

    return Records(records_now(log, cluster_name))


def _show(journey: Journey, service: str, *, all_rows: bool, json: bool) -> None:
    from replay import views  # noqa: PLC0415 - as for `replay`
    from replay.travel import show  # noqa: PLC0415 - as for `replay`
    from replay.travel.known import known  # noqa: PLC0415 - as for `replay`

    found = known(journey.cores, service)
    if json:
        views.print_json(found)
    else:
        views.out().print(show.state(found, None if all_rows else show.ROWS))


def _list(journey: Journey, count: int, service: str, *, json: bool) -> None:
    """Print the next records, and what was decided on them."""
    from replay.travel import show  # noqa: PLC0415 - as for `replay`
    from replay.travel.decided import told  # noqa: PLC0415 - as for `replay`
    from replay.travel.journey import Step  # noqa: PLC0415 - as for `replay`
    from schemas.record import encode  # noqa: PLC0415 - as for `replay`

    for _ in range(count):
        taken = journey.step()
        if taken is None:
            return
        decided = {
            name: decisions for name, decisions in taken.decided.items() if service in ("", name)
        }
        if json:
            import msgspec  # noqa: PLC0415 - seldom needed

            words = {name: [told(each) for each in every] for name, every in decided.items()}
            content = {"record": msgspec.Raw(encode(taken.record)), "decided": words}
            print(msgspec.json.encode(content).decode())
        else:
            print("\n".join(show.step(Step(taken.record, decided))))


def _walk(journey: Journey, service: str, source: Source, *, all_rows: bool) -> None:
    """Ask after each record where to go; ends with the log, or when told."""
    from replay.travel import show  # noqa: PLC0415 - as for `replay`
    from replay.travel.journey import target_of  # noqa: PLC0415 - as for `replay`

    while True:
        try:
            said = input(f"[{journey.cores.last_seq}] enter: next, NUMBER, s(tate), q(uit): ")
        except EOFError:
            return
        match said.strip():
            case "q":
                return
            case "s":
                _show(journey, service, all_rows=all_rows, json=False)
            case "" | "n":
                taken = journey.step()
                if taken is None:
                    print("(the log has ended)")
                else:
                    print("\n".join(show.step(taken)))
            case place:
                try:
                    journey.go(target_of("NUMBER", place, source))
                except InputError as error:
                    print(error)


def _fields_of(content: Any) -> dict[str, Any]:
    return {name: getattr(content, name) for name in content.__struct_fields__}

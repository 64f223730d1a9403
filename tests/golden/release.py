"""Writes the golden logs of the present version: ``make golden``, before a release goes out.

Each release must read, and verify, what every one before it wrote. So for each pair of schema and
behaviour version ``versions/`` keeps the log of a run, and for each schema every field of every
kind of event, none at its default. A file once released is never written again: it is the proof.
What is there already is left alone; ``--again`` writes the run anew, before it is released.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from schemas.events import AnyEvent, UnknownEvent
from schemas.record import SCHEMA, Record
from schemas.subjects import may_write
from services.runtime.actor import BEHAVIOUR
from tests.simulation.forge import redigest, write_file
from tests.simulation.scenario import contended, records_of

FOLDER = Path(__file__).with_name("versions")
RUN = FOLDER / f"schema-{SCHEMA}-behaviour-{BEHAVIOUR}.jsonl"
#: No release will ever read this.
NEWER = FOLDER / "newer-schema.jsonl"
_NEWER_SCHEMA = 1_000_000
_WORKER = "worker.golden"
_WRITERS = ("operator", "client.golden", _WORKER, "mechanism", "estimator", "policy")
KINDS = tuple(kind for kind in AnyEvent.__args__ if kind is not UnknownEvent)


def run() -> list[Record]:
    """Pairs, gangs, profiles, cancelled jobs, a drained worker, workers that are lost."""
    scenario = contended(12, num_jobs=16, policy="las:ss")
    config = msgspec.structs.replace(
        scenario.config, estimator="learned", trust_job_types=False, profile_s=3.0
    )
    simulation = dataclasses.replace(
        scenario, config=config, outages=((60.3, "v100-0", 50.0),)
    ).simulation()
    simulation.run()
    return list(records_of(simulation.driver))


def fields_seen() -> set[tuple[str, str]]:
    """(kind, field) of all that the logs of kinds have written out."""
    seen = set()
    for path in FOLDER.glob("schema-*-kinds-*.jsonl"):
        for line in path.read_text().splitlines()[:-1]:
            event = json.loads(line)["event"]
            seen |= {(event["kind"], name) for name in event}
    return seen


def fields_there_are() -> set[tuple[str, str]]:
    """(kind, field) of all that this release knows."""
    return {(kind.__name__, name) for kind in KINDS for name in (*kind.__struct_fields__, "kind")}


def kinds(names: Iterable[str]) -> list[Record]:
    """A record of each of these kinds, with every field set; no run writes such a log."""
    by_name = {kind.__name__: kind for kind in KINDS}
    events = [sample(by_name[name], name) for name in sorted(set(names))]
    return redigest(
        Record(
            seq=seq,
            at=seq + 0.25,
            actor=next(writer for writer in _WRITERS if may_write(writer, event)),
            epoch=7,
            cause=seq,
            index=2,
            n=3,
            digest="",
            event=event,
        )
        for seq, event in enumerate(events, 1)
    )


def sample(kind: Any, name: str) -> Any:
    """A value of a type that is not its default: texts are the field's name."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(next(each for each in arguments if each is not type(None)), name)
    if origin is tuple:
        of = arguments[:1] if arguments[-1] is Ellipsis else arguments
        return tuple(sample(each, name) for each in of)
    if origin is dict:
        return {sample(arguments[0], name): sample(arguments[1], name)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        values = {
            each.name: _other(sample(hints[each.name], each.name), each.default)
            for each in msgspec.structs.fields(kind)
        }
        if "reporter" in values:
            values["reporter"] = _WORKER
        return kind(**values)
    return {str: name, float: 1.5, int: 2, bool: True}[kind]


def _other(value: Any, default: Any) -> Any:
    """The value, or another if it is the default."""
    if value != default:
        return value
    return not value if isinstance(value, bool) else value + 1


def newer() -> Iterator[Record]:
    """A log whose third record says that no release of today may read it."""
    for record in redigest(run()[:6]):
        yield msgspec.structs.replace(record, schema=_NEWER_SCHEMA) if record.seq == 3 else record


def write(*, again: bool) -> list[Path]:
    """Write what is not there yet; the files written."""
    FOLDER.mkdir(exist_ok=True)
    part = 1 + len(list(FOLDER.glob(f"schema-{SCHEMA}-kinds-*.jsonl")))
    missing = {kind for kind, _ in fields_there_are() - fields_seen()}
    contents: dict[Path, Callable[[], Iterable[Record]]] = {}
    if again or not RUN.exists():
        contents[RUN] = run
    if missing:
        contents[FOLDER / f"schema-{SCHEMA}-kinds-{part}.jsonl"] = partial(kinds, missing)
    if not NEWER.exists():
        contents[NEWER] = newer
    for path, records in contents.items():
        write_file(path, records())
    return list(contents)


if __name__ == "__main__":
    written = write(again="--again" in sys.argv[1:])
    sys.stdout.write("".join(f"{path.name}: written\n" for path in written) or "nothing is new\n")

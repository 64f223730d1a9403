"""Where two logs part: the first record that is not the same, and what services knew before it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from itertools import zip_longest
from typing import Any

import msgspec

from replay.driver import SIMULATED
from replay.travel.decided import told
from replay.travel.facts import Known
from replay.travel.journey import Journey, Source, Target
from replay.travel.known import known, plain
from schemas.decisions import Run
from schemas.events import JobSubmitted, LeaderElected, WorkerRegistered
from schemas.record import Record
from services.runtime.actor import BEHAVIOUR

#: Records shown before the first that differs.
_BEFORE = 5

#: A value as JSON has it.
Found = Any


class Field(msgspec.Struct, frozen=True):
    """A field that is not the same; a side that does not have it has None."""

    path: str
    a: Found
    b: Found


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Where two logs part."""

    names: tuple[str, str]
    #: The first record that is not the same.
    seq: int
    verdict: str
    #: What explains it at large: other clusters, schemas, behaviours.
    notes: tuple[str, ...]
    #: The records there; None where the log has ended.
    records: tuple[Record | None, Record | None]
    fields: tuple[Field, ...]
    #: The last records that both have.
    before: tuple[Record, ...]
    #: What services knew after these.
    services: tuple[Known, ...]
    #: The service that wrote the records, and what it decides there; None: a fact from outside.
    decided: tuple[str, str] | None


def diff(
    a: Source,
    b: Source,
    names: tuple[str, str],
    progress: Callable[[int], None] = lambda _: None,
) -> Difference | int:
    """The first difference of two logs; if there is none, how many records they have.

    Raises
    ------
    DamagedLogError, NewerSchemaError
        See ``services.runtime.file_log.read_log``.
    """
    before: deque[Record] = deque(maxlen=_BEFORE)
    seq = 0
    one: Record | None = None
    two: Record | None = None
    for one, two in zip_longest(a.read(), b.read()):
        if one != two:
            break
        seq += 1
        progress(seq)
        assert one is not None, "two that are alike are no ends"
        before.append(one)
    else:
        return seq
    journey = Journey(a)
    if seq:
        journey.go(Target(seq=seq))
    cores = journey.cores
    return Difference(
        names=names,
        seq=seq + 1,
        verdict=_verdict(names, seq, before, one, two),
        notes=tuple(_notes(a, b, one, two)),
        records=(one, two),
        fields=tuple(_fields(one, two)),
        before=tuple(before),
        services=tuple(known(cores, name) for name in cores.actors),
        decided=_decided(journey, one or two),
    )


def _verdict(
    names: tuple[str, str],
    seq: int,
    before: Collection[Record],
    one: Record | None,
    two: Record | None,
) -> str:
    a, b = names
    if not seq:
        return f"A ({a}) and B ({b}) have no record in common: they part at the first"
    at = [record.at for record in before][-1]
    same = f"A ({a}) and B ({b}) are the same up to record {seq}, {at:.2f} s"
    if one is None:
        return f"{same}, where A ends; B goes on"
    if two is None:
        return f"{same}, where B ends; A goes on"
    return f"{same}; they part at record {seq + 1}"


# --- why at large ---------------------------------------------------------------------------------


class _Beginning:
    """What a log says before its first job."""

    def __init__(self, source: Source) -> None:
        self.workers: dict[str, str] = {}
        self.behaviours: dict[str, int] = {}
        self.is_simulated = False
        for record in source.read():
            event = record.event
            if isinstance(event, JobSubmitted):
                break
            if isinstance(event, WorkerRegistered):
                self.workers[event.worker_id] = event.worker_type
            elif isinstance(event, LeaderElected):
                self.behaviours.setdefault(record.actor, event.behaviour)
                self.is_simulated |= event.replica == SIMULATED

    @property
    def told(self) -> str:
        """The cluster in words."""
        counts = sorted(Counter(self.workers.values()).items())
        return ", ".join(f"{worker_type}={n}" for worker_type, n in counts) or "no workers yet"


def _notes(a: Source, b: Source, one: Record | None, two: Record | None) -> Iterator[str]:
    first, second = _Beginning(a), _Beginning(b)
    if first.workers != second.workers:
        yield (
            f"two different clusters: before its first job, A has {first.told}, B {second.told}"
            + ("" if first.told != second.told else ", of other names")
        )
    kinds = ["a simulation" if each.is_simulated else "a live cluster" for each in (first, second)]
    if kinds[0] != kinds[1]:
        yield f"A is of {kinds[0]}, B of {kinds[1]}"
    if first.behaviours != second.behaviours:
        for actor in sorted(first.behaviours.keys() & second.behaviours.keys()):
            older, newer = first.behaviours[actor], second.behaviours[actor]
            if older != newer:
                yield f"{actor} is of behaviour {older} in A, {newer} in B: other releases"
    if one is not None and two is not None and one.schema != two.schema:
        yield f"the record needs schema {one.schema} in A, {two.schema} in B: other releases"


# --- what exactly ---------------------------------------------------------------------------------


def _fields(one: Record | None, two: Record | None) -> list[Field]:
    if one is None or two is None:
        return []
    found = list(_differing(one, two, ""))
    # Digests follow from what they are of, and say nothing more.
    return [each for each in found if each.path != "digest"] or found


def _differing(a: object, b: object, path: str) -> Iterator[Field]:
    """Leaves of two values that differ, by their paths."""
    if a == b:
        return
    children = _children(a), _children(b)
    if type(a) is not type(b) or None in children:
        yield Field(path, _leaf(a), _leaf(b))
        return
    ours, theirs = (each or {} for each in children)
    for name in {**ours, **theirs}:
        where = f"{path}{name}" if name.startswith("[") or not path else f"{path}.{name}"
        if name in ours and name in theirs:
            yield from _differing(ours[name], theirs[name], where)
        else:
            yield Field(where, _leaf(ours.get(name)), _leaf(theirs.get(name)))


def _leaf(value: object) -> Found:
    found = plain(value)
    return {"kind": type(value).__name__, **found} if isinstance(value, msgspec.Struct) else found


def _children(value: object) -> dict[str, object] | None:
    """{name of a part: the part}; None of a leaf."""
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {f"[{key!r}]": each for key, each in value.items()}
    if isinstance(value, list | tuple):
        return {f"[{i}]": each for i, each in enumerate(value)}
    return None


def _decided(journey: Journey, record: Record | None) -> tuple[str, str] | None:
    """What the core decides that the record is of, if it is of one."""
    actor = None if record is None else journey.cores.actors.get(record.actor)
    if record is None or actor is None or not record.cause:
        return None
    decision = actor.open.get((record.cause, record.index))
    if decision is None:
        return record.actor, f"nothing as decision {record.index} on record {record.cause}"
    if isinstance(decision, Run):
        # Its result is a fact.
        return None
    return record.actor, f"{told(decision)} (behaviour {BEHAVIOUR})"

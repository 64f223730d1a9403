"""What somebody who can write files can do to a log: the attacker of the verifier's tests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from schemas.record import Record, chain, digest_of, encode

#: Sequence of a record that was inserted, until it is renumbered.
NEW = -1

KINDS = ("alter", "drop", "insert", "swap")


def write_file(path: Path, records: Iterable[Record]) -> None:
    """A sealed log file of these records, with a chain that holds."""
    text, last, count = b"", "", 0
    for record in records:
        count += 1
        content = encode(record)
        last = chain(last, content)
        text += b'%b,"chain":"%b"}\n' % (content[:-1], last.encode())
    seal = msgspec.json.encode({"sealed": {"records": count, "chain": last}})
    path.write_bytes(text + seal + b"\n")


def redigest(records: Iterable[Record]) -> list[Record]:
    """The records with every writer's digests computed anew."""
    newest: dict[str, str] = {}
    forged = []
    for record in records:
        digest = digest_of(newest.get(record.actor, ""), record)
        newest[record.actor] = digest
        forged.append(msgspec.structs.replace(record, digest=digest))
    return forged


def renumber(records: Sequence[Record], *, follow: bool = False) -> list[Record]:
    """The records with sequences 1, 2, 3 ...; ``follow``: causes follow what they name."""
    places = {record.seq: place for place, record in enumerate(records, start=1)}
    return [
        msgspec.structs.replace(
            record,
            seq=place,
            cause=places.get(record.cause, record.cause) if follow else record.cause,
        )
        for place, record in enumerate(records, start=1)
    ]


def mutate(
    records: Sequence[Record], place: int, kind: str, rng: random.Random, *, follow: bool = False
) -> list[Record]:
    """The log with one change at ``records[place]``."""
    changed = list(records)
    if kind == "alter":
        changed[place] = altered(changed[place], rng)
    elif kind == "drop":
        del changed[place]
    elif kind == "insert":
        copy = msgspec.structs.replace(changed[place], n=changed[place].n + 7, seq=NEW)
        changed.insert(place + 1, copy)
    else:
        changed[place], changed[place + 1] = changed[place + 1], changed[place]
    return changed if kind == "alter" else renumber(changed, follow=follow)


def altered(record: Record, rng: random.Random, fields: Sequence[str] = ()) -> Record:
    """The record with one of these fields changed; by default, any that its digest covers."""
    fields = fields or ("actor", "epoch", "cause", "index", "n", "event", "event", "event")
    field = rng.choice(fields)
    return msgspec.structs.replace(record, **{field: _other(getattr(record, field), rng)})


def _other(value: Any, rng: random.Random) -> Any:
    """Some other value of the same type."""
    if isinstance(value, msgspec.Struct):
        names = list(type(value).__struct_fields__)
        rng.shuffle(names)
        for name in names:
            before = getattr(value, name)
            after = _other(before, rng)
            if after != before:
                return msgspec.structs.replace(value, **{name: after})
        return value
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, tuple) and value:
        place = rng.randrange(len(value))
        return (*value[:place], _other(value[place], rng), *value[place + 1 :])
    if isinstance(value, dict) and value:
        return dict(list(value.items())[1:])
    return value

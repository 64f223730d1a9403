"""Snapshots: what an actor has folded up to a record, so that the next start reads only the tail.

A snapshot is a cache of a fold and never a source of truth: one that does not fit is left alone,
and the log read instead. It fits if its checksum is right, if it was made by the very code that is
to go on from it (so a new release folds the whole log once, whatever it changed), and if the log
has, at its sequence, the record it was made after.

What is state
-------------
What a class declares: a core, and any other fold beside it, annotates in its body the attributes
that make up its state (``_jobs: dict[str, Job]``); what it does not (tables of handlers, its name)
``__init__`` makes anew. All of it must be structs, dataclasses, containers, numbers and text, as
msgspec knows them, and numpy arrays; a core names the effects it asks for in ``effects``. Nothing
here knows any core. No pickle: reading a snapshot makes values of the declared types, or fails.

Two attributes that share one value have one each after: a fold changes none that it shares.

The file
--------
A line of JSON (``Header``), and behind it the state as MessagePack::

    {"log":"main","actor":"mechanism","seq":120000,"record":["client.a",0,7,0],"digest":...}
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Literal, get_origin, get_type_hints

import msgspec
import numpy as np

import schemas.events
from schemas.decisions import Decision, Emit, Run, Wake
from schemas.record import Record, RecordId
from services.runtime.actor import BEHAVIOUR, Actor, OpenKey
from services.runtime.log import LogError

_SUFFIX = ".snapshot"


class UnfitSnapshotError(LogError):
    """The snapshot cannot be gone on from; the message says why."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What must be right before a snapshot's state is looked at."""

    log: str
    actor: str
    #: The last record folded: its place, who wrote it about what, and its digest.
    seq: int
    record: RecordId
    digest: str
    behaviour: int
    #: Digest of the sources of the code that folded.
    code: str
    #: Of all fields before this one, and of the state.
    checksum: str = ""


class _Actor(msgspec.Struct, array_like=True):
    """An ``Actor``, and the states of its core and of the folds beside it."""

    now: float
    digest: str
    epochs: dict[str, int]
    skipped: int
    results: list[tuple[OpenKey, list[int]]]
    emits: list[tuple[OpenKey, Emit]]
    wakes: list[tuple[OpenKey, Wake]]
    #: {name of the effect's class: [(key, effect)]}
    effects: dict[str, msgspec.Raw]
    folds: list[msgspec.Raw]


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of one actor, in a folder that others may share.

    Live, the shell takes one every so many records (``due``), and starts from the newest that fits.
    To move about in a log file, keep them all beside it while it is folded once (``keep=None``,
    a folder such as ``LOG.snapshots``), one ``Snapshots`` for each actor with the same ``every``;
    then, to stand at record n, for a fresh actor::

        for seq in snapshots.seqs(at_most=n):  # newest first
            snapshots.restore(snapshots.read(seq), record_at(seq))  # UnfitSnapshotError: the next
            break
        for record in read_log(path, after=actor.last_seq): ...

    Parameters
    ----------
    folder : made if absent, readable by its owner only
    log : name of the log, where one folder serves several; a safe name, as a cluster's
    actor : what is saved, and filled from a snapshot; fresh, then
    beside : other folds of the same records, filled alike
    every : records between two snapshots
    keep : newest snapshots to keep; None: all
    behaviour : version of the decisions the code makes
    code : digest of the sources of what folds; empty: of the core's package, schemas and actor
    """

    folder: Path
    log: str
    actor: Actor
    beside: Sequence[Any] = ()
    every: int = 10_000
    keep: int | None = 2
    behaviour: int = BEHAVIOUR
    code: str = ""

    def due(self, seq: int) -> bool:
        """Whether one is to be taken after this record."""
        return seq % self.every == 0

    def take(self, record: Record) -> bytes:
        """The snapshot as it stands right after ``record`` has been folded.

        Some tens of milliseconds with 5,000 active jobs: the state must not change meanwhile. What
        it returns shares nothing with the actor, so it can be written from another thread.

        Raises
        ------
        UnfitSnapshotError
            The state has a value that cannot be written, as a whole number of over 64 bits.
        """
        actor = self.actor
        assert actor.last_seq == record.seq, "taken after the record, before the next"
        header = Header(
            log=self.log,
            actor=actor.name,
            seq=record.seq,
            record=record.record_id,
            digest=record.digest,
            behaviour=self.behaviour,
            code=self._code,
        )
        try:
            return _sealed(header, _encode(_frozen(actor, self._folds)))
        except (OverflowError, UnicodeEncodeError) as error:
            raise UnfitSnapshotError(
                f"what {actor.name} knows cannot be written: {error}"
            ) from None

    def write(self, content: bytes) -> Path:
        """Put a snapshot into the folder, whole or not at all, and drop those too many.

        Raises
        ------
        OSError
            The folder cannot be written to.
        """
        seq = _parts(content)[0].seq
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(seq)
        # Another replica may write the same at this moment, from another host.
        unfinished = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, for its mode
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        if self.keep is not None:
            # One that claims to be newer is of another log of this name.
            kept = [seq, *self.seqs(at_most=seq - 1)][: self.keep]
            for other in set(self.seqs()) - set(kept):
                self.drop(other)
        return path

    def drop(self, seq: int) -> None:
        """Remove a snapshot; another replica may have done so first."""
        self._path(seq).unlink(missing_ok=True)

    def seqs(self, at_most: int | None = None) -> list[int]:
        """Sequences there are snapshots of, the newest first."""
        found = []
        with suppress(OSError):
            for path in self.folder.glob(f"{self._prefix}*{_SUFFIX}"):
                number = path.name.removeprefix(self._prefix).removesuffix(_SUFFIX)
                if number.isdecimal() and (at_most is None or int(number) <= at_most):
                    found.append(int(number))
        return sorted(found, reverse=True)

    def read(self, seq: int) -> bytes:
        """The snapshot of this sequence, unchecked.

        Raises
        ------
        UnfitSnapshotError
            It cannot be read.
        """
        try:
            return self._path(seq).read_bytes()
        except OSError as error:
            raise UnfitSnapshotError(f"it cannot be read: {error.strerror}") from None

    def restore(self, content: bytes, record: Record | None) -> None:
        """Fill the actor, and the folds beside it, from a snapshot.

        Parameters
        ----------
        content : what ``take`` gave
        record : what the log has at the snapshot's sequence; None if it does not go so far

        Raises
        ------
        UnfitSnapshotError
            It does not fit; actor and folds are as they were.
        """
        assert self.actor.last_seq == 0, "what has folded something is not restored"
        header, body = _parts(content)
        self._check(header, body, record)
        try:
            frozen = _decode(_Actor, body)
            fills = [
                _decode(_state_struct(type(fold)), raw)
                for fold, raw in zip(self._folds, frozen.folds, strict=True)
            ]
            open_ = _thawed_decisions(self.actor, frozen)
        except (msgspec.MsgspecError, ValueError, KeyError) as error:
            raise UnfitSnapshotError(f"its state is not what this code declares: {error}") from None
        for fold, state in zip(self._folds, fills, strict=True):
            for name in state.__struct_fields__:
                setattr(fold, name, getattr(state, name))
        actor = self.actor
        actor.now, actor.last_seq, actor.skipped = frozen.now, header.seq, frozen.skipped
        actor.digest, actor.epochs = frozen.digest, frozen.epochs
        actor.open, actor.results = open_, {key: set(ns) for key, ns in frozen.results}

    def _check(self, header: Header, body: bytes, record: Record | None) -> None:
        """Whether the snapshot is whole, this code's, and of this log."""
        if _sealed(header, body) != _line(header) + body:
            raise UnfitSnapshotError("its checksum is wrong: it was altered or damaged")
        if (header.log, header.actor) != (self.log, self.actor.name):
            raise UnfitSnapshotError(
                f"it is of {header.actor} on log {header.log!r}, "
                f"not of {self.actor.name} on {self.log!r}"
            )
        if header.behaviour != self.behaviour:
            raise UnfitSnapshotError(
                f"it is of behaviour version {header.behaviour}, and this is {self.behaviour}"
            )
        if header.code != self._code:
            raise UnfitSnapshotError("it was made by other code than this")
        if record is None:
            raise UnfitSnapshotError(f"the log ends before record {header.seq}: another log's")
        found = (record.seq, record.record_id, record.digest)
        if found != (header.seq, header.record, header.digest):
            raise UnfitSnapshotError(f"the log has another record {header.seq}: another log's")

    @property
    def _code(self) -> str:
        return self.code or _code(type(self.actor.core))

    @property
    def _folds(self) -> tuple[Any, ...]:
        return (self.actor.core, *self.beside)

    @property
    def _prefix(self) -> str:
        return f"{self.log}.{self.actor.name}."

    def _path(self, seq: int) -> Path:
        return self.folder / f"{self._prefix}{seq}{_SUFFIX}"


# --- bytes ---------------------------------------------------------------------------------------


def _line(header: Header) -> bytes:
    return msgspec.json.encode(header) + b"\n"


def _sealed(header: Header, body: bytes) -> bytes:
    """Header and state, with the checksum over both."""
    unsealed = msgspec.structs.replace(header, checksum="")
    checksum = blake2b(_line(unsealed) + body, digest_size=16).hexdigest()
    return _line(msgspec.structs.replace(header, checksum=checksum)) + body


def _parts(content: bytes) -> tuple[Header, bytes]:
    line, _, body = content.partition(b"\n")
    try:
        return msgspec.json.decode(line, type=Header), body
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnfitSnapshotError(f"it does not begin with a header: {error}") from None


@cache
def _code(core: type) -> str:
    """Digest of the sources that a fold depends on: of the core's package, schemas, the actor's."""
    folders = [_folder(core.__module__), _folder(schemas.events.__name__)]
    here = [Path(__file__), Path(__file__).with_name("actor.py")]
    sources = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    digest = blake2b(digest_size=16)
    for path in sources + here:
        content = path.read_bytes()
        digest.update(b"%d " % len(content) + content)
    return digest.hexdigest()


def _folder(module: str) -> Path:
    file = sys.modules[module].__file__
    assert file is not None, f"{module} has a source file"
    return Path(file).parent


# --- state ---------------------------------------------------------------------------------------


def _frozen(actor: Actor, folds: Sequence[Any]) -> _Actor:
    """The actor as values that the encoder knows: nothing is copied before it is encoded."""
    # Of types that hold once they are encoded.
    decisions: Any = {Emit: [], Wake: []}
    effects: Any = {}
    for key, decision in actor.open.items():
        if isinstance(decision, Run):
            of_kind = effects.setdefault(type(decision.effect).__name__, [])
            of_kind.append((key, decision.effect))
        else:
            decisions[type(decision)].append((key, decision))
    states: Any = [_state(fold) for fold in folds]
    return _Actor(
        now=actor.now,
        digest=actor.digest,
        epochs=actor.epochs,
        skipped=actor.skipped,
        results=[(key, sorted(ns)) for key, ns in actor.results.items()],
        emits=decisions[Emit],
        wakes=decisions[Wake],
        effects=effects,
        folds=states,
    )


def _thawed_decisions(actor: Actor, frozen: _Actor) -> dict[OpenKey, Decision]:
    """The open decisions, in the order in which they were made."""
    kinds = {kind.__name__: kind for kind in actor.core.effects}
    found: dict[OpenKey, Decision] = dict(frozen.emits)
    found.update(frozen.wakes)
    for name, raw in frozen.effects.items():
        of_kind: Any = list[tuple[OpenKey, kinds[name]]]  # type: ignore[valid-type] # made here
        found.update((key, Run(effect)) for key, effect in _decode(of_kind, raw))
    return dict(sorted(found.items()))


def state_of(fold: Any) -> dict[str, Any]:
    """{attribute: value} of what the class of a core, or of another fold, declares as its state."""
    return dict(zip(_declared(type(fold)), _state(fold), strict=True))


def _state(fold: Any) -> tuple[Any, ...]:
    return tuple(getattr(fold, name) for name in _declared(type(fold)))


def _declared(kind: type) -> dict[str, Any]:
    """{attribute: its type} of what a class declares as its state."""
    hints = get_type_hints(kind)
    return {name: hint for name, hint in hints.items() if ClassVar not in (hint, get_origin(hint))}


def _state_struct(kind: type) -> type[msgspec.Struct]:
    return msgspec.defstruct(kind.__name__, list(_declared(kind).items()), array_like=True)


def _array_values(value: Any) -> Any:
    """What the encoder does not know: arrays, and numbers taken out of one."""
    if isinstance(value, np.ndarray):
        # The layout is part of the value: sums over an axis are rounded in the order it gives.
        order: Literal["C", "F"]
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        return (value.dtype.str, order, value.shape, value.tobytes(order))
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a state may not hold a {type(value).__name__}")


def _array(kind: Any, values: Any) -> Any:
    if get_origin(kind) is not np.ndarray:
        raise TypeError(f"a state may not declare a {kind}")
    dtype, order, shape, content = values
    # A copy, since what is read from bytes cannot be written to.
    return np.frombuffer(content, dtype).reshape(shape, order=order).copy(order)


_encode = msgspec.msgpack.Encoder(enc_hook=_array_values).encode


def _decode(kind: Any, content: bytes | msgspec.Raw) -> Any:
    return msgspec.msgpack.decode(content, type=kind, dec_hook=_array)

"""An event with its place in the log.

A record's identity is ``(actor, cause, index, n)``: the ``n``-th result of the ``index``-th
decision its writer made when it handled record ``cause``. It is the same whoever computes it and
however often, which makes an append idempotent, a restart harmless and causality readable.

``digest`` chains over the records of one writer, so that one altered or dropped is found even
when no core would have noticed.
"""

from __future__ import annotations

import hashlib

import msgspec

from schemas.events import AnyEvent, UnknownEvent

#: The newest schema this release reads. A record carries the oldest schema that reads it rightly.
SCHEMA = 1

RecordId = tuple[str, int, int, int]


class NewerSchemaError(Exception):
    """The log was written by a release this one must not guess about."""


class MalformedRecordError(Exception):
    """The bytes are no record."""


class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One line of the log."""

    #: 1, 2, 3 ... without gaps: the total order.
    seq: int
    #: The log's stamp, seconds; the only clock a core ever sees.
    at: float
    schema: int = 1
    actor: str
    #: Which start of the writer this is; 0 for clients, which have none.
    epoch: int = 0
    cause: int = 0
    index: int = 0
    n: int = 0
    digest: str
    event: AnyEvent

    @property
    def record_id(self) -> RecordId:
        """Who wrote it, about what: stable over restarts (holds no epoch and no sequence)."""
        return (self.actor, self.cause, self.index, self.n)


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A record before the log has given it a place."""

    actor: str
    epoch: int
    cause: int
    index: int
    n: int
    event: AnyEvent
    #: Chained digest of the writer's records up to and including this one.
    digest: str

    @property
    def record_id(self) -> RecordId:
        """The identity the record will have."""
        return (self.actor, self.cause, self.index, self.n)


class _RawRecord(msgspec.Struct, kw_only=True):
    """A record whose event this release may be unable to read."""

    seq: int
    at: float
    schema: int = 1
    actor: str
    epoch: int = 0
    cause: int = 0
    index: int = 0
    n: int = 0
    digest: str
    event: msgspec.Raw


class _Kind(msgspec.Struct):
    kind: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode
_decode_raw = msgspec.json.Decoder(_RawRecord).decode
_decode_kind = msgspec.json.Decoder(_Kind).decode
_known_kinds = frozenset(kind.__name__ for kind in AnyEvent.__args__)


def chain(previous: str, content: bytes) -> str:
    """The next digest of a chain: 16 hex digits over the previous one and ``content``."""
    return hashlib.blake2b(previous.encode() + content, digest_size=8).hexdigest()


def digest_of(previous: str, record: Record | Draft) -> str:
    """Digest of a writer's record, given the digest of the writer's record before it."""
    identity = (record.actor, record.epoch, record.cause, record.index, record.n, record.event)
    return chain(previous, _encode(identity))


def encode(record: Record) -> bytes:
    """The record as one line of JSON, without the line end."""
    return _encode(record)


def decode(line: bytes | str) -> Record:
    """Read one record written by this or any earlier release.

    Raises
    ------
    NewerSchemaError
        The record says that only a newer release reads it rightly.
    MalformedRecordError
        The line is no record; the message says where it fails.
    """
    try:
        record = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _decode_unknown(line, error)
    if record.schema > SCHEMA:
        raise NewerSchemaError(_newer(record.schema, record.seq))
    return record


def _decode_unknown(line: bytes | str, error: Exception) -> Record:
    """A record whose kind is unknown is a record all the same; anything else is malformed."""
    try:
        raw = _decode_raw(line)
        kind = _decode_kind(raw.event).kind
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise MalformedRecordError(str(error)) from None
    if raw.schema > SCHEMA:
        raise NewerSchemaError(_newer(raw.schema, raw.seq))
    if kind in _known_kinds:
        raise MalformedRecordError(str(error))
    return Record(
        seq=raw.seq,
        at=raw.at,
        schema=raw.schema,
        actor=raw.actor,
        epoch=raw.epoch,
        cause=raw.cause,
        index=raw.index,
        n=raw.n,
        digest=raw.digest,
        event=UnknownEvent(unknown_kind=kind),
    )


def _newer(schema: int, seq: int) -> str:
    return (
        f"record {seq} needs a reader of schema {schema}; this release reads up to {SCHEMA}: "
        "use the release that wrote the log, or a newer one"
    )

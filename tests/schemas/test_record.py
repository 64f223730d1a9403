"""Records: what is written is read back, today's by tomorrow's readers and the other way round."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.events import AnyEvent, CancelRequested, JobSubmitted, UnknownEvent
from schemas.record import (
    SCHEMA,
    Draft,
    MalformedRecordError,
    NewerSchemaError,
    Record,
    chain,
    decode,
    digest_of,
    encode,
)

KINDS: tuple[type[msgspec.Struct], ...] = get_args(AnyEvent)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=5)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field of this type, structs and all."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        fields = {field.encode_name: values(field.type) for field in msgspec.structs.fields(hint)}
        return st.fixed_dictionaries(fields).map(lambda chosen: hint(**chosen))
    if hint is float:
        return FLOATS
    if hint is str:
        return TEXTS
    arguments = get_args(hint)
    if getattr(hint, "__origin__", None) is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(values(arguments[0]), max_size=2).map(tuple)
        return st.tuples(*map(values, arguments))
    if getattr(hint, "__origin__", None) is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if arguments:
        return st.one_of(*map(values, arguments))
    return st.from_type(hint).filter(lambda value: not isinstance(value, int) or value < 2**63)


def records(event: st.SearchStrategy[Any]) -> st.SearchStrategy[Record]:
    """Records of such events."""
    counts = st.integers(0, 2**53)
    return st.builds(
        Record,
        seq=counts,
        at=FLOATS,
        actor=TEXTS,
        epoch=counts,
        cause=counts,
        index=counts,
        n=counts,
        digest=TEXTS,
        event=event,
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(data=st.data())
def test_every_kind_reads_back(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    """A record of any kind, fields at any values, is one line that reads back equal."""
    record = data.draw(records(values(kind)))
    line = encode(record)
    assert b"\n" not in line
    assert decode(line) == record
    assert encode(decode(line)) == line


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(data=st.data())
def test_fields_of_later_releases_are_ignored(
    kind: type[msgspec.Struct], data: st.DataObject
) -> None:
    """A field added to a record or its event, by a release to come, changes nothing here."""
    record = data.draw(records(values(kind)))
    raw = json.loads(encode(record))
    raw["later"] = raw["event"]["later"] = [{"a": None}]
    assert decode(json.dumps(raw)) == record


def line(event: object, **changes: object) -> str:
    """A record's line with any event, in any shape."""
    record = {"seq": 7, "at": 1.5, "actor": "policy", "epoch": 2, "digest": "d", "event": event}
    return json.dumps(record | changes)


def test_a_kind_of_a_later_release_is_unknown_not_malformed() -> None:
    """The record keeps its place and its writer, and says which kind it could not read."""
    record = decode(line({"kind": "RackCaughtFire", "rack": {"id": "r1"}}, cause=3, index=1, n=2))
    assert record == Record(
        seq=7,
        at=1.5,
        actor="policy",
        epoch=2,
        cause=3,
        index=1,
        n=2,
        digest="d",
        event=UnknownEvent(unknown_kind="RackCaughtFire"),
    )


@pytest.mark.parametrize("event", [{"kind": "TimerFired", "timer": "t", "due_s": 1}, {"kind": "X"}])
def test_a_newer_schema_is_refused(event: object) -> None:
    """Whether its kind is known or not; the error names both versions and the record."""
    assert decode(line(event, schema=SCHEMA)).seq == 7
    message = f"record 7 needs a reader of schema {SCHEMA + 1}; this release reads up to {SCHEMA}"
    with pytest.raises(NewerSchemaError, match=message):
        decode(line(event, schema=SCHEMA + 1))


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "truncated"),
        ("{", "truncated"),
        ("[]", "object"),
        (line({"kind": "TimerFired", "timer": "t"}), "due_s"),
        (line({"kind": "TimerFired", "timer": 1, "due_s": 1.0}), r"\$.event.timer"),
        (line({"kind": "TimerFired", "timer": "t", "due_s": None}), r"\$.event.due_s"),
        (line({"kind": "TimerFired", "timer": "t", "due_s": float("nan")}), "malformed"),
        (line({"kind": "TimerFired", "timer": "t", "due_s": float("inf")}), "malformed"),
        (line({"timer": "t"}), "kind"),
        (line({"kind": "X"}, at=None), r"\$.at"),
        (line({"kind": "X"}, seq=1.5), r"\$.seq"),
        (b"\xff", "malformed"),
        (line({"kind": "?"}).encode().replace(b"?", b"\xff"), "UTF-8"),
    ],
)
def test_a_malformed_record_says_where(text: str | bytes, where: str) -> None:
    """Cut, mistyped, NaN, infinite or no JSON at all: one typed error, with the place in it."""
    with pytest.raises(MalformedRecordError, match=where):
        decode(text)


@given(digests=st.lists(TEXTS, min_size=2, max_size=2, unique=True), content=st.binary())
def test_a_chain_depends_on_all_before(digests: list[str], content: bytes) -> None:
    """Other digests before or other bytes now give another digest, of 16 hex digits."""
    first, second = (chain(digest, content) for digest in digests)
    assert first != second
    assert chain(digests[0], content + b"x") != first
    assert chain(digests[0], content) == first
    assert len(first) == 16
    assert int(first, 16) >= 0


@given(data=st.data())
def test_a_digest_covers_all_a_writer_decides(data: st.DataObject) -> None:
    """Every field of a draft but the digest counts; place and stamp, the log's own, do not."""
    counts = st.integers(0, 9)
    drafts = st.builds(
        Draft,
        actor=st.sampled_from("ab"),
        epoch=counts,
        cause=counts,
        index=counts,
        n=counts,
        event=st.builds(CancelRequested, job_id=st.sampled_from("ab")),
        digest=TEXTS,
    )
    one, other = data.draw(drafts), data.draw(drafts)
    alike = one.record_id == other.record_id and one.epoch == other.epoch
    same = alike and one.event == other.event
    assert (digest_of("p", one) == digest_of("p", other)) == same
    place = st.builds(
        Record,
        seq=counts,
        at=FLOATS,
        actor=st.just(one.actor),
        epoch=st.just(one.epoch),
        cause=st.just(one.cause),
        index=st.just(one.index),
        n=st.just(one.n),
        digest=TEXTS,
        event=st.just(one.event),
    )
    record = data.draw(place)
    assert record.record_id == one.record_id
    assert digest_of("p", record) == digest_of("p", one)


def test_a_field_at_its_default_is_not_written() -> None:
    """A log stays small: what is not written is at the default that the format fixes."""
    record = decode(line({"kind": "JobSubmitted", "job": {"job_id": "j", "job_type": "LSTM"}}))
    assert isinstance(record.event, JobSubmitted)
    assert (record.event.job.scale_factor, record.event.job.priority_weight) == (1, 1.0)
    assert json.loads(encode(record)) == json.loads(
        line({"kind": "JobSubmitted", "job": {"job_id": "j", "job_type": "LSTM"}})
    )

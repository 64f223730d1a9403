"""How a log lies in a stream: bytes, subjects and settings."""

from __future__ import annotations

import math
from typing import Any

import pytest

from schemas.domain import JobSpec
from schemas.events import (
    AllocationComputed,
    AnyEvent,
    JobSubmitted,
    LeaderElected,
    TimerFired,
    UnknownEvent,
    WorkerReturned,
)
from schemas.record import Draft, NewerSchemaError
from services.runtime import stream
from services.runtime.file_log import UnreadableRecordError
from services.runtime.log import place

ELECTED = LeaderElected(epoch=3, replica="a", behaviour=1)
RETURNED = WorkerReturned(worker_id="w", reporter="worker.rack1")
SUBMITTED = JobSubmitted(job=JobSpec(job_id="j", job_type="a name. with * > \n ü"))

WRITTEN: list[tuple[str, AnyEvent, str]] = [
    ("policy", TimerFired(timer="t", due_s=0.1), "gavel.lab.ev.policy.TimerFired"),
    ("policy", ELECTED, "gavel.lab.ev.policy.epoch"),
    ("worker.rack1", RETURNED, "gavel.lab.ev.worker.rack1.WorkerReturned"),
    ("worker.rack1", ELECTED, "gavel.lab.ev.worker.rack1.epoch"),
    ("client.bob-1", SUBMITTED, "gavel.lab.ev.client.bob-1.JobSubmitted"),
]


def draft(actor: str, event: AnyEvent) -> Draft:
    """A draft with nothing at its default."""
    return Draft(actor, 3, 17, 2, 1, event, "0123456789abcdef")


@pytest.mark.parametrize(("actor", "event", "subject"), WRITTEN)
def test_a_record_is_read_back_as_it_was(actor: str, event: AnyEvent, subject: str) -> None:
    """Its subject names writer and kind, its place and stamp are the stream's own."""
    asked = draft(actor, event)
    data = stream.to_bytes(asked)
    assert stream.subject("lab", actor, event) == subject
    assert b'"seq"' not in data
    at = 1796104821.1495044
    assert stream.from_bytes("lab", subject, data, 42, at) == place(asked, 42, at)


@pytest.mark.parametrize(
    ("subject", "data"),
    [
        ("gavel.lab.ev.policy.TimerFired", b""),
        ("gavel.lab.ev.policy.TimerFired", b"garbage"),
        ("gavel.lab.ev.policy.TimerFired", b'{"seq":42}'),
        (
            "gavel.lab.ev.worker.rack2.WorkerReturned",
            stream.to_bytes(draft("worker.rack1", RETURNED)),
        ),
        ("gavel.lab.ev.policy.AllocationComputed", stream.to_bytes(draft("policy", ELECTED))),
        ("gavel.other.ev.policy.epoch", stream.to_bytes(draft("policy", ELECTED))),
        (
            "gavel.lab.ev.policy.epoch",
            stream.to_bytes(draft("policy", ELECTED))[:-1] + b',"seq":43}',
        ),
        ("gavel.lab.ev.policy.epoch", stream.to_bytes(draft("policy", ELECTED))[:-1] + b',"at":9}'),
        (
            "gavel.lab.ev.a b.epoch",
            stream.to_bytes(draft("policy", ELECTED)).replace(b"policy", b"a b"),
        ),
    ],
)
def test_what_is_no_record_of_the_subject_s_owner_is_none(subject: str, data: bytes) -> None:
    """Malformed, written under another's name or kind, or claiming its own place: not believed."""
    assert stream.from_bytes("lab", subject, data, 42, 1.0) is None


def test_a_kind_of_a_newer_release_keeps_its_place() -> None:
    """It is read as unknown; a record whose readers must know it stops the reader."""
    data = stream.to_bytes(draft("policy", ELECTED)).replace(b"LeaderElected", b"HatWorn")
    record = stream.from_bytes("lab", "gavel.lab.ev.policy.HatWorn", data, 42, 1.0)
    assert record is not None
    assert record.event == UnknownEvent(unknown_kind="HatWorn")
    newer = data.replace(b'{"actor"', b'{"schema":99,"actor"')
    with pytest.raises(NewerSchemaError, match="record 42 needs a reader of schema 99"):
        stream.from_bytes("lab", "gavel.lab.ev.policy.HatWorn", newer, 42, 1.0)


@pytest.mark.parametrize("number", [math.nan, math.inf, 1])
def test_what_would_not_be_read_back_is_not_stored(number: float) -> None:
    """A number that JSON lacks, or reads back as another type, is an error at the writer.

    The whole number 1 reads back as 1.0, which is equal, but not what the writer's digest is over.
    """
    event = AllocationComputed(policy="las", rows=(), objective=number)
    with pytest.raises(UnreadableRecordError, match="AllocationComputed of policy"):
        stream.to_bytes(draft("policy", event))


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "a\n", "ü", "x" * 65, "a\0"])
def test_a_name_that_means_something_else_in_a_subject_is_refused(name: str) -> None:
    """Of a cluster as of a writer; the name is in the message."""
    with pytest.raises(stream.UnsafeNameError):
        stream.stream_name(name)
    with pytest.raises(stream.UnsafeNameError):
        stream.owned_by("lab", f"client.{name}." if "." in name else f"client.{name}")


def test_settings_as_asked_for_are_fit() -> None:
    """More room and more replicas than asked for are an operator's good right."""
    asked = stream.settings("lab", 1 << 20, 1)
    stream.check_settings(asked, asked | {"max_bytes": 1 << 40, "num_replicas": 3})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"retention": "workqueue"}, "retention is 'workqueue', must be 'limits'"),
        ({"max_age": 10**9}, "max_age is 1000000000, must be 0"),
        ({"discard": "old"}, "discard is 'old', must be 'new'"),
        ({"deny_delete": False, "deny_purge": None}, "deny_delete is False.*deny_purge is None"),
        ({"allow_direct": True}, "allow_direct is True, must be False"),
        ({"subjects": ["gavel.>"]}, r"subjects is \['gavel.>'\]"),
        ({"storage": "memory"}, "storage is 'memory'"),
        ({"metadata": {"gavel.layout": "2"}}, "has layout 2, and this release reads layout 1"),
        ({"metadata": None}, "no layout of ours"),
    ],
)
def test_settings_that_lose_records_are_unfit(change: dict[str, Any], message: str) -> None:
    """Each wrong one is named with its value and the right one."""
    asked = stream.settings("lab", 1 << 20, 1)
    with pytest.raises(stream.UnfitStreamError, match=message):
        stream.check_settings(asked, asked | change)


@pytest.mark.parametrize("state", [(2, 9, 8), (1, 9, 8), (10, 9, 0)])
def test_a_stream_without_its_beginning_is_unfit(state: tuple[int, int, int]) -> None:
    """A log holds every record from 1 on; the message has the figures."""
    first, last, held = state
    found = {"first_seq": first, "last_seq": last, "messages": held}
    with pytest.raises(stream.UnfitStreamError, match=f"{held} records, from {first} to {last}"):
        stream.check_state("GAVEL_lab", found)

"""How a log lies in a JetStream stream: its settings, subjects and bytes. No input or output.

One stream is the log's total order. A record's sequence and stamp are the stream's own; what is
stored is the rest of the record's JSON, under a subject that names its writer and kind, so that a
server can be told who may publish what::

    gavel.<cluster>.ev.policy.AllocationComputed      gavel.<cluster>.ev.policy.epoch
    gavel.<cluster>.ev.worker.rack1.TaskStopped       gavel.<cluster>.ev.worker.rack1.epoch

A start of a service (``LeaderElected``) goes to ``epoch``: its newest record there is the fence
against which every other append of the service is checked by the server.
"""

from __future__ import annotations

from typing import Any

from schemas.events import AnyEvent, LeaderElected, UnknownEvent
from schemas.record import Draft, MalformedRecordError, Record, decode, encode
from schemas.subjects import is_safe_name
from services.runtime.file_log import UnreadableRecordError
from services.runtime.log import Gate, LogError, place

#: Version of this layout, kept with the stream. Another one is not read.
LAYOUT = "1"
_LAYOUT_KEY = "gavel.layout"

#: A retry within this time is recognised by the server itself.
DUPLICATE_WINDOW_S = 600
DEFAULT_MAX_BYTES = 4 << 30

#: Writer of what stands in for a stored message that is no record of its subject's owner.
NOBODY = "nobody"

_NS = 1_000_000_000
_STREAM_PREFIX = "GAVEL_"
#: What a record begins with when it has neither sequence nor stamp.
_UNPLACED = b'{"seq":0,"at":0.0,'


class UnsafeNameError(LogError):
    """A name cannot stand in a subject."""


class UnfitStreamError(LogError):
    """The stream is not one that a log can be kept in; the message names each setting."""


def stream_name(cluster: str) -> str:
    """The stream that holds a cluster's log.

    Raises
    ------
    UnsafeNameError
        The cluster's name cannot stand in a subject.
    """
    return f"{_STREAM_PREFIX}{_safe(cluster, 'cluster')}"


def cluster_of(name: str) -> str:
    """The cluster whose log a stream holds; empty if it is none of ours."""
    return name.removeprefix(_STREAM_PREFIX) if name.startswith(_STREAM_PREFIX) else ""


def prefix(cluster: str) -> str:
    """What all subjects of a cluster's log begin with."""
    return f"gavel.{_safe(cluster, 'cluster')}.ev"


def owned_by(cluster: str, actor: str) -> str:
    """What the subjects of one writer begin with.

    Raises
    ------
    UnsafeNameError
        The writer's name cannot stand in a subject.
    """
    for part in actor.split("."):
        _safe(part, f"part of writer {actor!r}")
    return f"{prefix(cluster)}.{actor}"


def fence(cluster: str, actor: str) -> str:
    """Where the starts of a service stand."""
    return f"{owned_by(cluster, actor)}.epoch"


def subject(cluster: str, actor: str, event: AnyEvent) -> str:
    """Where a record of this writer with this event stands."""
    if isinstance(event, LeaderElected):
        return fence(cluster, actor)
    kind = event.unknown_kind if isinstance(event, UnknownEvent) else type(event).__name__
    return f"{owned_by(cluster, actor)}.{kind}"


def to_bytes(draft: Draft) -> bytes:
    """What is stored of a draft.

    Raises
    ------
    UnreadableRecordError
        It would not be read back as it is: it has a NaN, say.
    """
    record = place(draft, 0, 0.0)
    try:
        content = encode(record)
        # Bytes and not values: a whole number where a fraction belongs is equal to what is read
        # back, but its writer's digest is not.
        if encode(decode(content)) != content:
            raise MalformedRecordError("a number is no finite one of its field's own type")
    except (MalformedRecordError, UnicodeEncodeError, OverflowError) as error:
        raise UnreadableRecordError(
            f"{type(draft.event).__name__} of {draft.actor} cannot be read back: {error}; "
            "every number must be finite and every text valid Unicode"
        ) from None
    return b"{" + content.removeprefix(_UNPLACED)


def headers(cluster: str, draft: Draft, last_start: int | None) -> dict[str, str]:
    """What the server checks before it stores a draft.

    Parameters
    ----------
    last_start : of a service, the sequence of its newest start (0: there is none), than which there
        must be no newer one; None: the writer has no starts
    """
    found = {"Nats-Msg-Id": ":".join(map(str, draft.record_id))}
    if last_start is not None:
        found["Nats-Expected-Last-Subject-Sequence"] = str(last_start)
        if not isinstance(draft.event, LeaderElected):
            found["Nats-Expected-Last-Subject-Sequence-Subject"] = fence(cluster, draft.actor)
    return found


def from_bytes(cluster: str, stored_at: str, data: bytes, seq: int, at: float) -> Record | None:
    """The record stored under a subject; None if it is none of the subject's owner.

    Raises
    ------
    NewerSchemaError
        Only a newer release reads it rightly.
    """
    try:
        record = decode(b'{"seq":%d,"at":%b,%b' % (seq, repr(at).encode(), data[1:]))
        if stored_at != subject(cluster, record.actor, record.event):
            return None
    except (MalformedRecordError, UnsafeNameError):
        return None
    return record if (record.seq, record.at) == (seq, at) else None


def stand_in(seq: int, at: float) -> Record:
    """Keeps the place of a message that is no record; every fold skips it, live and in replay."""
    event = UnknownEvent(unknown_kind="malformed")
    return Record(seq=seq, at=at, actor=NOBODY, digest="", event=event)


class Starts:
    """The starts of one writer, as they stand on its fence."""

    def __init__(self) -> None:
        #: Knows the writer's starts, and so which epoch is the newest.
        self.gate = Gate()
        #: Of the newest record on the fence: what the server compares.
        self.last_seq = 0
        self._epoch = 0

    def add(self, start: Record | Draft, seq: int) -> None:
        """Take in the next record of the fence; only a start of the next epoch counts as one."""
        self.last_seq = seq
        event = start.event
        if isinstance(event, LeaderElected) and start.epoch == event.epoch == self._epoch + 1:
            self._epoch += 1
            self.gate.add(start)


def settings(cluster: str, max_bytes: int, replicas: int) -> dict[str, Any]:
    """The stream to ask for."""
    return {
        "name": stream_name(cluster),
        "subjects": [f"{prefix(cluster)}.>"],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_bytes": max_bytes,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "max_consumers": -1,
        "num_replicas": replicas,
        "duplicate_window": DUPLICATE_WINDOW_S * _NS,
        "deny_delete": True,
        "deny_purge": True,
        # A reply subject is not checked by permissions, and so could be used to store bytes.
        "allow_direct": False,
        "allow_atomic": True,
        "metadata": {_LAYOUT_KEY: LAYOUT},
    }


#: What an operator may set otherwise than we would.
_FREE = ("max_bytes", "num_replicas", "metadata")


def check_settings(asked: dict[str, Any], echoed: dict[str, Any]) -> None:
    """Refuse a stream that would lose or reorder records, or holds something else.

    Raises
    ------
    UnfitStreamError
        It is of another layout, or a setting is not as asked.
    """
    name = asked["name"]
    layout = (echoed.get("metadata") or {}).get(_LAYOUT_KEY)
    if layout != LAYOUT:
        found = f"layout {layout}" if layout else "no layout of ours"
        raise UnfitStreamError(
            f"stream {name} has {found}, and this release reads layout {LAYOUT}: "
            "use the release that wrote it, or give this cluster another name"
        )
    # A setting at false or 0 may be left out of the echo.
    wrong = [
        f"{key} is {echoed.get(key)!r}, must be {value!r}"
        for key, value in asked.items()
        if key not in _FREE and (echoed.get(key) or 0) != (value or 0)
    ]
    if wrong:
        raise UnfitStreamError(f"stream {name} is not fit to hold a log: {'; '.join(wrong)}")


def check_state(name: str, state: dict[str, Any]) -> None:
    """Refuse a stream whose beginning is gone.

    Raises
    ------
    UnfitStreamError
        Its first record is not 1, or some are missing.
    """
    first, last, held = state["first_seq"], state["last_seq"], state["messages"]
    if last and (first != 1 or held != last):
        raise UnfitStreamError(
            f"stream {name} holds {held} records, from {first} to {last}; a log holds all from 1: "
            "restore it from an export"
        )


def _safe(name: str, what: str) -> str:
    if not is_safe_name(name):
        raise UnsafeNameError(
            f"{what}: {name!r} must be 1 to 64 letters, digits, '_' or '-', to stand in a subject"
        )
    return name

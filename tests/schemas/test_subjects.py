"""Who may write what: each kind of event has one writer, and nobody else is believed."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from schemas import events, subjects
from schemas.domain import TaskProgress
from schemas.events import AnyEvent, Event, LeaderElected, TaskStopped, TimerFired, UnknownEvent
from schemas.subjects import is_safe_name, may_write, role

ROLES = {
    value
    for name, value in vars(subjects).items()
    if name.isupper() and isinstance(value, str) and not name.startswith("_")
}
KINDS: set[type[Event]] = set(get_args(AnyEvent))


def writers(kind: type[Event]) -> set[str]:
    """Roles that may write a kind of event."""
    return {name for name in ROLES if kind in subjects._MAY_WRITE[name]}


def test_the_union_has_every_event_class() -> None:
    """A class added to ``events.py`` but not to ``AnyEvent`` would be unreadable."""
    declared = {
        value
        for value in vars(events).values()
        if isinstance(value, type) and issubclass(value, Event) and value is not Event
    }
    assert declared == KINDS


def test_a_kind_is_its_class_name() -> None:
    """The ``kind`` on the wire is the name to look for in ``events.py``."""
    for kind in KINDS:
        assert kind.__struct_config__.tag == kind.__name__
        assert kind.__struct_config__.tag_field == "kind"


@pytest.mark.parametrize("kind", get_args(AnyEvent))
def test_each_kind_has_one_writer(kind: type[Event]) -> None:
    """One role writes it; starts and timers are every service's own, unknown kinds nobody's."""
    if kind in {LeaderElected, TimerFired}:
        assert writers(kind) == set(subjects.SERVICES)
    elif kind is UnknownEvent:
        assert writers(kind) == set()
    else:
        assert len(writers(kind)) == 1


def test_all_fields_have_types_msgspec_reads() -> None:
    """Every event class makes a decoder: no field has a type that only Python understands."""
    for kind in KINDS:
        msgspec.json.Decoder(kind)


def test_a_worker_speaks_for_itself() -> None:
    """A report that names another worker service as its reporter is not believed."""
    task = TaskProgress("lease", "job", 1.0, 1.0, 1.0)
    stopped = TaskStopped(reporter="worker.rack1", task=task, reason="completed")
    assert may_write("worker.rack1", stopped)
    assert not may_write("worker.rack2", stopped)
    assert not may_write("mechanism", stopped)


@pytest.mark.parametrize("actor", ["", "root", "Policy", "policyx", ".policy", "client"])
def test_strangers_and_other_roles_are_not_believed(actor: str) -> None:
    """Only the exact role, with or without an instance behind a dot, counts."""
    failed = events.AllocationFailed(policy="las", reason="infeasible")
    assert not may_write(actor, failed)
    assert may_write("policy", failed)
    assert may_write("policy.b", failed)
    assert role("policy.b") == "policy"


@pytest.mark.parametrize("name", ["a", "Job-7_b", "0", "x" * 64])
def test_safe_names(name: str) -> None:
    """Letters, digits, dash and underscore, up to 64 of them."""
    assert is_safe_name(name)


@pytest.mark.parametrize(
    "name", ["", "x" * 65, "a.b", "a b", "a\n", "../a", "a/b", "*", ">", "ä", "a\0"]
)
def test_unsafe_names(name: str) -> None:
    """Nothing that means something in a subject, a path or a shell, and nothing empty."""
    assert not is_safe_name(name)

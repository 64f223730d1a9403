"""An actor is a fold of its log: what it believes, what it has still to do, what time it is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.decisions import Decision, Effect, Emit, Run, Wake
from schemas.domain import TaskProgress
from schemas.events import (
    AnyEvent,
    CancelRequested,
    Event,
    JobAdmitted,
    JobCancelled,
    LeaderElected,
    ProgressReported,
    TasksStarted,
    TaskStopped,
    TimerFired,
)
from schemas.record import Record
from services.runtime.actor import Actor, Writer
from services.runtime.log import MemoryLog
from services.worker.core import DetectWorkers, WorkerCore

NAME = "worker.a"


class Work(msgspec.Struct, frozen=True):
    """Runs a while: any number of tasks stop, then the round is over."""

    ends_with: ClassVar[tuple[type[Event], ...]] = (ProgressReported,)
    job_id: str


class Core:
    """Takes orders by job id: work on it, and start, wake or do nothing."""

    effects: ClassVar[tuple[type[Effect], ...]] = (Work,)

    def __init__(self) -> None:
        self.seen: list[tuple[AnyEvent, float]] = []

    @property
    def handles(self) -> Collection[type[Event]]:
        """Cancellations are its orders."""
        return (CancelRequested, TimerFired, LeaderElected)

    def handle(self, event: AnyEvent, now: float) -> Sequence[Decision]:
        """Three decisions on each order."""
        self.seen.append((event, now))
        if not isinstance(event, CancelRequested):
            return ()
        return (
            Emit(TasksStarted(reporter=NAME, lease_ids=(event.job_id,))),
            Wake(f"timer/{event.job_id}", now + 10.0),
            Run(Work(event.job_id)),
        )


def record(
    seq: int,
    event: AnyEvent,
    *,
    at: float | None = None,
    actor: str = NAME,
    epoch: int = 0,
    cause: int = 0,
    index: int = 0,
    n: int = 0,
) -> Record:
    """A record, stamped with its place if no time is given."""
    return Record(
        seq=seq,
        at=float(seq) if at is None else at,
        actor=actor,
        epoch=epoch,
        cause=cause,
        index=index,
        n=n,
        digest=f"d{seq}",
        event=event,
    )


def order(seq: int, job_id: str = "j", at: float | None = None) -> Record:
    """A client's order; clients have no epochs."""
    return record(seq, CancelRequested(job_id=job_id), at=at, actor="client.c")


def elected(seq: int, epoch: int, **settled: object) -> Record:
    """A start of this actor."""
    event = msgspec.convert(
        {"kind": "LeaderElected", "epoch": epoch, "replica": "r", "behaviour": 1, **settled},
        LeaderElected,
    )
    return record(seq, event, epoch=epoch)


def folded(*records: Record) -> Actor:
    """The actor of this log."""
    actor = Actor(NAME, Core())
    for each in records:
        actor.fold(each)
    return actor


def seen(actor: Actor) -> list[tuple[AnyEvent, float]]:
    """What its core was told, and when."""
    assert isinstance(actor.core, Core)
    return actor.core.seen


STARTED = TasksStarted(reporter=NAME, lease_ids=("j",))
STOPPED = TaskStopped(reporter=NAME, task=TaskProgress("l", "j", 1.0, 1.0, 1.0), reason="completed")
OVER = ProgressReported(reporter=NAME, round_id=1, rows=())


# --- what is open --------------------------------------------------------------------------------


def test_decisions_are_open_until_their_own_record() -> None:
    """Three decisions on record 2; the records of the first two close those two."""
    fired = TimerFired(timer="timer/j", due_s=12.0)
    history = [elected(1, 1), order(2)]
    assert list(folded(*history).open) == [(2, 0), (2, 1), (2, 2)]
    history += [record(3, STARTED, epoch=1, cause=2, index=0)]
    assert list(folded(*history).open) == [(2, 1), (2, 2)]
    history += [record(4, fired, epoch=1, cause=2, index=1)]
    assert folded(*history).open == {(2, 2): Run(Work("j"))}


def test_what_each_start_asks_for_anew_is_open_once() -> None:
    """However often an actor starts, and though the effect never comes to an end."""
    core = WorkerCore(NAME)
    actor = Actor(NAME, core)
    for epoch in range(1, 4):
        actor.fold(elected(epoch, epoch))
    assert actor.open == {(3, 0): Run(DetectWorkers(NAME, ()))}


def test_an_effect_is_open_until_the_result_that_ends_it() -> None:
    """Results before the last are remembered by number, so that they are not appended twice."""
    actor = folded(elected(1, 1), order(2), record(3, STOPPED, epoch=1, cause=2, index=2, n=7))
    assert (2, 2) in actor.open
    assert [actor.has_result(2, 2, n) for n in (6, 7)] == [False, True]
    actor.fold(record(4, OVER, epoch=1, cause=2, index=2, n=9))
    assert (2, 2) not in actor.open
    assert not actor.has_result(2, 2, 7)


def test_only_own_records_close_what_is_open() -> None:
    """Another worker service's record about the same cause and index is another decision's."""
    theirs = TasksStarted(reporter="worker.b", lease_ids=("j",))
    actor = folded(elected(1, 1), order(2), record(3, theirs, actor="worker.b", cause=2, index=0))
    assert list(actor.open) == [(2, 0), (2, 1), (2, 2)]


def test_what_an_election_settles_is_not_done_but_for_what_it_lists() -> None:
    """Up to record ``settled`` only the listed decisions stay open; later ones all do."""
    actor = folded(
        elected(1, 1),
        order(2),
        order(3),
        order(4),
        elected(5, 2, settled=3, still_open=[(2, 1), (3, 2)]),
    )
    assert list(actor.open) == [(2, 1), (3, 2), (4, 0), (4, 1), (4, 2)]


def test_a_start_that_settles_nothing_leaves_all_open() -> None:
    """After a crash, whatever has no record is still to be carried out."""
    assert list(folded(elected(1, 1), order(2), elected(3, 2)).open) == [(2, 0), (2, 1), (2, 2)]


@given(data=st.data())
def test_an_actor_is_the_fold_of_its_log_wherever_it_is_cut(data: st.DataObject) -> None:
    """Each open decision was made and has no record: so it is after every prefix of a log."""
    records = [elected(1, 1)]
    actor = folded(*records)
    made: set[tuple[int, int]] = set()
    for seq in range(2, data.draw(st.integers(3, 15), label="length")):
        close_one: bool = data.draw(st.booleans(), label="close one")
        if made and close_one:
            cause, index = data.draw(st.sampled_from(sorted(made)), label="which")
            made.discard((cause, index))
            event = (STARTED, TimerFired(timer="t", due_s=0.0), OVER)[index]
            records.append(record(seq, event, epoch=1, cause=cause, index=index))
        else:
            records.append(order(seq))
            made |= {(seq, index) for index in range(3)}
        actor.fold(records[-1])
        assert set(actor.open) == made
    again = folded(*records)
    assert (again.open, again.now, seen(again)) == (actor.open, actor.now, seen(actor))


# --- what is believed ----------------------------------------------------------------------------


def test_records_of_a_stale_epoch_are_skipped_and_counted() -> None:
    """After the second start, an append of the first one changes nothing: no close, no digest."""
    stale = record(4, STARTED, epoch=1, cause=2, index=0)
    actor = folded(elected(1, 1), order(2), elected(3, 2), stale)
    assert actor.skipped == 1
    assert (2, 0) in actor.open
    assert actor.digest == "d3"


@pytest.mark.parametrize(
    ("actor_name", "event"),
    [
        ("mechanism", CancelRequested(job_id="j")),
        ("stranger", CancelRequested(job_id="j")),
        ("client.c", LeaderElected(epoch=1, replica="r", behaviour=1)),
    ],
)
def test_records_of_writers_who_may_not_write_them_are_skipped_and_counted(
    actor_name: str, event: AnyEvent
) -> None:
    """Nothing is decided on a record from the wrong hand."""
    actor = folded(elected(1, 1), record(2, event, actor=actor_name))
    assert (actor.skipped, actor.open) == (1, {})


def test_a_worker_service_cannot_speak_for_another() -> None:
    """Its reports name itself, or are not believed."""
    forged = TasksStarted(reporter="worker.b", lease_ids=("j",))
    actor = folded(elected(1, 1), order(2), record(3, forged, epoch=1, cause=2, index=0))
    assert actor.skipped == 1
    assert (2, 0) in actor.open


@pytest.mark.parametrize(("of_event", "of_record"), [(1, 1), (3, 3), (2, 1), (1, 2)], ids=str)
def test_an_election_takes_the_next_epoch_or_is_none(of_event: int, of_record: int) -> None:
    """Repeated, skipping, or with a record of another epoch: the epoch stays what it was."""
    event = LeaderElected(epoch=of_event, replica="r", behaviour=1)
    actor = folded(elected(1, 1), record(2, event, epoch=of_record))
    assert (actor.skipped, actor.epoch) == (1, 1)


def test_other_actors_timers_and_elections_are_nobodys_business() -> None:
    """They are no news to the core, and no offence either; epochs are taken note of."""
    theirs = LeaderElected(epoch=1, replica="r", behaviour=1)
    fired = TimerFired(timer="t", due_s=99.0)
    actor = folded(
        record(1, theirs, actor="policy", epoch=1), record(2, fired, actor="policy", epoch=1)
    )
    assert (seen(actor), actor.skipped, actor.now) == ([], 0, 2.0)
    assert actor.epochs == {"policy": 1}


def test_kinds_the_core_does_not_take_do_not_reach_it() -> None:
    """But their time does."""
    event = JobAdmitted(job_id="j")
    actor = folded(elected(1, 1), record(2, event, at=50.0, actor="mechanism"))
    assert [type(e) for e, _ in seen(actor)] == [LeaderElected]
    assert actor.now == 50.0


# --- what time it is -----------------------------------------------------------------------------


def test_time_never_goes_back() -> None:
    """A record stamped earlier than the one before it happens at the time of that one."""
    actor = folded(order(1, "a", at=100.0), order(2, "b", at=40.0), order(3, "c", at=101.0))
    assert [now for _, now in seen(actor)] == [100.0, 100.0, 101.0]


def test_a_timer_happens_when_it_was_due_if_it_was_stamped_before() -> None:
    """A stamp a little early is a clock's doing; a stamp that is late counts."""
    early, late = TimerFired(timer="a", due_s=50.0), TimerFired(timer="b", due_s=60.0)
    actor = folded(
        elected(1, 1), record(2, early, at=49.9, epoch=1), record(3, late, at=65.0, epoch=1)
    )
    assert [now for _, now in seen(actor)] == [1.0, 50.0, 65.0]


def test_records_are_folded_in_order_each_once() -> None:
    """Anything else is our bug."""
    actor = folded(order(5))
    with pytest.raises(AssertionError, match="in order"):
        actor.fold(order(5))


# --- starting and writing ------------------------------------------------------------------------


def test_a_start_is_appended_with_the_next_epoch_and_chains_to_the_last_record() -> None:
    """Election after election, the log takes each, and the digests form one chain."""
    log = MemoryLog()
    for epoch in (1, 2, 3):
        actor = folded(*log.read())
        written = log.append(actor.elect("r", behaviour=1), at=float(epoch))
        assert written is not None
        writer = Writer(NAME, epoch, written.digest)
        appended = log.append(writer.draft(written.seq, 0, 0, STARTED), at=float(epoch))
        assert appended is not None
        writer.accepted(appended)
        assert writer.accepted_count == 1
    assert [(r.epoch, type(r.event).__name__) for r in log.read()] == [
        (epoch, kind) for epoch in (1, 2, 3) for kind in ("LeaderElected", "TasksStarted")
    ]
    final = folded(*log.read())
    assert (final.epoch, final.skipped) == (3, 0)


def test_a_draft_that_was_not_accepted_does_not_move_the_chain() -> None:
    """The next draft chains to the last record the log has taken."""
    writer = Writer(NAME, 1, "start")
    first = writer.draft(1, 0, 0, JobCancelled(job_id="j"))
    assert writer.draft(1, 0, 0, JobCancelled(job_id="j")) == first
    assert writer.draft(1, 0, 0, JobCancelled(job_id="k")).digest != first.digest

"""What every log keeps to, whatever it keeps its records in. A new one joins ``LOGS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.domain import JobSpec
from schemas.events import AnyEvent, CancelRequested, JobSubmitted, LeaderElected, TimerFired
from schemas.record import Draft, Record, digest_of
from schemas.subjects import SERVICES, role
from services.runtime.file_log import FileLog
from services.runtime.log import (
    IdConflictError,
    Log,
    LogClosedError,
    MemoryLog,
    StaleEpochError,
)
from tests.live.servers import BlockingLog

#: Each makes an empty log, in the folder if it needs one.
LOGS: dict[str, Callable[[Path], Log]] = {
    "memory": lambda _: MemoryLog(),
    "file": lambda folder: FileLog(folder / "log.jsonl", flush_every=3),
    "compressed file": lambda folder: FileLog(folder / "log.jsonl.zst", flush_every=3),
    "jetstream": lambda _: BlockingLog(),
}


@pytest.fixture(params=list(LOGS.values()), ids=list(LOGS))
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """One log of each sort, empty."""
    with closing(request.param(tmp_path)) as log:
        yield log


def draft(actor: str, epoch: int, index: int, event: AnyEvent, cause: int = 0) -> Draft:
    """A draft of a writer that has written nothing before."""
    bare = Draft(actor, epoch, cause, index, 0, event, "")
    return Draft(actor, epoch, cause, index, 0, event, digest_of("", bare))


def submitted(index: int, job_type: str = "LSTM") -> Draft:
    """A client's draft."""
    event = JobSubmitted(job=JobSpec(job_id=f"job-{index}", job_type=job_type))
    return draft("client.alice", 0, index, event)


def elected(epoch: int, index: int = 0, record_epoch: int | None = None) -> Draft:
    """A start of the policy service."""
    event = LeaderElected(epoch=epoch, replica="a", behaviour=1)
    return draft("policy", epoch if record_epoch is None else record_epoch, index, event)


def fired(epoch: int, index: int) -> Draft:
    """A record of the policy service."""
    return draft("policy", epoch, index, TimerFired(timer=f"timer/{index}", due_s=1.0), cause=1)


def test_an_append_gives_the_next_sequence(log: Log) -> None:
    """Sequences run 1, 2, 3; a record is its draft, placed and stamped.

    With the stamp asked for, unless the log has a clock of its own.
    """
    assert log.last_seq == 0
    assert list(log.read()) == []
    for seq in (1, 2, 3, 4):
        given_draft = submitted(seq)
        record = log.append(given_draft, at=seq / 2)
        assert record is not None
        assert record == Record(
            seq=seq,
            at=record.at if isinstance(log, BlockingLog) else seq / 2,
            actor="client.alice",
            index=seq,
            digest=given_draft.digest,
            event=given_draft.event,
        )
        assert log.last_seq == seq
    assert [record.seq for record in log.read()] == [1, 2, 3, 4]


def test_an_append_is_idempotent(log: Log) -> None:
    """The same record again is no record, even from a start that has been superseded since."""
    log.append(elected(1), at=1.0)
    log.append(fired(1, index=5), at=2.0)
    log.append(elected(2, index=1), at=3.0)
    before = list(log.read())
    assert log.append(fired(1, index=5), at=9.0) is None
    assert log.append(elected(1), at=9.0) is None
    assert list(log.read()) == before


def test_an_id_stands_for_one_content(log: Log) -> None:
    """The same id with other bytes is an error that names the id; the log stays as it was."""
    log.append(submitted(1, "LSTM"), at=1.0)
    before = list(log.read())
    with pytest.raises(IdConflictError, match=r"client\.alice:0:1:0"):
        log.append(submitted(1, "A3C"), at=2.0)
    assert list(log.read()) == before
    assert log.append(submitted(2), at=3.0) is not None


def test_a_superseded_start_is_refused(log: Log) -> None:
    """Once a service has started anew, appends of the start before fail, told both epochs."""
    log.append(elected(1), at=1.0)
    log.append(elected(2, index=1), at=2.0)
    with pytest.raises(StaleEpochError, match="epoch 1, but the newest epoch of policy is 2"):
        log.append(fired(1, index=5), at=3.0)
    assert log.last_seq == 2
    assert log.append(fired(2, index=5), at=4.0) is not None


def test_a_superseded_start_is_not_accused_of_a_conflict(log: Log) -> None:
    """That its successor has taken the record's id first is no error in the writer."""
    log.append(elected(1), at=1.0)
    log.append(elected(2, index=1), at=2.0)
    log.append(fired(2, index=5), at=3.0)
    with pytest.raises(StaleEpochError):
        log.append(fired(1, index=5), at=4.0)


@pytest.mark.parametrize(("epoch", "record_epoch"), [(0, 0), (1, 1), (3, 3), (2, 1), (1, 2)])
def test_a_start_takes_exactly_the_next_epoch(log: Log, epoch: int, record_epoch: int) -> None:
    """After epoch 1 only a record of epoch 2 that elects epoch 2 starts the service."""
    log.append(elected(1), at=1.0)
    with pytest.raises(StaleEpochError, match="must be 2"):
        log.append(elected(epoch, index=7, record_epoch=record_epoch), at=2.0)
    assert log.last_seq == 1


def test_epochs_are_each_service_s_own(log: Log) -> None:
    """A start of one service supersedes no other; clients are not fenced at all."""
    log.append(elected(1), at=1.0)
    timer = TimerFired(timer="round/1", due_s=1.0)
    assert log.append(draft("mechanism", 0, 0, timer), at=2.0) is not None
    assert log.append(draft("client.bob", 0, 0, CancelRequested(job_id="j")), at=3.0) is not None
    with pytest.raises(StaleEpochError):
        log.append(draft("mechanism", 1, 1, timer), at=4.0)


def test_a_read_ends_where_the_log_ended_when_asked(log: Log) -> None:
    """Records appended after the asking are not read, though the reading comes later still."""
    for index in range(5):
        log.append(submitted(index), at=1.0)
    reading = log.read(after=2)
    for index in range(5, 9):
        log.append(submitted(index), at=1.0)
    assert [record.seq for record in reading] == [3, 4, 5]
    assert list(log.read(after=9)) == []
    assert list(log.read(after=99)) == []


def test_a_closed_log_is_read_but_not_written(log: Log) -> None:
    """Closing, once or twice, keeps every record and refuses new ones."""
    log.append(submitted(1), at=1.0)
    log.close()
    log.close()
    with pytest.raises(LogClosedError):
        log.append(submitted(2), at=2.0)
    assert [record.seq for record in log.read()] == [1]


def expected(records: list[Record], asked: Draft) -> type[Exception] | str:
    """What the port's rules say of an append, worked out from the records alone."""
    same_id = [record for record in records if record.record_id == asked.record_id]
    if any(record.digest == asked.digest for record in same_id):
        return "known"
    starts = [r for r in records if r.actor == asked.actor and isinstance(r.event, LeaderElected)]
    newest = starts[-1].epoch if starts else 0
    if role(asked.actor) in SERVICES:
        if isinstance(asked.event, LeaderElected):
            if not asked.epoch == asked.event.epoch == newest + 1:
                return StaleEpochError
        elif asked.epoch != newest:
            return StaleEpochError
    return IdConflictError if same_id else "appended"


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    """Few actors, epochs, ids and contents, so that they meet often."""
    actor = draw(st.sampled_from(["policy", "worker.a", "worker.b", "client.a", "operator"]))
    epoch = draw(st.integers(0, 3))
    event: AnyEvent
    if draw(st.booleans()):
        event = LeaderElected(epoch=draw(st.integers(1, 3)), replica="a", behaviour=1)
    else:
        event = CancelRequested(job_id=draw(st.sampled_from("ab")))
    return draft(actor, epoch, draw(st.integers(0, 3)), event)


@pytest.mark.parametrize("make", LOGS.values(), ids=LOGS)
@given(asked=st.lists(drafts(), max_size=40))
def test_all_logs_admit_alike(make: Callable[[Path], Log], asked: list[Draft]) -> None:
    """Whatever is appended in whatever order, the log does what the port's rules say."""
    with TemporaryDirectory() as folder, closing(make(Path(folder))) as log:
        records: list[Record] = []
        for one in asked:
            outcome = expected(records, one)
            if isinstance(outcome, str):
                record = log.append(one, at=float(len(records)))
                assert (record is None) == (outcome == "known")
                records += [record] if record is not None else []
            else:
                with pytest.raises(outcome):
                    log.append(one, at=0.0)
        assert list(log.read()) == records
        assert [record.seq for record in records] == list(range(1, len(records) + 1))

"""Time travel: wherever one goes in a log, and however, services know what folding comes to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay import index
from replay.index import Index
from replay.moment import Cores
from replay.options import InputError
from replay.travel import journey
from replay.travel.diff import Difference, diff
from replay.travel.facts import Known
from replay.travel.journey import Journey, LogFile, Records, Target, target_of
from replay.travel.known import known
from schemas.domain import Combination
from schemas.events import LeaderElected, RoundScheduled, TimerFired
from schemas.record import Record
from services.runtime.file_log import DamagedLogError, read_log
from tests.simulation.forge import redigest, write_file
from tests.simulation.scenario import contended, records_of

LIVE = Path(__file__).with_name("logs") / "live.jsonl"


@cache
def log(mode: str = "default", seed: int = 12) -> tuple[Record, ...]:
    """Pairs, gangs, cancelled jobs, workers that are lost and come back."""
    policy = "las:ss" if mode == "default" else "las"
    made = contended(seed, num_jobs=30, mode=mode, policy=policy)
    outages = tuple((60.3 + 70 * i, f"v100-{i}", 50.0) for i in range(2))
    simulation = dataclasses.replace(made, outages=outages).simulation()
    simulation.run()
    return tuple(records_of(simulation.driver))


def all_known(cores: Cores) -> dict[str, Known]:
    """What each service knows."""
    return {name: known(cores, name) for name in cores.actors}


@cache
def folded(seq: int) -> dict[str, Known]:
    """The same, by folding record after record."""
    cores = Cores(lambda: iter(log()))
    for record in log()[:seq]:
        cores.take(record)
    return all_known(cores)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log in a file, with an index of a snapshot every 40 records."""
    path = tmp_path_factory.mktemp("travel") / "run.jsonl"
    write_file(path, log())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "EVERY", 40)
        Index(path).write()
    return path


# --- going anywhere -------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(places=st.lists(st.integers(1, len(log())), min_size=1, max_size=4), steps=st.integers(0, 3))
def test_wherever_one_goes(indexed: Path, places: Sequence[int], steps: int) -> None:
    """Forwards, back and on, by index or not, services know the same as by folding."""
    for source in (LogFile(indexed), Records(log())):
        travelled = Journey(source)
        for place in places:
            travelled.go(Target(seq=place))
            for number in range(steps):
                taken = travelled.step()
                expected = place + number + 1
                assert (taken.record.seq if taken else len(log()) + 1) == expected or taken is None
            end = min(place + steps, len(log()))
            assert travelled.cores.last_seq == end
            assert all_known(travelled.cores) == folded(end)


def test_the_index_is_used(indexed: Path) -> None:
    """Between two snapshots no more is folded than lies between."""
    cores = LogFile(indexed).cores(Target(seq=119), None)
    assert cores.last_seq == 80
    only = LogFile(indexed).cores(Target(seq=119), {"policy"})
    assert list(only.actors) == ["policy"]
    assert known(only, "policy") == folded(80)["policy"]


def test_the_first_far_jump_makes_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said; a near one, one without the mechanism, and one not allowed to make none."""
    monkeypatch.setattr(index, "EVERY", 40)
    monkeypatch.setattr(journey, "LONG", 100)
    path = tmp_path / "run.jsonl"
    write_file(path, log())
    folder = tmp_path / "run.jsonl.snapshots"
    end = Target(seq=len(log()))
    Journey(LogFile(path)).go(Target(seq=90))
    Journey(LogFile(path), {"policy"}).go(end)
    Journey(LogFile(path, may_index=False)).go(end)
    assert not folder.exists()
    assert capsys.readouterr().err == ""
    travelled = Journey(LogFile(path))
    travelled.go(end)
    assert "indexing" in capsys.readouterr().err
    assert folder.exists()
    assert all_known(travelled.cores) == folded(len(log()))


def test_without_leave_to_write_there_is_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that cannot be made is said, and the log folded."""
    monkeypatch.setattr(journey, "LONG", 100)
    path = tmp_path / "run.jsonl"
    write_file(path, log())
    (tmp_path / "run.jsonl.snapshots").write_text("in the way")
    monkeypatch.setattr(index, "EVERY", 40)
    travelled = Journey(LogFile(path))
    travelled.go(Target(seq=200))
    assert "no index" in capsys.readouterr().err
    assert travelled.cores.last_seq == 200


def test_a_time_is_the_last_record_up_to_it() -> None:
    """In log time since the first record, or as a date; a live log's begins with its stamp."""
    records = list(read_log(LIVE))
    source = Records(records)
    assert records[-1].at - records[0].at > 15
    for text in ("3s", "0.1m", "0.25min"):
        travelled = Journey(source)
        target = target_of("--to", text, source)
        travelled.go(target)
        assert target.until_s is not None
        last = max(record.seq for record in records if record.at <= target.until_s)
        assert travelled.cores.last_seq == last


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "a record's number, from 1"),
        ("999999", "one of the log's records, 1 to "),
        ("4000h", "a time in the log, 0 to "),
        ("1969-01-01T00:00", "a time after the first record's"),
        ("soon", "a record's number as in 4000"),
    ],
)
def test_places_that_are_not_there(indexed: Path, text: str, expected: str) -> None:
    """Each is refused with what would be right."""
    for source in (LogFile(indexed), Records(log())):
        with pytest.raises(InputError, match=f"--to is '{text}'; expected {expected}"):
            Journey(source).go(target_of("--to", text, source))


def test_damage_is_named(indexed: Path, tmp_path: Path) -> None:
    """A log with a gap, or cut in mid-record, with an index or without."""
    lines = indexed.read_bytes().splitlines(keepends=True)
    gap, cut = tmp_path / "gap.jsonl", tmp_path / "cut.jsonl"
    gap.write_bytes(b"".join(lines[:149] + lines[150:]))
    cut.write_bytes(b"".join(lines[:149]) + lines[149][:40])
    for damaged in (gap, cut):
        with pytest.raises((DamagedLogError, InputError)) as error:
            Journey(LogFile(damaged)).go(Target("--to", "150", seq=150))
        assert "line 150" in str(error.value) or "records, 1 to 149" in str(error.value)
    # The index of the whole log lies beside it: the records before the damage are the same.
    for damaged in (gap, cut):
        (tmp_path / f"{damaged.name}.snapshots").symlink_to(f"{indexed}.snapshots")
        travelled = Journey(LogFile(damaged))
        travelled.go(Target(seq=149))
        assert all_known(travelled.cores) == folded(149)
        with pytest.raises((DamagedLogError, InputError)):
            travelled.go(Target("--to", "160", seq=160))


def test_before_the_damage_one_can_go_anywhere(
    indexed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Far jumps too: there is no index of such a log, which is said with the line."""
    monkeypatch.setattr(journey, "LONG", 100)
    damaged = tmp_path / "gap.jsonl"
    lines = indexed.read_bytes().splitlines(keepends=True)
    damaged.write_bytes(b"".join(lines[:249] + lines[250:]))
    travelled = Journey(LogFile(damaged))
    travelled.go(Target(seq=200))
    assert all_known(travelled.cores) == folded(200)
    assert "no index" in (said := capsys.readouterr().err)
    assert "line 250" in said


# --- what is shown --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_priorities_are_those_of_the_next_plan(mode: str) -> None:
    """Just before a plan is made, who would be served is whom it serves, at these priorities."""
    cores = Cores(lambda: iter(log(mode)))
    compared = 0
    for record in log(mode):
        if not isinstance(record.event, TimerFired):
            cores.take(record)
            continue
        before = known(cores, "mechanism")
        leases = {each.lease_id: each for each in before.leases}
        for decision in cores.take(record).get("mechanism", ()):
            plan = getattr(decision, "event", None)
            waits = any(job.state.startswith("not before") for job in before.jobs)
            if not isinstance(plan, RoundScheduled) or waits:
                continue
            made = {
                (tuple(task.job_id for task in lease.tasks), lease.worker_type): lease.priority
                for lease in plan.granted
            } | {
                (leases[lease_id].job_ids, leases[lease_id].worker_type): priority
                for lease_id, priority in zip(plan.renewed, plan.renewed_priorities, strict=True)
            }
            shown = {
                (each.job_ids, each.worker_type): each.priority
                for each in before.shares
                if each.is_served
            }
            assert shown == made, f"record {record.seq}"
            compared += len(made)
    assert compared > 50


def test_looking_changes_nothing() -> None:
    """Cores that were looked at again and again decide what the others do."""
    looked, left = (Cores(lambda: iter(log())) for _ in range(2))
    for record in log()[:250]:
        assert looked.take(record) == left.take(record)
        if record.seq % 5 == 0:
            all_known(looked)


def test_what_is_known_adds_up() -> None:
    """Leased jobs have leases, held workers are a lease's, fractions of a type sum to one."""
    for seq in range(50, len(log()), 97):
        mechanism = folded(seq)["mechanism"]
        leased = {job_id for lease in mechanism.leases for job_id in lease.job_ids}
        assert {job.job_id for job in mechanism.jobs if job.state == "leased"} <= leased
        for worker in mechanism.workers:
            held = {i for lease in mechanism.leases for i in lease.worker_ids}
            assert worker.worker_id in held or not worker.job_ids
        shares: dict[tuple[Combination, str], float] = {}
        for share in mechanism.shares:
            shares[share.job_ids, share.worker_type] = share.share
        for (_, worker_type), share_of in shares.items():
            assert 0 <= share_of <= 1, worker_type


# --- two logs -------------------------------------------------------------------------------------


def parted(a: Sequence[Record], b: Sequence[Record]) -> Difference:
    """The difference of two logs that are not the same."""
    found = diff(Records(a), Records(b), ("a", "b"))
    assert isinstance(found, Difference)
    return found


def test_equal_logs_have_no_difference() -> None:
    """To the last record."""
    assert diff(Records(log()), Records(list(log())), ("a", "b")) == len(log())


@pytest.mark.parametrize("place", [0, 40, 200])
def test_the_first_other_record_is_found(place: int) -> None:
    """Wherever it is, with its field; what services knew is what they knew just before."""
    changed = list(log())
    changed[place] = later(changed[place])
    found = parted(log(), redigest(changed))
    assert found.seq == place + 1
    assert [each.path for each in found.fields] == ["at"]
    if place:
        assert {each.service: each for each in found.services} == folded(place)


def later(record: Record) -> Record:
    """The record, a while later."""
    return msgspec.structs.replace(record, at=record.at + 0.5)


def test_a_changed_plan_is_shown_field_by_field() -> None:
    """And what this release's mechanism decides there is told beside it."""
    place = [i for i, r in enumerate(log()) if isinstance(r.event, RoundScheduled)][3]
    event = log()[place].event
    assert isinstance(event, RoundScheduled)
    changed = list(log())
    moved = msgspec.structs.replace(event, ends_at_s=event.ends_at_s + 1, renewed=("r0-0",))
    changed[place] = msgspec.structs.replace(changed[place], event=moved)
    found = parted(log(), redigest(changed))
    assert found.seq == place + 1
    assert "event.ends_at_s" in [each.path for each in found.fields]
    assert any(each.path.startswith("event.renewed[0]") for each in found.fields)
    assert found.decided is not None
    assert found.decided[0] == "mechanism"
    assert f"round {event.round_id} " in found.decided[1]


def test_other_schemas_are_said() -> None:
    """Of the record at which they part."""
    changed = list(log())
    changed[40] = msgspec.structs.replace(later(changed[40]), schema=0)
    notes = parted(log(), redigest(changed)).notes
    assert notes == ("the record needs schema 1 in A, 0 in B: other releases",)


def test_an_index_of_another_log_is_no_index(tmp_path: Path, indexed: Path) -> None:
    """The log was made anew since: it is folded, wherever one goes."""
    path = tmp_path / "run.jsonl"
    other = log(seed=13)
    write_file(path, other)
    (tmp_path / "run.jsonl.snapshots").symlink_to(f"{indexed}.snapshots")
    source = LogFile(path)
    travelled = Journey(source)
    span_s = other[-1].at - other[0].at
    for text in ("100", f"{span_s / 2:.1f}s", f"{span_s:.6f}s", str(len(other))):
        travelled.go(target_of("--to", text, source))
    assert travelled.cores.last_seq == len(other)
    with pytest.raises(InputError):
        travelled.go(target_of("--to", f"{span_s + 1:.1f}s", source))


def test_one_that_ends_earlier() -> None:
    """It is said which; there are no fields to compare."""
    found = parted(log()[:100], log())
    assert "where A ends; B goes on" in found.verdict
    assert found.records[0] is None
    assert found.fields == ()
    assert "where B ends; A goes on" in parted(log(), log()[:100]).verdict


def test_two_clusters_are_told_from_two_runs() -> None:
    """By the workers there are before the first job; a simulation from a live log; releases."""
    live = list(read_log(LIVE))
    assert "no record in common" in parted(live, log()).verdict
    notes = " ".join(parted(live, log()).notes)
    assert "two different clusters" in notes
    assert "A is of a live cluster, B of a simulation" in notes
    assert parted(log(), log(seed=13)).notes == ()
    older = [
        msgspec.structs.replace(r, event=msgspec.structs.replace(r.event, behaviour=0))
        if isinstance(r.event, LeaderElected)
        else r
        for r in log()
    ]
    notes = " ".join(parted(log(), redigest(older)).notes)
    assert "mechanism is of behaviour 1 in A, 0 in B: other releases" in notes

"""Snapshots: an actor that begins with one goes on as the one that folded the whole log."""

from __future__ import annotations

import dataclasses
import stat
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from replay.simulate import WORKER, cores
from schemas.decisions import Decision, Effect, Run
from schemas.events import AnyEvent, ClusterConfigured, LeaderElected, TimerFired
from schemas.record import Record
from services.runtime.actor import BEHAVIOUR, Actor, Writer
from services.runtime.snapshot import Snapshots, UnfitSnapshotError
from services.worker.view import LogView
from tests.simulation.scenario import Scenario, contended, records_of

ACTORS = ("estimator", "policy", "mechanism", WORKER)
#: What a class makes anew in ``__init__``, or is told: no state, and so not declared.
MADE_ANEW = {"_handlers", "_takes", "_name", "_pace", "on_ranking"}


def _scenario(name: str) -> Scenario:
    mode = "paper" if name == "paper" else "default"
    policy = "las:ss" if name in ("sharing", "learned") else "las"
    scenario = contended(12, num_jobs=60 if name == "learned" else 110, mode=mode, policy=policy)
    outages = tuple((60.3 + 70 * i, f"v100-{i}", 50.0) for i in range(4))
    scenario = dataclasses.replace(scenario, outages=outages)
    if name == "learned":
        config = msgspec.structs.replace(
            scenario.config, estimator="learned", trust_job_types=False, profile_s=3.0
        )
        scenario = dataclasses.replace(scenario, config=config)
    return scenario


@cache
def log_of(name: str) -> tuple[Record, ...]:
    """A run of over 1,000 records: gangs, lost workers, retries; pairs, or jobs to be learned."""
    simulation = _scenario(name).simulation()
    simulation.run()
    records = tuple(records_of(simulation.driver))
    assert len(records) > 1000
    return records


class Folding:
    """An actor with the fold beside it, as its service has them."""

    def __init__(self, actor: str, folder: Path = Path("unused"), **options: Any) -> None:
        self.actor = Actor(actor, cores()[actor]())
        self.view = LogView(actor)
        beside = (self.view,) if actor == WORKER else ()
        self.snapshots = Snapshots(folder, "test", self.actor, beside, **options)

    def fold(self, record: Record) -> list[bytes]:
        """What comes of a record: the drafts of what is decided, timers and effects, as bytes."""
        decisions = self.actor.fold(record)
        self.view.take(record)
        writer = Writer(self.actor.name, self.actor.epoch, self.actor.digest)
        return [_said(writer, record.seq, i, decision) for i, decision in enumerate(decisions)]


def _said(writer: Writer, cause: int, index: int, decision: Decision) -> bytes:
    if isinstance(decision, Run):
        return msgspec.msgpack.encode(decision.effect)
    event = getattr(decision, "event", None) or TimerFired(
        timer=decision.timer,  # type: ignore[union-attr] # if it is no Emit
        due_s=decision.at_s,  # type: ignore[union-attr] # if it is no Emit
    )
    return msgspec.json.encode(writer.draft(cause, index, 0, event))


def open_of(actor: Actor) -> list[bytes]:
    """What the actor still has to do, in order."""
    return [msgspec.msgpack.encode((key, each)) for key, each in actor.open.items()]


@pytest.mark.parametrize("name", ["default", "paper", "sharing", "learned"])
@pytest.mark.parametrize("actor", ACTORS)
def test_begun_again_from_snapshots_all_along_the_log(actor: str, name: str) -> None:
    """An actor that never folds more than a few records between two snapshots misses nothing."""
    every = 7
    whole, pieced = Folding(actor), Folding(actor)
    for record in log_of(name):
        assert pieced.fold(record) == whole.fold(record), record
        if record.seq % every == 0:
            content = pieced.snapshots.take(record)
            pieced = Folding(actor)
            pieced.snapshots.restore(content, record)
            assert open_of(pieced.actor) == open_of(whole.actor)
    for attribute in ("now", "digest", "epochs", "skipped", "results", "last_seq"):
        assert getattr(pieced.actor, attribute) == getattr(whole.actor, attribute)


@pytest.mark.parametrize("name", ["default", "sharing"])
@pytest.mark.parametrize("actor", ACTORS)
def test_begun_once_and_folded_to_the_end(actor: str, name: str) -> None:
    """So does one that begins with a snapshot and folds all the rest."""
    records = log_of(name)
    whole = Folding(actor)
    taken = {}
    said = []
    for record in records:
        said.append(whole.fold(record))
        if record.seq % 331 == 0:
            taken[record.seq] = whole.snapshots.take(record)
    assert len(taken) >= 3
    for seq, content in taken.items():
        begun = Folding(actor)
        begun.snapshots.restore(content, records[seq - 1])
        assert [begun.fold(record) for record in records[seq:]] == said[seq:]
        assert begun.actor.digest == whole.actor.digest


@pytest.mark.parametrize("name", ["default", "learned"])
@pytest.mark.parametrize("actor", ACTORS)
def test_nothing_that_changes_is_left_out(actor: str, name: str) -> None:
    """What a core, or a fold beside it, does not declare as its state no record ever changes."""
    folding = Folding(actor)
    before = {}
    for fold in folding.snapshots._folds:
        undeclared = vars(fold).keys() - type(fold).__annotations__.keys()
        assert undeclared <= MADE_ANEW, f"{type(fold).__name__} must declare {undeclared}"
        before[fold] = {key: (id(vars(fold)[key]), repr(vars(fold)[key])) for key in undeclared}
    for record in log_of(name):
        folding.fold(record)
    for fold, values in before.items():
        now = {key: (id(vars(fold)[key]), repr(vars(fold)[key])) for key in values}
        assert now == values


class Arrays:
    """A core that keeps arrays."""

    effects: ClassVar[tuple[type[Effect], ...]] = ()
    handles = ()
    arrays: list[NDArray[np.float64]]
    truths: NDArray[np.bool_]

    def __init__(self) -> None:
        self.arrays = []
        self.truths = np.zeros(0, dtype=bool)

    def handle(self, event: AnyEvent, now: float) -> Sequence[Decision]:
        """Nothing is decided."""
        return ()


START = Record(seq=1, at=0.0, actor="operator", digest="d", event=ClusterConfigured())


def test_arrays_keep_kind_shape_and_layout() -> None:
    """What is added up along an axis is added up in the same order, and to the same bits."""
    core, restored = Arrays(), Arrays()
    rng = np.random.default_rng(0)
    core.arrays = [rng.random((999, 3)), np.asfortranarray(rng.random((999, 3))), np.zeros((0, 3))]
    core.arrays.append(core.arrays[0].T)
    core.truths = np.array([True, False])
    actor, other = Actor("policy", core), Actor("policy", restored)
    actor.fold(START)
    Snapshots(Path(), "t", other).restore(Snapshots(Path(), "t", actor).take(START), START)
    assert restored.truths.tolist() == [True, False]
    for one, two in zip(core.arrays, restored.arrays, strict=True):
        assert (one.dtype, one.shape, one.strides) == (two.dtype, two.shape, two.strides)
        assert one.sum(axis=0).tobytes() == two.sum(axis=0).tobytes()
        assert two.flags.writeable


# --- those that do not fit -----------------------------------------------------------------------


@cache
def half_way() -> tuple[bytes, Record]:
    """A snapshot of a mechanism in the middle of its log, and the record it was taken after."""
    folding = Folding("mechanism")
    records = log_of("default")[:500]
    for record in records:
        folding.fold(record)
    return folding.snapshots.take(records[-1]), records[-1]


def refused(content: bytes, record: Record | None, **options: Any) -> str:
    """Why a snapshot is not taken up; that it has changed nothing."""
    folding = Folding(options.pop("actor", "mechanism"), **options)
    before = repr(vars(folding.actor.core).keys()), folding.actor.open
    with pytest.raises(UnfitSnapshotError) as caught:
        folding.snapshots.restore(content, record)
    assert folding.actor.last_seq == 0
    assert (repr(vars(folding.actor.core).keys()), folding.actor.open) == before
    return str(caught.value)


@given(st.data())
def test_a_snapshot_with_one_byte_changed_is_refused(data: st.DataObject) -> None:
    """Wherever the byte is: in the header, in its end, in the state."""
    content, record = half_way()
    place = data.draw(st.one_of(st.integers(0, 400), st.integers(0, len(content) - 1)))
    altered = bytearray(content)
    altered[place] ^= data.draw(st.integers(1, 255))
    refused(bytes(altered), record)


@given(st.data())
def test_a_snapshot_cut_short_is_refused(data: st.DataObject) -> None:
    """As a disk may leave it."""
    content, record = half_way()
    refused(content[: data.draw(st.integers(0, len(content) - 1))], record)


@pytest.mark.parametrize(
    ("says", "record", "options"),
    [
        ("behaviour version", lambda r: r, {"behaviour": BEHAVIOUR + 1}),
        ("not of policy", lambda r: r, {"actor": "policy"}),
        ("log ends before", lambda _: None, {}),
        ("another record", lambda r: msgspec.structs.replace(r, digest="other"), {}),
        ("another record", lambda r: msgspec.structs.replace(r, cause=r.cause + 1), {}),
        ("another record", lambda r: msgspec.structs.replace(r, seq=r.seq + 1), {}),
    ],
)
def test_a_snapshot_of_something_else_is_refused(
    says: str, record: Callable[[Record], Record | None], options: dict[str, Any]
) -> None:
    """Of other decisions, of another actor, of a log that has come to be another."""
    content, after = half_way()
    assert says in refused(content, record(after), **options)


def test_a_snapshot_of_other_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a release has changed, it folds the log itself once."""
    content, record = half_way()
    monkeypatch.setattr("services.runtime.snapshot._code", lambda _: "another release")
    assert "other code" in refused(content, record)


# --- the folder ----------------------------------------------------------------------------------


def test_the_two_newest_are_kept(tmp_path: Path) -> None:
    """And nothing else of this log and actor; others' and strangers' are left alone."""
    folder = tmp_path / "made" / "for-it"
    folding = Folding("estimator", folder, every=100)
    others = [folder / "test.mechanism.7.snapshot", folder / "test.estimator.x.snapshot"]
    for record in log_of("default")[:500]:
        folding.fold(record)
        if folding.snapshots.due(record.seq):
            folding.snapshots.write(folding.snapshots.take(record))
            for other in others:
                other.touch()
    assert folding.snapshots.seqs() == [500, 400]
    assert folding.snapshots.seqs(at_most=499) == [400]
    path = folder / "test.estimator.500.snapshot"
    kept = [path, path.with_name("test.estimator.400.snapshot"), *others]
    assert sorted(folder.iterdir()) == sorted(kept)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_one_that_claims_to_be_newer_is_another_log_s(tmp_path: Path) -> None:
    """A log begun anew under the same name does not lose its own to them."""
    folding = Folding("estimator", tmp_path)
    (tmp_path / "test.estimator.900000.snapshot").touch()
    records = log_of("default")[:10]
    for record in records:
        folding.fold(record)
    folding.snapshots.write(folding.snapshots.take(records[-1]))
    assert folding.snapshots.seqs() == [10]


def test_all_are_kept_to_move_about_in_a_log(tmp_path: Path) -> None:
    """With all kept, any record is reached from the snapshot before it."""
    records = log_of("default")
    folding = Folding("mechanism", tmp_path, every=250, keep=None)
    open_at = {}
    for record in records:
        folding.fold(record)
        open_at[record.seq] = open_of(folding.actor)
        if folding.snapshots.due(record.seq):
            folding.snapshots.write(folding.snapshots.take(record))
    for wanted in (249, 250, 777, len(records)):
        jumped = Folding("mechanism", tmp_path)
        for seq in jumped.snapshots.seqs(at_most=wanted)[:1]:
            jumped.snapshots.restore(jumped.snapshots.read(seq), records[seq - 1])
            assert wanted - seq < 250
        for record in records[jumped.actor.last_seq : wanted]:
            jumped.fold(record)
        assert open_of(jumped.actor) == open_at[wanted]


def test_a_folder_that_is_none_has_none(tmp_path: Path) -> None:
    """A start from nothing, or from a folder that cannot be read, is a start from the whole log."""
    snapshots = Folding("mechanism", tmp_path / "absent").snapshots
    assert snapshots.seqs() == []
    with pytest.raises(UnfitSnapshotError, match="cannot be read"):
        snapshots.read(7)


def test_a_start_of_another_epoch_is_part_of_it() -> None:
    """Who begins with a snapshot elects itself as the next start, not the first."""
    content, record = half_way()
    folding = Folding("mechanism")
    folding.snapshots.restore(content, record)
    starts = [r for r in log_of("default")[:500] if isinstance(r.event, LeaderElected)]
    own = sum(r.actor == "mechanism" for r in starts)
    assert folding.actor.elect("a", BEHAVIOUR).epoch == own + 1

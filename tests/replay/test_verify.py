"""The verifier: sound logs pass, and whatever else is done to a log, it names the record."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import msgspec
import pytest

from replay.verify import verify, verify_log
from schemas.domain import JobSpec
from schemas.events import (
    AllocationComputed,
    JobSubmitted,
    LeaderElected,
    RoundScheduled,
    TimerFired,
    WorkerDrained,
)
from schemas.record import Record
from schemas.subjects import SERVICES, role
from services.runtime.file_log import FileLog, read_log
from tests.simulation.forge import KINDS, NEW, altered, mutate, redigest, renumber, write_file
from tests.simulation.scenario import contended, records_of

#: Kinds that services decide, rather than learn from outside.
DECIDED = ("mechanism", "estimator")


@cache
def log(mode: str = "default") -> tuple[Record, ...]:
    """A few hundred records of a finished run."""
    simulation = contended(3, num_jobs=30, mode=mode).simulation()
    simulation.run()
    return tuple(records_of(simulation.driver))


def decided(record: Record) -> bool:
    """Whether a core decided the very record."""
    return (record.actor in DECIDED and record.cause > 0) or isinstance(record.event, TimerFired)


def concurrent(place: int) -> bool:
    """Whether a record and the next are of one instant and of two writers.

    The other order, where no core decides otherwise on it, is a history that could have happened.
    """
    one, other = log()[place : place + 2]
    return one.at == other.at and one.actor != other.actor


# --- sound logs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_a_run_verifies(tmp_path: Path, mode: str) -> None:
    """A sealed log of a finished run verifies, every decision of it made again."""
    path = tmp_path / "run.jsonl"
    write_file(path, log(mode))
    seen: list[int] = []
    report = verify_log(path, progress=seen.append)
    assert report.ok
    assert report.warnings == []
    assert report.records == len(log(mode))
    counted = {name: count.decided for name, count in report.actors.items()}
    assert counted["mechanism"] == sum(
        decided(record) for record in log(mode) if record.actor == "mechanism"
    )
    assert seen == []


def test_every_beginning_of_a_log_verifies() -> None:
    """A log cut off anywhere is legal; decisions on their way are pending, never divergent."""
    pending = 0
    for length in range(0, len(log()), 7):
        report = verify(log()[:length])
        assert report.divergence is None
        pending += len(report.pending)
    assert pending > 0


def test_an_unsealed_file_says_so(tmp_path: Path) -> None:
    """A file whose writer was killed verifies, with a warning."""
    path = tmp_path / "run.jsonl"
    write_file(path, log())
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    assert any("not sealed" in warning for warning in verify_log(path).warnings)
    path.write_bytes(b"".join(lines[:-1])[:-40])
    report = verify_log(path)
    assert report.ok
    assert any("unfinished" in warning for warning in report.warnings)


def test_the_log_of_a_real_run_in_a_file(tmp_path: Path) -> None:
    """What ``FileLog`` writes is what the verifier reads, compressed or not."""
    for name in ("run.jsonl", "run.jsonl.zst"):
        with closing(FileLog(tmp_path / name)) as file_log:
            contended(4).simulation(file_log, lag_seed=4).run()
        report = verify_log(tmp_path / name)
        assert report.ok
        assert report.records == len(list(read_log(tmp_path / name)))


def test_records_of_another_behaviour_are_folded() -> None:
    """Decisions of older code are believed, not made again; those of this code are."""
    older = [_with_behaviour(record, 0) for record in log()]
    place = next(i for i, r in enumerate(older) if isinstance(r.event, RoundScheduled))
    event = msgspec.structs.replace(older[place].event, granted=())
    older[place] = msgspec.structs.replace(older[place], event=event)
    report = verify(redigest(older))
    assert report.ok
    assert report.actors["mechanism"].decided == 0
    assert report.actors["mechanism"].folded > 0
    assert any("folded, not decided again" in warning for warning in report.warnings)
    assert not verify(redigest([_with_behaviour(record, 1) for record in older])).ok


def _with_behaviour(record: Record, behaviour: int) -> Record:
    if not isinstance(record.event, LeaderElected):
        return record
    event = msgspec.structs.replace(record.event, behaviour=behaviour)
    return msgspec.structs.replace(record, event=event)


# --- altered logs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100))
def test_lines_changed_in_the_file(tmp_path: Path, seed: int) -> None:
    """Lines altered, dropped, inserted or moved break the file's own chain."""
    rng = random.Random(seed)
    path = tmp_path / "run.jsonl"
    write_file(path, log())
    lines = path.read_bytes().splitlines(keepends=True)
    place = rng.randrange(len(log()) - 1)
    kind = KINDS[seed % len(KINDS)]
    if kind == "alter":
        line = lines[place]
        at = rng.randrange(len(line) - 1)
        lines[place] = line[:at] + (b"0" if line[at : at + 1] != b"0" else b"1") + line[at + 1 :]
    elif kind == "drop":
        del lines[place]
    elif kind == "insert":
        lines.insert(place + 1, lines[place])
    else:
        lines[place], lines[place + 1] = lines[place + 1], lines[place]
    path.write_bytes(b"".join(lines))
    divergence = verify_log(path).divergence
    assert divergence is not None
    assert divergence.seq in (place + 1, place + 2)


@pytest.mark.parametrize("seed", range(200))
def test_records_changed_and_the_file_chained_anew(tmp_path: Path, seed: int) -> None:
    """With chain, seal and sequences put right, digests and cores still find it."""
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    place = rng.choice([i for i in range(len(log()) - 1) if kind != "swap" or not concurrent(i)])
    path = tmp_path / "run.jsonl"
    write_file(path, mutate(log(), place, kind, rng))
    divergence = verify_log(path).divergence
    assert divergence is not None
    assert divergence.seq >= place + 1
    assert kind != "alter" or divergence.seq == place + 1


@pytest.mark.parametrize("seed", range(200))
def test_decisions_changed_and_digests_computed_anew(tmp_path: Path, seed: int) -> None:
    """With digests put right too, and causes, a changed decision is not what its core decides."""
    rng = random.Random(seed)
    places = [i for i, record in enumerate(log()[:-1]) if decided(record)]
    place = rng.choice(places)
    kind = ("alter", "drop", "insert")[seed % 3]
    path = tmp_path / "run.jsonl"
    forged = redigest(mutate(log(), place, kind, rng, follow=True))
    write_file(path, forged)
    divergence = verify_log(path).divergence
    assert divergence is not None
    assert divergence.seq >= place + 1
    # One that is missing, or in a stranger's name, is missed when its writer writes the next.
    missing = kind == "drop" or forged[place].actor != log()[place].actor
    assert missing or divergence.seq <= place + 2


@pytest.mark.parametrize("seed", range(100))
def test_facts_changed_and_digests_computed_anew(seed: int) -> None:
    """What comes from outside can be changed unseen only while no decision depends on it.

    The proof that nothing else could have noticed: all that services decided on the changed log
    is, decision by decision, what they decided on the true one.
    """
    rng = random.Random(seed)
    outside = [i for i, r in enumerate(log()) if role(r.actor) not in SERVICES or r.n]
    place = rng.choice(outside)
    changed = redigest(mutate(log(), place, "alter", rng))
    report = verify(changed, complete=True)
    if report.divergence is None:
        assert [r for r in changed if decided(r)] == [
            msgspec.structs.replace(r, digest=c.digest)
            for r, c in zip(log(), changed, strict=True)
            if decided(r)
        ]
    else:
        assert report.divergence.seq >= place + 1


def test_a_servers_clock_may_be_set_back() -> None:
    """A live log's stamps are its server's; that they step back is told, and is no divergence."""
    live = redigest([_on_host(record) for record in log()])
    live[-1] = msgspec.structs.replace(live[-1], at=live[-2].at - 1.5)
    report = verify(live)
    assert report.ok
    assert any(f"set back by 1.5 s before record {live[-1].seq}" in w for w in report.warnings)


def _on_host(record: Record) -> Record:
    if not isinstance(record.event, LeaderElected):
        return record
    event = msgspec.structs.replace(record.event, replica="host-1")
    return msgspec.structs.replace(record, event=event)


def test_a_stamp_that_goes_back() -> None:
    """A simulation's time never goes back."""
    place = next(i for i, r in enumerate(log()) if r.at > 0) + 1
    records = list(log())
    records[place] = msgspec.structs.replace(records[place], at=0.0)
    divergence = verify(records).divergence
    assert divergence is not None
    assert (divergence.seq, "stamp" in divergence.expected) == (place + 1, True)


def test_an_epoch_that_skips_one() -> None:
    """Epochs rise by one."""
    place = next(i for i, r in enumerate(log()) if isinstance(r.event, LeaderElected))
    records = list(log())
    event = msgspec.structs.replace(records[place].event, epoch=3)
    records[place] = msgspec.structs.replace(records[place], event=event, epoch=3, index=3)
    divergence = verify(redigest(records)).divergence
    assert divergence is not None
    assert (divergence.seq, "epoch 1" in divergence.expected) == (place + 1, True)


def test_an_id_used_twice() -> None:
    """A client's second record under the id of its first is no retry."""
    place = next(i for i, r in enumerate(log()) if isinstance(r.event, JobSubmitted))
    record = log()[place]
    other = JobSubmitted(job=JobSpec(job_id="other", job_type="LSTM", total_steps=1.0))
    again = msgspec.structs.replace(record, event=other, seq=NEW)
    forged = redigest(renumber([*log()[: place + 1], again, *log()[place + 1 :]], follow=True))
    divergence = verify(forged).divergence
    assert divergence is not None
    assert divergence.seq == place + 2


def test_a_decision_nobody_depends_on_is_missed() -> None:
    """Also where no core would react, a decision dropped without a trace is found missing."""
    place = next(i for i, r in enumerate(log()) if isinstance(r.event, WorkerDrained))
    forged = redigest(renumber([*log()[:place], *log()[place + 1 :]], follow=True))
    divergence = verify(forged, complete=True).divergence
    assert divergence is not None
    assert "WorkerDrained" in divergence.expected


def test_a_result_of_a_kind_the_effect_has_not() -> None:
    """A solve cannot end in the report of a round."""
    place = next(i for i, r in enumerate(log()) if isinstance(r.event, AllocationComputed))
    event = TimerFired(timer="solve", due_s=log()[place].at)
    records = list(log())
    records[place] = msgspec.structs.replace(records[place], event=event)
    divergence = verify(redigest(records)).divergence
    assert divergence is not None
    assert (divergence.seq, "Solve" in divergence.expected) == (place + 1, True)


@pytest.mark.parametrize(
    "show", [str, lambda divergence: f"{divergence.expected} {divergence.found}"]
)
def test_a_divergence_tells_both_sides(show: Callable[[object], str]) -> None:
    """Its message has the record, what was expected and what is there."""
    place = next(i for i, r in enumerate(log()) if isinstance(r.event, RoundScheduled))
    records = list(log())
    records[place] = altered(records[place], random.Random(0), fields=["event"])
    shown = show(verify(redigest(records)).divergence)
    assert shown.count("RoundScheduled") == 2
    assert f"mechanism:{log()[place].cause}" in shown

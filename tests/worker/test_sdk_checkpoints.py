"""Checkpoints on disk: the newest that is whole is loaded, the one before stays until then."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from services.worker.sdk.src.gavel_iterator.checkpoints import CheckpointStore
from services.worker.sdk.src.gavel_iterator.errors import CheckpointError
from services.worker.sdk.src.gavel_iterator.settings import Settings


def store(
    folder: Path, lease_id: str, resume_from: str = "", *, rank: int = 0, ranks: int = 1
) -> CheckpointStore:
    """The store of one rank of job j under a lease."""
    return CheckpointStore(
        Settings(
            socket_path="unused",
            lease_id=lease_id,
            job_id="j",
            rank=rank,
            world_size=ranks,
            total_steps=1000.0,
            checkpoint_dir=folder,
            resume_from=resume_from,
            progress_interval_s=1.0,
        )
    )


def put(to: CheckpointStore, iteration: int) -> None:
    """Save a state that names its iteration."""
    to.save(lambda path: Path(path).write_text(f"state {iteration}"), iteration)


def got(of: CheckpointStore) -> tuple[int, str]:
    """Steps and state of what is loaded; no state for a fresh start."""
    texts: list[str] = []
    steps = of.load(lambda path: texts.append(Path(path).read_text()))
    return steps, "".join(texts)


def part(folder: Path, lease_id: str, steps: int, rank: int = 0) -> Path:
    """Where a part lies."""
    return folder / f"lease-{lease_id}" / f"{steps:012d}" / f"rank-{rank}"


def steps_kept(folder: Path) -> dict[str, list[int]]:
    """{lease folder: steps of its checkpoints}."""
    return {
        lease.name: sorted(int(path.name) for path in lease.iterdir())
        for lease in sorted(folder.glob("lease-*"))
    }


def test_a_fresh_start_loads_nothing(tmp_path: Path) -> None:
    """Without a lease to resume from, not even another lease's checkpoint is looked at."""
    put(store(tmp_path, "a"), 5)
    assert got(store(tmp_path, "b")) == (0, "")


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    """A file comes back under the next lease, with its steps."""
    put(store(tmp_path, "a"), 5)
    assert got(store(tmp_path, "b", "a")) == (5, "state 5")


def test_a_folder_is_saved_like_a_file(tmp_path: Path) -> None:
    """What save makes may be a folder with folders in it."""

    def write(path: str) -> None:
        (Path(path) / "shards").mkdir(parents=True)
        (Path(path) / "shards" / "0").write_text("a shard")

    seen: list[str] = []
    store(tmp_path, "a").save(write, 5)
    steps = store(tmp_path, "b", "a").load(
        lambda path: seen.append((Path(path) / "shards" / "0").read_text())
    )
    assert (steps, seen) == (5, ["a shard"])


def test_the_lease_named_goes_before_others(tmp_path: Path) -> None:
    """A lease that was cut off may have trained further: it does not count."""
    put(store(tmp_path, "cut-off"), 90)
    put(store(tmp_path, "a"), 50)
    assert got(store(tmp_path, "b", "a")) == (50, "state 50")


def test_a_lease_without_a_checkpoint_is_passed_over(tmp_path: Path) -> None:
    """Where the lease named never saved, the one before it still counts."""
    put(store(tmp_path, "a"), 50)
    assert got(store(tmp_path, "c", "b")) == (50, "state 50")
    shutil.rmtree(tmp_path / "lease-a")
    assert got(store(tmp_path, "c", "b")) == (0, "")


def test_a_restart_under_the_same_lease_goes_on(tmp_path: Path) -> None:
    """A process started again under its own lease loads what that lease has saved."""
    put(store(tmp_path, "a"), 50)
    put(store(tmp_path, "b", "a"), 60)
    assert got(store(tmp_path, "b", "a")) == (60, "state 60")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda at: os.truncate(at / "state", 3), "has 3 bytes, not the 8 that were saved"),
        (lambda at: (at / "state").unlink(), "has None bytes"),
        (lambda at: os.truncate(at / "checkpoint.json", 9), "JSONDecodeError"),
        (lambda at: (at / "checkpoint.json").write_bytes(b"\xff"), "UnicodeDecodeError"),
        (lambda at: (at / "checkpoint.json").write_text("[]"), "TypeError"),
        (lambda at: (at / "checkpoint.json").unlink(), "FileNotFoundError"),
        (lambda at: at.rename(at.with_name("rank-0.partial")), "was never finished"),
    ],
)
@pytest.mark.parametrize("spoilt", ["own", "named"])
def test_a_spoilt_checkpoint_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoilt: str, spoil: object, why: str
) -> None:
    """Cut, lost or never finished, it is passed over for the previous one, saying what and why."""
    assert callable(spoil)
    first = store(tmp_path, "a")
    put(first, 40)
    if spoilt == "named":
        put(first, 50)
        spoil(part(tmp_path, "a", 50))
    else:
        second = store(tmp_path, "b", "a")
        got(second)
        put(second, 50)
        spoil(part(tmp_path, "b", 50))
    with caplog.at_level(logging.WARNING, "gavel_iterator"):
        assert got(store(tmp_path, "b", "a")) == (40, "state 40")
    assert "skipping checkpoint" in caplog.text
    assert why in caplog.text


def test_a_checkpoint_that_does_not_load_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where load raises on the newest, as on flipped bits, the previous one is loaded."""
    first = store(tmp_path, "a")
    put(first, 40)
    put(first, 50)
    texts: list[str] = []

    def read(path: str) -> None:
        text = Path(path).read_text()
        if text == "state 50":
            raise RuntimeError("checksum")
        texts.append(text)

    with caplog.at_level(logging.WARNING, "gavel_iterator"):
        assert store(tmp_path, "b", "a").load(read) == 40
    assert texts == ["state 40"]
    assert "RuntimeError: checksum" in caplog.text


def test_if_nothing_loads_it_is_an_error(tmp_path: Path) -> None:
    """Checkpoints of which none loads must not turn into training from the start, silently."""
    put(store(tmp_path, "a"), 50)

    def read(_path: str) -> None:
        raise KeyError("optimizer")

    with pytest.raises(CheckpointError, match="KeyError: 'optimizer'; remove them to train from"):
        store(tmp_path, "b", "a").load(read)


def test_another_jobs_checkpoint_is_none(tmp_path: Path) -> None:
    """In a folder that two jobs share by mistake, each finds only its own, and says so."""
    put(store(tmp_path, "a"), 50)
    record = part(tmp_path, "a", 50) / "checkpoint.json"
    record.write_text(record.read_text().replace('"job": "j"', '"job": "k"'))
    with pytest.raises(CheckpointError, match="is of"):
        got(store(tmp_path, "b", "a"))


@pytest.mark.parametrize("error", [OSError("disk full"), ValueError("not a tensor")])
def test_a_save_that_fails_leaves_the_previous(tmp_path: Path, error: Exception) -> None:
    """The error comes through with the step; the previous checkpoint is there, nothing else."""
    saved = store(tmp_path, "a")
    put(saved, 40)

    def write(path: str) -> None:
        Path(path).write_text("half")
        raise error

    with pytest.raises(CheckpointError, match=f"step 50 could not be saved: .*{error}"):
        saved.save(write, 50)
    assert not list(tmp_path.rglob("*.partial"))
    assert got(store(tmp_path, "b", "a")) == (40, "state 40")


def test_a_save_that_writes_elsewhere_is_told(tmp_path: Path) -> None:
    """As numpy does, which appends to the name: the error shows what was found instead."""
    with pytest.raises(
        CheckpointError, match=r"save wrote nothing at .*state, but \['state.npy'\]"
    ):
        store(tmp_path, "a").save(lambda path: Path(f"{path}.npy").write_text("x"), 5)


def test_two_checkpoints_stay(tmp_path: Path) -> None:
    """The newest and the one before; first the lease's that was resumed from, then its own."""
    put(store(tmp_path, "old"), 10)
    put(store(tmp_path, "a", "old"), 40)
    third = store(tmp_path, "b", "a")
    assert got(third) == (40, "state 40")
    put(third, 50)
    assert steps_kept(tmp_path) == {"lease-a": [40], "lease-b": [50]}
    put(third, 60)
    assert steps_kept(tmp_path) == {"lease-b": [50, 60]}
    put(third, 70)
    assert steps_kept(tmp_path) == {"lease-b": [60, 70]}


def test_a_lease_that_was_cut_off_removes_nothing_of_its_successor(tmp_path: Path) -> None:
    """Still running after another lease has gone on, it prunes only what it found at its start."""
    put(store(tmp_path, "a"), 40)
    cut_off = store(tmp_path, "b", "a")
    got(cut_off)
    successor = store(tmp_path, "c", "b")
    got(successor)
    put(successor, 60)
    for iteration in (50, 55, 58):
        put(cut_off, iteration)
    assert got(store(tmp_path, "d", "c")) == (60, "state 60")


def test_a_gangs_checkpoint_counts_when_all_parts_are_there(tmp_path: Path) -> None:
    """Until the last rank's part is in place the previous checkpoint stays and is what loads."""
    first, second = (store(tmp_path, "a", rank=rank, ranks=2) for rank in (0, 1))
    put(first, 20)
    put(second, 20)
    put(first, 30)
    resumed = store(tmp_path, "b", "a", rank=1, ranks=2)
    assert got(resumed) == (40, "state 20")
    put(second, 30)
    assert got(store(tmp_path, "b", "a", rank=1, ranks=2)) == (60, "state 30")


def test_a_rank_that_wrote_nothing_loads_rank_0s(tmp_path: Path) -> None:
    """One rank may write for all; a rank that wrote its own part loads its own."""
    ranks = [store(tmp_path, "a", rank=rank, ranks=3) for rank in range(3)]
    ranks[0].save(lambda path: Path(path).write_text("of all"), 20)
    ranks[1].save(lambda _: None, 20)
    ranks[2].save(lambda path: Path(path).write_text("of rank 2"), 20)
    loaded = [got(store(tmp_path, "b", "a", rank=rank, ranks=3)) for rank in range(3)]
    assert loaded == [(60, "of all"), (60, "of all"), (60, "of rank 2")]


@pytest.mark.parametrize(
    "lease_id", ["..", "a/b", "r17-3", "line\nbreak", "ünïcode *", "x" * 300, "é" * 100]
)
def test_a_lease_of_any_name_has_a_folder_of_its_own(tmp_path: Path, lease_id: str) -> None:
    """No name leaves the checkpoint folder or is too long for it."""
    put(store(tmp_path, lease_id), 5)
    assert [path.parent for path in tmp_path.iterdir()] == [tmp_path]
    assert got(store(tmp_path, "b", lease_id)) == (5, "state 5")

"""Where a job's time went: parts that sum to its completion time, each what its name says."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from replay.explain.history import Histories
from replay.explain.waterfall import PARTS, waterfall
from replay.modes import MODES
from replay.world import World
from schemas.events import (
    JobCompleted,
    WorkerUnreachable,
)
from schemas.record import Record
from tests.replay.explained import job, run
from tests.simulation.scenario import contended, records_of


def falls(records: Iterable[Record]) -> list[tuple[dict[str, float], float]]:
    """(parts, JCT) of each complete job."""
    histories, world = Histories(), World()
    for record in records:
        histories.take(record)
        world.take(record)
    expected = world.speeds.expected()
    return [
        (waterfall(history, expected, world.registered), history.ended_s - history.submitted_s)
        for history in histories.jobs.values()
        if isinstance(history.ending, JobCompleted) and history.ended_s is not None
    ]


@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("policy", ["las", "las:ss", "ftf"])
@pytest.mark.parametrize("seed", [3, 12])
def test_the_parts_sum_to_the_completion_time(seed: int, policy: str, mode: str) -> None:
    """With gangs, pairs, lost workers and failures; no waiting is below 0."""
    simulation = contended(seed, num_jobs=30, mode=mode, policy=policy).simulation()
    simulation.run()
    found = falls(records_of(simulation.driver))
    assert len(found) > 20
    for parts, jct_s in found:
        assert parts.keys() == PARTS.keys()
        assert sum(parts.values()) == pytest.approx(jct_s, abs=1e-6)
        assert all(parts[name] >= 0 for name in parts if name.startswith(("queue", "checkpoint")))


def test_each_part_is_what_its_name_says() -> None:
    """Alone, on the fastest type, and never moved: steps, the first round, one checkpoint."""
    ((parts, jct_s),) = falls(run([job("alone", 2.0)], cluster={"v100": 1}))
    told = {name: seconds for name, seconds in parts.items() if abs(seconds) > 1e-6}
    assert told == pytest.approx({"compute": 7200.0, "queue.round": 10.0, "checkpoint.load": 5.0})
    assert jct_s == pytest.approx(7215.0)
    only_k80 = [job("a", 1.0), job("b", 1.0, allowed_worker_types=("k80",))]
    (_, _), (second, _) = falls(run(only_k80, cluster={"v100": 1, "k80": 1}))
    assert second["slower-type"] == pytest.approx(0.0, abs=1e-6)
    both = [job("a", 1.0), job("b", 1.0)]
    parts_of = [parts for parts, _ in falls(run(both, cluster={"v100": 1, "k80": 1}))]
    assert sum(parts["slower-type"] for parts in parts_of) > 60


def test_a_first_round_at_time_0_is_one() -> None:
    """In paper mode it starts with the first jobs: whoever waits, waits for workers."""
    jobs = [job(name, 1.0) for name in "abc"]
    found = falls(run(jobs, cluster={"v100": 1}, config=MODES["paper"]("fifo", 360.0)))
    waits = [parts["queue.workers"] for parts, _ in found]
    assert waits == pytest.approx([0.0, 3600.0, 7200.0])
    assert not any(parts["queue.round"] for parts, _ in found)


def test_steps_made_again_are_counted_as_such() -> None:
    """A worker that is lost takes the steps since the last checkpoint with it."""
    lost = (1000.0, "mechanism", WorkerUnreachable(worker_id="v100-0", since_s=1000.0))
    config = msgspec.structs.replace(MODES["default"]("las", 360.0), worker_lost_after_s=30.0)
    ((parts, jct_s),) = falls(
        run([job("a", 1.0)], [lost], cluster={"v100": 1, "k80": 1}, config=config)
    )
    assert parts["redone"] > 100
    assert parts["compute"] == pytest.approx(3600.0, rel=1e-6)
    assert parts["queue.failure"] > 0
    assert sum(parts.values()) == pytest.approx(jct_s, abs=1e-6)

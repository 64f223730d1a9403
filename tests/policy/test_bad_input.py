"""What no policy of the catalogue may stumble over: problems that are odd, but can happen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import msgspec
import pytest

from replay.modes import default_mode
from replay.simulate import Simulation, build_workers
from schemas.domain import AllocationRow, Entity, JobSpec
from schemas.events import AllocationFailed
from schemas.record import Record
from services.policy import catalog
from services.policy.catalog import POLICIES, resolve
from services.policy.checks import fault
from services.policy.problem import Allocation, JobClass, Problem
from services.runtime.log import MemoryLog
from tests.policy.problems import job_class, problem
from tests.simulation.scenario import table

#: Two entities with jobs, one without, and one that weighs nothing.
_ENTITIES = (
    Entity(entity_id="one"),
    Entity(entity_id="line", policy="fifo", parent="one"),
    Entity(entity_id="nobody", weight=5.0),
    Entity(entity_id="nothing", weight=0.0),
)


def _odd(
    num_workers: tuple[int, ...],
    *classes: JobClass,
    prices: tuple[float, ...] | None = None,
    slo_s: float = 1e5,
    entities: tuple[Entity, ...] = (),
) -> Problem:
    """A problem of which every policy finds all that it asks for, in pairs too."""
    names = [entity.entity_id for entity in entities] or [""]
    ranked, rank = [], 0
    for n, each in enumerate(classes):
        jobs = len(each.job_ids)
        ranked.append(
            msgspec.structs.replace(
                each,
                entity=names[n % len(names)].replace("nobody", "one"),
                arrival_ranks=tuple(range(rank, rank + jobs)),
                isolated_s=(0.0,) * jobs,
                held_s=(0.0,) * jobs,
                slo_remaining_s=(slo_s,) * jobs,
            )
        )
        rank += jobs
    pairs = {
        (c, d): (
            tuple(0.7 * speed for speed in one.throughputs),
            tuple(0.7 * speed for speed in other.throughputs),
        )
        for c, one in enumerate(ranked)
        for d, other in enumerate(ranked[c:], c)
    }
    return msgspec.structs.replace(
        problem(num_workers, *ranked),
        pairs=pairs,
        prices_usd_per_h=(1.0,) * len(num_workers) if prices is None else prices,
        reference_type="k80",
        entities=entities,
    )


_TWO = (job_class(1.0, 3.0, ids="a b c"), job_class(2.0, 2.5, ids="d"))
_ODD: dict[str, Callable[[], Problem]] = {
    "one job": lambda: _odd((2, 2), job_class(1.0, 3.0)),
    "no job": lambda: _odd((2, 2)),
    "all jobs identical": lambda: _odd((2, 1), job_class(1.0, 3.0, ids="a b c d e f g")),
    "a job that runs nowhere": lambda: _odd((2, 2), *_TWO, job_class(0.0, 0.0, ids="never")),
    "throughputs from 1e-4 to 1e4": lambda: _odd(
        (3, 2), job_class(1e-4, 1e4, ids="a b"), job_class(1e4, 1e-4, ids="c d e")
    ),
    "weights 1e-6 and 1e6": lambda: _odd(
        (2, 1),
        job_class(1.0, 3.0, ids="a b", weight=1e-6),
        job_class(2.0, 2.5, ids="c d e", weight=1e6),
    ),
    "a scale factor above every type": lambda: _odd(
        (2, 3), *_TWO, job_class(1.0, 1.0, ids="never", scale_factor=4)
    ),
    "one worker": lambda: _odd((1,), job_class(1.0, ids="a b c"), job_class(2.0, ids="d")),
    "a type nobody can use": lambda: _odd((2, 5), job_class(1.0, 0.0, ids="a b c")),
    "an SLO that has passed": lambda: _odd((2, 2), *_TWO, slo_s=-10.0),
    "workers that cost nothing": lambda: _odd((2, 2), *_TWO, prices=(0.0, 0.0)),
    "one type that costs nothing": lambda: _odd((1, 2), *_TWO, prices=(0.0, 1.0)),
    "an empty entity, and one of weight 0": lambda: _odd(
        (1, 2), *_TWO, job_class(1.0, 1.5, ids="e f"), entities=_ENTITIES
    ),
}


@pytest.mark.parametrize("name", sorted(POLICIES))
@pytest.mark.parametrize("what", _ODD)
def test_odd_problems_have_feasible_answers(what: str, name: str) -> None:
    """Nothing is raised, no worker and no time given twice; who cannot run is named, and alone."""
    asked = _ODD[what]()
    allocation = resolve(name).solve(asked)
    assert fault(asked, allocation) is None
    impossible = {"never"} & {job for c in asked.classes for job in c.job_ids}
    assert allocation.set_aside.keys() == impossible
    served = {job for row in allocation.rows for c in row.combinations for job in c}
    assert served.isdisjoint(impossible)
    assert bool(served) == bool(asked.num_jobs)
    if name.startswith("cost-slo") and what == "an SLO that has passed":
        assert allocation.unmet.keys() == {"a", "b", "c", "d"}
    else:
        assert not allocation.unmet


class _FailsLater:
    """Gives the first job all it can use, and has no answer once there is a second."""

    needs_progress = False

    def solve(self, problem: Problem) -> Allocation:
        if problem.num_jobs > 1:
            raise ValueError("two are too many")
        (only,) = problem.classes
        return Allocation(rows=(AllocationRow((only.job_ids,), {"v100": 1.0}),))


@pytest.fixture
def _registered() -> Iterator[None]:
    """What a test registers is gone after it."""
    catalog.register("fails-later", _FailsLater)
    yield
    catalog._registered.clear()


@pytest.mark.usefixtures("_registered")
def test_after_a_failed_solve_the_last_feasible_allocation_stays() -> None:
    """The job that it knows goes on by it, with more of the worker than the newcomer beside it."""
    (job_type, _), *_ = table().classes()
    jobs = [
        JobSpec(job_id=name, job_type=job_type, total_steps=50_000.0, arrival_s=arrival_s)
        for name, arrival_s in (("first", 0.0), ("second", 900.0))
    ]
    failures: list[Record] = []

    def keep(record: Record) -> None:
        if isinstance(record.event, AllocationFailed):
            failures.append(record)

    simulation = Simulation(
        MemoryLog(),
        default_mode("fails-later", 360.0),
        build_workers({"v100": 1}, {}, {}),
        table(),
        jobs,
        observers=(keep,),
    )
    summary = simulation.run()
    assert [json.loads(msgspec.json.encode(r.event))["reason"] for r in failures] == [
        "ValueError: two are too many"
    ]
    first = summary.jobs["first"]
    assert first.completion_s is not None
    assert first.first_start_s is not None
    ran_before_s = 900.0 - first.first_start_s
    part = (first.run_s - ran_before_s) / (first.completion_s - 900.0)
    assert part > 0.6

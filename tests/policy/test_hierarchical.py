"""Hierarchical fairness: right, whatever the tree, and the same for equal input."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas.domain import Entity
from schemas.events import AllocationFailed
from services.policy.core import Solve
from services.policy.hierarchical import Hierarchical
from services.policy.las import Las
from services.policy.problem import Allocation, JobClass, Problem, ProblemError
from services.policy.reference import hierarchical as reference_entities
from services.policy.solve import carry_out
from tests.policy.problems import job_class, problem, problems, shares, violation


@st.composite
def trees(draw: st.DrawFn, asked: Problem) -> Problem:
    """The problem with a random tree above its jobs, and a random order of arrival."""
    entities: list[Entity] = []
    for index in range(draw(st.integers(0, 5))):
        parents = ["", *(entity.entity_id for entity in entities)]
        entities.append(
            Entity(
                entity_id=f"e{index}",
                parent=draw(st.sampled_from(parents)),
                weight=draw(st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.5])),
                policy=draw(st.sampled_from(["fairness", "fifo"])),
            )
        )
    homes = st.sampled_from(["", "nowhere", *(entity.entity_id for entity in entities)])
    ranks = draw(st.permutations(range(asked.num_jobs)))
    classes = []
    for each in asked.classes:
        mine, ranks = sorted(ranks[: len(each.job_ids)]), ranks[len(each.job_ids) :]
        changes = {"entity": draw(homes), "arrival_ranks": tuple(mine)}
        classes.append(msgspec.structs.replace(each, **changes))
    draw(st.randoms(use_true_random=False)).shuffle(entities)
    return msgspec.structs.replace(asked, classes=tuple(classes), entities=tuple(entities))


def levels(asked: Problem, allocation: Allocation) -> dict[str, float]:
    """{job id: thr_i / Tbar_i} of the jobs that can run somewhere."""
    given_shares, workers = shares(asked, allocation), np.array(asked.num_workers, dtype=float)
    result = {}
    for each in asked.classes:
        speeds = np.where(each.scale_factor <= workers, each.throughputs, 0.0)
        for job_id in each.job_ids if speeds.any() else ():
            equal = speeds @ workers / workers.sum()
            result[job_id] = float(speeds @ given_shares[job_id]) / equal
    return result


def under(entities: tuple[Entity, ...], *classes: JobClass, workers: int = 1) -> Problem:
    """A problem on one worker type."""
    return msgspec.structs.replace(problem((workers,), *classes), entities=entities)


@pytest.mark.timeout(300)
@settings(max_examples=50)
@given(st.data())
def test_agrees_with_the_readable_program(data: st.DataObject) -> None:
    """Every job's level is that of water filling job by job, in trees of any shape."""
    asked = data.draw(problems(max_classes=5).flatmap(trees))
    expected = reference_entities.hierarchical(asked)
    allocation = Hierarchical().solve(asked)
    assert violation(asked, allocation) <= 1e-9
    found = levels(asked, allocation)
    assert found.keys() == expected.keys()
    for job_id, level in found.items():
        assert level == pytest.approx(expected[job_id], rel=2e-6, abs=2e-6)


@settings(max_examples=100)
@given(problems(throughput_decades=(-4, 4), weight_decades=(-6, 6), max_classes=20).flatmap(trees))
def test_extreme_numbers_still_give_a_feasible_allocation(asked: Problem) -> None:
    """Weights over twelve orders of magnitude and throughputs over eight do not break it."""
    allocation = Hierarchical().solve(asked)
    assert violation(asked, allocation) <= 1e-9
    assert allocation.objective is None or allocation.objective > 0


@settings(max_examples=60)
@given(problems())
def test_without_entities_it_is_las(asked: Problem) -> None:
    """One entity with everybody below it divides as max-min fairness does."""
    ranked = [
        msgspec.structs.replace(each, arrival_ranks=tuple(range(len(each.job_ids))))
        for each in asked.classes
    ]
    asked = msgspec.structs.replace(asked, classes=tuple(ranked))
    ours, las = Hierarchical().solve(asked), Las().solve(asked)
    assert ours.set_aside == las.set_aside
    assume(las.rows)
    found = levels(asked, ours)
    for job_id, level in levels(asked, las).items():
        assert found[job_id] == pytest.approx(level, rel=1e-6, abs=1e-7)


@settings(max_examples=60)
@given(problems(max_classes=5).flatmap(trees), st.randoms(use_true_random=False))
def test_order_and_grouping_of_the_input_change_nobodys_share(asked: Problem, seed: Random) -> None:
    """Classes in another order, or cut in two, give every job the same; so does asking again."""
    before = Hierarchical().solve(asked)
    assert Hierarchical().solve(asked) == before
    pieces = []
    for each in asked.classes:
        half = len(each.job_ids) // 2
        for part in (slice(0, half), slice(half, None)):
            ids, ranks = each.job_ids[part], each.arrival_ranks[part]
            pieces.append(msgspec.structs.replace(each, job_ids=ids, arrival_ranks=ranks))
    seed.shuffle(pieces)
    after = Hierarchical().solve(msgspec.structs.replace(asked, classes=tuple(pieces)))
    shares_after = shares(asked, after)
    for job_id, share in shares(asked, before).items():
        # A rounding error in a level, from adding in another order, may tip one unit.
        np.testing.assert_allclose(share, shares_after[job_id], atol=1.5e-8)


@pytest.mark.parametrize("order", [("a2", "b0", "b1"), ("b0", "b1", "a2"), ("b1", "a2", "b0")])
def test_two_entities_divide_four_workers_in_two(order: tuple[str, ...]) -> None:
    """A runs a0 and a1; a2, b0 and b1 arrive together: A gets 2 and B 2, in whatever order."""
    entities = (Entity(entity_id="A"), Entity(entity_id="B"))
    ranks = {job: rank for rank, job in enumerate(("a0", "a1", *order))}
    classes = [
        msgspec.structs.replace(
            job_class(1.0, ids=" ".join(ids)),
            entity=ids[0][0].upper(),
            arrival_ranks=tuple(ranks[job] for job in ids),
        )
        for ids in (["a0", "a1", "a2"], ["b0", "b1"])
    ]
    given_shares = shares(
        asked := under(entities, *classes, workers=4), Hierarchical().solve(asked)
    )
    used = {name: sum(x[0] for job, x in given_shares.items() if job[0] == name) for name in "ab"}
    assert used == {"a": pytest.approx(2.0, abs=1e-7), "b": pytest.approx(2.0, abs=1e-7)}


def test_first_in_first_out_inside_an_entity_feeds_the_head_alone() -> None:
    """Of three workers the entity gets: two jobs whole, the third in line nothing but the rest."""
    entities = (Entity(entity_id="q", policy="fifo", weight=2.5), Entity(entity_id="other"))
    queue = msgspec.structs.replace(
        job_class(1.0, ids="late early middle"), entity="q", arrival_ranks=(7, 1, 4)
    )
    others = msgspec.structs.replace(job_class(1.0, ids="o p q"), entity="other")
    asked = under(entities, queue, others, workers=3)
    found = {job: float(x[0]) for job, x in shares(asked, Hierarchical().solve(asked)).items()}
    rest = 3 * 2.5 / 3.5 - 2
    assert found["early"] == found["middle"] == pytest.approx(1.0, abs=1e-7)
    assert found["late"] == pytest.approx(rest, abs=1e-7)


def test_what_an_entity_cannot_use_goes_to_the_others() -> None:
    """One job uses one worker however heavy its entity; empty entities take nothing."""
    entities = (
        Entity(entity_id="heavy", weight=100.0),
        Entity(entity_id="light"),
        Entity(entity_id="empty", weight=5.0),
        Entity(entity_id="empty below", parent="empty"),
    )
    one = msgspec.structs.replace(job_class(1.0, ids="h"), entity="heavy")
    many = msgspec.structs.replace(job_class(1.0, ids="a b c"), entity="light")
    allocation = Hierarchical().solve(asked := under(entities, one, many, workers=4))
    assert {job: x.tolist() for job, x in shares(asked, allocation).items()} == {
        job: [1.0] for job in "habc"
    }
    assert allocation.objective == pytest.approx(1 / 100)


@pytest.mark.parametrize(("workers", "left"), [(2, 0.0), (3, 1.0)])
def test_an_entity_of_weight_zero_gets_leftovers_only(workers: int, left: float) -> None:
    """Its jobs wait while anybody else can use the workers, and run when nobody can."""
    entities = (Entity(entity_id="paying"), Entity(entity_id="guest", weight=0.0))
    paying = msgspec.structs.replace(job_class(1.0, ids="a b"), entity="paying")
    guest = msgspec.structs.replace(job_class(1.0, ids="g"), entity="guest")
    asked = under(entities, paying, guest, workers=workers)
    given_shares = shares(asked, Hierarchical().solve(asked))
    assert given_shares["a"].tolist() == given_shares["b"].tolist() == [1.0]
    assert given_shares["g"].tolist() == [left]


def test_without_configuration_all_jobs_belong_to_one_entity_beside_the_others() -> None:
    """A job that names an unknown entity, and one that names none, together weigh 1."""
    entities = (Entity(entity_id="known"),)
    known = msgspec.structs.replace(job_class(1.0, ids="k"), entity="known")
    unknown = msgspec.structs.replace(job_class(1.0, ids="u"), entity="misspelt")
    asked = under(entities, known, unknown, job_class(1.0, ids="n"))
    found = {job: x.tolist() for job, x in shares(asked, Hierarchical().solve(asked)).items()}
    assert found == {"k": [0.5], "u": [0.25], "n": [0.25]}


@pytest.mark.parametrize("more", [(1, 0), (0, 1)])
def test_prices_say_what_one_more_worker_is_worth_to_the_lowest_entity(
    more: tuple[int, int],
) -> None:
    """Entities of weight 1 and 3, each held down by workers: one more, of either type, is 1/4."""
    entities = (Entity(entity_id="a"), Entity(entity_id="b", weight=3.0))

    def solve(num_workers: tuple[int, ...]) -> Allocation:
        classes = [
            msgspec.structs.replace(job_class(1.0, 1.0, ids=ids), entity=ids[0])
            for ids in ("a1 a2 a3 a4", "b1 b2 b3 b4")
        ]
        asked = msgspec.structs.replace(problem(num_workers, *classes), entities=entities)
        return Hierarchical().solve(asked)

    before, after = solve((2, 1)), solve((2 + more[0], 1 + more[1]))
    assert before.objective is not None
    assert after.objective == pytest.approx(before.objective + 1 / 4)
    assert before.prices == {"k80": pytest.approx(1 / 4), "p100": pytest.approx(1 / 4)}
    assert sorted(before.bottlenecked) == [e + n for e in "ab" for n in "1234"]


@pytest.mark.parametrize("num_workers", [(), (0,), (0, 3)])
@pytest.mark.parametrize("with_job", [False, True])
def test_no_jobs_no_workers_no_types_are_ordinary(
    num_workers: tuple[int, ...], with_job: bool
) -> None:
    """Emptiness of any kind is answered, not raised; a job without workers is set aside."""
    classes = [job_class(*[1.0] * len(num_workers))] if with_job else []
    allocation = Hierarchical().solve(problem(num_workers, *classes))
    assert len(allocation.rows) == int(with_job and sum(num_workers) > 0)
    assert len(allocation.set_aside) == int(with_job and sum(num_workers) == 0)


@pytest.mark.parametrize(
    ("entities", "message"),
    [
        (
            (Entity(entity_id="a", parent="b"), Entity(entity_id="b", parent="a")),
            "entities are their own ancestors: a -> b -> a; must be a tree",
        ),
        ((Entity(entity_id="a", parent="a"),), "own ancestors: a -> a"),
        ((Entity(entity_id="a"), Entity(entity_id="a")), "entity 'a' is configured twice"),
        ((Entity(entity_id="a", parent="x"),), "entity 'a': parent is 'x', must be '' or one of a"),
        ((Entity(entity_id="a", weight=-1.0),), r"entity 'a': weight is -1.0, must be finite"),
        ((Entity(entity_id="a", weight=float("nan")),), "entity 'a': weight is nan"),
        ((Entity(entity_id="a", policy="lottery"),), "entity 'a': policy is 'lottery', must be"),
        ((Entity(entity_id=""),), "an entity has the id ''"),
    ],
)
def test_what_is_no_tree_is_refused_by_name(entities: tuple[Entity, ...], message: str) -> None:
    """The error names the entity, the value, and what would be right."""
    with pytest.raises(ProblemError, match=message):
        Hierarchical().solve(under(entities, job_class(1.0)))


def test_a_queue_without_ranks_has_no_order() -> None:
    """A class of a ``fifo`` entity that does not say when its jobs arrived is refused by name."""
    unranked = JobClass(
        job_type="x", scale_factor=1, throughputs=(1.0,), job_ids=("a", "b"), entity="q"
    )
    with pytest.raises(ProblemError, match=r"class 0 \(x\): arrival_ranks has 0 values, .* 2 jobs"):
        Hierarchical().solve(under((Entity(entity_id="q", policy="fifo"),), unranked))


def test_a_circle_of_entities_is_a_failed_allocation_not_an_exception() -> None:
    """On the log it is an event that names the circle; the last allocation stays in force."""
    circle = (Entity(entity_id="a", parent="b"), Entity(entity_id="b", parent="a"))
    event = carry_out(Solve("hierarchical", {}, under(circle, job_class(1.0))))
    assert isinstance(event, AllocationFailed)
    assert "a -> b -> a" in event.reason

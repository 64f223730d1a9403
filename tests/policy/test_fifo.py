"""FIFO: strict order of arrival, fastest type first."""

from __future__ import annotations

import pytest

from services.policy.fifo import Fifo
from services.policy.problem import JobClass, Problem, ProblemError
from tests.policy.problems import TYPES, job_class, problem, shares


def queue(num_workers: tuple[int, ...], *jobs: tuple[tuple[float, ...], int]) -> Problem:
    """Jobs "0", "1", ... as (throughputs, scale factor), in order of arrival."""
    return Problem(
        worker_types=TYPES[: len(num_workers)],
        num_workers=num_workers,
        classes=tuple(
            JobClass(
                job_type=f"type-{rank}",
                scale_factor=scale_factor,
                throughputs=throughputs,
                job_ids=(str(rank),),
                arrival_ranks=(rank,),
            )
            for rank, (throughputs, scale_factor) in enumerate(jobs)
        ),
    )


def placed(asked: Problem) -> dict[str, str]:
    """{job id: its worker type} of the jobs that run."""
    allocation = Fifo().solve(asked)
    return {
        job_id: asked.worker_types[int(share.argmax())]
        for job_id, share in shares(asked, allocation).items()
        if share.any()
    }


def test_each_takes_its_fastest_type_with_room() -> None:
    """The first gets the fast worker although the second loses more by the slow one.

    A sum of throughputs weighted by arrival, which stands for FIFO in the paper, swaps the two.
    """
    asked = queue((1, 1), ((0.9, 1.0), 1), ((0.1, 1.0), 1))
    assert placed(asked) == {"0": "p100", "1": "k80"}
    weighted = {"as here": 2 * 1.0 + 1 * 0.1, "swapped": 2 * 0.9 + 1 * 1.0}
    assert max(weighted, key=lambda order: weighted[order]) == "swapped"


def test_nobody_behind_takes_what_the_head_waits_for() -> None:
    """A gang of 4 finds 3 workers: they stay free for it, and small jobs do not slip past."""
    asked = queue((0, 4), ((0.0, 1.0), 1), ((0.0, 1.0), 4), ((0.0, 1.0), 1))
    assert placed(asked) == {"0": "p100"}


def test_types_the_head_cannot_use_are_open_to_those_behind() -> None:
    """The waiting gang closes p100s; k80s, on which it cannot run, go to the next."""
    asked = queue((1, 4), ((0.0, 1.0), 1), ((0.0, 1.0), 4), ((0.1, 1.0), 1))
    assert placed(asked) == {"0": "p100", "2": "k80"}


def test_arrival_counts_across_classes_and_not_the_order_of_the_input() -> None:
    """The same jobs listed last come first."""
    asked = queue((1,), ((1.0,), 1), ((1.0,), 1))
    backwards = problem((1,), *reversed(asked.classes))
    assert placed(asked) == placed(backwards) == {"0": "k80"}


def test_jobs_of_a_class_on_one_type_are_one_row() -> None:
    """Three of a kind on two k80s and a p100: two rows, the fastest type first filled."""
    allocation = Fifo().solve(problem((2, 1), job_class(1.0, 2.0, ids="a b c")))
    assert [(row.combinations, row.shares) for row in allocation.rows] == [
        ((("b",), ("c",)), {"k80": 1.0}),
        ((("a",),), {"p100": 1.0}),
    ]


def test_a_job_that_fits_nowhere_blocks_nobody() -> None:
    """It is set aside with its numbers instead of waiting at the head for ever."""
    asked = queue((2,), ((1.0,), 4), ((1.0,), 1))
    assert placed(asked) == {"1": "k80"}
    assert "4 workers" in Fifo().solve(asked).set_aside["0"]


def test_without_ranks_there_is_no_order() -> None:
    """A class that does not say when its jobs arrived is refused by name."""
    unranked = JobClass(job_type="x", scale_factor=1, throughputs=(1.0,), job_ids=("a", "b"))
    with pytest.raises(ProblemError, match=r"class 0 \(x\): arrival_ranks has 0 values, .* 2 jobs"):
        Fifo().solve(problem((1,), unranked))

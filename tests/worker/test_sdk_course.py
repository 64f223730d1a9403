"""Where a loop halts: proposals, agreed steps, silence; the thread and the loop at once."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from services.worker.sdk.src.gavel_iterator.course import AHEAD_S, Course, work_ahead


def walk(course: Course, until: int, held: threading.Event) -> None:
    """Train up to an iteration, as the iterator does."""
    while course.iteration < until:
        course.iteration += 1
        if course.iteration >= course.halt_at:
            held.set()
            course.hold()


def test_a_rank_waits_at_its_proposal() -> None:
    """It stands exactly there until the agreed step is known, then goes on to that."""
    course, held = Course(1000), threading.Event()
    course.iteration = 10
    proposed = course.propose(0.0)
    assert proposed > 10
    loop = threading.Thread(target=walk, args=(course, proposed + 5, held))
    loop.start()
    assert held.wait(60)
    assert course.iteration == proposed
    course.stop(proposed + 5)
    loop.join(60)
    assert course.iteration == proposed + 5
    assert course.stop_due


def test_a_question_that_is_dropped_lets_go() -> None:
    """If the worker service is lost while a rank waits, it trains on."""
    course, held = Course(1000), threading.Event()
    proposed = course.propose(0.0)
    loop = threading.Thread(target=walk, args=(course, 100, held))
    loop.start()
    assert held.wait(60)
    assert course.iteration == proposed
    course.withdraw()
    loop.join(60)
    assert course.iteration == 100
    assert not course.stop_due


@given(st.lists(st.integers(1, 500), min_size=1, max_size=5), st.integers(1, 400))
def test_no_rank_is_past_the_agreed_step(counts: list[int], total: int) -> None:
    """However far apart ranks are: the highest proposal is ahead of each, or the job's end."""
    ranks = []
    for count in counts:
        course = Course(total)
        course.iteration = min(count, total)
        ranks.append(course)
    agreed = max(course.propose(0.0) for course in ranks)
    for course in ranks:
        course.stop(agreed)
        assert course.iteration < agreed or course.complete
        assert course.halt_at == min(agreed, total)


def test_silence_stops_at_the_next_step_after_the_end() -> None:
    """Before the lease's end nothing halts; from it on, every step; a renewal in time prevents."""
    course = Course(1000)
    course.renew(50.0)
    course.tick(49.9)
    assert course.halt_at == 1000
    course.renew(60.0)
    course.tick(50.1)
    assert not course.stop_due
    course.tick(60.0)
    assert course.stop_due
    assert course.halt_at == 0


def test_an_agreed_step_outlives_the_lease() -> None:
    """A stop that was agreed on ahead is kept to, even where the lease ends before it."""
    course = Course(1000)
    course.renew(50.0)
    course.stop(400)
    course.tick(51.0)
    assert course.halt_at == 400


def test_a_lease_that_ends_does_not_part_ranks_that_are_meeting() -> None:
    """A rank that was asked where to stop is told; with nobody to tell it, it stops by itself."""
    course = Course(1000)
    course.renew(50.0)
    proposed = course.propose(49.0)
    course.tick(51.0)
    assert course.halt_at == proposed
    course.withdraw()
    course.tick(51.1)
    assert course.stop_due


def test_a_checkpoint_does_not_move_the_stop() -> None:
    """A checkpoint on the way halts first; when it is over the stop is next."""
    course = Course(1000)
    course.stop(300)
    course.checkpoint(200)
    assert course.halt_at == 200
    course.iteration = 200
    assert course.checkpoint_due
    assert not course.stop_due
    course.begin_checkpoint()
    assert course.halt_at == 300


def test_a_checkpoint_asked_for_while_one_is_written_is_kept() -> None:
    """The order that comes during a save is carried out after it."""
    course = Course(1000)
    course.checkpoint(200)
    course.iteration = 200
    course.begin_checkpoint()
    course.checkpoint(400)
    assert course.halt_at == 400


@given(
    st.lists(st.tuples(st.floats(0.25, 5), st.integers(0, 1000)), min_size=1, max_size=80),
)
def test_work_ahead_is_at_least_that_of_any_such_span(spans: list[tuple[float, int]]) -> None:
    """No span of up to ``AHEAD_S`` between two samples saw more iterations than are foreseen."""
    samples, at, iteration = [(0.0, 0)], 0.0, 0
    for span_s, trained in spans:
        at, iteration = at + span_s, iteration + trained
        samples.append((at, iteration))
    foreseen = work_ahead(samples)
    for index, (first_s, first) in enumerate(samples):
        for last_s, last in samples[index:]:
            if last_s - first_s <= AHEAD_S:
                assert last - first <= foreseen


@given(st.integers(1, 200), st.integers(16, 80))
def test_work_ahead_of_a_steady_pace(per_sample: int, count: int) -> None:
    """At a steady pace exactly two seconds of work are foreseen."""
    samples = [(0.25 * index, per_sample * index) for index in range(count)]
    assert work_ahead(samples) == per_sample * round(AHEAD_S / 0.25)

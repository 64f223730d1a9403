"""The rules behind the lease socket, on any input."""

from __future__ import annotations

import contextlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from schemas.domain import TaskSpec
from services.worker.ranks import (
    Checkpointed,
    Done,
    Error,
    Message,
    Progress,
    Proposal,
    Ranks,
    RefusedError,
    Stopped,
    decode,
)

TOTAL = 12
COUNT = st.integers(0, TOTAL + 2)
MESSAGES = st.one_of(
    st.builds(Progress, COUNT, COUNT, st.floats(0, 9), st.floats(0, 9)),
    st.builds(Proposal, COUNT),
    st.builds(Checkpointed, COUNT, st.floats(0, 9)),
    st.builds(Stopped, COUNT, COUNT),
    st.builds(Done, COUNT),
    st.builds(Error, COUNT, st.text(max_size=20)),
)


def fresh() -> Ranks:
    """Two ranks of a job of ``TOTAL`` iterations each."""
    spec = TaskSpec(job_id="j", job_type="m", scale_factor=2, total_steps=2.0 * TOTAL)
    return Ranks(spec, (0, 1))


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_line_is_a_message_or_is_refused(line: bytes) -> None:
    """Whatever bytes come, the answer is a message or a refusal, and no other error."""
    with contextlib.suppress(RefusedError):
        assert isinstance(decode(line), Message)


@given(MESSAGES)
def test_messages_survive_the_wire(message: Message) -> None:
    """What one side says is what the other hears."""
    assert decode(msgspec.json.encode(message)) == message


@given(st.lists(st.tuples(st.integers(0, 1), MESSAGES), max_size=40))
def test_whatever_is_said_counts_only_grow(said: list[tuple[int, Message]]) -> None:
    """Checkpointed <= iteration <= total, never less than before; a refusal changes nothing."""
    ranks = fresh()
    for rank_id, message in said:
        rank = ranks.ranks[rank_id]
        before = msgspec.to_builtins(rank)
        iteration, checkpointed = rank.iteration, rank.checkpointed
        try:
            ranks.hear(rank_id, message)
        except RefusedError:
            assert msgspec.to_builtins(rank) == before
        assert iteration <= rank.iteration <= TOTAL
        assert checkpointed <= rank.checkpointed <= rank.iteration


def test_a_proposal_is_no_progress() -> None:
    """A rank names a step ahead, and reports the ones on the way to it as they come."""
    ranks = fresh()
    for rank_id in (0, 1):
        ranks.hear(rank_id, Progress(3, 0, 0.0, 0.0))
        ranks.hear(rank_id, Proposal(9 + rank_id))
    assert ranks.agreeable() == 10
    ranks.hear(0, Progress(4, 0, 0.0, 0.0))
    steps = ranks.steps()
    assert steps is not None
    assert steps.steps == 2 * 3


@given(st.lists(st.tuples(st.integers(0, 1), MESSAGES), max_size=40))
def test_a_task_never_claims_more_than_each_rank_has_done(said: list[tuple[int, Message]]) -> None:
    """Steps are known once both ranks have loaded, and are the lower count times two."""
    ranks = fresh()
    for rank_id, message in said:
        with contextlib.suppress(RefusedError):
            ranks.hear(rank_id, message)
    steps = ranks.steps()
    if steps is None:
        assert not all(rank.loaded for rank in ranks.ranks.values())
    else:
        assert steps.steps == 2 * min(rank.iteration for rank in ranks.ranks.values())
        assert steps.checkpointed_steps <= steps.steps

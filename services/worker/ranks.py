"""What training processes say, and what of it holds: the rules behind ``lease_socket.py``.

A training process is somebody else's code, so that whatever it says is checked against what the
worker knows of its lease; what does not hold is refused by name and changes nothing. The protocol
is on one screen in ``sdk/src/gavel_iterator/protocol.py``.

Words: an *iteration* is one batch of one rank, counted from the job's first; the job's steps are
iterations x scale factor, since all ranks advance together.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from schemas.domain import TaskSpec

PROTOCOL_VERSION = 1
LINE_LIMIT = 64 * 1024

_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class RefusedError(Exception):
    """A process said what does not hold; ``kind`` is one word to count by."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


# --- messages -------------------------------------------------------------------------------------


class Message(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag=str.lower):
    """Base of what a rank says."""


class Hello(Message, frozen=True, gc=False, tag="hello"):
    """First line of a connection."""

    protocol: int
    lease: str
    job: str
    rank: _Natural
    world: _Natural
    iteration: _Natural
    checkpointed: _Natural


class Progress(Message, frozen=True, gc=False, tag="progress"):
    """How far a rank is; seconds are sums under this lease."""

    iteration: _Natural
    checkpointed: _Natural
    load_s: _Seconds
    save_s: _Seconds


class Proposal(Message, frozen=True, gc=False, tag="proposal"):
    """An iteration that the rank does not pass before it is told where to stop."""

    iteration: _Natural


class Checkpointed(Message, frozen=True, gc=False, tag="checkpointed"):
    """The rank's part of a checkpoint is on disk."""

    iteration: _Natural
    save_s: _Seconds


class Stopped(Message, frozen=True, gc=False, tag="stopped"):
    """The rank has left its loop, as the lease is over."""

    iteration: _Natural
    checkpointed: _Natural


class Done(Message, frozen=True, gc=False, tag="done"):
    """The rank has trained and saved all of the job's steps."""

    iteration: _Natural


class Error(Message, frozen=True, gc=False, tag="error"):
    """What went wrong in the rank."""

    iteration: _Natural
    text: Annotated[str, msgspec.Meta(max_length=LINE_LIMIT)]


_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(
    Hello | Progress | Proposal | Checkpointed | Stopped | Done | Error
)


def decode(line: bytes) -> Message:
    """The message of one line.

    Raises
    ------
    RefusedError
        ``not_json`` or ``malformed``, with the field and what would be right.
    """
    try:
        return _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise RefusedError("malformed", str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError("not_json", f"{line[:80]!r}: {error}") from error


# --- ranks ----------------------------------------------------------------------------------------


class TaskSteps(msgspec.Struct, frozen=True):
    """How far a task is: the rank that is furthest back counts. Whole-job, absolute steps."""

    steps: float
    checkpointed_steps: float
    load_s: float
    save_s: float


@dataclass(slots=True)
class Rank:
    """What is known of one training process."""

    #: Whether it has loaded, so that its figures are the job's.
    loaded: bool = False
    iteration: int = 0
    checkpointed: int = 0
    load_s: float = 0.0
    save_s: float = 0.0
    proposal: int | None = None


@dataclass(slots=True)
class Ranks:
    """The ranks of one task that run on this server."""

    spec: TaskSpec
    ids: Collection[int]
    ranks: dict[int, Rank] = field(init=False)

    def __post_init__(self) -> None:
        self.ranks = {rank: Rank() for rank in sorted(self.ids)}

    @property
    def total_iterations(self) -> int:
        """Iterations of each rank that complete the job."""
        return math.ceil(self.spec.total_steps / self.spec.scale_factor)

    def greet(self, hello: Hello, *, is_new: bool) -> None:
        """A process says which rank it is; a new one starts from nothing.

        Raises
        ------
        RefusedError
            ``protocol``, ``unknown_rank``, or what its figures earn.
        """
        if hello.protocol != PROTOCOL_VERSION:
            raise RefusedError(
                "protocol", f"protocol is {hello.protocol}, this worker speaks {PROTOCOL_VERSION}"
            )
        if hello.rank not in self.ranks or hello.world != self.spec.scale_factor:
            raise RefusedError(
                "unknown_rank",
                f"rank {hello.rank} of {hello.world}: here are ranks {sorted(self.ranks)} of "
                f"{self.spec.scale_factor}",
            )
        rank = Rank() if is_new else self.ranks[hello.rank]
        self._count(rank, hello.iteration, hello.checkpointed)
        self.ranks[hello.rank] = rank

    def hear(self, rank_id: int, message: Message) -> None:
        """Take in what a rank says.

        Raises
        ------
        RefusedError
            ``steps_decreased``, ``steps_beyond_total``, ``checkpoint_ahead``, ``done_early``,
            ``second_hello``.
        """
        rank = self.ranks[rank_id]
        match message:
            case Progress():
                self._count(rank, message.iteration, message.checkpointed)
                rank.loaded = True
                rank.load_s, rank.save_s = message.load_s, message.save_s
            case Checkpointed():
                self._count(rank, max(rank.iteration, message.iteration), message.iteration)
                rank.save_s += message.save_s
            case Stopped():
                self._count(rank, message.iteration, message.checkpointed)
            case Done():
                if message.iteration < self.total_iterations:
                    raise RefusedError(
                        "done_early",
                        f"done at {message.iteration} of {self.total_iterations} iterations",
                    )
                self._count(rank, message.iteration, message.iteration)
            case Proposal():
                # Where it may come to stand, not where it is.
                self._check_within(message.iteration)
                rank.proposal = message.iteration
            case Hello():
                raise RefusedError("second_hello", "a connection says hello once")

    def forget_proposals(self) -> None:
        """A new question makes old answers void."""
        for rank in self.ranks.values():
            rank.proposal = None

    def agreeable(self) -> int | None:
        """The highest proposal, once every rank here has made one: none is past it."""
        proposals = [rank.proposal for rank in self.ranks.values()]
        known = [proposal for proposal in proposals if proposal is not None]
        return max(known) if len(known) == len(proposals) else None

    def steps(self) -> TaskSteps | None:
        """How far the task is; None until each of its ranks here has loaded."""
        ranks = self.ranks.values()
        if not all(rank.loaded for rank in ranks):
            return None
        iteration = min(rank.iteration for rank in ranks)
        checkpointed = min(rank.checkpointed for rank in ranks)
        return TaskSteps(
            steps=min(float(iteration * self.spec.scale_factor), self.spec.total_steps),
            checkpointed_steps=min(
                float(checkpointed * self.spec.scale_factor), self.spec.total_steps
            ),
            load_s=max(rank.load_s for rank in ranks),
            save_s=max(rank.save_s for rank in ranks),
        )

    def _count(self, rank: Rank, iteration: int, checkpointed: int) -> None:
        """Take over a rank's counts, all or none."""
        self._check_within(iteration)
        if checkpointed > iteration:
            raise RefusedError(
                "checkpoint_ahead", f"checkpointed {checkpointed} is ahead of iteration {iteration}"
            )
        if iteration < rank.iteration or checkpointed < rank.checkpointed:
            raise RefusedError(
                "steps_decreased",
                f"iteration {iteration}, checkpointed {checkpointed}: it said {rank.iteration} and "
                f"{rank.checkpointed} before",
            )
        rank.iteration, rank.checkpointed = iteration, checkpointed

    def _check_within(self, iteration: int) -> None:
        if iteration > self.total_iterations:
            raise RefusedError(
                "steps_beyond_total", f"iteration {iteration}: the job has {self.total_iterations}"
            )

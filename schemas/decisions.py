"""What a core may want: tell the others, be woken, have work done outside."""

from __future__ import annotations

from typing import ClassVar, Protocol

import msgspec

from schemas.events import AnyEvent, Event


class Emit(msgspec.Struct, frozen=True, gc=False):
    """Append this event to the log."""

    event: AnyEvent


class Wake(msgspec.Struct, frozen=True, gc=False):
    """Append ``TimerFired(timer)`` once log time reaches ``at_s``. Names are never reused."""

    timer: str
    at_s: float


class Effect(Protocol):
    """Work outside a core. It holds its whole input; carrying it out twice is harmless.

    One that every start of its actor asks for anew says so, ``of_one_start = True``.
    """

    #: The kinds of event of which one, as a result, ends the effect.
    ends_with: ClassVar[tuple[type[Event], ...]]


class Run(msgspec.Struct, frozen=True, gc=False):
    """Carry out an effect; what comes of it is appended as ordinary events of the actor."""

    effect: Effect


Decision = Emit | Wake | Run

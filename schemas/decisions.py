"""What a core may want: tell the others, be woken, have work done outside."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.events import AnyEvent


class Emit(msgspec.Struct, frozen=True):
    """Append this event to the log."""

    event: AnyEvent


class Wake(msgspec.Struct, frozen=True):
    """Append ``TimerFired(timer)`` once log time reaches ``at_s``. Names are never reused."""

    timer: str
    at_s: float


class Run(msgspec.Struct, frozen=True):
    """Carry out an effect outside the core; what comes of it is appended as ordinary events.

    The effect holds its whole input, and carrying it out twice is harmless.
    """

    effect: Any


Decision = Emit | Wake | Run

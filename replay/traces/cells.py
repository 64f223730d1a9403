"""Cells of other people's traces, read: numbers, names, and times in whatever way they are written.

A cell that cannot be read raises ``BadCellError``; its row is then left out, and counted under the
error's words. So these name the column and what would be right, not the value.
"""

from __future__ import annotations

import math
import zlib
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from replay.traces.errors import TraceError
from schemas.subjects import is_safe_name

#: What stands where nothing is known, whatever the case.
_MISSING = frozenset({"", "none", "null", "nan", "na", "n/a", "-", "nat"})
#: Zones that stand behind a time in words; seconds east of Greenwich.
_NAMED_ZONES = {"PST": -28800, "PDT": -25200, "UTC": 0, "GMT": 0, "Z": 0}
_ID_LENGTH = 55


class BadCellError(Exception):
    """A cell without which its row is no job."""


def is_missing(text: str | None) -> bool:
    """Whether a cell says that nothing is known."""
    return not text or (not text[0].isdigit() and text.strip().lower() in _MISSING)


def number(text: str, column: str, unit: str = "a number") -> float:
    """A finite number; ``1.0``, ``1e3`` and blanks around are fine.

    Raises
    ------
    BadCellError
        It is none, or missing.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        missing = "is missing" if is_missing(text) else "is no number"
        raise BadCellError(f"{column} {missing}; expected {unit}")
    return value


@lru_cache(1 << 16)
def name(text: str | None) -> str:
    """A user, a queue or a tenant as a name that can be printed; empty if missing."""
    if text is None or is_missing(text):
        return ""
    return "".join(c if c.isprintable() else "?" for c in text.strip())[:64]


def safe_id(text: str) -> str:
    """A job id of ours: the source's own where it can be one, else one made of it."""
    if is_safe_name(text):
        return text
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in text)
    return f"{plain[:_ID_LENGTH]}-{zlib.crc32(text.encode(errors='replace')):08x}"


def zone(key: str) -> tzinfo:
    """A time zone by its name in the tz database, or UTC.

    Raises
    ------
    TraceError
        There is no such zone, or no database on this machine.
    """
    if key == "UTC":
        return UTC
    try:
        return ZoneInfo(key)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        expected = (
            "a name of the tz database, such as Asia/Shanghai, or UTC "
            "(`pip install tzdata` where the machine has no such database)"
        )
        raise TraceError("--zone", f"{key!r} is not known; expected {expected}") from None


class Clock:
    """From times as they are written to seconds since 1970.

    Dates with an offset, ``Z`` or the name of a US zone count by it, those without in ``zone``; a
    bare number is seconds already. An hour that clocks show twice is taken to be the first.
    """

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        #: {all of a time but its minutes and seconds: its hour, s since 1970}
        self._hours: dict[str, float] = {}

    def __call__(self, text: str, column: str) -> float:
        """Seconds since 1970.

        Raises
        ------
        BadCellError
            It is missing or no time.
        """
        # Most rows fall into hours that other rows have been in.
        if len(text) in (19, 25) and text[13] == text[16] == ":":
            key = text[:13] + text[19:]
            hour = self._hours.get(key)
            if hour is None:
                hour = self._hours[key] = self._read(key, column)
            minutes, seconds = text[14:16], text[17:19]
            if minutes.isdigit() and seconds.isdigit() and minutes < "60" > seconds:
                return hour + 60 * int(minutes) + int(seconds)
        return self._read(text, column)

    def elapsed(self, start: str, end: str, columns: tuple[str, str]) -> tuple[float, bool]:
        """Seconds between, and whether clocks were put back on the way.

        Only where a job would else have ended before it began is an end in the hour that clocks
        show twice taken to be the second.
        """
        began, ended = self(start, columns[0]), self(end, columns[1])
        if ended < began <= ended + 3600:
            later = self._read(end, columns[1], fold=1)
            if later > ended:
                return later - began, True
        return ended - began, False

    def _read(self, text: str, column: str, fold: int = 0) -> float:
        if is_missing(text):
            raise BadCellError(f"{column} is missing; expected a time")
        plain = text.strip()
        if plain[0].isdigit() and "-" not in plain and ":" not in plain:
            return number(plain, column, "a time")
        head, _, last = plain.rpartition(" ")
        offset = _NAMED_ZONES.get(last.upper()) if head else None
        try:
            when = datetime.fromisoformat(plain if offset is None else head)
            if offset is not None:
                return when.replace(tzinfo=UTC).timestamp() - offset
            if when.tzinfo is None:
                when = when.replace(tzinfo=self._zone, fold=fold)
            return when.timestamp()
        except (ValueError, OverflowError):
            raise BadCellError(f"{column} is no time; expected YYYY-MM-DD HH:MM:SS") from None

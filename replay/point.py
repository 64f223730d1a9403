"""A moment of a log, as people type it: a time since its first record, or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from replay.options import OptionError

_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def log_time(option: str, text: str, first_s: float) -> float:
    """Read ``5400``, ``90m``, ``1.5h`` (since the first record) or ``2026-12-01T10:00`` (UTC).

    Parameters
    ----------
    option, text : what was typed
    first_s : log time of the first record, s

    Raises
    ------
    OptionError
        It is none of these.
    """
    parsed = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)(s|m|min|h|d|)", text.strip())
    if parsed:
        return first_s + float(parsed[1]) * _UNITS_S[parsed[2]]
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        expected = "a time since the log's first record, as in 5400, 90m or 1.5h, or a date"
        raise OptionError(option, text, f"{expected}, as in 2026-12-01T10:00") from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()

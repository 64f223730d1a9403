"""What a process says to its operator: one line an occasion, for people or for machines.

Not the log: that one holds what happened to the cluster. These lines say how a process fares, and
name the record (``seq``, ``cause``) and the job by which to look it up there.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

#: Names of levels, as settings have them.
LEVELS = ("debug", "info", "warning", "error")


def configure(
    *, level: str = "info", json: bool | None = None, output: TextIO | None = None
) -> None:
    """Set up the lines of this process.

    Parameters
    ----------
    level : one of ``LEVELS``; less is not written
    json : one JSON object a line; by default unless a terminal reads along
    output : by default the standard error output, as it stands at this moment
    """
    assert level in LEVELS, f"settings are checked before they are used: {level!r}"
    to = sys.stderr if output is None else output
    as_json = not to.isatty() if json is None else json
    ending: tuple[Processor, ...] = (
        (structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(sort_keys=True))
        if as_json
        else (structlog.dev.ConsoleRenderer(colors=to.isatty()),)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *ending,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(to),
        cache_logger_on_first_use=False,
    )


def logger(service: str, **bound: object) -> FilteringBoundLogger:
    """Lines of one service; bind ``seq``, ``cause`` or ``job`` where they are known."""
    lines: FilteringBoundLogger = structlog.get_logger(service=service, **bound)
    return lines

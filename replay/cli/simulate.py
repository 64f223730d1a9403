"""``gavel simulate``: its options are a ``Request``, its work is in ``simulate_run.py``."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

from replay.request import Request


def simulate(**options: Any) -> int:
    """Submit a trace to a simulated cluster; print what the schedule comes to.

    The four services that run live run here over a virtual clock: what they do is in the log.
    Equal arguments write equal logs, byte for byte.
    """
    from replay.cli import simulate_run  # noqa: PLC0415 - numpy and the solvers take their time to load

    return simulate_run.run(Request(**options))


# The fields of the request are the options of the command.
vars(simulate)["__signature__"] = inspect.signature(Request, eval_str=True)
simulate.__annotations__ = get_type_hints(Request, include_extras=True)

"""Carries out ``gavel verify``: checks, and says what was found."""

from __future__ import annotations

from pathlib import Path

from replay import own_policy, views
from replay.options import OptionError
from replay.places import lines_in
from replay.resolve import Resolved
from replay.verdict import told, told_solves
from replay.verify import verify_log


def run(log: Path, *, resolve: bool, policy: str, json: bool) -> int:
    """Verify a log file and say what was found; returns the exit code.

    Raises
    ------
    NewerSchemaError
        The log needs a newer release.
    OptionError, OwnPolicyError
        The policy is none, or not needed.
    """
    if policy and not (resolve and ".py:" in policy):
        expected = "FILE.py:CLASS, with --resolve; the installed policies need no naming"
        raise OptionError("--policy", policy, expected)
    own_policy.load(policy)
    resolved = Resolved() if resolve else None
    with views.record_progress(lines_in(log), "verifying") as progress:
        report = verify_log(log, progress, resolved.take if resolved is not None else None)
    if json:
        found = {"ok": report.ok, "report": report, "resolved": resolved}
        views.print_json(found)
    else:
        for line in [*told(log, report), *(told_solves(resolved) if resolved else [])]:
            print(line)
    return 0 if report.ok and (resolved is None or resolved.ok) else 1

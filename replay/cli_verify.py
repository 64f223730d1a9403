"""Carries out ``gavel verify``: the report of ``verify.py`` in words."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from replay.verify import VerifyReport, verify_log
from schemas.subjects import role


def run(log: Path) -> int:
    """Verify a log file and say what was found; returns the exit code.

    Raises
    ------
    NewerSchemaError
        The log needs a newer release.
    """
    with Console(stderr=True).status(f"verifying {log}") as status:
        report = verify_log(log, lambda n: status.update(f"verifying {log}: {n:,} records"))
    for line in told(log, report):
        print(line)
    return 0 if report.ok else 1


def told(log: Path, report: VerifyReport) -> list[str]:
    """The verdict first, then each role's part, then what is worth knowing."""
    verdict = "verified" if report.ok else "does not verify"
    lines = [f"{log}: {verdict}, {report.records} records"]
    if report.divergence is not None:
        lines.append(f"  {report.divergence}")
    roles = sorted({role(actor) for actor in report.actors})
    for name in roles:
        counts = [count for actor, count in report.actors.items() if role(actor) == name]
        records, decided, folded = (
            sum(getattr(count, of) for count in counts) for of in ("records", "decided", "folded")
        )
        older = f", {folded} of another behaviour version" if folded else ""
        lines.append(f"  {name}: {records} records, {decided} decided anew{older}")
    return lines + [f"  note: {warning}" for warning in report.warnings]

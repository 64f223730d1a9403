"""What ``verify`` found, in words."""

from __future__ import annotations

from pathlib import Path

from replay.resolve import OBJECTIVE_TOLERANCE, SHARE_TOLERANCE, Resolved
from replay.verify import VerifyReport
from schemas.subjects import role


def told_solves(resolved: Resolved) -> list[str]:
    """How many allocations came out again, the first that did not, and the worst gaps."""
    counts = f"{resolved.same} the same to the byte, {resolved.close} within the tolerances"
    lines = [f"  solved again: {resolved.solved} times, {counts}, {resolved.other} others"]
    if resolved.first is not None:
        lines.append(f"  the first other: {resolved.first}")
    if resolved.worst_objective is not None and resolved.worst_share is not None:
        objective, share = resolved.worst_objective, resolved.worst_share
        lines.append(
            f"  the worst gaps: objective {objective.objective:.3g} at record {objective.seq} "
            f"(relative; at most {OBJECTIVE_TOLERANCE:g}), share {share.share:.3g} at record "
            f"{share.seq} (at most {SHARE_TOLERANCE:g})"
        )
    for name, number in resolved.unknown.items():
        lines.append(
            f"  not solved again: {number} of policy {name}, which is not installed here "
            "(--policy FILE.py:CLASS)"
        )
    return lines


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

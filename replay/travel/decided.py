"""Decisions in words: what a core wants on a record."""

from __future__ import annotations

from typing import Any

from replay.story import describe, kind
from schemas.decisions import Decision, Effect, Emit, Wake
from services.policy.core import Solve
from services.worker.core import RunRound

#: Longest rendering of an effect's input.
_SHOWN = 120


def told(decision: Decision) -> str:
    """``say EVENT: ...``, ``wake at TIME: timer``, or ``run EFFECT: ...``."""
    if isinstance(decision, Emit):
        return f"say {kind(decision.event)}: {describe(decision.event)}".rstrip(": ")
    if isinstance(decision, Wake):
        return f"wake at {decision.at_s:.2f} s: {decision.timer}"
    return f"run {type(decision.effect).__name__}: {_input(decision.effect)}"


def _input(effect: Effect) -> str:
    if isinstance(effect, Solve):
        problem = effect.problem
        jobs = sum(len(job_class.job_ids) for job_class in problem.classes)
        workers = " + ".join(
            f"{n} {t}" for t, n in zip(problem.worker_types, problem.num_workers, strict=True)
        )
        return f"{effect.policy} for {jobs} jobs in {len(problem.classes)} classes on {workers}"
    if isinstance(effect, RunRound):
        leases = f"leases granted {len(effect.granted)}, renewed {len(effect.renewed)}"
        return f"round {effect.round_id}, {leases}"
    fields: Any = effect
    text = ", ".join(f"{name} {getattr(fields, name)}" for name in fields.__struct_fields__)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."

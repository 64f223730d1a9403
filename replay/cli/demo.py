"""Carries out ``gavel demo``: two policies, the same jobs, and one job's story from the log."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

from replay import figures, story, views
from replay.request import Request
from replay.run import Result, carry_out, check
from schemas.domain import JobSpec
from schemas.events import RoundScheduled
from services.runtime.log import MemoryLog

#: Jobs come nearly as fast as these GPUs can serve them when nobody minds which GPU a job gets.
REQUEST = Request(
    generate=True,
    jobs=300,
    mean_gap=4500.0,
    multi_gpu=True,
    seed=0,
    cluster="v100=12,p100=12,k80=12",
    servers="v100=4,p100=4,k80=4",
    checkpoint_seconds="5",
    window="100:200",
)
BLIND, AWARE = "las:agnostic", "las"
_STORY_LINES = 16

_BEFORE = f"""\
{REQUEST.jobs} jobs, one every {(REQUEST.mean_gap or 0) / 60:.0f} minutes on average, meet 36 GPUs \
(12 each of K80, P100, V100). Both policies give every job an equal share of the cluster; \
"{BLIND}" does so without looking at the GPUs, "{AWARE}" knows what each job gains on each.
"""
_AFTER = """\
The same jobs on the same GPUs are done sooner, because each runs where it gains the most. \
JCT is the time from a job's arrival to its completion, over jobs 100 to 199.
"""
_NEXT = """\
Next, with a log to keep:
  gavel simulate --generate --jobs 50 --cluster v100=8,k80=8 --log run.jsonl
  gavel log tail run.jsonl
  gavel verify run.jsonl
"""


def run() -> int:
    """Run the demo; returns the exit code."""
    out = views.out()
    out.print(_BEFORE)
    blind, _ = _simulate(BLIND)
    aware, log = _simulate(AWARE)
    out.print(figures.comparison(blind, aware))
    out.print(_AFTER)
    job = _moved_once(aware, log)
    out.print(f'Whatever happens is in the log. The story of job {job.job_id} under "{AWARE}":\n')
    told = story.tell(story.Story(job, brief=True), log.read())
    for line in islice(told, _STORY_LINES):
        out.print(line, markup=False, soft_wrap=True)
    out.print()
    out.print(_NEXT, markup=False)
    return 0 if blind.succeeded and aware.succeeded else 1


def _simulate(policy: str) -> tuple[Result, MemoryLog]:
    plan = check(replace(REQUEST, policy=policy))
    log = MemoryLog()
    with views.job_progress(len(plan.trace.jobs), quiet=False, what=policy) as observe:
        return carry_out(plan, log, observe), log


def _moved_once(result: Result, log: MemoryLog) -> JobSpec:
    """The first measured job that had two leases, or as near to two as any."""
    leases = Counter(
        task.job_id
        for record in log.read()
        if isinstance(record.event, RoundScheduled)
        for lease in record.event.granted
        for task in lease.tasks
    )
    measured = result.plan.trace.jobs[slice(*result.plan.window)]
    return min(measured, key=lambda job: abs(leases[job.job_id] - 2))

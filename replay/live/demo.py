"""Carries out ``gavel demo``: a live cluster for a minute, then the same minute simulated.

The log, the four services, tasks as processes with checkpoints: all as with ``gavel up``, on
imagined accelerators. The cluster is gone when this process is, however it ends.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path

import msgspec
from rich.live import Live

from replay import verdict, views
from replay.live import demo_report, show
from replay.live import up as up_module
from replay.live.picture import ENDED, Picture
from replay.live.place import LiveError, append, connected, home, read_up, write_log
from replay.traces.tables import builtin_table
from replay.verify import verify_log
from schemas.domain import JobSpec
from schemas.events import JobCompleted, JobFailed, JobSubmitted, RoundScheduled
from schemas.record import Record
from services.estimator.tables import ThroughputTable
from services.runtime.jetstream import JetStreamLog

#: Two servers of each type, a worker on each.
_ACCELERATORS, _SERVER_SIZE = "v100=2,p100=2,k80=2", 1
#: Seconds between two arrivals.
_EVERY_S = 3.5
#: (job type, seconds it takes on the type it is fastest on), one job after the other.
_KINDS = (
    ("LM (batch size 10)", 16.0),
    ("ResNet-18 (batch size 32)", 12.0),
    ("Recommendation (batch size 1024)", 18.0),
    ("LM (batch size 40)", 10.0),
    ("ResNet-18 (batch size 128)", 14.0),
)
#: The job that trains in PyTorch, if that is installed.
_TORCH_JOB = 4
#: Longer than any of this takes: a job that does not end is an error, not a wait.
_PATIENCE_S = 900.0
_REFRESH_S = 0.2

_BEFORE = """\
{jobs} jobs meet six imagined GPUs on six servers (2 V100, 2 P100, 2 K80), in rounds of {round:g} s.
Everything else is real: the log in NATS JetStream, four services, a process and checkpoints for
each job. Each job makes as many steps a second as its model would on the GPU it is given.
"""
_NEXT = """\
The log is a file now. What happened to a job, and why:
  gavel log story {log} {job} --brief
  gavel log tail {log}
A cluster of your own: gavel up --emulate v100=2,k80=2 --round 10 --detach
"""


def run(jobs: int, round_s: float) -> int:
    """Run the demo; returns the exit code.

    Raises
    ------
    LiveError
        A demo is running here already, a service does not come up, or a job does not end.
    KeyboardInterrupt
        It was told to stop; nothing of it runs any more.
    """
    folder = home() / "demo"
    running = read_up(folder)
    if running is not None:
        raise LiveError(f"a demo runs already under {folder} (process {running.pid})")
    shutil.rmtree(folder, ignore_errors=True)
    options = up_module.Options(
        home=folder, emulate=_ACCELERATORS, server_size=_SERVER_SIZE, round_s=round_s, policy="las"
    )
    table, out, path = builtin_table(), views.out(), folder / "log.jsonl"
    work = workload(table, jobs)
    out.print(_BEFORE.format(jobs=jobs, round=round_s))
    try:
        records = asyncio.run(_live(options, table, work, path))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    verified = verify_log(path)
    for line in verdict.told(path, verified):
        out.print(line, markup=False, soft_wrap=True)
    live = demo_report.figures(records)
    cost = demo_report.overheads(records, table)
    simulated = demo_report.simulate(records, table, cost)
    out.print(demo_report.comparison(live, simulated, cost))
    out.print(_NEXT.format(log=path, job=work[0].job_id), markup=False, soft_wrap=True)
    return 0 if verified.ok and live.jobs == len(work) else 1


def workload(table: ThroughputTable, jobs: int) -> list[JobSpec]:
    """The first so many jobs of the demo, with the times at which they are submitted."""
    work = []
    types = table.worker_types()
    for number in range(jobs):
        job_type, length_s = _KINDS[number % len(_KINDS)]
        rate = max(table.alone(job_type, 1, worker_type) or 0.0 for worker_type in types)
        job = JobSpec(
            job_id=f"job-{number:02d}",
            job_type=job_type,
            total_steps=float(round(rate * length_s)),
            arrival_s=number * _EVERY_S,
        )
        work.append(_in_torch(job) if number == _TORCH_JOB else job)
    return work


def _in_torch(job: JobSpec) -> JobSpec:
    """The job, training in PyTorch if that is installed."""
    if importlib.util.find_spec("torch") is None:
        return job
    script = Path(__file__).with_name("demo_torch.py")
    return msgspec.structs.replace(
        job,
        command=shlex.join([sys.executable, "-P", str(script)]),
        environment={"PYTHONPATH": str(script.parents[2])},
    )


async def _live(
    options: up_module.Options, table: ThroughputTable, work: Sequence[JobSpec], path: Path
) -> list[Record]:
    """Run a cluster until all jobs have ended, and write its log; its records."""
    up_module.end_when_told()
    async with (
        up_module.running(options, table) as (up, parts),
        connected(up.url, up.cluster) as log,
    ):
        submitting = asyncio.create_task(_submit(log, work))
        following = asyncio.create_task(_follow(log, work))
        try:
            await up_module.first(following, *parts)
            await submitting
            await write_log(log, path)
        finally:
            submitting.cancel()
            following.cancel()
    return following.result()


async def _submit(log: JetStreamLog, work: Sequence[JobSpec]) -> None:
    """Submit each job when its time has come."""
    began = time.monotonic()
    for job in work:
        await asyncio.sleep(began + job.arrival_s - time.monotonic())
        await append(log, f"client.{job.job_id}", JobSubmitted(job=job))


async def _follow(log: JetStreamLog, work: Sequence[JobSpec]) -> list[Record]:
    """Show what happens until all jobs have ended; the records up to there."""
    picture, records = Picture(), []
    try:
        async with asyncio.timeout(_PATIENCE_S), aclosing(log.follow()) as deliveries:
            with _telling() as tell:
                async for record, _ in deliveries:
                    picture.take(record)
                    records.append(record)
                    tell(picture, record)
                    ended = sum(job.status in ENDED for job in picture.jobs.values())
                    if ended == len(work):
                        break
    except TimeoutError:
        raise LiveError(f"jobs have not ended after {_PATIENCE_S:g} s") from None
    return records


@contextmanager
def _telling() -> Iterator[Callable[[Picture, Record], None]]:
    """How each record is shown: a picture that changes, or a line for what matters."""
    out = views.out()
    if not out.is_terminal:
        yield _print_line
        return
    with Live(console=out, auto_refresh=False, transient=True) as screen:
        shown_at = 0.0

        def update(picture: Picture, _: Record) -> None:
            nonlocal shown_at
            if time.monotonic() - shown_at > _REFRESH_S:
                shown_at = time.monotonic()
                screen.update(show.top(picture), refresh=True)

        yield update


def _print_line(picture: Picture, record: Record) -> None:
    event = record.event
    if isinstance(event, RoundScheduled):
        said = show.of_round(picture.rounds[-1])
    elif isinstance(event, JobSubmitted):
        said = f"{event.job.job_id} submitted: {event.job.job_type}"
    elif isinstance(event, JobCompleted | JobFailed):
        job = picture.jobs[event.job_id]
        took_s = record.at - job.submitted_s
        leases = f"{job.leases} lease{'s' * (job.leases != 1)}"
        reason = f": {job.reason}" if job.reason else ""
        said = f"{job.job_id} {job.status} after {took_s:.1f} s, {leases}{reason}"
    else:
        return
    first_s = min(job.submitted_s for job in picture.jobs.values())
    print(f"{record.at - first_s:6.1f} s  {said}", flush=True)

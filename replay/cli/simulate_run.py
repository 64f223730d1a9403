"""Carries out ``gavel simulate``; a wrong option leaves no file behind."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from replay import figures, options, views
from replay.options import OptionError
from replay.request import Request
from replay.run import Plan, Result, carry_out, check
from services.runtime.file_log import FileLog


def run(request: Request) -> int:
    """Do as asked; returns the exit code.

    Raises
    ------
    OptionError, TraceError, TableError, GenerateError, PolicyError
        What was asked makes no sense; nothing was done.
    OSError
        A file cannot be read or written.
    KeyboardInterrupt
        Ctrl-C was pressed; the log is closed and holds all that had happened.
    """
    plan = check(request)
    _check_outputs(request)
    if request.log is not None:
        request.log.unlink(missing_ok=True)
    with contextlib.ExitStack() as stack:
        # Even a log that nobody wants is kept in a file: a long run's would fill the memory.
        path = request.log or Path(stack.enter_context(TemporaryDirectory())) / "log.jsonl.zst"
        result = _simulate(request, plan, FileLog(path))
    if request.jobs_json is not None:
        write_jobs(result, request.jobs_json)
    if request.json:
        views.print_json(result.as_json())
    else:
        views.out().print(figures.result(result))
    return 0 if result.succeeded else 1


def _simulate(request: Request, plan: Plan, log: FileLog) -> Result:
    try:
        with views.job_progress(len(plan.trace.jobs), quiet=request.json) as observe:
            return carry_out(plan, log, observe)
    except KeyboardInterrupt:
        if request.log is not None:
            print(f"{request.log} ends with record {log.last_seq}, sealed", file=sys.stderr)
        raise


def write_jobs(result: Result, path: Path) -> None:
    """Write each submitted job's times (s) and outcome, by job id."""
    lines = {
        job_id: {
            "job_type": job.job_type,
            "scale_factor": job.scale_factor,
            "arrival_s": job.arrival_s,
            "first_start_s": job.first_start_s,
            "completion_s": job.completion_s,
            "jct_s": job.jct_s,
            "outcome": job.outcome,
            **({"reason": job.reason} if job.reason else {}),
        }
        for job_id, job in result.jobs.items()
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(lines)) + b"\n")


def _check_outputs(request: Request) -> None:
    """Check that files can be made, and that none is read here or made twice."""
    read_from = (request.trace, request.inject, request.throughputs)
    taken = {path.resolve() for path in read_from if path is not None}
    for option, path in (("--log", request.log), ("--jobs-json", request.jobs_json)):
        if path is None:
            continue
        options.new_file(option, path, force=request.force)
        if path.resolve() in taken:
            raise OptionError(option, str(path), "a file that no other option names")
        taken.add(path.resolve())

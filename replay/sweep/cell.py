"""One cell of a sweep: a simulation, its key, and the row that it comes to.

Runs anywhere: a cell needs nothing but the code and the files that it names.
"""

from __future__ import annotations

import functools
import hashlib
import time
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from replay import run
from replay.request import Request
from replay.sweep.experiment import OUTPUTS
from services.runtime.file_log import FileLog

#: Of the rows; raised when a column changes its meaning.
FORMAT = 1
_ROOT = Path(__file__).resolve().parents[2]
#: What a simulation's outcome cannot depend on.
_APART = (
    "replay/live/",
    "replay/report/",
    "replay/paper/",
    "replay/sweep/",
    "services/worker/sdk/",
)
#: Libraries whose release can change a figure's last digits.
_LIBRARIES = ("clarabel", "highspy", "numpy", "scipy")

#: Of one cell: column -> value.
Row = dict[str, Any]


@functools.cache
def code_version() -> str:
    """Digest of all that decides a simulation's outcome: our code and tables, and the solvers."""
    digest = hashlib.blake2b(digest_size=8)
    for package in ("schemas", "services", "replay"):
        for path in sorted((_ROOT / package).rglob("*")):
            name = path.relative_to(_ROOT).as_posix()
            if path.suffix in {".py", ".csv"} and not name.startswith(_APART):
                digest.update(name.encode() + b"\0" + path.read_bytes())
    for library in _LIBRARIES:
        digest.update(f"{library} {metadata.version(library)}".encode())
    return digest.hexdigest()


def key_of(request: Request) -> str:
    """What a cell goes by: a digest of its inputs, files by what is in them, and of the code."""
    digest = hashlib.blake2b(code_version().encode(), digest_size=12)
    for field in fields(Request):
        value = getattr(request, field.name)
        file = value if isinstance(value, Path) else _own_policy_file(field.name, value)
        if file is not None:
            value = _content(file, file.stat().st_mtime_ns)
        digest.update(f"{field.name}={value!r}\n".encode())
    return digest.hexdigest()


class OtherCodeError(Exception):
    """The cell was to be run by other code, or on other files, than are here."""


def run_cell(request: Request, key: str = "") -> Row:
    """Simulate; whatever goes wrong is the row's ``error``, so that the other cells go on.

    ``key`` is the one that the cell was asked for under: a machine with other code fails it.
    """
    started = time.perf_counter()
    row = inputs(request) | {"error": "", "wall_s": 0.0}
    try:
        if key and row["key"] != key:
            raise OtherCodeError("code or input files here are not those of who asked for it")
        checked = run.check(request)
        with TemporaryDirectory() as folder:
            done = run.carry_out(checked, FileLog(Path(folder) / "log.jsonl.zst"))
        row |= _outcome(done)
    except Exception as error:  # noqa: BLE001 - a failure is a result like any other
        row |= {"key": key or row["key"], "error": f"{type(error).__name__}: {error}"}
    row["wall_s"] = time.perf_counter() - started
    return row


def inputs(request: Request) -> Row:
    """The columns that say what was run."""
    given = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(request).items()
        if name not in OUTPUTS
    }
    gap_s = request.mean_gap
    if request.generate and gap_s is None:
        gap_s = given["mean_gap"] = run.MEAN_GAP_S
    return {
        "results_format": FORMAT,
        "key": key_of(request),
        "version": code_version(),
        **given,
        "jobs_per_h": 3600.0 / gap_s if gap_s else None,
    }


def _outcome(done: run.Result) -> Row:
    """The columns that say what it came to; lists are over the measured jobs, by arrival."""
    figures: dict[str, Any] = msgspec.to_builtins(done.figures)
    for nested in ("utilisation_by_type", "outcomes", "reasons"):
        del figures[nested]
    spent, completed = figures.pop("time_spent_s"), figures.pop("jobs")
    jobs = [
        done.jobs[job.job_id]
        for job in done.plan.trace.jobs[slice(*done.plan.window)]
        if job.job_id in done.jobs
    ]
    return {
        **figures,
        # "jobs" is an option's name: how many were drawn.
        "completed": completed,
        **{f"{name}_s": seconds for name, seconds in spent.items()},
        "records": done.records,
        "solve_wall_s": done.solve_wall_s,
        "job_id": [job.job_id for job in jobs],
        "job_type": [job.job_type for job in jobs],
        "scale_factor": [job.scale_factor for job in jobs],
        "jct_s": [job.jct_s for job in jobs],
        "outcome": [job.outcome for job in jobs],
        "error": "" if done.succeeded else "no measured job finished, or some were left undone",
    }


def _own_policy_file(name: str, value: object) -> Path | None:
    """The file of a policy given as FILE.py:CLASS."""
    if name != "policy" or not isinstance(value, str):
        return None
    path = Path(value.rpartition(":")[0])
    return path if path.suffix == ".py" and path.is_file() else None


@functools.cache
def _content(path: Path, _changed_ns: int) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()

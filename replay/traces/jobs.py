"""Our own trace format: one ``JobSpec`` a line, as JSON; the words of job files and of the log."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import msgspec

from replay.traces.errors import Fault
from replay.traces.rows import Rows, numbered_lines
from replay.traces.rules import NAME, wrong
from schemas.domain import JobSpec

_FIELDS = tuple(JobSpec.__struct_fields__)
#: Counts that other programs write as 2.0.
_WHOLE = ("scale_factor", "max_attempts")
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def write_jobs(jobs: Iterable[JobSpec]) -> str:
    """The jobs as JSON lines, in their order; ``parse`` reads them back equal."""
    return "".join(f"{_encode(job).decode()}\n" for job in jobs)


def parse(text: str) -> Rows:
    """Read JSON lines; a job without an id gets the position of its row, from 0.

    The same job twice is kept once. Other jobs under one id, unknown keys and bad values become
    faults.
    """
    rows = Rows()
    seen: dict[str, int] = {}
    for position, (number, line) in enumerate(numbered_lines(text)):
        found = _read_job(line, str(position))
        faults = found if isinstance(found, list) else list(wrong(found))
        if isinstance(found, list) or faults:
            rows.faults.extend(Fault(number, *fault) for fault in faults)
            continue
        if found.job_id not in seen:
            seen[found.job_id] = len(rows.jobs)
            rows.jobs.append(found)
            rows.lines.append(number)
        elif found == rows.jobs[seen[found.job_id]]:
            rows.repaired["the same job again: kept once"] += 1
        else:
            expected = f"another id: line {rows.lines[seen[found.job_id]]} has it for another job"
            rows.faults.append(Fault(number, "job_id", found.job_id, expected))
    return rows


def _read_job(line: str, default_id: str) -> JobSpec | list[tuple[str, object, str]]:
    """The job of one line, or what is wrong with it: (key, value, what would be right)."""
    try:
        item = _decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return _malformed(line, str(error))
    if not isinstance(item, dict):
        return [("row", item, "one JSON object a line")]
    unknown = [key for key in item if key not in _FIELDS]
    if unknown:
        return [("key", key, _nearest_field(key)) for key in unknown]
    if "job_type" not in item:
        return [("job_type", None, NAME)]
    item.setdefault("job_id", default_id)
    for field in _WHOLE:
        if isinstance(item.get(field), float) and item[field].is_integer():
            item[field] = int(item[field])
    try:
        return msgspec.convert(item, JobSpec)
    except msgspec.ValidationError as error:
        message = str(error)
        path = _PATH.search(message)
        field = path[1] if path else "row"
        value = item.get(re.split(r"[.\[]", field)[0], item)
        return [(field, value, _PATH.sub("", message).removeprefix("Expected "))]


def _malformed(line: str, message: str) -> list[tuple[str, object, str]]:
    """Name the keys at fault where all that is wrong is a NaN or an infinity."""
    try:
        item: Any = json.loads(line)
    except (ValueError, RecursionError):
        item = None
    values = item.items() if isinstance(item, dict) else ()
    faults: list[tuple[str, object, str]] = [
        (key, value, "a finite number")
        for key, value in values
        if isinstance(value, float) and not math.isfinite(value)
    ]
    return faults or [("row", line, f"JSON: {message}")]


def _nearest_field(key: str) -> str:
    near = get_close_matches(key, _FIELDS, n=1, cutoff=0.5)
    return f"{near[0]!r}" if near else f"one of {', '.join(_FIELDS)}"

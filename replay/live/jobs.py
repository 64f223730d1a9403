"""A job as people write it, on the command line or in TOML, made into one that can be submitted."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from replay.live.picture import Picture
from replay.options import InputError, OptionError
from schemas.domain import JobSpec
from schemas.subjects import is_safe_name
from services.mechanism.admission import hopeless, refusal
from services.runtime.toml_file import TomlError, TomlFile, hint

#: Words in the names of variables whose values nobody else should read.
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_BY_REFERENCE = "secret:"
#: Fields that traces have, and that make no sense for a job that is submitted now.
_OF_TRACES = ("arrival_s", "duration_s", "reference_type", "source")


class JobFileError(InputError):
    """A job file is wrong; the message names file, line and key, and what would be right."""


def _read_job(path: Path) -> TomlFile:
    """A job file, whose keys are known ones.

    Raises
    ------
    JobFileError
        It cannot be read, is no TOML, or has a key that no job has.
    """
    try:
        file = TomlFile.read(path)
    except TomlError as error:
        raise JobFileError(str(error)) from None
    known = [f for f in JobSpec.__struct_fields__ if f not in _OF_TRACES]
    for key in file.content:
        if key not in known:
            raise JobFileError(f"{file.where(key)}: {key!r} is no key; {hint(key, known)}")
    return file


def job_of(
    typed: Mapping[str, Any], command: Sequence[str], file: Path | None, called: str
) -> JobSpec:
    """The job of a file and of what was typed behind ``gavel submit``, which goes before.

    Parameters
    ----------
    typed : by the names of ``JobSpec``; None where an option was not given
    command : what was typed behind ``--``, or empty
    file : a job in TOML
    called : what messages name where there is no file

    Raises
    ------
    JobFileError, OptionError
        A field is missing, or is not what it must be.
    """
    read = TomlFile(called, "", {}) if file is None else _read_job(file)
    given = dict(read.content)
    given |= {name: value for name, value in typed.items() if value is not None}
    speeds = given.get("declared_throughputs")
    if isinstance(speeds, dict):
        given["declared_throughputs"] = {t: _rate(t, speed) for t, speed in speeds.items()}
    return _build_job(given, command, Path.cwd(), read)


def _rate(worker_type: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise OptionError("--throughput", f"{worker_type}={value}", "steps/s, a number") from None


def _build_job(
    given: Mapping[str, Any], command: Sequence[str], workdir: Path, file: TomlFile
) -> JobSpec:
    """The job of these fields, run where it was typed; ``file`` is what messages name."""
    fields, source = dict(given), file.path
    if command:
        fields["command"] = shlex.join(command)
    fields.setdefault("job_type", "")
    fields.setdefault("job_id", _new_id(str(fields["job_type"])))
    fields.setdefault("workdir", str(workdir))
    if not fields["job_type"]:
        raise JobFileError(f"{source}: job_type is missing: its throughput is looked up by it")
    if fields.get("total_steps") is None:
        raise JobFileError(f"{source}: total_steps is missing: how long it is (--steps)")
    try:
        job = msgspec.convert(fields, JobSpec)
    except msgspec.ValidationError as error:
        raise JobFileError(_said(error, fields, file)) from None
    if not is_safe_name(job.job_id):
        raise JobFileError(
            f"{source}: job_id is {job.job_id!r}; expected 1 to 64 letters, digits, '_' or '-'"
        )
    # Of no cluster in particular: what is wrong with the job itself.
    fault = refusal(job, {})
    if fault is not None:
        raise JobFileError(f"{source}: {fault}")
    check_environment(job.environment, source)
    return job


def check_environment(environment: Mapping[str, str], source: str) -> None:
    """Check that a job's variables have names, and hold no secret.

    Raises
    ------
    JobFileError
        They do not, or one does.
    """
    for name, value in environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise JobFileError(f"{source}: environment has {name!r}, which is no variable's name")
        if _is_literal_secret(name, value):
            raise JobFileError(
                f"{source}: environment {name} looks like a secret, and whatever is submitted can "
                f"be read in the log: write {_BY_REFERENCE}NAME, and put NAME into the workers' "
                "secrets_file"
            )


def cannot_run(job: JobSpec, picture: Picture) -> str | None:
    """Why the job can never run on the cluster as it is, with numbers; None if it can, or may."""
    reason = refusal(job, picture.counts)
    if reason is not None:
        return reason
    speeds = picture.class_speeds.get((job.job_type, job.scale_factor))
    if speeds is None and picture.table is not None:
        for row in picture.table.rows:
            if (row.job_type, row.scale_factor) == (job.job_type, job.scale_factor):
                speeds = {cell.worker_type: cell.steps_per_s for cell in row.alone}
    if speeds is None and job.declared_throughputs:
        speeds = dict(job.declared_throughputs)
    if speeds is not None:
        return hopeless(job, speeds, picture.counts)
    learns = picture.config is not None and picture.config.estimator == "learned"
    if picture.table is None or learns:
        return None
    known = sorted({row.job_type for row in picture.table.rows})
    near = get_close_matches(job.job_type, known, n=1)
    return (
        f"no throughput of job type {job.job_type!r} on {job.scale_factor} workers is known"
        f"{f'; did you mean {near[0]!r}?' if near else ''}: declare it (--throughput TYPE=STEPS/S)"
    )


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Read ``NAME=VALUE`` texts.

    Raises
    ------
    OptionError
        One is none.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise OptionError(option, text, "NAME=VALUE")
        found[name] = value
    return found


def _is_literal_secret(name: str, value: str) -> bool:
    words = name.upper()
    return any(word in words for word in _SECRET_WORDS) and not value.startswith(_BY_REFERENCE)


def _new_id(job_type: str) -> str:
    """A name that nobody else has, and that says what it is."""
    words = re.sub(r"[^a-z0-9]+", "-", job_type.lower()).strip("-")[:40] or "job"
    return f"{words}-{secrets.token_hex(4)}"


def _said(error: msgspec.ValidationError, fields: Mapping[str, Any], file: TomlFile) -> str:
    """What is wrong with a field, and where the file has it."""
    at = re.search(r" - at `\$\.(\w+)(\S*)`$", str(error))
    if at is None:
        return f"{file.path}: {error}"
    where = file.where(at[1]) if file.content.get(at[1]) == fields[at[1]] else file.path
    value = f"{fields[at[1]]!r:.80}"
    return f"{where}: {at[1]}{at[2]} is {value}: {str(error)[: at.start()]}"

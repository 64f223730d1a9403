"""How a trace is to be read: the options that say so, checked, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from replay import options
from replay.options import OptionError
from replay.traces.fitting import How
from replay.traces.formats import FORMATS
from replay.traces.reader import Trace, Unknown, read_trace
from replay.traces.tables import BUILT_IN, named_table
from services.estimator.tables import ThroughputTable


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a trace is to be read: options as they were typed."""

    format: str = ""
    throughputs: str = "builtin"
    reference_type: str = "v100"
    unknown: str = "auto"
    job_types: str = ""
    type_names: str = ""
    any_type: bool = False
    zone: str = ""
    processors: int = 1
    seed: int = 0


def table_of(name: str, option: str = "--throughputs") -> ThroughputTable:
    """The throughput table of that name or file, as an option says it."""
    if name not in BUILT_IN and not Path(name).is_file():
        raise OptionError(option, name, f"a file, or one of {', '.join(BUILT_IN)}")
    return named_table(name)


def read(file: Path, reading: Reading, table: ThroughputTable | None = None) -> Trace:
    """The trace that is meant.

    Raises
    ------
    OptionError, TableError, TraceError, OSError
        An option makes no sense, or the file does not.
    """
    table = table or table_of(reading.throughputs)
    if reading.format:
        options.one_of("--format", reading.format, FORMATS)
    options.one_of("--unknown", reading.unknown, get_args(Unknown))
    options.one_of("--reference-type", reading.reference_type, table.worker_types())
    how = How(
        table=table,
        seed=reading.seed,
        job_types=job_types(reading.job_types, table),
        type_names=_type_names(reading.type_names, table),
        any_type=reading.any_type,
        zone=reading.zone,
        processors=reading.processors,
    )
    unknown: Any = reading.unknown
    return read_trace(
        file,
        table,
        unknown=unknown,
        reference_type=reading.reference_type,
        format=reading.format,
        how=how,
    )


def job_types(text: str, table: ThroughputTable) -> tuple[str, ...]:
    """Job types of the table, as ``--job-types`` names them."""
    known = {job_type for job_type, _ in table.classes()}
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return tuple(options.one_of("--job-types", name, known) for name in names)


def _type_names(text: str, table: ThroughputTable) -> dict[str, str]:
    found = options.parameters("--type-names", text) if text else {}
    known = table.worker_types()
    return {
        theirs: options.one_of("--type-names", str(ours), known) for theirs, ours in found.items()
    }


def cluster_of(text: str, table: ThroughputTable) -> dict[str, int]:
    """Workers by type, of types that the table has."""
    found = options.counts("--cluster", text)
    for worker_type in found:
        options.one_of("--cluster", worker_type, table.worker_types())
    return found

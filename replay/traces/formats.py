"""The formats that traces come in: how each is told from the others, and what reads it.

Another one takes a function that makes a ``Row`` of each of its rows, a line in ``_FOREIGN``, and
its ugly rows in ``tests/replay/test_traces_formats.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from replay.traces import alibaba, artifact, events, helios, jobs, philly, swf, tiresias
from replay.traces.columns import header_of
from replay.traces.fitting import How
from replay.traces.imported import Row, to_jobs
from replay.traces.rows import Rows


@dataclass(frozen=True)
class Format:
    """One format.

    Those of ours, and of the paper's artifact, name job types and steps: a bad row there is a
    mistake, and nothing of the file is used. Other clusters' traces are full of rows that are no
    jobs: these are left out and counted.
    """

    #: What it is, in a line.
    title: str
    #: Whether a file is of the format, by its first line that is not blank.
    recognises: Callable[[str], bool]
    read: Callable[[str, Rows, How], Rows]
    #: Whether a bad row spoils the file.
    strict: bool


def _ours(title: str, recognises: Callable[[str], bool], parse: Callable[[str], Rows]) -> Format:
    return Format(title, recognises, lambda text, _rows, _how: parse(text), strict=True)


def _theirs(
    name: str,
    title: str,
    recognises: Callable[[str], bool],
    parse: Callable[[str, Rows, How], list[Row]],
    *,
    dated: bool,
) -> Format:
    def read(text: str, rows: Rows, how: How) -> Rows:
        to_jobs(parse(text, rows, how), name, how, rows, dated=dated)
        return rows

    return Format(title, recognises, read, strict=False)


def _has(*columns: str) -> Callable[[str], bool]:
    """Recognises a header by columns that it has."""
    return lambda line: set(columns) <= set(header_of(line))


def _is_task(line: str) -> bool:
    cells = header_of(line)
    return len(cells) == 10 and (cells[3] in alibaba.STATUSES_2020 or cells[0] == "job_name")


_FOREIGN = (
    (
        "philly",
        "Microsoft's Philly, cluster_job_log (JSON, Pacific time)",
        lambda line: line.lstrip().startswith("["),
        philly.parse,
    ),
    (
        "philly-csv",
        "Philly as timestamp,duration,num_gpus,gpu_time,cluster",
        _has(*philly.COLUMNS),
        philly.parse_flat,
    ),
    (
        "alibaba-2020",
        "Alibaba PAI: a folder with pai_task_table.csv and pai_job_table.csv",
        _is_task,
        alibaba.parse_2020,
    ),
    (
        "alibaba-2023",
        "Alibaba openb_pod_list",
        _has(*alibaba.COLUMNS_2023),
        alibaba.parse_2023,
    ),
    (
        "alibaba-2026",
        "Alibaba spot GPU, job_info_df.csv",
        _has(*alibaba.COLUMNS_2026),
        alibaba.parse_2026,
    ),
    (
        "helios",
        "SenseTime's Helios, cluster_log.csv (China time)",
        _has(*helios.COLUMNS),
        helios.parse,
    ),
    (
        "acme",
        "Shanghai AI Lab's Acme, trace_seren.csv and trace_kalos.csv",
        _has(*helios.ACME_COLUMNS),
        helios.parse_acme,
    ),
    (
        "tiresias",
        "Tiresias, Muri (ms) and ElasticFlow (deadlines)",
        _has(*tiresias.COLUMNS),
        tiresias.parse,
    ),
    ("sia", "workloads of Sia (no durations)", _has(*tiresias.SIA_COLUMNS), tiresias.parse_sia),
    ("swf", "the Standard Workload Format", swf.recognises, swf.parse),
)
#: Formats whose times are dates, or begin somewhere: the first job is then at 0.
_DATED = ("philly", "philly-csv", "alibaba-2020", "helios", "acme")
#: {name: format}, in the order in which they are tried.
FORMATS: Mapping[str, Format] = {
    "events": _ours(
        "our event lines: jobs, outages, drains, cancellations; or a log",
        events.recognises,
        events.parse,
    ),
    "jobs": _ours(
        "our JSON lines, a job each",
        lambda line: line.lstrip()[:1] == "{" != line.strip(),
        jobs.parse,
    ),
    **{
        name: _theirs(name, title, recognises, parse, dated=name in _DATED)
        for name, title, recognises, parse in _FOREIGN
    },
    "artifact": _ours(
        "the paper's artifact, 7 or 10 tab-separated columns, and Shockwave's 12",
        lambda line: "\t" in line or "," not in line,
        artifact.parse,
    ),
}


def recognise(first_line: str) -> str:
    """Name of the format of a file; empty if it is none of them."""
    return next((name for name, each in FORMATS.items() if each.recognises(first_line)), "")

"""Alibaba's GPU traces of 2023 (openb) and 2026 (spot), and of 2020 (PAI).

openb: pods that hold whole GPUs or a part of one, with GPU types as alternatives; a pod that was
pending to the end never ran, though it has a time of deletion. Some of the published lists have
no times at all. spot: workers times GPUs each, on a type that was asked for, at high priority or
not. PAI: a job is its row in the job table and its rows in the task table, both without a header;
GPUs are hundredths, and tasks without any (parameter servers) are left aside.

Priority weights are ours: a class of service gets twice what the next lower gets.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator

from replay.traces.cells import BadCellError, is_missing, name, number
from replay.traces.columns import read_rows
from replay.traces.errors import Fault
from replay.traces.fitting import How
from replay.traces.imported import Row
from replay.traces.rows import Rows

COLUMNS_2023 = ("name", "num_gpu", "gpu_milli")
_TIMES_2023 = ("creation_time", "deletion_time", "scheduled_time")
_MORE_2023 = ("gpu_spec", "qos", "pod_phase", *_TIMES_2023)
_WEIGHTS_2023 = {"Guaranteed": 8.0, "LS": 4.0, "Burstable": 2.0, "BE": 1.0}
COLUMNS_2026 = (
    *("job_name", "organization", "gpu_model", "gpu_request", "worker_num"),
    *("submit_time", "duration", "job_type"),
)
_WEIGHTS_2026 = {"HP": 2.0, "Spot": 1.0}
#: Files of the 2020 trace, in a folder, as they are published (or compressed).
JOB_TABLE, TASK_TABLE = "pai_job_table.csv", "pai_task_table.csv"
STATUSES_2020 = ("Running", "Terminated", "Failed", "Waiting")
_TASK_COLUMNS, _JOB_COLUMNS = 10, 6
#: Between the two tables, as one text.
SEPARATOR = "\x1e\n"


def parse_2023(text: str, rows: Rows, _how: How) -> list[Row]:
    """Pods of an ``openb_pod_list``."""
    header = text[: text.find("\n")]
    if "creation_time" not in header:
        expected = "creation_time, deletion_time and scheduled_time, as the list `default` has them"
        rows.faults.append(Fault(1, "header", header.strip(), expected))
        return []

    def read(
        line: int,
        pod: str,
        num_gpu: str,
        gpu_milli: str,
        spec: str,
        qos: str,
        phase: str,
        *times: str,
    ) -> Row:
        workers = number(num_gpu, "num_gpu", "a number of GPUs")
        if workers == 0:
            raise BadCellError("asks for no GPU")
        if workers == 1:
            workers = number(gpu_milli, "gpu_milli", "thousandths of a GPU") / 1000
        created, deleted, scheduled = times
        if phase == "Pending" or is_missing(scheduled):
            raise BadCellError("never scheduled: how long it would have run is not known")
        started_s = number(scheduled, "scheduled_time", "seconds")
        return Row(
            line,
            pod,
            number(created, "creation_time", "seconds"),
            workers,
            number(deleted, "deletion_time", "seconds") - started_s,
            weight=_WEIGHTS_2023.get(qos, 1.0),
            types=_types(spec),
            status=name(phase),
        )

    return read_rows(text, rows, COLUMNS_2023, read, optional=_MORE_2023)


def parse_2026(text: str, rows: Rows, _how: How) -> list[Row]:
    """Jobs of a ``job_info_df.csv``; an organisation is an entity."""

    def read(
        line: int,
        job: str,
        organisation: str,
        model: str,
        gpus: str,
        workers: str,
        submitted: str,
        duration: str,
        kind: str,
    ) -> Row:
        each = number(gpus, "gpu_request", "GPUs of a worker")
        if each == 0:
            raise BadCellError("asks for no GPU")
        return Row(
            line,
            job.strip(),
            number(submitted, "submit_time", "seconds"),
            each * number(workers, "worker_num", "a number of workers"),
            number(duration, "duration", "seconds"),
            entity=name(organisation),
            weight=_WEIGHTS_2026.get(kind, 1.0),
            types=_types(model),
            ran_on=name(model),
            status=name(kind),
        )

    return read_rows(text, rows, COLUMNS_2026, read)


def _types(text: str) -> tuple[str, ...]:
    return () if is_missing(text) else tuple(name(part) for part in text.split("|") if part)


class _Tasks:
    """The tasks of one job that have GPUs."""

    __slots__ = ("end_s", "gpu_type", "line", "start_s", "status", "workers")

    def __init__(self, line: int) -> None:
        self.line = line
        self.workers = 0.0
        self.start_s, self.end_s = math.inf, -math.inf
        self.gpu_type = self.status = ""


def parse_2020(text: str, rows: Rows, _how: How) -> list[Row]:
    """Jobs of a PAI task table, with what the job table, if there is one, adds to them.

    A row is named by its line in the task table; without a job table a job came when its first
    task started.
    """
    tasks_text, _, jobs_text = text.partition(SEPARATOR)
    jobs = {cells[0]: cells for _, cells in _cells(jobs_text, rows) if len(cells) == _JOB_COLUMNS}
    found = []
    tasks: dict[str, _Tasks] = {}
    for line, cells in _cells(tasks_text, rows):
        try:
            _add_task(tasks, line, cells)
        except BadCellError as bad:
            rows.refuse(str(bad), line)
    for job_id, its in tasks.items():
        if its.workers == 0:
            rows.refuse("asks for no GPU", its.line)
            continue
        if its.end_s < its.start_s:
            rows.refuse("no task has both start and end: how long it runs is not known", its.line)
            continue
        try:
            found.append(_row_2020(job_id, its, jobs.get(job_id)))
        except BadCellError as bad:
            rows.refuse(str(bad), its.line)
    return found


def _row_2020(job_id: str, its: _Tasks, job: list[str] | None) -> Row:
    """A job by its tasks, and by its row in the job table if it has one."""
    arrival_s, user, status = its.start_s, "", its.status
    if job is not None:
        user, status = name(job[2]), name(job[3])
        if not is_missing(job[4]):
            arrival_s = min(arrival_s, number(job[4], "start_time (job table)", "seconds"))
    return Row(
        its.line,
        job_id,
        arrival_s,
        its.workers,
        its.end_s - its.start_s,
        user=user,
        ran_on=its.gpu_type,
        status=status,
    )


def _add_task(tasks: dict[str, _Tasks], line: int, cells: list[str]) -> None:
    if len(cells) != _TASK_COLUMNS:
        raise BadCellError(f"not the {_TASK_COLUMNS} columns of the task table")
    job_id, _, inst_num, status, start, end, _, _, plan_gpu, gpu_type = cells
    if is_missing(plan_gpu) or number(plan_gpu, "plan_gpu", "hundredths of a GPU") == 0:
        tasks.setdefault(job_id, _Tasks(line))
        return
    instances = 1.0 if is_missing(inst_num) else number(inst_num, "inst_num")
    start_s, end_s = math.inf, -math.inf
    if not (is_missing(start) or is_missing(end)):
        start_s = number(start, "start_time", "seconds")
        end_s = number(end, "end_time", "seconds")
    # From here on nothing is wrong with the row: it counts whole, or not at all.
    its = tasks.setdefault(job_id, _Tasks(line))
    its.workers += instances * float(plan_gpu) / 100
    its.status = name(status)
    its.gpu_type = its.gpu_type or name(gpu_type)
    its.start_s, its.end_s = min(its.start_s, start_s), max(its.end_s, end_s)


def _cells(text: str, rows: Rows) -> Iterator[tuple[int, list[str]]]:
    """Rows of a table that may have been given a header."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        for cells in reader:
            if cells and cells[0] != "job_name":
                yield reader.line_num, cells
    except csv.Error as error:
        rows.faults.append(Fault(reader.line_num, "row", str(error), "comma-separated text"))

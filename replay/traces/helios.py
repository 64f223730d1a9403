"""SenseTime's Helios and Shanghai AI Lab's Acme: job tables of Slurm and Kubernetes clusters.

Helios has naive local times, Acme an offset in each. A job ran from its start to its end: Acme's
column ``duration`` counts the queue in some files and not in others, and is not used. More than
half of Helios, and a third of Acme, are jobs without GPUs.
"""

from __future__ import annotations

from replay.traces.cells import BadCellError, Clock, name, number, zone
from replay.traces.columns import read_rows
from replay.traces.fitting import How
from replay.traces.imported import Row
from replay.traces.rows import Rows

ZONE = "Asia/Shanghai"
_TIMES = ("submit_time", "start_time", "end_time")
COLUMNS = ("job_id", "user", "vc", "gpu_num", "node_num", "state", *_TIMES)
ACME_COLUMNS = ("job_id", "user", "node_num", "gpu_num", "type", "state", *_TIMES)


def parse(text: str, rows: Rows, how: How) -> list[Row]:
    """Jobs of a Helios ``cluster_log.csv``; a virtual cluster is an entity."""
    row = _reader(rows, how)

    def read(
        line: int, job_id: str, user: str, vc: str, gpus: str, _: str, state: str, *times: str
    ) -> Row:
        return row(line, job_id, user, vc, gpus, state, *times)

    return read_rows(text, rows, COLUMNS, read)


def parse_acme(text: str, rows: Rows, how: How) -> list[Row]:
    """Jobs of Acme's ``trace_seren.csv`` and ``trace_kalos.csv``, whose columns differ."""
    row = _reader(rows, how)

    def read(
        line: int, job_id: str, user: str, _: str, gpus: str, _kind: str, state: str, *times: str
    ) -> Row:
        return row(line, job_id, user, "", gpus, state, *times)

    return read_rows(text, rows, ACME_COLUMNS, read)


class _reader:  # noqa: N801 - made once, called for each row
    def __init__(self, rows: Rows, how: How) -> None:
        self._rows = rows
        self._clock = Clock(zone(how.zone or ZONE))

    def __call__(
        self,
        line: int,
        job_id: str,
        user: str,
        entity: str,
        gpus: str,
        state: str,
        submitted: str,
        started: str,
        ended: str,
    ) -> Row:
        workers = number(gpus, "gpu_num", "a number of GPUs")
        if workers == 0:
            raise BadCellError("asks for no GPU")
        arrival_s = self._clock(submitted, "submit_time")
        duration_s, put_back = self._clock.elapsed(started, ended, ("start_time", "end_time"))
        if put_back:
            self._rows.repaired[
                "ended before it began, as clocks were put back: an hour later"
            ] += 1
        return Row(
            line,
            job_id,
            arrival_s,
            workers,
            duration_s,
            user=name(user),
            entity=name(entity),
            status=name(state),
        )

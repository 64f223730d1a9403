"""CSV traces of research schedulers: Tiresias, Muri and ElasticFlow, and the workloads of Sia.

Muri's times are milliseconds (its column ``iteration_time`` tells it from Tiresias). Where
iterations and duration disagree, as they do there, the duration counts: iterations are of a model
that the throughput table may not have. ElasticFlow has absolute deadlines, of which many cannot be
met. Sia's workloads have no duration at all. Runs of one model become jobs of one job type.
"""

from __future__ import annotations

from replay.traces.cells import BadCellError, is_missing, name, number
from replay.traces.columns import header_of, read_rows
from replay.traces.fitting import How
from replay.traces.imported import Row
from replay.traces.rows import Rows

COLUMNS = ("job_id", "num_gpu", "submit_time", "duration")
_MORE = ("model_name", "ddl", "batch_size", "best_effort")
MURI = "iteration_time"
SIA_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


def parse(text: str, rows: Rows, _how: How) -> list[Row]:
    """Jobs of Tiresias, Muri or ElasticFlow."""
    in_s = 1000.0 if MURI in header_of(text[: text.find("\n")]) else 1.0

    def read(
        line: int,
        job_id: str,
        num_gpu: str,
        submitted: str,
        duration: str,
        model: str,
        deadline: str,
        batch_size: str,
        best_effort: str,
    ) -> Row:
        arrival_s = number(submitted, "submit_time", "a time") / in_s
        workers = number(num_gpu, "num_gpu", "a number of GPUs")
        if workers != int(workers):
            raise BadCellError("num_gpu is no whole number")
        slo_s = None
        if not is_missing(deadline) and best_effort != "1":
            slo_s = number(deadline, "ddl", "a time") - arrival_s
            if slo_s <= 0:
                rows.repaired["deadline before its arrival: none"] += 1
                slo_s = None
        return Row(
            line,
            job_id.strip(),
            arrival_s,
            workers,
            number(duration, "duration", "a time") / in_s,
            model=f"{name(model)} (batch size {batch_size})" if batch_size else name(model),
            slo_s=slo_s,
        )

    return read_rows(text, rows, COLUMNS, read, optional=_MORE)


def parse_sia(text: str, rows: Rows, _how: How) -> list[Row]:
    """Jobs of a workload of Sia; durations are drawn, as none are there."""

    def read(
        line: int, job_id: str, time: str, application: str, replicas: str, batch_size: str
    ) -> Row:
        return Row(
            line,
            job_id.strip(),
            number(time, "time", "seconds"),
            number(replicas, "num_replicas", "a number of GPUs"),
            None,
            model=f"{name(application)} (batch size {name(batch_size)})",
        )

    return read_rows(text, rows, SIA_COLUMNS, read)

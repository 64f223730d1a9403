"""How tests read a foreign trace, with a table small enough to reason about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from replay.traces.fitting import How
from replay.traces.reader import Trace, parse_trace
from replay.traces.tables import builtin_table
from schemas.domain import JobSpec
from services.estimator.tables import parse_csv

TABLE = builtin_table()
#: At one worker two job types, at two and at eight one; nothing at other scale factors.
SMALL = parse_csv(
    "job_type,scale_factor,worker_type,steps_per_s\n"
    "A,1,v100,4\nA,1,p100,2\nB,1,v100,10\nB,1,k80,1\nA,2,v100,8\nA,8,v100,16\nA,8,p100,8\n",
    "small table",
)


def read(text: str, unknown: Any = "auto", **how: Any) -> Trace:
    """Parse with the small table."""
    return parse_trace(text, "t", SMALL, unknown=unknown, how=How(table=SMALL, **how))


def only(trace: Trace) -> JobSpec:
    """The one job of a trace."""
    (job,) = trace.jobs
    return job


def seconds(job: JobSpec, worker_type: str = "v100") -> float:
    """How long a job is on a worker type."""
    assert job.total_steps is not None
    return job.total_steps / (SMALL.alone(job.job_type, job.scale_factor, worker_type) or 0.0)


def counts(counted: Mapping[str, int], *words: str) -> int:
    """Rows counted for the one reason that has all words."""
    (found,) = [n for why, n in counted.items() if all(word in why for word in words)]
    return found


def philly(*changes: dict[str, Any]) -> str:
    """A job log; each job as Philly's are, with keys changed or added."""
    job = {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1_1",
        "attempts": [attempt("2017-10-07 01:12:00", "2017-10-07 02:12:00")],
        "submitted_time": "2017-10-07 01:00:00",
        "user": "ce2f4c",
    }
    return json.dumps([job | change for change in changes], indent=1)


def attempt(start: str | None, end: str | None, gpus: int = 1) -> dict[str, Any]:
    """One attempt on one server."""
    detail = [{"ip": "m1", "gpus": [f"gpu{i}" for i in range(gpus)]}]
    return {"start_time": start, "end_time": end, "detail": detail}


HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
)


ACME = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,"
    "start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n"
)


OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"


def pod(name: str = "p", **changes: str) -> str:
    """One pod, with cells changed by name."""
    names = ("cpu", "mem", "num_gpu", "milli", "spec", "qos", "phase", "creation", "deletion")
    values = ("1000", "1024", "1", "1000", "", "LS", "Running", "100", "1100", "200")
    cells = dict(zip((*names, "scheduled"), values, strict=True))
    return ",".join([name, *(cells | changes).values()]) + "\n"


PAI_TASKS = (
    "j1,ps,2.0,Terminated,1010.0,2000.0,600.0,29.3,,\n"
    "j1,worker,4.0,Terminated,1100.0,1700.0,600.0,29.3,50.0,P100\n"
    "j2,worker,1.0,Running,1500.0,,600.0,29.3,100.0,V100\n"
    "j3,tensorflow,1.0,Terminated,1600.0,1700.0,600.0,29.3,25.0,MISC\n"
    "j4,ps,1.0,Terminated,1600.0,1700.0,600.0,29.3,0.0,\n"
    "j5,worker,1.0\n"
)


def swf(**changes: str) -> str:
    """One line, with fields changed by number (``f4``)."""
    line = "1 100 -1 600 2 595.5 -1 2 900 -1 1 7 3 1 1 1 -1 -1"
    fields: list[str] = [*line.split()]
    for field, value in changes.items():
        fields[int(field[1:]) - 1] = value
    return "  " + "  ".join(fields) + "\n"

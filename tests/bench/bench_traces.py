"""How fast traces are read, and a Philly of 100,000 jobs simulated: `make bench` prints it."""

from __future__ import annotations

import gc
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from replay.modes import MODES
from replay.simulate import Simulation, build_workers
from replay.traces.change import at_load
from replay.traces.events import write_events
from replay.traces.generate import generate
from replay.traces.jobs import write_jobs
from replay.traces.measure import stats
from replay.traces.reader import read_trace
from replay.traces.tables import builtin_table
from services.runtime.file_log import FileLog

ROWS = 50_000
CLUSTER = {"v100": 64, "p100": 64, "k80": 64}
#: GPUs of Philly's jobs of an hour and more (the artifact's philly_job_distribution).
GPUS, OF_33192 = (1, 2, 4, 8), (25304, 665, 3076, 4147)
#: Philly: median duration (the flat file's) and mean (Acme's summary), s, so a log-normal's sigma.
MEDIAN_S, SIGMA = 1144.0, 2.35
LONGEST_S = 4_628_226
START_S = datetime(2017, 8, 7, tzinfo=UTC).timestamp()


def jobs_of(count: int) -> Iterator[tuple[int, float, float, int]]:
    """(number, arrival, duration, GPUs) of Philly-like jobs."""
    rng = random.Random(0)
    now = START_S
    for i in range(count):
        now += rng.expovariate(1 / 100.0)
        duration_s = min(LONGEST_S, max(1.0, MEDIAN_S * rng.lognormvariate(0.0, SIGMA)))
        yield i, now, duration_s, rng.choices(GPUS, OF_33192)[0]


def date(at_s: float) -> str:
    """A time as Philly writes it."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def philly(count: int) -> str:
    """A job log; every tenth job was tried twice, every fiftieth never ran."""
    entries = []
    for i, at_s, duration_s, gpus in jobs_of(count):
        detail = [{"ip": f"m{i % 500}", "gpus": [f"gpu{g}" for g in range(gpus)]}]
        tries = 0 if i % 50 == 49 else 2 if i % 10 == 0 else 1
        attempts = [
            {
                "start_time": date(at_s + 60 + n * duration_s),
                "end_time": date(at_s + 60 + (n + 1 / tries) * duration_s),
                "detail": detail,
            }
            for n in range(tries)
        ]
        entries.append(
            {
                "status": "Pass",
                "vc": f"vc{i % 14}",
                "jobid": f"application_{int(at_s)}_{i}",
                "attempts": attempts,
                "submitted_time": date(at_s),
                "user": f"u{i % 300}",
            }
        )
    return json.dumps(entries, indent=1)


def philly_csv(count: int) -> str:
    """The flat form of the same."""
    rows = (f"{date(a)},{d:.1f},{g},{d * g:.1f},vc{i % 14}" for i, a, d, g in jobs_of(count))
    return "timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(rows)


def helios(count: int) -> str:
    """Helios; every other job has no GPU, as there."""
    head = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration"
    rows = (
        f"{i},u{i % 300},vc{i % 14},{g * (i % 2)},{g},1,COMPLETED,"
        f"{date(a)},{date(a + 60)},{date(a + 60 + d)},{int(d)},60"
        for i, a, d, g in jobs_of(count)
    )
    return f"{head},queue\n" + "\n".join(rows)


def acme(count: int) -> str:
    """Acme's Seren."""
    head = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time"
    rows = (
        f"{i},u{i % 300},1,{g},16,Other,FAILED,"
        f"{date(a)}+08:00,{date(a + 60)}+08:00,{date(a + 60 + d)}+08:00,{int(d)},60,1.0"
        for i, a, d, g in jobs_of(count)
    )
    return f"{head},duration,queue,gpu_time\n" + "\n".join(rows)


def openb(count: int) -> str:
    """Alibaba 2023, with parts of GPUs."""
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase"
    rows = (
        f"openb-pod-{i},6000,12288,{g},{460 if g == 1 else 1000},V100M16|P100,LS,Running,"
        f"{int(a - START_S)},{int(a - START_S + d) + 1},{int(a - START_S)}"
        for i, a, d, g in jobs_of(count)
    )
    return f"{head},creation_time,deletion_time,scheduled_time\n" + "\n".join(rows)


def spot(count: int) -> str:
    """Alibaba 2026."""
    head = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time"
    rows = (
        f"{i},{i % 60},V100,20.0,1.0,{g},{a - START_S},{d},Spot" for i, a, d, g in jobs_of(count)
    )
    return f"{head},duration,job_type\n" + "\n".join(rows)


def pai(count: int) -> str:
    """Alibaba 2020's task table."""
    return "\n".join(
        f"{i:024x},worker,{g}.0,Terminated,{a},{a + d},600.0,29.3,50.0,P100"
        for i, a, d, g in jobs_of(count)
    )


def swf(count: int) -> str:
    """The Standard Workload Format."""
    return "; Version: 2.2\n" + "\n".join(
        f"{i} {int(a - START_S)} 10 {int(d)} {g} {d:.2f} -1 {g} 3600 -1 1 {i % 300} {i % 14} "
        "1 1 1 -1 -1"
        for i, a, d, g in jobs_of(count)
    )


def muri(count: int) -> str:
    """Muri's milliseconds."""
    head = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval"
    rows = (
        f"{i},{g},{int((a - START_S) * 1000)},5853661,dqn,128,{int(d * 1000)},46122000,490,1\r"
        for i, a, d, g in jobs_of(count)
    )
    return f"{head},iteration_time,priority\r\n" + "\n".join(rows)


def sia(count: int) -> str:
    """Workloads of Sia."""
    rows = (f"bert-{i},{a - START_S},bert,{g},384" for i, a, _, g in jobs_of(count))
    return "name,time,application,num_replicas,batch_size\n" + "\n".join(rows)


def artifact(count: int) -> str:
    """The paper's ten columns."""
    drawn = generate(count, 100.0, multi_gpu=True, seed=0, table=builtin_table())
    return "\n".join(
        f"{job.job_type}\tpython3 main.py %s\tdir\t--steps\t1\t{job.total_steps or 0:.0f}\t"
        f"{job.scale_factor}\t1\t-1.000000\t{job.arrival_s:.0f}"
        for job in drawn
    )


def ours(count: int) -> str:
    """A job a line."""
    return write_jobs(generate(count, 100.0, multi_gpu=True, seed=0, table=builtin_table()))


def events(count: int) -> str:
    """An event a line."""
    return write_events(generate(count, 100.0, multi_gpu=True, seed=0, table=builtin_table()), ())


@pytest.mark.parametrize(
    "make",
    [
        *(philly, philly_csv, helios, acme, openb, spot, pai, swf, muri, sia),
        *(artifact, ours, events),
    ],
)
def test_reading(make: Callable[[int], str], tmp_path: Path) -> None:
    """Each format: over 100,000 rows a second, from the file to jobs in order of arrival."""
    path = tmp_path / "trace"
    path.write_text(make(ROWS))
    table = builtin_table()
    best = float("inf")
    for _ in range(3):
        gc.collect()
        started = time.process_time()
        trace = read_trace(path, table)
        best = min(best, time.process_time() - started)
        assert trace.kept + sum(trace.refused.values()) == ROWS
    print(f"\n{make.__name__}: {ROWS / best:,.0f} rows/s")
    assert ROWS / best > 100_000


@pytest.mark.timeout(1800)
def test_a_philly_of_100_000_jobs(tmp_path: Path) -> None:
    """Imported, brought to 70 % load on 64:64:64, run under las: in 10 min and 4 GiB."""
    script = f"from bench_traces import large; large({str(tmp_path)!r}, 102_100)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[2]}"},
    )
    told = json.loads(done.stdout.splitlines()[-1])
    print(f"\n100,000 Philly-like jobs: {told}")
    assert told["jobs"] > 100_000
    assert told["left_undone"] == 0
    assert told["cpu_s"] < 600
    assert told["peak_mb"] < 4096


def large(folder: str, count: int) -> None:
    """Import and simulate, and print the figures; in a process of its own."""
    path = Path(folder) / "cluster_job_log"
    path.write_text(philly(count))
    started = time.process_time()
    table = builtin_table()
    trace = at_load(read_trace(path, table), 0.7, table, CLUSTER)
    read_s = time.process_time() - started
    workers = build_workers(CLUSTER, dict.fromkeys(CLUSTER, 8), {})
    file = FileLog(Path(folder) / "log.jsonl.zst")
    simulation = Simulation(file, MODES["default"]("las", 360.0), workers, table, trace.jobs)
    figures = simulation.run().figures()
    file.close()
    told = {
        "jobs": figures.jobs,
        "refused": sum(trace.refused.values()),
        "load": round(stats(trace.jobs, table, "v100", CLUSTER).load or 0.0, 3),
        "read_s": round(read_s, 2),
        "cpu_s": round(time.process_time() - started, 1),
        "solve_s": round(simulation.policy_executor.wall_s, 1),
        "rounds": figures.rounds,
        "solves": figures.solves,
        "records": file.last_seq,
        "average_jct_h": round((figures.average_jct_s or 0.0) / 3600, 2),
        "utilisation": round(figures.utilisation, 3),
        "left_undone": sum(figures.outcomes.get(what, 0) for what in ("waiting", "running")),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(told))

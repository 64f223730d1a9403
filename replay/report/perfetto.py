"""A log as a trace for ui.perfetto.dev: workers as tracks, leases on them, jobs, counters.

The format is Chrome's JSON trace events, which Perfetto reads: times in microseconds, a process
for each server, a thread for each worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replay.report.fairness import present
from replay.report.log_fold import Held, LogFold

_US = 1e6
#: Of the tracks that are no server's.
_JOBS, _CLUSTER = 1, 2
_FIRST_SERVER = 10

Event = dict[str, Any]


def events(folded: LogFold) -> Iterator[Event]:
    """All trace events of a folded log."""
    workers = sorted(folded.workers.values(), key=lambda w: (w.worker_type, w.server_id))
    servers = list(dict.fromkeys(worker.server_id for worker in workers))
    process = {server: n for n, server in enumerate(servers, start=_FIRST_SERVER)}
    place: dict[str, tuple[int, int]] = {}
    tracks = {job_id: n for n, job_id in enumerate(folded.jobs, start=1)}
    yield from _named(_JOBS, "jobs", 0)
    yield from _named(_CLUSTER, "cluster", 1)
    for worker in workers:
        place[worker.worker_id] = process[worker.server_id], len(place) + 1
    for server, pid in process.items():
        yield from _named(pid, f"server {server}", pid)
    for worker_id, (pid, tid) in place.items():
        yield {
            "ph": "M",
            "name": "thread_name",
            "pid": pid,
            "tid": tid,
            "args": {"name": worker_id},
        }
    for number, held in enumerate(folded.held, start=1):
        for worker_id in held.lease.worker_ids:
            if worker_id in place:
                yield _lease(held, place[worker_id])
        yield from _arrow(held, place, tracks, number)
    yield from _jobs(folded, tracks)
    yield from _counters(folded)


def _named(pid: int, name: str, order: int) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": order}}


def _lease(held: Held, place: tuple[int, int]) -> Event:
    lease = held.lease
    end_s = held.start_s if held.end_s is None else held.end_s
    return {
        "ph": "X",
        "name": " + ".join(task.job_id for task in lease.tasks),
        "cat": held.kind or "lease",
        "pid": place[0],
        "tid": place[1],
        "ts": held.start_s * _US,
        "dur": (end_s - held.start_s) * _US,
        "args": {
            "lease": lease.lease_id,
            "job types": ", ".join(task.job_type for task in lease.tasks),
            "workers": len(lease.worker_ids),
            "priority": lease.priority,
        },
    }


def _arrow(
    held: Held, place: dict[str, tuple[int, int]], tracks: dict[str, int], number: int
) -> Iterator[Event]:
    """From a job's own track to where it goes: a flow that Perfetto draws."""
    if held.kind or held.lease.worker_ids[0] not in place:
        return
    pid, tid = place[held.lease.worker_ids[0]]
    common = {"name": "granted", "cat": "lease", "id": number, "ts": held.start_s * _US}
    yield common | {"ph": "s", "pid": _JOBS, "tid": tracks[held.lease.tasks[0].job_id]}
    yield common | {"ph": "f", "bp": "e", "pid": pid, "tid": tid}


def _jobs(folded: LogFold, tracks: dict[str, int]) -> Iterator[Event]:
    """Each job from arrival to end, on a track of its own."""
    for job_id, line in folded.summary.jobs.items():
        tid = tracks[job_id]
        end_s = folded.at if line.completion_s is None else line.completion_s
        yield {
            "ph": "M",
            "name": "thread_name",
            "pid": _JOBS,
            "tid": tid,
            "args": {"name": f"job {job_id}"},
        }
        yield {
            "ph": "X",
            "name": line.job_type,
            "cat": line.outcome,
            "pid": _JOBS,
            "tid": tid,
            "ts": line.arrival_s * _US,
            "dur": (end_s - line.arrival_s) * _US,
            "args": {
                "outcome": line.outcome,
                "workers": line.scale_factor,
                **{f"waited {why} (s)": s for why, s in folded.waited_s[job_id].items() if s > 0},
            },
        }


def _counters(folded: LogFold) -> Iterator[Event]:
    times, numbers = present(folded.coming_and_going)
    for at, number in zip(times.tolist(), numbers.tolist(), strict=True):
        yield _counter("jobs there", at, number)
    edges = sorted(
        (at, change)
        for held in folded.held
        for at, change in (
            (held.start_s, len(held.lease.worker_ids)),
            (held.start_s if held.end_s is None else held.end_s, -len(held.lease.worker_ids)),
        )
    )
    times, numbers = present(edges)
    for at, number in zip(times.tolist(), numbers.tolist(), strict=True):
        yield _counter("workers held", at, number)
    for at in folded.solved_at:
        yield {"ph": "i", "s": "p", "name": "solve", "pid": _CLUSTER, "tid": 1, "ts": at * _US}


def _counter(name: str, at: float, number: float) -> Event:
    return {"ph": "C", "name": name, "pid": _CLUSTER, "ts": at * _US, "args": {name: number}}

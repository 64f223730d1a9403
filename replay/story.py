"""Records in words: one line for each, and the thread of one job through the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from schemas import events as ev
from schemas.domain import AllocationRow, JobSpec, Lease, TaskProgress, Throughput
from schemas.events import AnyEvent
from schemas.record import Record

HEADING = f"{'seq':>7} {'at (s)':>13} {'actor':<16} {'kind':<23} {'cause':>8}  what"

_OfWorker = ev.WorkerUnreachable | ev.WorkerDisappeared | ev.WorkerLost | ev.WorkerDrained


def kind(event: AnyEvent) -> str:
    """The kind as it stands in the file, of an event this release does not know too."""
    return event.unknown_kind if isinstance(event, ev.UnknownEvent) else type(event).__name__


def line(record: Record, text: str) -> str:
    """``seq at actor kind cause text``: a record on one line of the terminal."""
    cause = f"<{record.cause}" if record.cause else "-"
    return (
        f"{record.seq:>7} {record.at:>13.2f} {record.actor:<16} "
        f"{kind(record.event):<23} {cause:>8}  {text}"
    ).rstrip()


def describe(event: AnyEvent) -> str:  # noqa: C901, PLR0911, PLR0912 - one line for each kind
    """What happened, in a few words and the numbers that matter."""
    match event:
        case ev.ClusterConfigured():
            rounds = f"rounds of {event.round_duration_s:g} s ({event.round_end})"
            return f"policy {event.policy}, {rounds}, priority {event.priority}"
        case ev.ThroughputTableImported():
            return f"{len(event.rows)} job classes from {event.source}"
        case ev.JobSubmitted():
            return _job(event.job)
        case ev.WorkerRegistered():
            return f"{event.worker_id} ({event.worker_type}) on server {event.server_id}"
        case ev.ThroughputEstimated():
            return _estimate(event)
        case ev.ProfileRequested():
            cells = (
                f"{c.worker_type} {f'beside {c.beside}' if c.beside else 'alone'}"
                for c in event.cells
            )
            return f"job {event.job_id}, {event.seconds:g} s each: {', '.join(cells)}"
        case ev.ThroughputMeasured():
            return _measured(event)
        case ev.ClaimRefuted():
            return (
                f"job {event.job_id}: {event.worker_type} is {event.measured_ratio:.3g} times "
                f"{event.base_type}, declared {event.declared_ratio:.3g}"
            )
        case ev.AllocationComputed():
            jobs = sum(len(row.combinations) for row in event.rows)
            objective = "" if event.objective is None else f", objective {event.objective:.4g}"
            return f"{event.policy}: {jobs} combinations in {len(event.rows)} rows{objective}"
        case ev.RoundScheduled():
            counts = (len(event.granted), len(event.renewed), len(event.ended))
            return _round(event) + ": {} granted, {} renewed, {} ended".format(*counts)
        case ev.TasksStarted():
            return f"{len(event.lease_ids)} leases: {', '.join(event.lease_ids[:4])}"
        case ev.ProgressReported():
            return f"round {event.round_id}: {len(event.rows)} tasks"
        case ev.TaskStopped():
            return f"{event.reason}: job {event.task.job_id}, {_progress(event.task)}"
        case ev.StopStepProposed() | ev.StopStepAgreed():
            return f"job {event.job_id} under {event.lease_id}: iteration {event.iteration}"
        case ev.TimerFired():
            return event.timer
        case _:
            fields = msgspec.structs.asdict(event).items()
            told = (f"{name} {_plain(value)}" for name, value in fields if value not in ("", ()))
            return ", ".join(told)


class Story:
    """What each record of a log says about one job; a fold.

    Parameters
    ----------
    job : the job, as it was submitted
    brief : leave out renewals and reports of rounds that the job lives through
    """

    def __init__(self, job: JobSpec, *, brief: bool = False) -> None:
        self._job = job
        self._brief = brief
        #: The job's live leases.
        self._leases: dict[str, Lease] = {}
        self._shares: dict[str, float] | None = None
        self._says: dict[type[AnyEvent], Callable[..., Iterator[str]]] = {
            ev.JobSubmitted: self._submitted,
            ev.ThroughputEstimated: self._estimated,
            ev.AllocationComputed: self._allocated,
            ev.RoundScheduled: self._planned,
            ev.TasksStarted: self._started,
            ev.LeasesChanged: self._revoked,
            ev.ProgressReported: self._progressed,
            ev.TaskStopped: self._stopped,
            ev.WorkerUnreachable: self._worker,
            ev.WorkerDisappeared: self._worker,
            ev.WorkerLost: self._worker,
            ev.WorkerDrained: self._worker,
        }

    def take(self, record: Record) -> str | None:
        """What the record says about the job, or None."""
        parts = list(self._parts(record.event))
        return "; ".join(parts) if parts else None

    def _parts(self, event: AnyEvent) -> Iterator[str]:
        say = self._says.get(type(event))
        if say is not None:
            yield from say(event)
        elif getattr(event, "job_id", None) == self._job.job_id:
            yield describe(event)

    def _submitted(self, event: ev.JobSubmitted) -> Iterator[str]:
        if event.job.job_id == self._job.job_id:
            yield describe(event)

    def _estimated(self, event: ev.ThroughputEstimated) -> Iterator[str]:
        key = (event.row.job_type, event.row.scale_factor)
        of_class = not event.job_id and key == (self._job.job_type, self._job.scale_factor)
        if of_class or event.job_id == self._job.job_id:
            yield describe(event)

    def _started(self, event: ev.TasksStarted) -> Iterator[str]:
        yield from (f"running under {i}" for i in event.lease_ids if i in self._leases)

    def _revoked(self, event: ev.LeasesChanged) -> Iterator[str]:
        for lease_id in event.revoked:
            if self._leases.pop(lease_id, None):
                yield f"revokes {lease_id}: {event.reason}"

    def _progressed(self, event: ev.ProgressReported) -> Iterator[str]:
        for row in event.rows:
            is_news = not self._brief or row.lease_id not in self._leases
            if row.job_id == self._job.job_id and is_news:
                yield _progress(row, self._job.total_steps)

    def _stopped(self, event: ev.TaskStopped) -> Iterator[str]:
        if event.task.job_id == self._job.job_id:
            yield f"{event.reason}: {_progress(event.task, self._job.total_steps)}"

    def _worker(self, event: _OfWorker) -> Iterator[str]:
        if any(event.worker_id in lease.worker_ids for lease in self._leases.values()):
            yield describe(event)

    def _allocated(self, event: ev.AllocationComputed) -> Iterator[str]:
        """The job's share, where it is another than before."""
        rows = [row for row in event.rows if _names(row, self._job.job_id)]
        shares: dict[str, float] = {}
        for row in rows:
            for worker_type, share in row.shares.items():
                shares[worker_type] = shares.get(worker_type, 0.0) + share
        reason = event.set_aside.get(self._job.job_id)
        if reason:
            yield f"set aside: {reason}"
        elif rows and shares != self._shares:
            self._shares = shares
            listed = ", ".join(f"{share:.3f} of {name}" for name, share in sorted(shares.items()))
            yield f"{event.policy} gives it {listed or 'nothing'}"

    def _planned(self, event: ev.RoundScheduled) -> Iterator[str]:
        """Leases of the job that the plan ends, renews or grants."""
        parts = [f"ends {i}" for i in event.ended if self._leases.pop(i, None)]
        for lease_id, priority in zip(event.renewed, event.renewed_priorities, strict=False):
            if lease_id in self._leases and not self._brief:
                parts.append(f"renews {lease_id} at priority {priority:.3g}")
        for lease in event.granted:
            job_ids = [task.job_id for task in lease.tasks]
            if self._job.job_id in job_ids:
                self._leases[lease.lease_id] = lease
                others = [job_id for job_id in job_ids if job_id != self._job.job_id]
                beside = f" beside job {others[0]}" if others else ""
                place = f"{', '.join(lease.worker_ids)}{beside}"
                parts.append(f"grants {lease.lease_id} on {place} at priority {lease.priority:.3g}")
        if parts:
            yield f"{_round(event)}: {', '.join(parts)}"


def tell(story: Story, records: Iterable[Record]) -> Iterator[str]:
    """Lines of a job's story; each names the record it answers."""
    yield HEADING
    #: (records,) who wrote what, so that a cause has a name.
    written = [""]
    for record in records:
        written.append(f"{record.actor} {kind(record.event)}")
        text = story.take(record)
        if text is not None:
            cause = f"  [answers {written[record.cause]}]" if record.cause else ""
            yield line(record, text) + cause


def _plain(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _names(row: AllocationRow, job_id: str) -> bool:
    return any(job_id in combination for combination in row.combinations)


def _job(job: JobSpec) -> str:
    workers = "1 worker" if job.scale_factor == 1 else f"{job.scale_factor} workers"
    steps = "?" if job.total_steps is None else f"{job.total_steps:.0f}"
    weight = "" if job.priority_weight == 1 else f", weight {job.priority_weight:g}"
    slo = "" if job.slo_s is None else f", due in {job.slo_s:.0f} s"
    return f"job {job.job_id}: {job.job_type}, {workers}, {steps} steps{weight}{slo}"


def _estimate(event: ev.ThroughputEstimated) -> str:
    row = event.row
    whose = f"job {event.job_id}" if event.job_id else f"{row.job_type} on {row.scale_factor}"
    source = event.source
    if source in ("learned", "measured") and event.job_id and row.job_type:
        # A job's estimate with pairs is that of a class which it is the first of.
        like = "like no job before" if row.beside else f"like {row.job_type}"
        like += "" if row.beside else f" times {event.multiplier:.3g}"
        source += f", {like}, confidence {event.confidence:.0%}"
    return f"{whose} ({source}): {', '.join(map(_rate, row.alone))}"


def _measured(event: ev.ThroughputMeasured) -> str:
    where = f"job {event.job_id} on {event.worker_type}"
    if event.outcome != "measured":
        where += f" beside {event.beside}" if event.beside else ""
        return f"{where}: {event.outcome}{f': {event.detail}' if event.detail else ''}"
    beside = f", beside {event.beside} at {event.other_steps_per_s:.3g}" if event.beside else ""
    return f"{where}: {event.steps_per_s:.3g} steps/s{beside}"


def _rate(cell: Throughput) -> str:
    return f"{cell.worker_type} {cell.steps_per_s:.3g} steps/s"


def _round(event: ev.RoundScheduled) -> str:
    return f"round {event.round_id} ({event.starts_at_s:.0f} to {event.ends_at_s:.0f} s)"


def _progress(row: TaskProgress, total: float | None = None) -> str:
    share = f" ({row.steps / total:.1%})" if total else ""
    saved = "" if row.checkpointed_steps == row.steps else f", {row.checkpointed_steps:.0f} saved"
    return f"{row.steps:.0f} steps{share}{saved}, {row.run_s:.0f} s under {row.lease_id}"

"""What was asked for is checked, and simulated.

All is checked before the first record is made: a wrong option leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, get_args

import msgspec

from replay import options, own_policy
from replay.knowledge import Knowledge, configure, knowledge
from replay.modes import MODES, paper_mode
from replay.options import OptionError
from replay.reading import Reading, read
from replay.request import Request
from replay.simulate import Simulation, build_workers
from replay.summary import Figures, JobLine
from replay.traces.change import injected
from replay.traces.generate import generate
from replay.traces.reader import Trace, Unknown
from replay.traces.tables import builtin_table, read_table
from schemas.events import ClusterConfigured, WorkerRegistered
from schemas.record import Record
from services.estimator.tables import ThroughputTable
from services.policy.catalog import resolve
from services.runtime.log import Log

#: USD per worker and hour: Google Cloud's preemptible prices of 2020, as in the paper's artifact.
PRICES_USD_PER_H = {"k80": 0.135, "p100": 0.43, "v100": 0.74}

#: Of the traces that ``--generate`` draws.
JOBS, MEAN_GAP_S = 100, 1800.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A request found to make sense: all that a simulation is made of."""

    config: ClusterConfigured
    cluster: Mapping[str, int]
    servers: Mapping[str, int]
    workers: Sequence[WorkerRegistered]
    table: ThroughputTable
    trace: Trace
    window: tuple[int, int]
    load_s: float
    save_s: float
    lag_seed: int | None
    knowledge: Knowledge = field(default_factory=Knowledge)

    def settings(self) -> dict[str, Any]:
        """What decides the outcome, by name, in words and numbers."""
        settings = msgspec.structs.asdict(self.config)
        orders = settings["type_orders"]
        settings["type_orders"] = f"{len(orders)} orders" if len(orders) > 1 else list(*orders)
        settings["plan_lead_s"] = self.config.plan_lead()
        return settings | {
            "cluster": dict(self.cluster),
            "workers_per_server": dict(self.servers),
            "checkpoint_load_s": self.load_s,
            "checkpoint_save_s": self.save_s,
            "window": list(self.window),
            "lag_seed": self.lag_seed,
            "throughputs": self.table.source,
            "profile_workers": self.knowledge.profile_workers,
            "references": (self.knowledge.table or self.table).source,
            "noise": self.knowledge.noise,
        }


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run came to."""

    plan: Plan
    figures: Figures
    jobs: Mapping[str, JobLine]
    records: int
    wall_s: float
    solve_wall_s: float

    @property
    def succeeded(self) -> bool:
        """Whether a measured job is complete, and none was left undone."""
        left = self.figures.outcomes.keys() & {"waiting", "running"}
        return self.figures.jobs > 0 and not left

    def as_json(self) -> dict[str, Any]:
        """The figures, and what they were got with."""
        trace = self.plan.trace
        return {
            **msgspec.to_builtins(self.figures),
            "records": self.records,
            "wall_s": round(self.wall_s, 3),
            "solve_wall_s": round(self.solve_wall_s, 3),
            "trace": {
                "source": trace.source,
                "jobs": trace.kept,
                "repaired": dict(trace.repaired),
                "refused": dict(trace.refused),
            },
            "settings": self.plan.settings(),
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """What a reader must know so as not to misread the figures."""
        plan, figures = self.plan, self.figures
        found = [
            f"rows of the trace put right: {n} ({how})" for how, n in plan.trace.repaired.items()
        ]
        found += [f"jobs left out: {n} ({why})" for why, n in plan.trace.refused.items()]
        found += [f"jobs that can never run: {n} ({why})" for why, n in figures.reasons.items()]
        empty = [name for name, count in sorted(plan.cluster.items()) if not count]
        if not plan.workers:
            found.append("the cluster has no workers: jobs wait for one to register")
        elif empty:
            found.append(f"no workers of type {', '.join(empty)}")
        left = sum(figures.outcomes.get(name, 0) for name in ("waiting", "running"))
        if left:
            found.append(f"jobs left undone when nothing more was to happen: {left}")
        if not figures.jobs:
            found.append("no job finished, so there are no job times")
        if figures.failed_solves:
            found.append(
                f"failed solves: {figures.failed_solves} (last: {figures.last_solve_failure})"
            )
        unpriced = sorted({w.worker_type for w in plan.workers if w.usd_per_h is None})
        if unpriced:
            found.append(f"no price for {', '.join(unpriced)}: the cost leaves them out")
        return found


def check(request: Request) -> Plan:
    """Make sense of a request.

    Raises
    ------
    OptionError, TraceError, TableError, GenerateError, PolicyError
        There is none: what was asked makes no sense.
    """
    for option, seed in (("--seed", request.seed), ("--lag", request.lag)):
        if seed is not None and seed < 0:
            raise options.OptionError(option, seed, "a whole number, 0 or more")
    table = builtin_table() if request.throughputs is None else read_table(request.throughputs)
    cluster = options.counts("--cluster", request.cluster)
    for worker_type in cluster:
        options.one_of("--cluster", worker_type, table.worker_types())
    servers = options.counts("--servers", request.servers, least=1) if request.servers else {}
    prices = options.prices("--prices", request.prices) if request.prices else {}
    for option, mentioned in (("--servers", servers), ("--prices", prices)):
        for worker_type in mentioned:
            options.one_of(option, worker_type, cluster)
    config = configure(request, _config(request, PRICES_USD_PER_H | prices))
    known = knowledge(request, table)
    load_s, save_s = _checkpoint_seconds(request, config)
    trace = _injected(request, _trace(request, table), table)
    _check_speeds_known(trace, table)
    window = (0, trace.kept)
    if request.window:
        window = options.window("--window", request.window, trace.kept)
    workers = build_workers(cluster, servers, PRICES_USD_PER_H | prices, known.profile_workers)
    _check_events(trace, workers)
    return Plan(
        config=config,
        cluster=cluster,
        servers=servers,
        workers=workers,
        table=table,
        trace=trace,
        window=window,
        load_s=load_s,
        save_s=save_s,
        lag_seed=request.lag,
        knowledge=known,
    )


def carry_out(plan: Plan, log: Log, *observers: Callable[[Record], None]) -> Result:
    """Simulate; the log is closed whatever happens, between two records.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C was pressed.
    """
    started = time.perf_counter()
    with contextlib.closing(log), _interruptible() as raise_if_interrupted:
        simulation = Simulation(
            log,
            plan.config,
            plan.workers,
            plan.table,
            plan.trace.jobs,
            load_s=plan.load_s,
            save_s=plan.save_s,
            window=plan.window,
            lag_seed=plan.lag_seed,
            observers=(*observers, raise_if_interrupted),
            believed=plan.knowledge.table,
            noise=plan.knowledge.noise,
            noise_seed=plan.knowledge.noise_seed,
            events=plan.trace.events,
        )
        summary = simulation.run()
    return Result(
        plan=plan,
        figures=summary.figures(),
        jobs=summary.jobs,
        records=log.last_seq,
        wall_s=time.perf_counter() - started,
        solve_wall_s=simulation.policy_executor.wall_s,
    )


def _config(request: Request, prices: Mapping[str, float]) -> ClusterConfigured:
    own_policy.load(request.policy)
    parameters = (
        options.parameters("--parameters", request.parameters) if request.parameters else {}
    )
    entities = options.entities("--entities", request.entities) if request.entities else ()
    resolve(request.policy, parameters)
    options.one_of("--mode", request.mode, MODES)
    round_s = options.round_length(request.round)
    if request.mode == "paper":
        config = paper_mode(request.policy, round_s, request.seed)
    else:
        config = MODES[request.mode](request.policy, round_s)
    return msgspec.structs.replace(
        config,
        policy_parameters=parameters,
        prices_usd_per_h=dict(prices),
        reference_type=request.reference_type,
        entities=entities,
    )


def _checkpoint_seconds(request: Request, config: ClusterConfigured) -> tuple[float, float]:
    if not request.checkpoint_seconds:
        return 0.0, 0.0
    if config.round_end != "grid":
        expected = f"none, as {request.mode} mode charges no time for checkpoints"
        raise OptionError("--checkpoint-seconds", request.checkpoint_seconds, expected)
    return options.checkpoint_seconds(
        "--checkpoint-seconds", request.checkpoint_seconds, config.round_duration_s
    )


def _trace(request: Request, table: ThroughputTable) -> Trace:
    options.one_of("--unknown", request.unknown, get_args(Unknown))
    if (request.trace is None) != request.generate:
        given = "both" if request.generate else "neither"
        raise OptionError("--trace or --generate", given, "one of the two: jobs come from it")
    if request.trace is not None:
        drawn = {"--jobs": request.jobs, "--mean-gap": request.mean_gap}
        drawn["--multi-gpu"] = request.multi_gpu or None
        for option, value in drawn.items():
            if value is not None:
                raise OptionError(option, value, "none with --trace: it goes with --generate")
        return read(request.trace, _reading(request), table)
    for option, name in (("--format", request.format), ("--job-types", request.job_types)):
        if name:
            raise OptionError(option, name, "none with --generate: it goes with --trace")
    num_jobs = options.job_count(JOBS if request.jobs is None else request.jobs)
    gap_s = MEAN_GAP_S if request.mean_gap is None else request.mean_gap
    options.positive("--mean-gap", gap_s, zero=True)
    jobs = generate(
        num_jobs,
        gap_s,
        multi_gpu=request.multi_gpu,
        seed=request.seed,
        table=table,
        reference_type=request.reference_type,
    )
    return Trace(f"generated, seed {request.seed}", jobs, {}, {})


def _reading(request: Request) -> Reading:
    return Reading(
        format=request.format,
        reference_type=request.reference_type,
        unknown=request.unknown,
        job_types=request.job_types,
        seed=request.seed,
    )


def _injected(request: Request, trace: Trace, table: ThroughputTable) -> Trace:
    """The trace with what is injected into it."""
    if request.inject is None:
        return trace
    options.positive("--inject-at", request.inject_at, zero=True)
    other = read(request.inject, replace(_reading(request), format=""), table)
    return injected(trace, other, request.inject_at)


def _check_events(trace: Trace, workers: Sequence[WorkerRegistered]) -> None:
    """Refuse outages and drains of workers that the cluster does not have."""
    names = {w.worker_id for w in workers} | {w.server_id for w in workers} | {""}
    for event in trace.events:
        for what in ("worker_id", "server_id"):
            name = getattr(event.event, what, "")
            if name not in names:
                told = f"{type(event.event).__name__} of {name} at {event.at_s:g} s"
                expected = (
                    "a cluster that has it: --cluster and --servers as in the trace, or a trace of "
                    "jobs alone (`gavel trace convert --jobs-only`)"
                )
                raise OptionError("--cluster", told, expected)


def _check_speeds_known(trace: Trace, table: ThroughputTable) -> None:
    """Refuse jobs that the simulated accelerators would run at no speed, for ever."""
    known = set(table.classes())
    for job in trace.jobs:
        if (job.job_type, job.scale_factor) not in known:
            expected = (
                f"a table with {job.job_type!r} at scale factor {job.scale_factor} (job "
                f"{job.job_id}): what a job declares is a claim, not the speed it is run at"
            )
            raise OptionError("--throughputs", table.source, expected)


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[Record], None]]:
    """Put Ctrl-C off until the record at hand is in the log; a second one does not wait."""
    if threading.current_thread() is not threading.main_thread():
        # Signals are another's matter: a Dask worker runs calls in threads.
        yield lambda _record: None
        return
    pressed = False

    def press(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, before)

    def raise_if_interrupted(_record: Record) -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        yield raise_if_interrupted
    finally:
        signal.signal(signal.SIGINT, before)

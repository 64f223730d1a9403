"""Carries out ``gavel trace generate``: reads the mixes that are asked for, draws, writes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from replay import options
from replay.cli.trace_generate import Request
from replay.cli.trace_run import write
from replay.options import OptionError
from replay.reading import Reading, cluster_of, job_types, read, table_of
from replay.simulate import build_workers
from replay.traces.churn import Churn, befall
from replay.traces.measure import duration_s
from replay.traces.reader import Trace
from replay.traces.rows import TimedEvent
from replay.traces.rules import RULES
from replay.traces.workload import Regime, Workload, draw
from services.estimator.tables import ThroughputTable

_HOUR_S = 3600.0


def generate(request: Request) -> int:
    """See ``trace_generate``."""
    out = request.out
    if out is not None:
        options.new_file("--out", out, force=request.force)
    table = table_of(request.throughputs)
    options.one_of("--reference-type", request.reference_type, table.worker_types())
    jobs, cancels = draw(_workload(request, table), table)
    events = [*cancels, *_churn(request, table, jobs[-1].arrival_s)]
    events.sort(key=lambda event: event.at_s)
    write(Trace(f"generated, seed {request.seed}", jobs, {}, {}, events=events), out)
    if out is not None:
        others = f" and {len(events)} other events" if events else ""
        print(f"{out}: {len(jobs)} jobs{others}", file=sys.stderr)
    return 0


def _workload(request: Request, table: ThroughputTable) -> Workload:
    arrivals, _, figure = request.arrivals.partition(":")
    options.one_of("--arrivals", arrivals, ("poisson", "bursty", "diurnal"))
    burst, swing = 1.0, 0.0
    if arrivals == "bursty":
        burst = _number("--arrivals", figure or "5", lambda x: 1 <= x < math.inf, "1 or more jobs")
    elif arrivals == "diurnal":
        swing = _number("--arrivals", figure or "0.8", lambda x: 0 <= x <= 1, "a part from 0 to 1")
    elif figure:
        raise OptionError("--arrivals", request.arrivals, "nothing behind poisson")
    lognormal, durations_s = _durations(request, table)
    return Workload(
        num_jobs=options.job_count(request.jobs),
        mean_gap_s=options.positive("--mean-gap", request.mean_gap, zero=True),
        seed=request.seed,
        reference_type=request.reference_type,
        burst=burst,
        swing=swing,
        durations_s=durations_s,
        lognormal=lognormal,
        scale_factors=_mix("--scale-factors", request.scale_factors, "scale_factor"),
        weights=_mix("--weights", request.weights, "priority_weight"),
        slos=_mix("--slos", request.slos, "slo_s"),
        job_types=job_types(request.job_types, table),
        cancelled=request.cancelled,
        regimes=_regimes(request.regime or []),
    )


def _durations(
    request: Request, table: ThroughputTable
) -> tuple[tuple[float, float] | None, tuple[float, ...]]:
    """(median, sigma) of a log-normal, or durations to draw from; neither: the paper's."""
    what = request.durations
    if what == "paper":
        return None, ()
    if what.startswith("lognormal:"):
        parts = what.split(":")
        if len(parts) == 3:
            rule = RULES["duration_s"]
            median_s = _number("--durations", parts[1], rule.holds, f"a median, {rule.expected}")
            sigma = _number("--durations", parts[2], lambda x: 0 <= x <= 10, "a sigma from 0 to 10")
            return (median_s, sigma), ()
    elif Path(what).exists():
        reading = Reading(throughputs=request.throughputs, reference_type=request.reference_type)
        jobs = read(Path(what), reading, table).jobs
        found = [duration_s(job, table, request.reference_type) for job in jobs]
        durations_s = tuple(seconds for seconds in found if seconds)
        if durations_s:
            return None, durations_s
        expected = f"a trace with jobs that run on {request.reference_type}"
        raise OptionError("--durations", what, expected)
    raise OptionError("--durations", what, "paper, lognormal:MEDIAN:SIGMA, or a trace file")


def _mix(option: str, text: str, field: str) -> dict[float, float]:
    """Values of a field of jobs, and their parts; ``none`` is 0."""
    found: dict[float, float] = {}
    rule = RULES[field]
    for name, part in options.parameters(option, text).items():
        plain = name == "none" and field == "slo_s"
        value = 0.0 if plain else _number(option, name, rule.holds, rule.expected)
        found[value] = _number(option, str(part), lambda x: 0 <= x < math.inf, "a part, 0 or more")
    if not sum(found.values()) > 0:
        raise OptionError(option, text, "parts that are not all 0")
    return found


def _regimes(texts: Sequence[str]) -> tuple[Regime, ...]:
    found = []
    for text in texts:
        at, _, rest = text.partition(":")
        start_s = _number("--regime", at, lambda x: 0 < x <= options.MAX_S, "AT:..., AT in seconds")
        given = options.parameters("--regime", rest)
        for name in given:
            options.one_of("--regime", name, ("rate", "length"))
        figures = {
            name: _number("--regime", str(value), lambda x: 0 <= x <= 1e6, f"a {name}, 0 or more")
            for name, value in given.items()
        }
        if figures.get("length") == 0:
            raise OptionError("--regime", text, "a length above 0")
        found.append(Regime(start_s, **figures))
    if found != sorted(found, key=lambda regime: regime.start_s):
        raise OptionError("--regime", texts[-1], "regimes in order of time")
    return tuple(found)


def _churn(request: Request, table: ThroughputTable, last_arrival_s: float) -> list[TimedEvent]:
    asked = Churn(
        up_s=request.up_hours * _HOUR_S,
        away_s=options.positive("--away-hours", request.away_hours, "hours") * _HOUR_S,
        leaving=request.leaving,
        joining=request.joining,
        seed=request.seed,
    )
    if not (asked.up_s or asked.leaving or asked.joining):
        return []
    horizon_s = 2.0 * last_arrival_s
    if request.horizon_hours is not None:
        horizon_s = _HOUR_S * options.positive("--horizon-hours", request.horizon_hours, "hours")
    elif horizon_s == 0:
        raise OptionError("--horizon-hours", "", "hours, as all jobs arrive at once")
    cluster = cluster_of(request.cluster, table)
    servers = options.counts("--servers", request.servers, least=1) if request.servers else {}
    for worker_type in servers:
        options.one_of("--servers", worker_type, cluster)
    return befall(build_workers(cluster, servers, {}), horizon_s, asked)


def _number(option: str, text: str, right: Callable[[float], bool], expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not right(value):
        raise OptionError(option, text, expected)
    return value

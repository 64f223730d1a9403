"""Generated workloads have the arrivals, lengths, mixes, failures and churn that are asked for."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from statistics import fmean, median, pstdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.simulate import build_workers
from replay.traces.churn import Churn, befall
from replay.traces.events import write_events
from replay.traces.generate import (
    LONG_EXPONENTS,
    SCALE_FACTOR_SHARES,
    SCALE_FACTORS,
    SHORT_EXPONENTS,
    GenerateError,
)
from replay.traces.measure import duration_s
from replay.traces.reader import parse_trace
from replay.traces.tables import builtin_table
from replay.traces.workload import Regime, Workload, draw
from schemas.domain import JobSpec
from schemas.events import CancelRequested, DrainRequested, WorkerReturned, WorkerUnreachable

TABLE = builtin_table()
MANY = 20_000
DAY_S = 86_400.0


def jobs(number: int = MANY, gap_s: float = 100.0, **asked: Any) -> list[JobSpec]:
    """Jobs of a workload."""
    return draw(Workload(num_jobs=number, mean_gap_s=gap_s, **asked), TABLE)[0]


def gaps(drawn: list[JobSpec]) -> list[float]:
    """Seconds between arrivals."""
    return [later.arrival_s - earlier.arrival_s for earlier, later in pairwise(drawn)]


def length_s(job: JobSpec) -> float:
    """Of a job, on the reference type."""
    found = duration_s(job, TABLE, "v100")
    assert found is not None
    return found


mixes = st.dictionaries(st.sampled_from([1.0, 2.0, 5.0]), st.floats(0.1, 10), min_size=1)


@given(
    seed=st.integers(0, 2**32),
    burst=st.floats(1, 20),
    swing=st.floats(0, 1),
    weights=mixes,
    slos=mixes,
    cancelled=st.floats(0, 1),
    regimes=st.lists(
        st.builds(Regime, st.just(500.0), st.floats(0.1, 9), st.floats(0.1, 9)), max_size=1
    ),
)
def test_equal_seeds_equal_bytes(seed: int, **asked: Any) -> None:
    """A workload is a function of its arguments; written, it is read back as it was drawn."""
    workload = Workload(num_jobs=20, mean_gap_s=100.0, seed=seed, **asked)
    drawn, events = draw(workload, TABLE)
    text = write_events(drawn, events)
    assert text == write_events(*draw(workload, TABLE))
    trace = parse_trace(text, "drawn", TABLE)
    assert (trace.jobs, list(trace.events)) == (drawn, events)
    assert drawn[0].arrival_s == 0.0
    assert min(gaps(drawn)) >= 0.0


def test_one_quantity_changes_nothing_else() -> None:
    """Other weights, deadlines or widths leave arrivals and lengths as they are."""
    plain = jobs(500)
    other = jobs(500, weights={2.0: 1.0}, slos={3.0: 1.0}, cancelled=0.5)
    assert [job.arrival_s for job in plain] == [job.arrival_s for job in other]
    assert [job.total_steps for job in plain] == [job.total_steps for job in other]
    narrow = jobs(500, scale_factors={1.0: 1.0})
    assert [length_s(job) for job in narrow] == pytest.approx([length_s(job) for job in plain])


def test_the_defaults_are_the_papers() -> None:
    """Poisson arrivals, widths of 1, 2, 4 and 8 at 70, 10, 15 and 5 %, lengths log-uniform."""
    drawn = jobs()
    between = gaps(drawn)
    assert fmean(between) == pytest.approx(100.0, rel=0.03)
    assert pstdev(between) == pytest.approx(100.0, rel=0.05)
    widths = Counter(job.scale_factor for job in drawn)
    for scale_factor, part in zip(SCALE_FACTORS, SCALE_FACTOR_SHARES, strict=True):
        assert widths[scale_factor] / MANY == pytest.approx(part, abs=0.01)
    exponents = [math.log10(length_s(job) / 60) for job in drawn]
    assert SHORT_EXPONENTS[0] - 1e-9 <= min(exponents)
    assert max(exponents) <= LONG_EXPONENTS[1] + 1e-9
    assert {job.priority_weight for job in drawn} == {1.0}
    assert {job.slo_s for job in drawn} == {None}


def test_bursts_keep_the_mean_gap() -> None:
    """As many jobs in all, but in bursts: gaps spread wider than a Poisson's, most are short."""
    between = gaps(jobs(burst=10.0, seed=3))
    assert fmean(between) == pytest.approx(100.0, rel=0.1)
    assert pstdev(between) > 2 * fmean(between)
    # In a burst of ten, nine of ten gaps are a twentieth of the mean.
    assert median(between) < 10.0


def test_days_have_a_quiet_morning_and_a_busy_evening() -> None:
    """Arrivals by the hour follow 1 - swing sin; the mean rate over whole days stays."""
    drawn = jobs(gap_s=60.0, swing=0.8)
    whole = [job.arrival_s for job in drawn if job.arrival_s < 13 * DAY_S]
    assert len(whole) == pytest.approx(13 * DAY_S / 60.0, rel=0.03)
    quarters = Counter(int(at_s % DAY_S // (DAY_S / 4)) for at_s in whole)
    # Over a quarter of a day, the mean of a sine is 2/pi of its height.
    night, noon = (len(whole) / 4 * (1 + sign * 0.8 * 2 / math.pi) for sign in (-1, 1))
    for quarter, expected in enumerate((night, night, noon, noon)):
        assert quarters[quarter] == pytest.approx(expected, rel=0.06)


def test_regimes_change_rate_and_length() -> None:
    """From a time on, three times as many jobs, half as long; then as before."""
    drawn = jobs(regimes=(Regime(2e5, rate=3.0, length=0.5), Regime(4e5)))
    parts = [
        [job for job in drawn if begin <= job.arrival_s < end]
        for begin, end in ((0.0, 2e5), (2e5, 4e5), (4e5, 6e5))
    ]
    assert [len(part) for part in parts] == pytest.approx([2000, 6000, 2000], rel=0.07)
    means = [fmean(math.log(length_s(job)) for job in part) for part in parts]
    assert means[1] - means[0] == pytest.approx(math.log(0.5), abs=0.15)
    assert means[2] == pytest.approx(means[0], abs=0.15)


def test_a_pause_has_no_arrivals() -> None:
    """A regime of rate 0 is one; the last must not be."""
    drawn = jobs(1000, regimes=(Regime(2e4, rate=0.0), Regime(1e6)))
    assert not [job for job in drawn if 2e4 < job.arrival_s < 1e6]
    assert drawn[-1].arrival_s > 1e6
    with pytest.raises(GenerateError, match="the last regime's rate is 0"):
        jobs(1000, regimes=(Regime(2e4, rate=0.0),))


def test_lengths_lognormal_or_as_in_a_trace() -> None:
    """The median and the spread of the logarithm; or nothing but what was there."""
    logs = [math.log(length_s(job)) for job in jobs(lognormal=(3600.0, 1.5))]
    assert median(logs) == pytest.approx(math.log(3600.0), abs=0.05)
    assert pstdev(logs) == pytest.approx(1.5, rel=0.03)
    found = Counter(round(length_s(job)) for job in jobs(durations_s=(100.0, 100.0, 700.0)))
    assert found.keys() == {100, 700}
    assert found[100] / MANY == pytest.approx(2 / 3, abs=0.02)


def test_weights_deadlines_and_cancellations_are_mixed_as_said() -> None:
    """Parts need not sum to anything; a deadline is a multiple of the job's own length."""
    asked = Workload(
        num_jobs=MANY,
        mean_gap_s=1.0,
        weights={1.0: 8.0, 5.0: 2.0},
        slos={0.0: 1.0, 1.2: 1.0, 10.0: 2.0},
        cancelled=0.1,
    )
    drawn, events = draw(asked, TABLE)
    weights = Counter(job.priority_weight for job in drawn)
    assert weights[5.0] / MANY == pytest.approx(0.2, abs=0.01)
    ratios = Counter(round(job.slo_s / length_s(job), 6) if job.slo_s else 0 for job in drawn)
    assert {ratio: n / MANY for ratio, n in ratios.items()} == pytest.approx(
        {0: 0.25, 1.2: 0.25, 10.0: 0.5}, abs=0.015
    )
    assert len(events) / MANY == pytest.approx(0.1, abs=0.01)
    arrivals = {job.job_id: job.arrival_s for job in drawn}
    for event in events:
        assert isinstance(event.event, CancelRequested)
        assert event.at_s >= arrivals[event.event.job_id]
        assert event.actor == f"client.{event.event.job_id}.cancel"


def test_job_types_can_be_chosen() -> None:
    """And one that does not exist at a scale factor drawn is refused."""
    drawn = jobs(200, job_types=("ResNet-18 (batch size 32)",))
    assert {job.job_type for job in drawn} == {"ResNet-18 (batch size 32)"}
    with pytest.raises(GenerateError, match="no job type of A3C of built-in"):
        jobs(200, job_types=("A3C",))


# --- churn ---------------------------------------------------------------------------------------

WORKERS = build_workers({"v100": 400, "k80": 400}, {"v100": 4}, {})


def test_servers_fail_and_come_back() -> None:
    """Up for as long, away for as long, on average; all workers of a server together."""
    events = befall(WORKERS, 1e6, Churn(up_s=9e4, away_s=1e4, seed=1))
    assert events == befall(WORKERS, 1e6, Churn(up_s=9e4, away_s=1e4, seed=1))
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    gone = {}
    away_s: dict[str, list[float]] = {}
    for event in events:
        if isinstance(event.event, WorkerUnreachable):
            gone[event.event.worker_id] = event.at_s
        elif isinstance(event.event, WorkerReturned):
            worker_id = event.event.worker_id
            away_s.setdefault(worker_id, []).append(event.at_s - gone.pop(worker_id))
    assert not gone
    singles = [s for worker_id, each in away_s.items() if worker_id[0] == "k" for s in each]
    assert fmean(singles) == pytest.approx(1e4, rel=0.05)
    # A cycle takes 1e5 s on average, and 400 servers see a million.
    assert len(singles) == pytest.approx(400 * 10, rel=0.1)
    for first in range(0, 400, 4):
        together = [away_s.get(f"v100-{i}") for i in range(first, first + 4)]
        assert together == [together[0]] * 4


def test_servers_leave_for_good_and_join_late() -> None:
    """Parts of them; one that leaves is drained, one that joins is away from the start."""
    events = befall(WORKERS, 1e6, Churn(leaving=0.2, joining=0.3, seed=2))
    drained = [event for event in events if isinstance(event.event, DrainRequested)]
    servers = {w.server_id for w in WORKERS}
    assert len(drained) == pytest.approx(0.2 * len(servers), rel=0.2)
    absent = [e for e in events if isinstance(e.event, WorkerUnreachable) and e.at_s == 0]
    assert len(absent) == pytest.approx(0.3 * len(WORKERS), rel=0.2)
    assert all(0 <= event.at_s <= 1e6 for event in events)
    assert befall(WORKERS, 1e6, Churn()) == []

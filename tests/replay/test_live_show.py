"""What is said of a job's speed, and where that is from: ``gavel job show``, ``gavel log``."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from replay.live import show
from replay.live.picture import Picture
from replay.story import describe
from schemas.domain import JobSpec, PairThroughput, Throughput, ThroughputRow
from schemas.events import (
    AnyEvent,
    JobSubmitted,
    ThroughputEstimated,
    ThroughputMeasured,
)
from schemas.record import Record

JOB = JobSubmitted(job=JobSpec(job_id="a", job_type="new", total_steps=100.0))


def estimate(
    source: str, job_class: str = "", *, job_id: str = "a", beside: tuple[str, ...] = ()
) -> ThroughputEstimated:
    """Of the job, or of its class, at 7 steps/s on v100."""
    row = ThroughputRow(
        job_type=job_class,
        scale_factor=1,
        alone=(Throughput("v100", 7.0),),
        beside=tuple(PairThroughput("v100", other, 3.0, 3.0) for other in beside),
    )
    return ThroughputEstimated(
        row=row, job_id=job_id, source=source, confidence=0.876, multiplier=1.5
    )


def measured(outcome: str, detail: str = "", beside: str = "") -> ThroughputMeasured:
    """A profile is over."""
    return ThroughputMeasured(
        reporter="worker.a",
        lease_id="p0",
        job_id="a",
        worker_type="v100",
        beside=beside,
        outcome=outcome,
        detail=detail,
    )


def shown(*events: AnyEvent) -> dict[str, str]:
    """{name: value} of the lines that are printed of a log that holds these."""
    picture = Picture()
    for seq, event in enumerate((JOB, *events), 1):
        picture.take(Record(seq=seq, at=float(seq), actor="test", digest="", event=event))
    text = io.StringIO()
    Console(file=text, width=300).print(show.job(picture.jobs["a"], picture))
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.getvalue().splitlines()]
    return {name: " ".join(rest) for name, *rest in lines if rest}


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], "none yet"),
        ([estimate("table", "new", job_id="")], "its class, from table"),
        ([estimate("measured", "new", job_id="")], "its class, from measured"),
        ([estimate("provisional")], "provisional"),
        ([estimate("declared", "new")], "declared"),
        ([estimate("learned", "A3C")], "learned: like A3C, times 1.5, confidence 88%"),
        ([estimate("learned")], "learned: by itself, confidence 88%"),
        (
            [estimate("learned", "new", beside=("A3C",))],
            "learned: like no job before, confidence 88%",
        ),
        (
            [estimate("learned", "new", beside=("A3C",)), estimate("measured", "new")],
            "measured: like no job before, confidence 88%",
        ),
    ],
)
def test_a_job_s_estimate_is_told_with_its_source(events: list[AnyEvent], text: str) -> None:
    """The newest of the job's own, else its class's; how sure it is, where that is a question."""
    lines = shown(*events)
    assert lines["estimate"] == text
    assert lines["steps/s"] == ("v100 7" if events else "none")
    assert "profiles" not in lines


def test_profiles_are_counted_and_the_last_failure_told() -> None:
    """What became of each, and why the last that found nothing did not."""
    lines = shown(
        measured("measured"),
        measured("failed", "no module named torch"),
        measured("measured", beside="A3C"),
        measured("does_not_fit", "CUDA out of memory", "A3C"),
    )
    assert lines["profiles"] == "does_not_fit 1, failed 1, measured 2"
    assert lines["last failure"] == "on v100 beside A3C: CUDA out of memory"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            estimate("learned", "A3C"),
            "job a (learned, like A3C times 1.5, confidence 88%): v100 7 steps/s",
        ),
        (
            estimate("learned", "new", beside=("A3C",)),
            "job a (learned, like no job before, confidence 88%): v100 7 steps/s",
        ),
        (
            measured("does_not_fit", "CUDA out of memory", "A3C"),
            "job a on v100 beside A3C: does_not_fit: CUDA out of memory",
        ),
    ],
)
def test_the_log_is_told_in_the_same_words(event: AnyEvent, text: str) -> None:
    """By ``gavel log tail`` and ``story``."""
    assert describe(event) == text

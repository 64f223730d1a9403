"""The estimator's core: each class once, each pair of classes once, changes only after that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas.decisions import Decision, Emit
from schemas.domain import JobSpec, PairThroughput, Throughput, ThroughputRow
from schemas.events import (
    AnyEvent,
    JobSubmitted,
    ThroughputEstimated,
    ThroughputTableImported,
    ThroughputUnknown,
)
from services.estimator.core import EstimatorCore


def row(job_type: str, *beside: PairThroughput, speed: float = 1.0) -> ThroughputRow:
    """A class of scale factor 1 that runs on v100."""
    return ThroughputRow(
        job_type=job_type, scale_factor=1, alone=(Throughput("v100", speed),), beside=beside
    )


def pair(other: str, speed: float = 0.6, other_speed: float = 0.7) -> PairThroughput:
    """Steps/s beside the other class, and the other's."""
    return PairThroughput("v100", other, speed, other_speed)


def imported(*rows: ThroughputRow) -> ThroughputTableImported:
    """A table."""
    return ThroughputTableImported(source="test", rows=rows)


def submitted(job_id: str, job_type: str, **facts: Any) -> JobSubmitted:
    """A job of the class (job type, 1), unless said otherwise."""
    spec = JobSpec(job_id=job_id, job_type=job_type, total_steps=1.0, **facts)
    return JobSubmitted(job=spec)


def told(core: EstimatorCore, *events: AnyEvent) -> list[Decision]:
    """What the core decides on these events."""
    return [decision for event in events for decision in core.handle(event, 0.0)]


def published(*rows: ThroughputRow) -> list[Decision]:
    """Decisions to publish these rows."""
    return [Emit(ThroughputEstimated(row=each, source="table")) for each in rows]


def estimates(decisions: Iterable[Decision]) -> list[str]:
    """Job types of the estimates among the decisions."""
    events = [decision.event for decision in decisions if isinstance(decision, Emit)]
    return [event.row.job_type for event in events if isinstance(event, ThroughputEstimated)]


TABLE = imported(row("a", pair("a", 0.5, 0.5)), row("b", pair("a"), pair("b", 0.4, 0.4)))


def test_a_class_is_published_with_its_first_job_and_not_again() -> None:
    """Before that the table is nobody's news; after it, nor are more jobs of the class."""
    core = EstimatorCore()
    assert told(core, TABLE) == []
    first = told(core, submitted("1", "a"))
    assert first == published(row("a", pair("a", 0.5, 0.5)))
    assert told(core, submitted("2", "a")) == []


def test_a_pair_of_classes_is_published_once_with_the_later_class() -> None:
    """Whichever comes later has the pair, seen from its own side."""
    core = EstimatorCore()
    told(core, TABLE, submitted("1", "a"))
    later = told(core, submitted("2", "b"))
    assert later == published(row("b", pair("a"), pair("b", 0.4, 0.4)))

    core = EstimatorCore()
    first = told(core, TABLE, submitted("1", "b"))
    assert first == published(row("b", pair("b", 0.4, 0.4)))
    later = told(core, submitted("2", "a"))
    assert later == published(row("a", pair("a", 0.5, 0.5), pair("b", 0.7, 0.6)))


def test_pairs_are_between_classes_of_one_scale_factor() -> None:
    """Two jobs share all workers of a lease, so a gang of two shares with a gang of two."""
    gang = ThroughputRow(job_type="a", scale_factor=2, alone=(Throughput("v100", 2.0),))
    core = EstimatorCore()
    told(core, imported(row("a"), row("b", pair("a")), gang), submitted("1", "b"))
    assert told(core, submitted("2", "a", scale_factor=2)) == published(gang)


def test_a_declared_throughput_serves_where_no_table_has_the_class() -> None:
    """It holds for the job alone, with its source; a table's figure goes before it."""
    core = EstimatorCore()
    claim = {"v100": 3.0, "k80": 1.0}
    declared = ThroughputRow(
        job_type="new", scale_factor=1, alone=(Throughput("k80", 1.0), Throughput("v100", 3.0))
    )
    assert told(core, TABLE, submitted("1", "new", declared_throughputs=claim)) == [
        Emit(ThroughputEstimated(row=declared, job_id="1", source="declared"))
    ]
    known = told(core, submitted("2", "a", declared_throughputs=claim))
    assert known == published(row("a", pair("a", 0.5, 0.5)))


def test_what_no_table_knows_is_said_to_be_unknown_with_what_is_known() -> None:
    """A type nobody knows; a type that is known, but on other numbers of workers."""
    core = EstimatorCore()
    told(core, TABLE)
    assert told(core, submitted("1", "x")) == [
        Emit(ThroughputUnknown(job_id="1", reason="no throughput of job type 'x' is known"))
    ]
    assert told(core, submitted("2", "a", scale_factor=4)) == [
        Emit(
            ThroughputUnknown(
                job_id="2", reason="no throughput of 'a' on 4 workers is known, only on 1"
            )
        )
    ]


def test_jobs_that_come_before_the_table_are_answered_with_it() -> None:
    """In order of arrival, each class once; unknown ones are told so only then."""
    core = EstimatorCore()
    early = [submitted("1", "b"), submitted("2", "x"), submitted("3", "a"), submitted("4", "b")]
    assert told(core, *early) == []
    assert told(core, TABLE) == [
        *published(row("b", pair("b", 0.4, 0.4))),
        Emit(ThroughputUnknown(job_id="2", reason="no throughput of job type 'x' is known")),
        *published(row("a", pair("a", 0.5, 0.5), pair("b", 0.7, 0.6))),
    ]


def test_the_same_table_again_is_no_news() -> None:
    """Published classes are published again only where a figure of theirs has changed."""
    core = EstimatorCore()
    told(core, TABLE, submitted("1", "a"), submitted("2", "b"))
    assert told(core, TABLE) == []
    faster = imported(row("a", pair("a", 0.5, 0.5), speed=2.0))
    again = told(core, faster)
    assert again[:1] == published(row("a", pair("a", 0.5, 0.5), speed=2.0))


def test_an_imported_row_replaces_the_pairs_of_its_class() -> None:
    """Pairs that the new row does not have are gone, also from the rows of the other class."""
    core = EstimatorCore()
    told(core, TABLE, submitted("1", "a"), submitted("2", "b"))
    without_pairs = told(core, imported(row("a")))
    assert without_pairs == published(row("a"), row("b", pair("b", 0.4, 0.4)))
    changed = told(core, imported(row("b", pair("a", 0.1, 0.2))))
    assert changed == published(row("b", pair("a", 0.1, 0.2)))


def test_a_table_for_other_classes_leaves_the_published_ones_alone() -> None:
    """Classes that nobody has submitted are not published."""
    core = EstimatorCore()
    told(core, TABLE, submitted("1", "a"))
    assert estimates(told(core, imported(row("c", pair("a"))))) == []
    assert told(core, submitted("2", "c")) == published(row("c", pair("a")))

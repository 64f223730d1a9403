"""Whatever references and profiles there are, what is learned from them is no nonsense."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.domain import PairThroughput, Throughput, ThroughputRow
from schemas.events import ProfileRequested, ThroughputEstimated
from services.estimator import learning
from services.estimator.effects import Fingerprint, MeasuredCell, PlanProfiles
from services.estimator.tables import parse_csv
from tests.estimator.play import Play, estimates, rates
from tests.estimator.test_core_learned import (
    IMPORTED,
    KNOWN,
    LEARNED,
    WORKERS,
    as_if,
    submitted,
    worker,
)

TYPES = ("k80", "p100", "v100")
NAMES = ("a", "b", "c", "d")
RATES = st.one_of(st.just(0.0), st.floats(1e-3, 1e4))


@st.composite
def tables(draw: st.DrawFn) -> tuple[ThroughputRow, ...]:
    """One to four classes on one to three types; zeros, gaps and pairs that do not fit included."""
    rows: list[ThroughputRow] = []
    for place, name in enumerate(NAMES[: draw(st.integers(1, 4))]):
        alone = {t: draw(RATES) for t in TYPES if draw(st.booleans())}
        beside = []
        for other in (*rows, None):
            there = alone if other is None else {c.worker_type: c.steps_per_s for c in other.alone}
            for worker_type in sorted(alone.keys() & there.keys()):
                if draw(st.booleans()):
                    one = draw(RATES)
                    both = (one, one if other is None else draw(RATES))
                    beside.append(
                        PairThroughput(
                            worker_type, NAMES[place] if other is None else other.job_type, *both
                        )
                    )
        row = ThroughputRow(
            job_type=name,
            scale_factor=1,
            alone=tuple(Throughput(*cell) for cell in sorted(alone.items())),
            beside=tuple(beside),
        )
        rows.append(row)
    return tuple(rows)


@given(data=st.data(), references=tables())
def test_any_profile_of_any_job_ends_in_a_sane_estimate(
    data: st.DataObject, references: tuple[ThroughputRow, ...]
) -> None:
    """Rates are finite and not negative, confidence is a probability; what was measured stands."""
    asked = learning.carry_out(
        PlanProfiles(
            job_id="j",
            scale_factor=1,
            references=references,
            worker_types=TYPES,
            fraction=0.5,
            profile_s=1.0,
            budget_s=1e9,
        )
    )
    assert isinstance(asked, ProfileRequested)
    found = [
        MeasuredCell(cell, data.draw(RATES), data.draw(RATES) if cell.beside else 0.0)
        for cell in asked.cells
        if data.draw(st.booleans())
    ]
    alone = {each.cell.worker_type: each.steps_per_s for each in found if not each.cell.beside}
    if not any(alone.values()):
        return
    estimate = learning.carry_out(
        Fingerprint(
            job_id="j",
            scale_factor=1,
            references=references,
            worker_types=TYPES,
            measured=tuple(found),
            own_class="new",
        )
    )
    assert isinstance(estimate, ThroughputEstimated)
    assert estimate.row.job_type in {row.job_type for row in references} | {"new", ""}
    assert 0 <= estimate.confidence <= 1
    assert 0 < estimate.multiplier < math.inf
    said = rates(estimate)
    for worker_type, rate in alone.items():
        assert said[worker_type] == pytest.approx(rate, rel=0.011)
    numbers = [*said.values()]
    for pair in estimate.row.beside:
        numbers += [pair.steps_per_s, pair.other_steps_per_s]
    assert all(0 <= number < math.inf for number in numbers)


def test_a_reference_that_runs_nowhere_is_nobody_s_reference() -> None:
    """A row of zeros is like every job in nothing; it takes none away from those that run."""
    nothing = ThroughputRow(
        job_type="0", scale_factor=1, alone=tuple(Throughput(t, 0.0) for t in TYPES)
    )
    play = Play(LEARNED, *WORKERS, IMPORTED)
    play.tell(type(IMPORTED)(source="more", rows=(nothing,)))
    play.tell(submitted())
    learned, *_ = estimates(play.profile(play.asked("a"), as_if(KNOWN)))
    assert learned.row.job_type == KNOWN


def test_one_worker_type_is_enough() -> None:
    """There is no ratio between types to go by; pairs still tell jobs apart."""
    play = Play(LEARNED, worker("v100"), IMPORTED)
    play.tell(submitted())
    learned, *_ = estimates(play.profile(play.asked("a"), as_if(KNOWN, times=3.0)))
    assert learned.row.job_type == KNOWN
    assert learned.multiplier == pytest.approx(3.0, rel=0.01)


def test_a_table_in_which_old_accelerators_are_faster_is_believed() -> None:
    """Measured tables have such rows: a K80 that beats a V100 is not put right by anybody."""
    text = "job_type,scale_factor,worker_type,steps_per_s\nm,1,k80,9.0\nm,1,v100,3.0\n"
    rows = parse_csv(text, "test").rows()
    play = Play(LEARNED, *WORKERS, type(IMPORTED)(source="test", rows=rows))
    (estimate,) = estimates(play.tell(submitted("m")))
    assert rates(estimate) == {"k80": 9.0, "v100": 3.0}
    play.tell(submitted("?", "b"))
    learned, *_ = estimates(
        play.profile(
            play.asked("b"), lambda c: ({"k80": 18.0, "v100": 6.0}.get(c.worker_type, 0.0), 0.0)
        )
    )
    assert learned.row.job_type == "m"
    assert learned.multiplier == pytest.approx(2.0)

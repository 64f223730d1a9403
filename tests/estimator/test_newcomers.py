"""Jobs like no reference: classes of their own."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from replay.traces.tables import read_table
from schemas.domain import ProfileCell, Throughput, ThroughputRow
from schemas.events import ThroughputEstimated
from services.estimator import learning
from services.estimator.effects import Fingerprint, MeasuredCell
from services.estimator.fingerprint import Cell, cells_of, library
from services.estimator.profiling import choose
from services.estimator.tables import ThroughputTable
from tests.estimator.held_out import TYPES, profiled

NEW = "like new"


@pytest.fixture(scope="module")
def table(reference_data: Path) -> ThroughputTable:
    """The paper's 26 job types of one worker, all pairs measured."""
    return read_table(reference_data / "throughputs" / "simulation_throughputs.json")


@pytest.fixture(scope="module")
def names(table: ThroughputTable) -> list[str]:
    """Its job types, in chance order: the first half are references."""
    found = [job_type for job_type, scale_factor in table.classes() if scale_factor == 1]
    return random.Random(0).sample(found, len(found))


@pytest.fixture(scope="module")
def newcomers(table: ThroughputTable, names: list[str]) -> list[str]:
    """Of the other half, those that are like none of them: all but a few."""
    unseen = names[13:]
    found = [name for name in unseen if matched(table, names[:13], name).row.job_type == NEW]
    assert len(found) >= 10
    return found


def matched(
    table: ThroughputTable,
    references: list[str],
    job_type: str,
    *,
    learned: tuple[ThroughputRow, ...] = (),
    noise: float = 0.0,
    own_class: str = NEW,
) -> ThroughputEstimated:
    """What a job of a type is said to be, a fifth of its pairs with the references profiled."""
    rows = table.rows([(name, 1) for name in sorted(references)])
    known = library(rows, TYPES, TYPES[0])
    cells = choose(known, round(0.2 * len(known.profiles())))
    chance = random.Random(job_type)

    def found(cell: Cell, rates: tuple[float, float]) -> MeasuredCell:
        off = [rate * float(np.exp(chance.gauss(0.0, noise))) for rate in rates]
        return MeasuredCell(ProfileCell(*cell), *off)

    effect = Fingerprint(
        job_id="a",
        scale_factor=1,
        references=rows,
        learned=learned,
        worker_types=TYPES,
        measured=tuple(found(*each) for each in profiled(table, job_type, known, cells).items()),
        own_class=own_class,
    )
    event = learning.carry_out(effect)
    assert isinstance(event, ThroughputEstimated)
    return event


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_a_job_of_a_reference_s_type_is_none(
    table: ThroughputTable, names: list[str], noise: float
) -> None:
    """Each reference, profiled with as much noise as measuring may have, is found again."""
    for name in names[:13]:
        found = matched(table, names[:13], name, noise=noise)
        assert found.row.job_type == name
        assert not found.row.beside


def test_a_job_like_no_reference_is_the_first_of_a_class(
    table: ThroughputTable, names: list[str], newcomers: list[str]
) -> None:
    """Known beside every reference, and beside itself; what was profiled stands."""
    references, job_type = names[:13], newcomers[0]
    found = matched(table, references, job_type)
    assert found.row.job_type == NEW
    assert 0 < found.confidence < 1
    alone = {cell.worker_type: cell.steps_per_s for cell in found.row.alone}
    for worker_type in TYPES:
        assert alone[worker_type] == pytest.approx(table.alone(job_type, 1, worker_type))
    assert {pair.other_job_type for pair in found.row.beside} == {*references, NEW}
    rows = table.rows([(name, 1) for name in sorted(references)])
    known = library(rows, TYPES, TYPES[0])
    said = cells_of([found.row], NEW)
    for worker_type, beside in choose(known, round(0.2 * len(known.profiles()))):
        truth = table.beside(job_type, beside, 1, worker_type)
        assert said[worker_type, beside] == pytest.approx(truth, abs=1e-9)


def test_the_next_of_its_type_joins_it(
    table: ThroughputTable, names: list[str], newcomers: list[str]
) -> None:
    """Each class is joined by all jobs of its type, noise or not, and by no other."""
    references = names[:13]
    learned: tuple[ThroughputRow, ...] = ()
    classes = {}
    for job_type in newcomers:
        first = matched(table, references, job_type, learned=learned, own_class=f"like {job_type}")
        classes[job_type] = first.row.job_type
        learned = (*learned, first.row) if first.row.beside else learned
    # Some types are hardly told apart, as batch sizes of one model may be.
    assert len(learned) >= 8
    for job_type in newcomers:
        again = matched(table, references, job_type, learned=learned, noise=0.02)
        assert again.row.job_type == classes[job_type]
        assert not again.row.beside


def test_classes_made_so_are_known_beside_each_other(
    table: ThroughputTable, names: list[str], newcomers: list[str]
) -> None:
    """Wherever both run, as beside the references that they are nearest to."""
    one, other = newcomers[0], newcomers[-1]
    first = matched(table, names[:13], one)
    second = matched(table, names[:13], other, learned=(first.row,), own_class="like next")
    assert second.row.job_type == "like next"
    pairs = [pair for pair in second.row.beside if pair.other_job_type == NEW]
    assert {pair.worker_type for pair in pairs} == {
        t for t in TYPES if table.alone(one, 1, t) and table.alone(other, 1, t)
    }


def test_it_errs_less_than_the_reference_nearest_to_it(
    table: ThroughputTable, names: list[str], newcomers: list[str]
) -> None:
    """Over pairs never measured, the row of a new class is nearer the truth than its match's."""
    rows = table.rows([(name, 1) for name in sorted(names[:13])])
    known = library(rows, TYPES, TYPES[0])
    measured = choose(known, round(0.2 * len(known.profiles())))
    errors: dict[str, list[float]] = {"own": [], "match": []}
    for job_type in newcomers:
        match = known.match(profiled(table, job_type, known, measured))
        guesses = {
            "own": cells_of([matched(table, names[:13], job_type).row], NEW),
            "match": cells_of(rows, match.job_type),
        }
        for worker_type, beside in set(known.profiles()) - set(measured):
            rate = table.alone(job_type, 1, worker_type)
            pair = table.beside(job_type, beside, 1, worker_type)
            if not rate or pair is None:
                continue
            for name, guess in guesses.items():
                isolated = guess[worker_type, ""][0]
                kept = guess[worker_type, beside][0] / isolated if isolated else 0.0
                errors[name].append(abs(kept - pair[0] / rate))
    assert np.mean(errors["own"]) < np.mean(errors["match"])


def test_types_not_profiled_go_as_the_nearest_reference_does() -> None:
    """As gangs do that are held unconsolidated: alone and beside others, in proportion."""
    table = ThroughputTable(
        "test",
        {(name, 2): {"v100": 2.0 * rate, "v100_unconsolidated": rate} for name, rate in _RATES},
        {
            ("a", "a", 2): {"v100": (1.8, 1.8), "v100_unconsolidated": (0.9, 0.9)},
            ("a", "b", 2): {"v100": (1.0, 3.0), "v100_unconsolidated": (0.5, 1.5)},
            ("b", "b", 2): {"v100": (3.0, 3.0), "v100_unconsolidated": (1.5, 1.5)},
        },
    )
    measured = {("v100", ""): (6.0, 0.0), ("v100", "a"): (0.6, 0.2), ("v100", "b"): (0.6, 0.4)}
    effect = Fingerprint(
        job_id="a",
        scale_factor=2,
        references=table.rows(),
        worker_types=("v100",),
        measured=tuple(MeasuredCell(ProfileCell(*c), *both) for c, both in measured.items()),
        own_class=NEW,
    )
    found = learning.carry_out(effect)
    assert isinstance(found, ThroughputEstimated)
    assert found.row.alone == (Throughput("v100", 6.0), Throughput("v100_unconsolidated", 3.0))
    spread = {p.other_job_type for p in found.row.beside if p.worker_type == "v100_unconsolidated"}
    assert spread == {"a", "b"}


_RATES = (("a", 1.0), ("b", 2.0))

"""Matching an unknown job with a reference, and choosing what to measure of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from replay.traces.tables import builtin_table, read_table
from schemas.domain import ThroughputRow
from services.estimator.fingerprint import Cell, Library, Match, base_type, library
from services.estimator.profiling import choose, plan
from services.estimator.tables import ThroughputTable
from tests.estimator.held_out import TYPES, everything, held_out, profiled


def references(table: ThroughputTable, but: str = "") -> tuple[ThroughputRow, ...]:
    """All classes of scale factor 1, or all but one."""
    return table.rows([key for key in table.classes() if key[1] == 1 and key[0] != but])


def test_a_job_that_is_a_reference_is_matched_with_it() -> None:
    """Each built-in class, measured as itself on a fifth of its pairs, is found, at its speed."""
    table = builtin_table()
    known = library(references(table), TYPES, TYPES[0])
    cells = choose(known, round(0.2 * len(known.profiles())))
    for job_type in known.job_types:
        match = known.match(profiled(table, job_type, known, cells))
        assert match.job_type == job_type
        assert match.multiplier == pytest.approx(1.0)


def test_how_long_a_step_is_does_not_matter() -> None:
    """A job three times as fast everywhere is the same job; only its multiplier is another."""
    table = builtin_table()
    known = library(references(table), TYPES, TYPES[0])
    measured = profiled(table, known.job_types[0], known, choose(known, 5))
    faster = {
        cell: (3 * rate, 3 * other if not cell[1] else other)
        for cell, (rate, other) in measured.items()
    }
    before, after = known.match(measured), known.match(faster)
    assert after.job_type == before.job_type
    assert after.multiplier == pytest.approx(3 * before.multiplier)


def test_types_not_measured_go_as_the_reference_does() -> None:
    """Measured on one type only; on the others the reference's rate times the multiplier."""
    table = builtin_table()
    known = library(references(table), TYPES, TYPES[-1])
    rate = table.alone(known.job_types[0], 1, TYPES[-1])
    assert rate is not None
    match = known.match({(TYPES[-1], ""): (2 * rate, 0.0)})
    for worker_type in TYPES:
        of_reference = table.alone(match.job_type, 1, worker_type)
        assert of_reference is not None
        assert match.alone[worker_type] == pytest.approx(of_reference * match.multiplier)


def test_one_reference_and_one_type_are_enough() -> None:
    """Whatever is measured, the only reference is the nearest, without doubt."""
    table = builtin_table()
    row = references(table)[0]
    known = library((row,), ("v100",), "v100")
    rate = row.alone[-1].steps_per_s
    match = known.match({("v100", ""): (rate / 2, 0.0)})
    assert match == Match(row.job_type, 1.0, match.multiplier, {"v100": rate / 2})
    assert match.multiplier == pytest.approx(0.5)


def test_a_pair_that_does_not_fit_is_a_fact_like_any_other() -> None:
    """Both zero: nothing is kept, and that tells jobs apart."""
    table = builtin_table()
    known = library(references(table), TYPES, TYPES[0])
    beside = known.job_types[0]
    measured = {("v100", ""): (2.0, 0.0), ("v100", beside): (0.0, 0.0)}
    values, seen = known.fingerprint(measured)
    column = known.column(("v100", beside))
    assert seen[0, [column, column + known.num_pairs]].all()
    assert not values[0, [column, column + known.num_pairs]].any()


def test_cells_that_say_nothing_are_left_out() -> None:
    """A type without workers, a reference that is none, a pair on a type not measured alone."""
    known = library(references(builtin_table()), TYPES, TYPES[0])
    beside = known.job_types[0]
    measured = {("tpu", ""): (1.0, 0.0), ("v100", "?"): (1.0, 1.0), ("v100", beside): (1.0, 1.0)}
    _, seen = known.fingerprint(measured)
    assert np.flatnonzero(seen).tolist() == [known.column(("v100", beside)) + known.num_pairs]
    assert base_type(measured, TYPES) is None


def test_greedy_choice_starts_with_the_best_single_pair() -> None:
    """No other first profile leaves less variance over the whole fingerprint."""
    known = library(references(builtin_table()), TYPES, TYPES[0])
    alone: dict[Cell, tuple[float, float]] = {
        (worker_type, ""): (1.0, 0.0) for worker_type in TYPES
    }

    def doubt(cell: Cell) -> float:
        return float(known.complete({**alone, cell: (0.5, 0.5)})[1].sum())

    (first,) = choose(known, 1)
    best = min(map(doubt, known.profiles()))
    # Cells that are measured have no variance at all, greedily chosen ones have the noise's.
    assert doubt(first) <= best + 2 * known.factors.noise**2


def test_a_budget_buys_isolated_speeds_first() -> None:
    """Worker-seconds for so many profiles, and not one more; a fraction of the pairs at most."""
    known = library(references(builtin_table()), TYPES, TYPES[0])
    pairs = len(known.profiles())
    for budget_s in (0.0, 60.0, 100.0, 200.0, 1e9):
        cells = plan(known, 0.2, 30.0, budget_s)
        assert len(cells) == min(int(budget_s / 30), len(TYPES) + round(0.2 * pairs))
        assert [c.beside for c in cells[: len(TYPES)]] == [""] * min(len(cells), len(TYPES))
        assert len(set(cells)) == len(cells)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_better_than_a_nearest_neighbour_and_than_the_mean(
    reference_data: Path, fraction: float
) -> None:
    """Over the paper's 26 job types, each left out in turn: errors of colocated throughputs.

    The reference matched, and what is said of a job like none, have a smaller median and 90th
    percentile, and the reference is the best one there is more often, than the neighbour that is
    nearest on the cells measured.
    """
    path = reference_data / "throughputs" / "simulation_throughputs.json"
    found = held_out(read_table(path), fraction)
    for worse in ("neighbour", "mean"):
        for name in ("matched", "published"):
            assert found.median[name] < found.median[worse]
            assert found.p90[name] < found.p90[worse]
    assert found.hits["matched"] > found.hits["neighbour"]
    assert found.median["completed"] < found.median["neighbour"]


def test_truth_and_tests_agree_on_what_a_fingerprint_is(reference_data: Path) -> None:
    """A job measured in full has no gap, and no doubt, in its fingerprint."""
    table = read_table(reference_data / "throughputs" / "simulation_throughputs.json")
    job_type = "LM (batch size 20)"
    known: Library = library(references(table, but=job_type), TYPES, TYPES[0])
    measured = everything(table, job_type, known)
    _, variance = known.complete(measured)
    _, seen = known.fingerprint(measured)
    assert seen.all()
    assert not variance.any()

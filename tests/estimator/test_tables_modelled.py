"""The built-in table: its facts against their source, its modelled pairs against measured ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from replay.traces.tables import builtin_table, read_table
from services.estimator.interference import KEPT_SPEED, model_of, with_modelled_pairs
from services.estimator.tables import ThroughputTable, parse_csv

WORKER_TYPES = ("k80", "p100", "v100")


@pytest.fixture(scope="module")
def measured(reference_data: Path) -> ThroughputTable:
    """The artifact's table."""
    return read_table(reference_data / "throughputs" / "simulation_throughputs.json")


def kept(table: ThroughputTable, worker_type: str) -> Iterator[tuple[str, str, float]]:
    """(job type, the other's, fraction of its isolated speed the first keeps) where they run."""
    names = [name for name, scale_factor in table.classes() if scale_factor == 1]
    for name in names:
        alone = table.alone(name, 1, worker_type)
        for other in names:
            both = table.beside(name, other, 1, worker_type)
            if alone and both and both[0] > 0:
                yield name, other, both[0] / alone


def test_builtin_facts_are_those_of_the_source(measured: ThroughputTable) -> None:
    """Every built-in isolated rate is its source's, to the six digits kept."""
    cells = [(row, cell) for row in builtin_table().rows() for cell in row.alone]
    assert len(cells) > 100
    for row, cell in cells:
        fact = measured.alone(row.job_type, row.scale_factor, cell.worker_type)
        assert cell.steps_per_s == pytest.approx(fact, rel=1e-5)


def test_builtin_table_has_the_models_of_the_paper() -> None:
    """Seven models, scale factors 1 to 8, three worker types, every single-worker pair."""
    table = builtin_table()
    assert table.worker_types() == WORKER_TYPES
    assert {model_of(name) for name, _ in table.classes()} == set(KEPT_SPEED)
    assert {scale_factor for _, scale_factor in table.classes()} == {1, 2, 4, 8}
    singles = [name for name, scale_factor in table.classes() if scale_factor == 1]
    for name in singles:
        for other in singles:
            both = table.beside(name, other, 1, "v100")
            alone = table.alone(name, 1, "v100")
            assert both is not None
            assert alone is not None
            assert 0 < both[0] < alone


def test_modelled_fractions_are_the_medians_of_the_built_in_classes(
    measured: ThroughputTable,
) -> None:
    """Each figure of the model is the median it says it is, to the two digits kept."""
    builtin = {name for name, scale_factor in builtin_table().classes() if scale_factor == 1}
    for worker_type in WORKER_TYPES:
        by_model: dict[str, list[float]] = {}
        for name, other, fraction in kept(measured, worker_type):
            if name in builtin and other in builtin:
                by_model.setdefault(model_of(other), []).append(fraction)
        for model, fractions in by_model.items():
            assert KEPT_SPEED[model][worker_type] == pytest.approx(median(fractions), abs=0.005)


@pytest.mark.parametrize(
    ("worker_type", "error_bound"), [("k80", 0.135), ("p100", 0.115), ("v100", 0.235)]
)
def test_modelled_pairs_are_as_good_as_said(
    measured: ThroughputTable, worker_type: str, error_bound: float
) -> None:
    """On pairs that had no part in it, the model errs as its docstring says, and less than 60 %."""
    builtin = {name for name, scale_factor in builtin_table().classes() if scale_factor == 1}
    held_out = [
        (KEPT_SPEED[model_of(other)][worker_type], fraction)
        for name, other, fraction in kept(measured, worker_type)
        if not (name in builtin and other in builtin)
    ]
    error = median(abs(guess - fraction) / fraction for guess, fraction in held_out)
    error_of_constant = median(abs(0.6 - fraction) / fraction for _, fraction in held_out)
    assert len(held_out) > 400
    assert error < error_bound
    assert error < error_of_constant


def test_measured_pairs_win_over_the_model() -> None:
    """A pair the table has stays; one with a class that cannot run is not invented."""
    header = "job_type,scale_factor,worker_type,steps_per_s,other_job_type,other_steps_per_s\n"
    table = with_modelled_pairs(
        parse_csv(
            header
            + "A3C,1,v100,10,,\nLM,1,v100,20,,\nCycleGAN,1,v100,0,,\nother,1,v100,1,,\n"
            + "A3C,2,v100,10,,\nA3C,1,v100,9,LM,19\n",
            "mine",
        )
    )
    assert table.beside("A3C", "LM", 1, "v100") == (9, 19)
    assert table.beside("A3C", "A3C", 1, "v100") == (7, 7)
    assert table.beside("A3C", "CycleGAN", 1, "v100") is None
    assert table.beside("A3C", "other", 1, "v100") is None
    assert table.beside("A3C", "A3C", 2, "v100") is None
    assert "modelled" in table.source

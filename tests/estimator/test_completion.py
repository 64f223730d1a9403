"""Completing a matrix of which few cells are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.estimator.completion import CompletionError, Floats, Mask, factorise


def low_rank(
    rows: int, columns: int, rank: int, share: float, seed: int = 0, noise: float = 0.0
) -> tuple[Floats, Mask]:
    """A matrix of low rank around 0.6, and which of its cells are known."""
    chance = np.random.default_rng(seed)
    left, right = chance.normal(size=(rows, rank)), chance.normal(size=(columns, rank))
    cells = 0.6 + 0.1 * left @ right.T / np.sqrt(rank)
    cells += noise * chance.normal(size=cells.shape)
    return cells, chance.random(cells.shape) < share


def test_a_matrix_of_low_rank_is_found_again_from_a_tenth_of_its_cells() -> None:
    """1,000 x 200 of rank 6: the error is less than a sixth of what the mean would leave."""
    cells, known = low_rank(1000, 200, 6, 0.1)
    completed, _ = factorise(cells, known, rank=8).complete(cells, known)
    error = (completed - cells)[~known].std()
    assert error < cells[~known].std() / 6


def test_what_it_does_not_know_it_says_it_does_not_know() -> None:
    """Errors of unknown cells are within two standard deviations as often as they should be."""
    cells, known = low_rank(300, 60, 4, 0.3, noise=0.03)
    completed, variance = factorise(cells, known, rank=4).complete(cells, known)
    off = np.abs(completed - cells)[~known] / np.sqrt(variance[~known])
    assert 0.9 < (off < 2).mean() <= 1.0


@given(seed=st.integers(0, 1000), share=st.floats(0.05, 1.0))
def test_known_cells_are_kept_and_nothing_else_is_looked_at(seed: int, share: float) -> None:
    """Known cells come back to the bit with variance 0; what unknown ones hold is no matter."""
    cells, known = low_rank(12, 7, 2, share, seed)
    known[0, 0] = True
    completed, variance = factorise(cells, known, sweeps=3).complete(cells, known)
    assert (completed[known] == cells[known]).all()
    assert (variance[known] == 0).all()
    assert (variance[~known] > 0).all()
    hidden = np.where(known, cells, np.nan)
    again, _ = factorise(hidden, known, sweeps=3).complete(hidden, known)
    assert np.isfinite(completed).all()
    assert (again == completed).all()


def test_the_order_of_rows_decides_nothing() -> None:
    """Rows completed in another order are the same rows."""
    cells, known = low_rank(40, 20, 3, 0.4)
    order = np.random.default_rng(1).permutation(len(cells))
    one, _ = factorise(cells, known, rank=3).complete(cells, known)
    other, _ = factorise(cells[order], known[order], rank=3).complete(cells[order], known[order])
    assert other == pytest.approx(one[order], abs=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_and_cpu_agree() -> None:
    """One code, two devices, the same answer to rounding."""
    cells, known = low_rank(100, 40, 4, 0.3)
    cpu, _ = factorise(cells, known, rank=4).complete(cells, known)
    cuda, _ = factorise(cells, known, rank=4, device="cuda").complete(cells, known)
    assert cuda == pytest.approx(cpu, abs=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_known_cell_that_is_no_number_is_named(value: float) -> None:
    """With its row and column, at learning and at completing alike."""
    cells, known = low_rank(5, 4, 1, 1.0)
    factors = factorise(cells, known)
    cells[2, 3] = value
    for attempt in (factorise, factors.complete):
        with pytest.raises(CompletionError, match=f"row 2, column 3 is {value}; expected a finite"):
            attempt(cells, known)


def test_nothing_known_is_refused() -> None:
    """There is nothing to learn from."""
    cells, known = low_rank(5, 4, 1, 1.0)
    with pytest.raises(CompletionError, match=r"no cell of \(5, 4\) is known"):
        factorise(cells, ~known)


def test_one_row_and_one_column_are_matrices_too() -> None:
    """A single reference: everything is its row; a row of zeros stays one."""
    cells, known = low_rank(1, 6, 1, 1.0)
    completed, _ = factorise(cells, known).complete(cells, np.zeros_like(known))
    assert completed == pytest.approx(cells)
    zeros = np.zeros((3, 4))
    completed, _ = factorise(zeros, zeros == 0).complete(zeros[:1], zeros[:1] != 0)
    assert (completed == 0).all()

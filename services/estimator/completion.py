"""Low-rank completion of a matrix of which few cells are known, in torch.

Theory
------
Rows are jobs, columns what can be measured of a job. A row is taken for a draw from a Gaussian
whose covariance has low rank (probabilistic principal components)::

    x_i  =  mean  +  W u_i  +  noise,     u_i ~ N(0, I)

``factorise`` finds mean and W from whatever cells are known, by expectation maximisation; it starts
from the singular vectors of the matrix with its gaps at their column means, so nothing is left to
chance. A row is then completed by conditioning on its known cells, a regression in few unknowns:
cheap for one new job, and it says how sure it is of each cell. Known cells are kept as they are.

The same code runs on CPU and CUDA, in double precision; the two agree to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Sums in one order on any machine; and threads would only get in each other's way here.
torch.set_num_threads(1)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class CompletionError(Exception):
    """A matrix that cannot be completed; the message names the cell or what is missing."""


@dataclass(frozen=True, slots=True)
class Factors:
    """What is known of rows in general.

    Attributes
    ----------
    mean : (columns,)
    loadings : (columns, rank)
        W: what each unknown of a row adds to its cells.
    noise : float
        Standard deviation of what no unknown explains.
    """

    mean: Tensor
    loadings: Tensor
    noise: float

    def complete(self, values: Floats, known: Mask) -> tuple[Floats, Floats]:
        """Fill the gaps of rows.

        Parameters
        ----------
        values, known : (rows, columns)
            Cells, and which of them count.

        Returns
        -------
        completed, variance : (rows, columns)
            Expected values, and their variance; known cells as given, with variance 0.

        Raises
        ------
        CompletionError
            A known cell is no finite number.
        """
        cells, mask = _tensors(values, known, self.mean.device)
        unknowns, spread = _condition(self, cells - self.mean, mask)
        expected = self.mean + unknowns @ self.loadings.T
        variance = ((self.loadings @ spread) * self.loadings).sum(-1) + self.noise**2
        completed = torch.where(mask > 0, cells, expected)
        return _array(completed), _array(torch.where(mask > 0, 0.0, variance))


def factorise(
    values: Floats,
    known: Mask,
    *,
    rank: int = 24,
    noise: float = 0.03,
    sweeps: int = 30,
    device: str = "cpu",
) -> Factors:
    """Learn what rows have in common.

    Parameters
    ----------
    values, known : (rows, columns)
        Cells, and which of them count.
    rank : int
        Unknowns of a row, at most; never more than rows less one, or columns.
    noise : float
        Standard deviation of a cell's error, in the unit of the cells; above 0.
    sweeps : int
        Of expectation maximisation.
    device : str
        Where to compute: ``cpu``, ``cuda``.

    Raises
    ------
    CompletionError
        There is no known cell, or one is no finite number.
    """
    cells, mask = _tensors(values, known, torch.device(device))
    if not bool(mask.any()):
        raise CompletionError(f"no cell of {tuple(cells.shape)} is known; at least one is needed")
    rows, columns = cells.shape
    rank = max(1, min(rank, rows - 1, columns))
    mean = _column_means(cells, mask)
    centred = (cells - mean) * mask
    _, sizes, right = torch.linalg.svd(centred, full_matrices=False)
    # A column seen in part shows in part only: scale it up to what all its rows would show.
    seen = mask.mean(0).clamp_min(1.0 / rows)
    loadings = (right[:rank].T * sizes[:rank]) / (rows**0.5 * seen[:, None] ** 0.5)
    factors = Factors(mean, loadings, noise)
    if bool(mask.all()):
        return factors
    for _ in range(sweeps):
        factors = _sweep(factors, cells, mask)
    return factors


def _sweep(factors: Factors, cells: Tensor, mask: Tensor) -> Factors:
    """One round of expectation (of the rows' unknowns) and maximisation (mean and loadings)."""
    unknowns, spread = _condition(factors, cells - factors.mean, mask)
    # The mean is the loading of an unknown that is 1 in every row.
    ones = torch.ones_like(unknowns[:, :1])
    extended = torch.cat([unknowns, ones], 1)
    rank = unknowns.shape[1]
    second = extended[:, :, None] * extended[:, None, :]
    second[:, :rank, :rank] += spread
    moments = mask.T @ second.flatten(1)
    moments = moments.view(-1, rank + 1, rank + 1)
    # Loadings of a column hardly ever seen stay near 0 instead of fitting its noise.
    prior = torch.full((rank + 1,), factors.noise**2, dtype=cells.dtype, device=cells.device)
    prior[rank] = 1e-9
    target = (cells * mask).T @ extended
    target[:, rank] += prior[rank] * factors.mean
    solved = torch.linalg.solve(moments + torch.diag(prior), target)
    return Factors(solved[:, rank], solved[:, :rank], factors.noise)


def _condition(factors: Factors, centred: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (rows, rank) and covariance (rows, rank, rank) of unknowns, given the known cells."""
    loadings, variance = factors.loadings, factors.noise**2
    rank = loadings.shape[1]
    squares = (loadings[:, :, None] * loadings[:, None, :]).flatten(1)
    gram = (mask @ squares).view(-1, rank, rank) / variance
    precision = gram + torch.eye(rank, dtype=loadings.dtype, device=loadings.device)
    spread = torch.cholesky_inverse(torch.linalg.cholesky(precision))
    projected = (centred * mask) @ loadings / variance
    return (spread @ projected[:, :, None])[:, :, 0], spread


def _column_means(cells: Tensor, mask: Tensor) -> Tensor:
    """Means of the known cells of each column, drawn to the overall mean where there are few."""
    overall = (cells * mask).sum() / mask.sum()
    sums, counts = (cells * mask).sum(0), mask.sum(0)
    full = counts == len(cells)
    return torch.where(full, sums / counts.clamp_min(1), (sums + overall) / (counts + 1))


def _tensors(values: Floats, known: Mask, device: torch.device) -> tuple[Tensor, Tensor]:
    bad = known & ~np.isfinite(values)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        value = float(values[row, column])
        raise CompletionError(f"row {row}, column {column} is {value}; expected a finite number")
    cells = np.where(known, values, 0.0)
    return (
        torch.as_tensor(cells, dtype=torch.float64, device=device),
        torch.as_tensor(known, dtype=torch.float64, device=device),
    )


def _array(tensor: Tensor) -> Floats:
    found: Floats = tensor.cpu().numpy()
    return found

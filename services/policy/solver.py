"""Linear programs, solved by HiGHS and, where HiGHS gives up, by Clarabel.

A ``LinearProgram`` is built once from coordinates, then solved again and again with other bounds
and costs; HiGHS starts each time from the basis it has, which costs a few pivots. Every program
has a HiGHS of its own: an answer depends on what was asked of this object and on nothing before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import clarabel
import highspy
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from services.policy.problem import SolverError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

INF = float(highspy.kHighsInf)

#: An extension module whose names no type checker sees.
_clarabel: Any = clarabel

_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "random_seed": 0,
    "solver": "simplex",
    # Presolve costs more than it saves at our sizes, and forgets the basis.
    "presolve": "off",
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}


#: HiGHS's number for the primal simplex method.
_PRIMAL = 4


class _Highs(highspy.Highs):  # type: ignore[misc]  # highspy carries no types
    """HiGHS without callbacks: we use none, and setting them up prints a banner."""

    def enableCallbacks(self) -> None:  # noqa: N802  # highspy's name
        """Do not."""


#: What the second attempt, from scratch, does otherwise.
_PATIENT_OPTIONS: dict[str, bool | int | float | str] = {
    "presolve": "on",
    "primal_feasibility_tolerance": 1e-7,
    "dual_feasibility_tolerance": 1e-7,
}


@dataclass(frozen=True, slots=True)
class Solution:
    """An optimum of a minimisation and its duals.

    Attributes
    ----------
    values : (columns,)
        The optimum.
    row_duals : (rows,)
        d objective / d bound of each row: >= 0 where a lower bound binds, <= 0 where an upper.
    reduced_costs : (columns,)
        The same of the columns' bounds.
    objective : float
        Value of the optimum.
    accuracy : float
        What is smaller than this, in values and duals near 1, may be noise.
    """

    values: Floats
    row_duals: Floats
    reduced_costs: Floats
    objective: float
    accuracy: float

    def is_unique(self) -> bool:
        """Whether the duals prove that no other point is optimal.

        They do when as many bounds have a dual as there are columns: those bounds are tight in
        all optima and leave a basic solution no freedom.
        """
        pinned = np.count_nonzero(np.abs(self.row_duals) > self.accuracy)
        pinned += np.count_nonzero(np.abs(self.reduced_costs) > self.accuracy)
        return bool(pinned >= len(self.values))


class LinearProgram:
    """min cost.x subject to row_lower <= A x <= row_upper, col_lower <= x <= col_upper.

    Parameters
    ----------
    costs, col_lower, col_upper : (columns,)
        Objective and bounds of the columns.
    row_lower, row_upper : (rows,)
        Bounds of the rows; ``INF`` where there is none.
    entries : ((entries,), (entries,), (entries,))
        Row, column and value of each non-zero of A, each place at most once.
    """

    def __init__(
        self,
        costs: Floats,
        col_lower: Floats,
        col_upper: Floats,
        row_lower: Floats,
        row_upper: Floats,
        entries: tuple[Ints, Ints, Floats],
    ) -> None:
        self._costs, self._col_lower, self._col_upper = costs, col_lower, col_upper
        self._row_lower, self._row_upper = row_lower, row_upper
        self._entries = entries
        matrix = self._matrix()
        self._highs: Any = _Highs()
        self._set_options(_OPTIONS)
        self._highs.passModel(
            len(costs),
            len(row_lower),
            matrix.nnz,
            int(highspy.MatrixFormat.kColwise),
            int(highspy.ObjSense.kMinimize),
            0.0,
            costs,
            col_lower,
            col_upper,
            row_lower,
            row_upper,
            matrix.indptr,
            matrix.indices,
            matrix.data,
            np.zeros(len(costs), np.int32),
        )

    def set_costs(self, costs: Floats) -> None:
        """Ask for another objective, (columns,)."""
        self._costs = costs
        self._highs.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), costs)

    def set_col_bounds(self, column: int, lower: float, upper: float) -> None:
        """Move the bounds of one column."""
        self._col_lower, self._col_upper = self._col_lower.copy(), self._col_upper.copy()
        self._col_lower[column], self._col_upper[column] = lower, upper
        self._highs.changeColBounds(column, lower, upper)

    def set_row_upper(self, row: int, upper: float) -> None:
        """Move the upper bound of one row."""
        self._row_upper = self._row_upper.copy()
        self._row_upper[row] = upper
        self._highs.changeRowBounds(row, self._row_lower[row], upper)

    def set_row_lower(self, lower: Floats, first: int = 0) -> None:
        """Move the lower bounds of ``len(lower)`` rows, from row ``first`` on."""
        last = first + len(lower)
        self._row_lower = np.concatenate([self._row_lower[:first], lower, self._row_lower[last:]])
        rows = np.arange(first, last, dtype=np.int32)
        self._highs.changeRowsBounds(len(rows), rows, lower, self._row_upper[first:last])

    def set_entry(self, row: int, column: int, value: float) -> None:
        """Replace one coefficient of A."""
        rows, columns, values = self._entries
        others = (rows != row) | (columns != column)
        self._highs.changeCoeff(row, column, value)
        self._entries = (
            np.append(rows[others], row),
            np.append(columns[others], column),
            np.append(values[others], value),
        )

    def set_coefficients(self, column: int, values: Floats) -> None:
        """Replace a whole column of A by ``values``, (rows,)."""
        rows, columns, old = self._entries
        others = columns != column
        before = np.zeros(len(values))
        before[rows[~others]] = old[~others]
        for row in np.flatnonzero(values != before).tolist():
            self._highs.changeCoeff(row, column, float(values[row]))
        kept = np.flatnonzero(values)
        self._entries = (
            np.concatenate([rows[others], kept]),
            np.concatenate([columns[others], np.full(len(kept), column)]),
            np.concatenate([old[others], values[kept]]),
        )

    def add_rows(self, lower: Floats, upper: Floats, entries: tuple[Ints, Ints, Floats]) -> None:
        """Add rows below the others; in ``entries``, as of the constructor, they count from 0."""
        rows, columns, values = entries
        by_row = np.lexsort((columns, rows))
        starts = np.searchsorted(rows[by_row], np.arange(len(lower)))
        self._highs.addRows(
            len(lower),
            lower,
            upper,
            len(values),
            starts.astype(np.int32),
            columns[by_row].astype(np.int32),
            values[by_row],
        )
        new = (rows + len(self._row_lower), columns, values)
        self._entries = (
            np.concatenate([self._entries[0], new[0]]),
            np.concatenate([self._entries[1], new[1]]),
            np.concatenate([self._entries[2], new[2]]),
        )
        self._row_lower = np.concatenate([self._row_lower, lower])
        self._row_upper = np.concatenate([self._row_upper, upper])

    def add_columns(
        self, costs: Floats, entries: tuple[Ints, Ints, Floats], upper: float = INF
    ) -> None:
        """Add columns from 0 to ``upper`` beside the others; in ``entries`` they count from 0."""
        rows, columns, values = entries
        by_column = np.lexsort((rows, columns))
        starts = np.searchsorted(columns[by_column], np.arange(len(costs)))
        lower, uppers = np.zeros(len(costs)), np.full(len(costs), upper)
        self._highs.addCols(
            len(costs),
            costs,
            lower,
            uppers,
            len(values),
            starts.astype(np.int32),
            rows[by_column].astype(np.int32),
            values[by_column],
        )
        new = (rows, columns + len(self._costs), values)
        self._entries = (
            np.concatenate([self._entries[0], new[0]]),
            np.concatenate([self._entries[1], new[1]]),
            np.concatenate([self._entries[2], new[2]]),
        )
        self._costs = np.concatenate([self._costs, costs])
        self._col_lower = np.concatenate([self._col_lower, lower])
        self._col_upper = np.concatenate([self._col_upper, uppers])

    def start_from(self, columns: Ints, rows: Ints) -> None:
        """Begin the next solve with these columns in the basis, and all rows but these.

        There must be as many of the ones as of the others.
        """
        status = highspy.HighsBasisStatus
        basis = highspy.HighsBasis()
        in_basis = np.zeros(len(self._costs), dtype=bool)
        in_basis[columns] = True
        basis.col_status = [status.kBasic if b else status.kLower for b in in_basis.tolist()]
        at_bound = np.isin(np.arange(len(self._row_lower)), rows).tolist()
        lower = np.isfinite(self._row_lower).tolist()
        basis.row_status = [
            (status.kLower if low else status.kUpper) if bound else status.kBasic
            for bound, low in zip(at_bound, lower, strict=True)
        ]
        basis.valid = True
        self._highs.setBasis(basis)

    def keep_feasible(self) -> None:
        """Walk from now on through points that are allowed, not through prices that are.

        That is the shorter way where only the costs have changed.
        """
        self._highs.setOptionValue("simplex_strategy", _PRIMAL)

    def keep_optima(self, solution: Solution) -> None:
        """Allow from now on only what is as good as ``solution``, the optimum last found.

        A bound with a dual is tight in every optimum, and a point at which all of these are tight
        is optimal: so they are made equations.
        """
        bound = np.where(solution.row_duals > 0, self._row_lower, self._row_upper)
        held = (np.abs(solution.row_duals) > solution.accuracy) & np.isfinite(bound)
        self._row_lower = np.where(held, bound, self._row_lower)
        self._row_upper = np.where(held, bound, self._row_upper)
        every_row = np.arange(len(bound), dtype=np.int32)
        self._highs.changeRowsBounds(len(bound), every_row, self._row_lower, self._row_upper)

        bound = np.where(solution.reduced_costs > 0, self._col_lower, self._col_upper)
        held = (np.abs(solution.reduced_costs) > solution.accuracy) & np.isfinite(bound)
        self._col_lower = np.where(held, bound, self._col_lower)
        self._col_upper = np.where(held, bound, self._col_upper)
        every_column = np.arange(len(bound), dtype=np.int32)
        self._highs.changeColsBounds(len(bound), every_column, self._col_lower, self._col_upper)

    def solve(self) -> Solution:
        """Find an optimum: HiGHS from its basis, HiGHS patiently from scratch, then Clarabel.

        Raises
        ------
        SolverError
            None of them found one.
        """
        words: list[str] = []
        solution = self._solve_by_highs(words)
        if solution is None:
            self._highs.clearSolver()
            self._set_options(_PATIENT_OPTIONS)
            solution = self._solve_by_highs(words) or self._solve_by_clarabel(words)
            self._set_options(_OPTIONS)
        if solution is None:
            raise SolverError("; ".join(words))
        return solution

    def _matrix(self) -> Any:
        """A, by columns."""
        rows, columns, values = self._entries
        shape = (len(self._row_lower), len(self._costs))
        return sparse.csc_matrix((values, (rows, columns)), shape=shape)

    def _set_options(self, options: dict[str, bool | int | float | str]) -> None:
        for option, value in options.items():
            self._highs.setOptionValue(option, value)

    def _solve_by_highs(self, words: list[str]) -> Solution | None:
        if self._highs.run() == highspy.HighsStatus.kError:
            # Others in this process who use HiGHS with more threads leave them behind, and HiGHS
            # then refuses to run with one.
            self._highs.resetThreadScheduler(True)  # noqa: FBT003  # highspy takes no names
            self._highs.run()
        status = self._highs.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            words.append(f"HiGHS: {self._highs.modelStatusToString(status)}")
            return None
        solution = self._highs.getSolution()
        return Solution(
            values=np.array(solution.col_value),
            row_duals=np.array(solution.row_dual),
            reduced_costs=np.array(solution.col_dual),
            objective=float(self._highs.getInfo().objective_function_value),
            accuracy=1e-9,
        )

    def _solve_by_clarabel(self, words: list[str]) -> Solution | None:
        """The same program in Clarabel's form: A' x + slack = b, slack >= 0, a row per bound."""
        columns, rows = len(self._costs), len(self._row_lower)
        bounded = sparse.csr_matrix(sparse.vstack([self._matrix(), sparse.identity(columns)]))
        lower = np.concatenate([self._row_lower, self._col_lower])
        upper = np.concatenate([self._row_upper, self._col_upper])
        below, above = np.flatnonzero(lower > -INF), np.flatnonzero(upper < INF)
        settings = _clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        answer = _clarabel.DefaultSolver(
            sparse.csc_matrix((columns, columns)),
            self._costs,
            sparse.vstack([-bounded[below], bounded[above]], format="csc"),
            np.concatenate([-lower[below], upper[above]]),
            [_clarabel.NonnegativeConeT(len(below) + len(above))],
            settings,
        ).solve()
        words.append(f"Clarabel: {answer.status}")
        if answer.status != _clarabel.SolverStatus.Solved:
            return None
        duals = np.zeros(rows + columns)
        multipliers = np.array(answer.z)
        np.add.at(duals, below, multipliers[: len(below)])
        np.add.at(duals, above, -multipliers[len(below) :])
        return Solution(
            values=np.array(answer.x),
            row_duals=duals[:rows],
            reduced_costs=duals[rows:],
            objective=float(answer.obj_val),
            accuracy=1e-6,
        )

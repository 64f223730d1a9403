"""The linear programs behind the policies: one answer, whichever solver gives it."""

from __future__ import annotations

import highspy
import numpy as np
import pytest

from services.policy.problem import SolverError
from services.policy.solver import INF, Floats, LinearProgram


def production(seed: int) -> tuple[LinearProgram, Floats]:
    """Five goods from six materials, at random: least cost that covers the demand."""
    rng = np.random.default_rng(seed)
    goods, materials = 5, 6
    rows, columns = np.divmod(np.arange(goods * materials), materials)
    demand = rng.uniform(1, 2, goods)
    program = LinearProgram(
        costs=rng.uniform(1, 3, materials),
        col_lower=np.zeros(materials),
        col_upper=rng.uniform(1, 2, materials),
        row_lower=demand,
        row_upper=np.full(goods, INF),
        entries=(rows, columns, rng.uniform(0.5, 2.0, goods * materials)),
    )
    return program, demand


@pytest.mark.parametrize("seed", range(10))
def test_highs_and_clarabel_agree_in_optimum_and_duals(seed: int) -> None:
    """Values, duals and reduced costs have the same size and the same sign."""
    program, _ = production(seed)
    by_highs = program.solve()
    by_clarabel = program._solve_by_clarabel([])
    assert by_clarabel is not None
    assert by_clarabel.objective == pytest.approx(by_highs.objective, rel=1e-7)
    np.testing.assert_allclose(by_clarabel.values, by_highs.values, atol=1e-6)
    np.testing.assert_allclose(by_clarabel.row_duals, by_highs.row_duals, atol=1e-6)
    np.testing.assert_allclose(by_clarabel.reduced_costs, by_highs.reduced_costs, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_duals_are_the_objectives_slopes(seed: int) -> None:
    """A little more demand costs its dual, and re-solving from the old basis sees it."""
    program, demand = production(seed)
    before = program.solve()
    for row in range(len(demand)):
        more = demand.copy()
        more[row] += 1e-6
        program.set_row_lower(more)
        rise = (program.solve().objective - before.objective) / 1e-6
        assert rise == pytest.approx(before.row_duals[row], abs=1e-5)


def test_a_warm_start_ends_where_a_cold_one_does() -> None:
    """Bounds and costs moved one after the other, or all at once before the first solve."""
    warm, demand = production(0)
    cold, _ = production(0)
    costs = np.linspace(1.0, 2.0, 6)
    warm.solve()
    warm.set_row_lower(1.1 * demand)
    warm.solve()
    for program in (warm, cold):
        program.set_row_lower(1.1 * demand)
        program.set_costs(costs)
        program.set_col_bounds(2, 0.1, 0.9)
    np.testing.assert_allclose(warm.solve().values, cold.solve().values, atol=1e-12)


@pytest.mark.parametrize("by_clarabel", [False, True])
def test_rows_and_coefficients_added_later_count_like_those_given_at_once(
    by_clarabel: bool,
) -> None:
    """A program grown by a row and with one column replaced has the optimum of the whole one."""
    grown, demand = production(0)
    rng = np.random.default_rng(1)
    column, row = rng.uniform(0.5, 2.0, len(demand) + 1), rng.uniform(0.5, 2.0, 6)
    grown.solve()
    every_column = np.arange(len(row))
    at_least, unlimited = np.array([8.0]), np.array([INF])
    grown.add_rows(at_least, unlimited, (np.zeros(6, dtype=np.int64), every_column, row))
    grown.set_coefficients(2, column)

    rows, columns, values = production(0)[0]._entries
    values = np.append(values, row)
    rows, columns = np.append(rows, np.full(6, len(demand))), np.append(columns, every_column)
    values[columns == 2] = column
    whole = LinearProgram(
        costs=grown._costs,
        col_lower=np.zeros(6),
        col_upper=grown._col_upper,
        row_lower=np.append(demand, at_least),
        row_upper=np.full(len(demand) + 1, INF),
        entries=(rows, columns, values),
    )
    answer = grown._solve_by_clarabel([]) if by_clarabel else grown.solve()
    assert answer is not None
    np.testing.assert_allclose(answer.values, whole.solve().values, atol=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_a_second_objective_chooses_among_the_optima_of_the_first(seed: int) -> None:
    """Two materials cost nothing: the second objective decides between them, at no more cost."""
    program, _ = production(seed)
    costs = program._costs.copy()
    costs[:2] = 0.0
    program.set_costs(costs)
    first = program.solve()
    program.keep_optima(first)
    program.set_costs(np.eye(6)[0])
    second = program.solve()
    assert costs @ second.values == pytest.approx(first.objective, rel=1e-9)
    assert second.values[0] <= first.values[0] + 1e-9


def test_an_impossible_program_is_refused_in_the_solvers_words() -> None:
    """Every solver of the chain is heard."""
    program, demand = production(0)
    program.set_row_lower(1000 * demand)
    with pytest.raises(SolverError, match=r"HiGHS: Infeasible; .*Clarabel: PrimalInfeasible"):
        program.solve()


def test_an_impossible_program_can_be_made_possible_again() -> None:
    """A failure leaves nothing behind: the next answer is that of a new program."""
    program, demand = production(0)
    expected = program.solve()
    program.set_row_lower(1000 * demand)
    with pytest.raises(SolverError):
        program.solve()
    program.set_row_lower(demand)
    np.testing.assert_allclose(program.solve().values, expected.values, atol=1e-9)


def test_others_who_use_highs_do_not_disturb() -> None:
    """Threads that another user of HiGHS has started in this process change no answer."""
    program, _ = production(0)
    expected = program.solve()
    other = highspy.Highs()
    other.setOptionValue("output_flag", False)  # noqa: FBT003  # highspy takes no names
    other.resetThreadScheduler(True)  # noqa: FBT003  # highspy takes no names
    other.setOptionValue("threads", 2)
    other.run()
    program, _ = production(0)
    answer = program.solve()
    assert answer.accuracy == expected.accuracy
    assert (answer.values == expected.values).all()


@pytest.mark.parametrize(("costs", "unique"), [([1.0, 2.0], True), ([1.0, 1.0], False)])
def test_duals_prove_uniqueness(costs: list[float], unique: bool) -> None:
    """Two goods that replace each other: one cheapest mix, or many if they cost the same."""
    program = LinearProgram(
        costs=np.array(costs),
        col_lower=np.zeros(2),
        col_upper=np.full(2, INF),
        row_lower=np.ones(1),
        row_upper=np.full(1, INF),
        entries=(np.zeros(2, dtype=np.int64), np.arange(2), np.ones(2)),
    )
    assert program.solve().is_unique() == unique

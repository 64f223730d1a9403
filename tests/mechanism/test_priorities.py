"""Who is owed: X/f since the last allocation, and credit that outlives it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.domain import Combination
from services.mechanism.claims import Claims, Floats
from services.mechanism.priorities import CreditPriorities, ResetPriorities, _most_used

ROUND_S = 360.0
#: Rounds' worth of debt at which CreditPriorities forgives the rest.
FLOOR = 4


def claims_of(shares: dict[str, float], scale_factors: dict[str, int] | None = None) -> Claims:
    """Jobs in order of arrival on one worker type."""
    scale_factors = scale_factors or {}
    return Claims.build(
        ("v100",),
        [(job,) for job in shares],
        np.array(list(shares.values()), dtype=float)[:, None],
        np.ones((len(shares), 1), dtype=bool),
        np.array([scale_factors.get(job, 1) for job in shares], dtype=np.int64),
        np.arange(len(shares)),
    )


def nobody(claims: Claims) -> Floats:
    """Nobody runs at present."""
    return np.zeros(claims.share.shape)


def ranked(books: ResetPriorities | CreditPriorities, claims: Claims) -> list[float]:
    """Each job's priority while nobody runs."""
    return [float(rank) for rank in books.rank(claims, nobody(claims))[0][:, 0]]


# --- X/f, f restarted at each allocation ---------------------------------------------------------


def test_priority_is_the_share_over_the_fraction_received() -> None:
    """After 540 s and 180 s, head starts of half a round in: f = 3/4 and 1/4 (§5)."""
    claims = claims_of({"a": 0.5, "b": 0.25, "c": 0.0})
    books = ResetPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    assert ranked(books, claims) == pytest.approx([0.5 / (1 / 3), 0.25 / (1 / 3), 0.0])
    books.received([0], [0], [ROUND_S])
    received = {"a": 180.0 + 360.0, "b": 180.0, "c": 180.0}
    total = sum(received.values())
    assert ranked(books, claims) == pytest.approx(
        [0.5 / (received["a"] / total), 0.25 / (received["b"] / total), 0.0]
    )


def test_a_new_allocation_forgets_the_time_received() -> None:
    """X/f is as at the very start after each solve; this is what starves (see the credit)."""
    claims = claims_of({"a": 0.5, "b": 0.5})
    books = ResetPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    before = ranked(books, claims)
    books.received([0], [0], [3 * ROUND_S])
    assert ranked(books, claims) != before
    books.install(claims, 3 * ROUND_S, solved=True)
    assert ranked(books, claims) == before


def test_what_was_owed_before_breaks_ties() -> None:
    """Equal X/f: first who is owed more over past allocations, to the second."""
    claims = claims_of({"a": 0.5, "b": 0.5})
    books = ResetPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    books.received([0], [0], [720.0])
    books.install(claims, 720.0, solved=True)
    priority, (_, deficit_s, _) = books.rank(claims, nobody(claims))
    assert priority[0, 0] == priority[1, 0]
    assert deficit_s[:, 0].tolist() == [0.5 * 720.0 - 720.0, 0.5 * 720.0 - 0.0]


def test_who_joins_between_solves_starts_with_the_head_start() -> None:
    """A change of jobs without a solve keeps the time received; the new job has half a round."""
    books = ResetPriorities(ROUND_S)
    books.install(claims_of({"a": 0.5}), 0.0, solved=True)
    books.received([0], [0], [ROUND_S])
    claims = claims_of({"new": 0.5, "a": 0.5})
    books.install(claims, ROUND_S, solved=False)
    received = [180.0, 180.0 + 360.0]
    assert ranked(books, claims) == pytest.approx([0.5 / (r / sum(received)) for r in received])


# --- credit --------------------------------------------------------------------------------------


def credit_s(books: CreditPriorities) -> list[float]:
    """The balances. Looked at inside, since ranks show whole rounds only."""
    return [float(credit) for credit in books._credit_s[:, 0]]


def play(
    books: CreditPriorities, claims: Claims, rounds: Sequence[Sequence[int]], workers: int = 1
) -> None:
    """Grant these rows of ``workers`` workers, round by round, and pay the last round out."""
    for rows in rounds:
        books.rank(claims, nobody(claims))
        books.granted(rows, [0] * len(rows), ROUND_S, [workers])
    books.rank(claims, nobody(claims))


def test_credit_grows_by_x_and_is_paid_by_grants() -> None:
    """Two rounds at X = 3/4 and 1/4, both granted to the first: +1.5 - 2 and +0.5 rounds."""
    claims = claims_of({"a": 0.75, "b": 0.25})
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    play(books, claims, [[0], [0]])
    assert credit_s(books) == [-0.5 * ROUND_S, 0.5 * ROUND_S]


def test_what_a_type_cannot_serve_nobody_is_owed() -> None:
    """Shares add up to 2 workers but one was granted: all accrue at half their rate."""
    claims = claims_of({"a": 1.0, "b": 0.6, "c": 0.4})
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    play(books, claims, [[0]])
    assert credit_s(books) == pytest.approx([(0.5 - 1) * ROUND_S, 0.3 * ROUND_S, 0.2 * ROUND_S])


def test_a_type_that_idles_owes_all() -> None:
    """Nobody was granted the type, so nobody could say that it was full: all accrue at rate X."""
    claims = claims_of({"a": 0.75, "b": 0.25})
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    play(books, claims, [[]])
    assert credit_s(books) == [0.75 * ROUND_S, 0.25 * ROUND_S]


def test_workers_that_no_gang_can_use_are_nothing_gangs_are_owed() -> None:
    """Five workers make 5/4 of a gang of four, but one runs: what is owed must not grow by 1/4.

    The job of one worker beside them that is entitled to the sixth is paid for all of it.
    """
    gangs = dict.fromkeys("abc", 4)
    claims = claims_of({**dict.fromkeys("abc", 5 / 12), "one": 1.0}, gangs)
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    for _ in range(300):
        first = max(range(3), key=lambda row: credit_s(books)[row])
        play(books, claims, [[first, 3]], workers=6)
    assert credit_s(books)[:3] == pytest.approx([0.0] * 3, abs=ROUND_S)
    assert credit_s(books)[3] == pytest.approx(0.0)


def test_a_gang_that_others_stand_in_the_way_of_is_owed_all() -> None:
    """Two of four workers idle, too few for it: without those others there would be enough."""
    claims = claims_of({"gang": 0.5, "one": 0.5, "other": 0.5}, {"gang": 4})
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    play(books, claims, [[1, 2]], workers=4)
    assert credit_s(books)[0] == 0.5 * ROUND_S


@given(
    sizes=st.lists(st.integers(1, 9), max_size=8),
    workers=st.integers(0, 40),
)
def test_the_most_workers_that_jobs_can_use(sizes: list[int], workers: int) -> None:
    """As by trying all sets of them."""
    sums = {sum(each) for count in range(len(sizes) + 1) for each in combinations(sizes, count)}
    most = max(total for total in sums if total <= workers)
    assert _most_used(np.array(sizes, dtype=np.int64), workers) == most


def test_a_gang_counts_with_all_its_workers() -> None:
    """A gang of 2 at X = 1/2 demands one worker; one job of one worker served pays for half."""
    claims = claims_of({"gang": 0.5, "a": 1.0}, {"gang": 2})
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    play(books, claims, [[1]])
    assert credit_s(books) == pytest.approx([0.25 * ROUND_S, (0.5 - 1) * ROUND_S])


def test_an_allocation_changes_the_rate_not_the_balance() -> None:
    """New shares, a job gone, one arrived: who stays keeps the credit, the new one has none."""
    books = CreditPriorities(ROUND_S)
    before = claims_of({"a": 0.75, "b": 0.25, "gone": 0.0})
    books.install(before, 0.0, solved=True)
    play(books, before, [[0]])
    after = claims_of({"new": 0.25, "b": 0.25, "a": 0.5})
    books.install(after, ROUND_S, solved=True)
    assert credit_s(books) == [0.0, 0.25 * ROUND_S, -0.25 * ROUND_S]
    play(books, after, [[0]])
    assert credit_s(books) == [-0.75 * ROUND_S, 0.5 * ROUND_S, 0.25 * ROUND_S]


def test_the_round_before_an_allocation_is_paid_out_at_the_old_rate() -> None:
    """A solve inside a round does not change what that round was worth."""
    books = CreditPriorities(ROUND_S)
    before = claims_of({"a": 0.75, "b": 0.25})
    books.install(before, 0.0, solved=True)
    books.granted([0], [0], ROUND_S, [1])
    books.install(claims_of({"a": 0.1, "b": 0.9}), ROUND_S, solved=True)
    assert credit_s(books) == [-0.25 * ROUND_S, 0.25 * ROUND_S]


def test_debt_ends_at_four_rounds() -> None:
    """Who fills idle workers for days does not owe for days."""
    claims = claims_of({"filler": 0.0})
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    play(books, claims, [[0]] * 10)
    assert credit_s(books) == [-FLOOR * ROUND_S]


def test_a_preemption_takes_more_than_two_rounds_of_credit() -> None:
    """Who runs goes on until another is owed more by over two whole rounds."""
    claims = claims_of({"runs": 0.5, "waits": 0.5})
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    running = np.array([[1.0], [0.0]])
    ahead = []
    for _ in range(5):
        score, _ = books.rank(claims, running)
        ahead.append(float(score[0, 0] - score[1, 0]))
        books.granted([0], [0], ROUND_S, [1])
    # By half rounds: floor(c + X) of (0, 0), (-.5, .5), (-1, 1), (-1.5, 1.5), (-2, 2).
    assert ahead == [2.0, 2 - 1.0, 2 - 2.0, 2 - 3.0, 2 - 4.0]


def test_gangs_come_first_among_equals() -> None:
    """At equal credit, each doubling of the scale factor is worth an eighth of a round."""
    claims = claims_of({"one": 0.5, "two": 0.5, "eight": 0.5}, {"two": 2, "eight": 8})
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    assert ranked(books, claims) == [0.0, 1 / 8, 3 / 8]


@given(data=st.data())
def test_credit_is_conserved(data: st.DataObject) -> None:
    """Where all that was due was served, workers' credits add up to 0 whatever was granted."""
    units = data.draw(st.lists(st.integers(1, 8), min_size=2, max_size=6), label="eighths")
    scales = data.draw(
        st.lists(st.sampled_from([1, 2, 4]), min_size=len(units), max_size=len(units))
    )
    names = [f"j{i}" for i in range(len(units))]
    claims = claims_of(
        {n: u / 8 for n, u in zip(names, units, strict=True)}, dict(zip(names, scales, strict=True))
    )
    books = CreditPriorities(ROUND_S)
    books.install(claims, 0.0, solved=True)
    due = sum(u * s for u, s in zip(units, scales, strict=True)) / 8
    total = 0.0
    for _ in range(data.draw(st.integers(1, FLOOR), label="rounds")):
        rows = sorted(data.draw(st.sets(st.integers(0, len(units) - 1)), label="granted"))
        play(books, claims, [rows], workers=0)  # A type of none has none that idle.
        granted = sum(scales[row] for row in rows)
        total += min(due, granted) - granted
        balance = sum(c * s for c, s in zip(credit_s(books), scales, strict=True))
        assert balance == pytest.approx(total * ROUND_S, abs=1e-6)
        assert min(credit_s(books)) >= -FLOOR * ROUND_S


# --- pairs come and go ---------------------------------------------------------------------------


def paired(shares: dict[Combination, list[float]]) -> Claims:
    """Combinations in order of arrival, as many worker types as there are shares."""
    share = np.array(list(shares.values()), dtype=float)
    return Claims.build(
        ("k80", "v100")[: share.shape[1]],
        list(shares),
        share,
        np.ones(share.shape, dtype=bool),
        np.ones(len(shares), dtype=np.int64),
        np.arange(len(shares)),
    )


def owing(before: Claims, credit_s: list[list[float]], after: Claims) -> Floats:
    """Credit under new claims, of books that hold this much under the old."""
    books = CreditPriorities(ROUND_S)
    books.install(before, 0.0, solved=True)
    books._credit_s = np.array(credit_s)
    books.install(after, 0.0, solved=True)
    return books._credit_s


def test_what_a_pair_that_is_gone_was_owed_is_owed_to_its_jobs() -> None:
    """Whole to one who now runs alone; half to a pair, which gives each second to two."""
    before = paired({("a", "b"): [0.5], ("c",): [0.5]})
    after = paired({("a",): [0.4], ("b", "c"): [0.25], ("c",): [0.1]})
    assert owing(before, [[100.0], [7.0]], after).tolist() == [[100.0], [50.0], [7.0]]


def test_credit_moves_to_another_type_only_from_where_the_job_has_nothing() -> None:
    """On the type of the pair if the job has a share there, else in proportion to its shares."""
    before = paired({("a", "b"): [0.5, 0.5]})
    after = paired({("a",): [0.0, 0.5], ("b",): [0.1, 0.3]})
    assert owing(before, [[80.0, 8.0]], after).tolist() == [[0.0, 88.0], [80.0, 8.0]]


def test_credit_of_a_pair_goes_with_jobs_that_go() -> None:
    """Whom a partner leaves behind keeps what was owed; the partner's own half is no one's."""
    before = paired({("a", "b"): [1.0], ("b",): [0.0]})
    assert owing(before, [[60.0], [0.0]], paired({("b",): [1.0]})).tolist() == [[60.0]]


@given(
    st.lists(st.floats(-1440, 1440), min_size=3, max_size=3),
    st.lists(st.floats(0.01, 1), min_size=6, max_size=6),
)
def test_new_partners_conserve_every_jobs_seconds(credit: list[float], x: list[float]) -> None:
    """However three pairs are exchanged for others, all jobs together are owed as before."""
    before = paired({("a", "b"): [0.1], ("c", "d"): [0.2], ("e", "f"): [0.3]})
    after = paired(
        {
            ("a", "c"): [x[0]],
            ("b", "e"): [x[1]],
            ("d", "f"): [x[2]],
            ("a",): [x[3]],
            ("b", "f"): [x[4]],
            ("e",): [x[5]],
        }
    )
    seconds_s = [len(c) for c in after.combinations] @ owing(before, [[c] for c in credit], after)
    assert seconds_s[0] == pytest.approx(2 * sum(credit), abs=1e-6)

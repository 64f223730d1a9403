"""Log time from stamps and receipts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.runtime.clock import LogClock

DELAYS_S = st.lists(st.floats(0.0, 0.09), min_size=1, max_size=200)


class Monotonic:
    """A monotonic clock that a test turns."""

    def __init__(self, start: float = 0.0) -> None:
        self.now = start

    def __call__(self) -> float:
        """The time."""
        return self.now


@given(delays=DELAYS_S, offset=st.floats(-1e9, 1e9))
def test_log_time_is_late_by_the_least_delay_at_most(delays: list[float], offset: float) -> None:
    """It never runs ahead of the log's server, and lags by no more than the quickest record."""
    monotonic = Monotonic()
    clock = LogClock(monotonic)
    for delay in delays:
        monotonic.now += 0.25
        clock.observe(monotonic.now - delay + offset, monotonic.now)
    true_now = monotonic.now + offset
    rounding = 1e-6
    assert true_now - min(delays[-64:]) - rounding <= clock.now() <= true_now + rounding


@given(delays=DELAYS_S, step=st.floats(0.2, 7200.0))
def test_a_server_clock_put_forward_is_followed_at_once(delays: list[float], step: float) -> None:
    """One record from behind the step is enough, and it is said that log time jumped."""
    monotonic = Monotonic()
    clock = LogClock(monotonic)
    assert clock.observe(-delays[0])
    for delay in delays:
        monotonic.now += 0.25
        assert not clock.observe(monotonic.now - delay)
    assert clock.observe(monotonic.now + step)
    assert clock.now() == monotonic.now + step


@given(delays=DELAYS_S, step=st.floats(0.2, 7200.0))
def test_a_server_clock_put_back_is_told_from_a_late_record(
    delays: list[float], step: float
) -> None:
    """One late record changes nothing; a third in a row means another clock."""
    monotonic = Monotonic()
    clock = LogClock(monotonic)
    for delay in delays:
        monotonic.now += 0.25
        clock.observe(monotonic.now - delay)
    before = clock.now()
    assert not clock.observe(monotonic.now - step)
    assert clock.now() == before
    assert not clock.observe(monotonic.now)
    jumps = [clock.observe(monotonic.now - step) for _ in range(3)]
    assert jumps == [False, False, True]
    assert clock.now() == monotonic.now - step


def test_old_samples_are_forgotten() -> None:
    """A server clock that drifts by less than a jump is followed within a minute."""
    monotonic = Monotonic()
    clock = LogClock(monotonic)
    clock.observe(0.0)
    monotonic.now = 61.0
    clock.observe(60.95)
    assert clock.now() == 60.95


def test_without_a_live_record_log_time_is_not_known() -> None:
    """Records of the past say nothing about the present."""
    clock = LogClock(Monotonic())
    assert not clock.is_set
    clock.observe(5.0)
    assert clock.is_set

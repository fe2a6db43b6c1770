"""Who is trusted with work."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferd.workers.breaker import Circuit, CircuitBreaker


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_breaker_opens_on_half_failures_and_heals_by_successful_probes() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock, pause_s=10, probes=2)
    for success in (False, False, False, False):
        breaker.record(success=success)
    assert breaker.circuit is Circuit.CLOSED, "four calls are too few to judge"
    breaker.record(success=True)
    assert breaker.circuit is Circuit.OPEN
    assert (breaker.most_at_once(8), breaker.opens_in_s) == (0, 10)
    breaker.record(success=True)
    assert breaker.circuit is Circuit.OPEN, "a call from before it opened closes nothing"
    clock.now_s += 10
    assert breaker.circuit is Circuit.HALF_OPEN
    assert breaker.most_at_once(8) == 2
    assert breaker.most_at_once(1) == 1
    breaker.record(success=True)
    assert breaker.most_at_once(8) == 1, "one probe is left"
    breaker.record(success=False)
    assert breaker.circuit is Circuit.OPEN
    clock.now_s += 10
    assert breaker.circuit is Circuit.OPEN, "it rests for twice as long as before"
    clock.now_s += 10
    breaker.record(success=True)
    assert breaker.circuit is Circuit.HALF_OPEN
    breaker.record(success=True)
    assert breaker.circuit is Circuit.CLOSED
    assert breaker.most_at_once(8) == 8
    for _ in range(5):
        breaker.record(success=False)
    assert breaker.opens_in_s == 10, "it healed, so the pause is short again"


def test_old_failures_leave_the_window() -> None:
    breaker = CircuitBreaker(Clock())
    for _ in range(9):
        breaker.record(success=True)
        breaker.record(success=True)
        breaker.record(success=False)
    assert breaker.circuit is Circuit.CLOSED, "a third of failures is tolerated"
    for _ in range(20):
        breaker.record(success=True)
    for _ in range(9):
        breaker.record(success=False)
    assert breaker.circuit is Circuit.CLOSED
    breaker.record(success=False)
    assert breaker.circuit is Circuit.OPEN


def test_slow_calls_open_it_too_and_a_slow_probe_again() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock, slow_share=0.8)
    for slow in (True, True, True, False):
        breaker.record(success=True, slow=slow)
    breaker.record(success=True, slow=False)
    assert (breaker.circuit, breaker.slow_share) == (Circuit.CLOSED, 0.6)
    for _ in range(4):
        breaker.record(success=True, slow=True)
    assert breaker.circuit is Circuit.CLOSED, "seven of nine are fewer than 80 %"
    breaker.record(success=True, slow=True)
    assert breaker.circuit is Circuit.OPEN
    clock.now_s += 10
    breaker.record(success=True, slow=True)
    assert breaker.circuit is Circuit.OPEN


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 400)), max_size=200))
def test_it_always_comes_back_and_never_lets_more_through_than_it_may(
    calls: list[tuple[bool, bool, int]],
) -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock, longest_pause_s=300)
    for success, slow, passed_s in calls:
        clock.now_s += passed_s
        breaker.record(success=success, slow=slow)
        most = breaker.most_at_once(8)
        assert most == {Circuit.CLOSED: 8, Circuit.OPEN: 0}.get(breaker.circuit, most)
        if breaker.circuit is Circuit.HALF_OPEN:
            assert 1 <= most <= 2
        assert 0 <= breaker.opens_in_s <= 300
    clock.now_s += 300
    assert breaker.circuit is not Circuit.OPEN
    if breaker.circuit is Circuit.HALF_OPEN:
        breaker.record(success=True)
        breaker.record(success=True)
        assert breaker.circuit is Circuit.CLOSED

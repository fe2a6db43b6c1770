"""Who is trusted with work."""

from __future__ import annotations

from inferd.workers.breaker import Circuit, CircuitBreaker


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_breaker_opens_on_half_failures_and_heals_by_one_success() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock, pause_s=10)
    for success in (False, False, False, False):
        breaker.record(success=success)
    assert breaker.circuit is Circuit.CLOSED, "four calls are too few to judge"
    breaker.record(success=True)
    assert breaker.circuit is Circuit.OPEN
    breaker.record(success=True)
    assert breaker.circuit is Circuit.OPEN, "a call from before it opened closes nothing"
    clock.now_s += 10
    assert breaker.circuit is Circuit.HALF_OPEN
    breaker.record(success=False)
    assert breaker.circuit is Circuit.OPEN
    clock.now_s += 10
    breaker.record(success=True)
    assert breaker.circuit is Circuit.CLOSED


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

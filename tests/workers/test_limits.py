"""How much is asked of a worker at a time, and how much is asked again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from inferd.workers.concurrency import AdaptiveLimit
from inferd.workers.retries import RetryBudget


@given(st.lists(st.booleans(), max_size=400), st.floats(0, 30), st.floats(0.01, 1))
def test_retries_are_a_part_of_first_tries(steps: list[bool], reserve: float, share: float) -> None:
    budget = RetryBudget(share=share, reserve=reserve)
    firsts = retries = 0
    for first in steps:
        if first:
            budget.first_try()
            firsts += 1
        else:
            retries += budget.take()
        assert retries <= reserve + share * firsts + 1e-6
        assert budget.tokens <= max(reserve, 0) + 1e-9


def test_a_fifth_of_traffic_is_retried_when_everything_fails() -> None:
    budget = RetryBudget()
    retried = 0
    for _ in range(1_000):
        budget.first_try()
        retried += budget.take()
    assert 199 <= retried <= 210


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 64), st.integers(0, 5)), max_size=300),
    st.integers(0, 64),
)
def test_the_limit_stays_between_one_and_the_slots(
    steps: list[tuple[bool, int, int]], slots: int
) -> None:
    limit, now_s = AdaptiveLimit(), 0.0
    for good, in_flight, passed_s in steps:
        now_s += passed_s
        before = limit.of(10**6)
        if good:
            limit.answered(in_flight=in_flight)
            assert before <= limit.of(10**6) <= before + 1
        else:
            limit.congested(begun_at_s=now_s, now_s=now_s)
            assert limit.of(10**6) <= before
        assert min(slots, 1) <= limit.of(slots) <= slots


def test_a_burst_of_refusals_halves_it_once() -> None:
    limit = AdaptiveLimit()
    for _ in range(28):
        limit.answered(in_flight=limit.of(100))
    assert limit.of(100) == 32
    for _ in range(32):
        limit.congested(begun_at_s=1.0, now_s=2.0)
    assert limit.of(100) == 16
    limit.congested(begun_at_s=2.5, now_s=3.0)
    assert limit.of(100) == 8


def test_a_limit_that_is_not_used_up_is_not_raised() -> None:
    limit = AdaptiveLimit()
    for _ in range(100):
        limit.answered(in_flight=1)
    assert limit.of(100) == 4


def _after(capacity: int, rounds: int) -> list[int]:
    """Limits of a worker that answers `capacity` at a time and refuses the rest."""
    limit, found = AdaptiveLimit(), []
    for now_s in range(rounds):
        asked = limit.of(1_000)
        for number in range(asked):
            if number < capacity:
                limit.answered(in_flight=asked)
            else:
                limit.congested(begun_at_s=float(now_s), now_s=now_s + 0.5)
        found.append(asked)
    return found


@settings(max_examples=20)
@given(st.integers(2, 100))
def test_it_finds_what_a_worker_bears(capacity: int) -> None:
    late = _after(capacity, 300)[150:]
    assert max(late) <= capacity + 1
    assert sum(late) / len(late) >= 0.6 * capacity

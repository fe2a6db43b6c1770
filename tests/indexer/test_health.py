"""Which of several endpoints is asked, how fast, and how long a failed one rests."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from indexer.backoff import Backoff
from indexer.rpc.bucket import TokenBucket
from indexer.rpc.endpoint import seconds_of
from indexer.rpc.health import Health, Standing, order


def standing(cost_s: float | None = 0.1, *, resting_s: float = 0.0, lag: int = 0) -> Standing:
    return Standing(resting_s, cost_s, lag)


LONG_S = 1_000.0


def test_order__nothing_measured__that_of_the_settings() -> None:
    assert order([standing(None)] * 3, 0, since_s=LONG_S) == [0, 1, 2]


def test_order__a_little_better__stays() -> None:
    assert order([standing(0.10), standing(0.07)], 0, since_s=LONG_S)[0] == 0
    assert order([standing(0.04), standing(0.001)], 0, since_s=LONG_S)[0] == 0, "too little to gain"


def test_order__much_better__changes_once_the_choice_is_old_enough() -> None:
    both = [standing(0.5), standing(0.1)]
    assert order(both, 0, since_s=1.0)[0] == 0
    assert order(both, 0, since_s=31.0)[0] == 1


def test_order__current_rests__the_cheapest_of_the_others() -> None:
    three = [standing(0.1, resting_s=3), standing(0.3), standing(0.2)]
    assert order(three, 0, since_s=0.0) == [2, 1, 0]


def test_order__current_lags__another_at_once() -> None:
    assert order([standing(0.1, lag=4), standing(0.9)], 0, since_s=0.0)[0] == 1
    assert order([standing(0.1, lag=3), standing(0.9)], 0, since_s=0.0)[0] == 0
    assert order([standing(0.1, lag=9), standing(0.9, lag=8)], 0, since_s=0.0)[0] == 0


def test_order__all_rest__the_one_whose_rest_ends_first() -> None:
    resting = [standing(resting_s=5), standing(resting_s=2), standing(resting_s=9)]
    assert order(resting, 0, since_s=0.0) == [1, 0, 2]


standings = st.lists(
    st.builds(
        Standing,
        st.sampled_from([0.0, 0.0, 1.0, 20.0]),
        st.none() | st.floats(0, 30),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=6,
)


@given(standings, st.floats(0, 100), st.data())
def test_order__any_standings__each_once_and_awake_ones_first(
    found: list[Standing], since_s: float, data: st.DataObject
) -> None:
    current = data.draw(st.integers(0, len(found) - 1))
    ordered = order(found, current, since_s=since_s)
    assert sorted(ordered) == list(range(len(found)))
    resting = [bool(found[index].resting_s) for index in ordered]
    assert resting == sorted(resting)
    # Asked again at once, the choice stands: nothing swings to and fro.
    if not found[ordered[0]].resting_s:
        assert order(found, ordered[0], since_s=0.0)[0] == ordered[0]


def test_health__failures_in_a_row__rest_doubles_up_to_half_a_minute() -> None:
    health = Health()
    rests = []
    for _ in range(10):
        health.failed(100.0, jitter=0.0)
        rests.append(health.resting_until_s - 100.0)
    assert rests[:4] == [0.5, 1.0, 2.0, 4.0]
    assert rests[-1] == 30.0
    assert health.rests(129.9)
    assert not health.rests(130.0)
    health.answered(0.1, comparable=True)
    assert not health.rests(100.0)
    health.failed(200.0, jitter=1.0)
    assert health.resting_until_s == 200.25


def test_health__asked_to_be_left_alone__for_that_long() -> None:
    health = Health()
    health.failed(100.0, jitter=0.0, at_least_s=90.0)
    assert health.rests(189.9)


def test_health__cost__is_latency_and_what_errors_cost() -> None:
    health = Health()
    for _ in range(3):
        assert health.cost_s is None
        health.answered(0.1, comparable=True)
    assert health.cost_s is not None
    assert abs(health.cost_s - 0.1) < 1e-9
    health.answered(9.0, comparable=False)
    assert abs((health.latency_s or 0) - 0.1) < 1e-9, "a wide range says nothing of the endpoint"
    health.failed(0.0, jitter=0.0)
    assert health.cost_s > 0.29


def test_bucket__nobody_complained__no_limit() -> None:
    bucket = TokenBucket()
    for _ in range(10_000):
        assert bucket.wait_s(1.0) == 0
        bucket.take(1.0)
    assert bucket.per_s is None


def test_bucket__refused_together__cut_once_then_raised_until_it_falls_away() -> None:
    bucket = TokenBucket()
    for _ in range(200):
        bucket.take(10.0)
    for _ in range(8):
        bucket.slow_down(10.2)
    assert bucket.per_s == 100
    bucket.wait_s(11.3)
    assert bucket.per_s == 105
    bucket.slow_down(11.5)
    assert bucket.per_s == 94.5
    bucket.wait_s(200.0)
    assert bucket.per_s is None
    assert bucket.wait_s(200.0) == 0


def test_bucket__one_refusal_of_few_calls__does_not_throttle_the_head() -> None:
    bucket = TokenBucket()
    bucket.take(10.0)
    bucket.slow_down(10.1)
    assert bucket.per_s == 20


def test_bucket__batch_larger_than_the_limit__is_paid_back() -> None:
    bucket = TokenBucket()
    bucket.slow_down(0.0)
    assert bucket.wait_s(0.5) == 0
    bucket.take(0.5, 100)
    assert 4.4 < bucket.wait_s(0.5) < 4.6
    assert bucket.wait_s(5.1) == 0


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 50), st.booleans()), max_size=100))
def test_bucket__any_calls__never_faster_than_the_limit(
    steps: list[tuple[float, int, bool]],
) -> None:
    """Whoever waits as told sends, over any time, what the highest limit allows and one burst."""
    bucket = TokenBucket()
    now_s = 0.0
    bucket.slow_down(now_s)
    sent, highest, largest = 0, bucket.per_s or 0.0, 1
    for pause_s, calls, refused in steps:
        now_s += pause_s
        if refused:
            bucket.slow_down(now_s)
        now_s += bucket.wait_s(now_s)
        bucket.wait_s(now_s)
        assert bucket.per_s is not None
        assert bucket.per_s >= 3
        highest, largest = max(highest, bucket.per_s), max(largest, calls)
        bucket.take(now_s, calls)
        sent += calls
        assert sent <= highest * (now_s + 1) + largest


def test_backoff__full_jitter_under_a_doubling_ceiling() -> None:
    backoff = Backoff(0.1, 2.0, dice=random.Random(1))
    rounds = []
    for _ in range(200):
        rounds.append([backoff.next_s() for _ in range(8)])
        backoff.reset()
    for step, ceiling_s in enumerate([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]):
        pauses = [pauses[step] for pauses in rounds]
        assert 0 <= min(pauses) < 0.1 * ceiling_s
        assert 0.9 * ceiling_s < max(pauses) <= ceiling_s


def test_backoff__failing_for_years__still_a_number() -> None:
    backoff = Backoff(0.1, 2.0)
    for _ in range(5_000):
        assert backoff.next_s() <= 2.0


def test_retry_after__seconds_dates_and_nonsense() -> None:
    assert seconds_of(None) == 0
    assert seconds_of("2.5") == 2.5
    assert seconds_of("100000") == 300
    assert seconds_of("-1") == 0
    assert seconds_of("nan") == 0
    assert seconds_of("soon") == 0
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert seconds_of("Wed, 21 Oct 2215 07:28:00 GMT") == 300
    assert seconds_of("Wed, 21 Oct 2215 07:28:00") == 300
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 +99999999999999") == 0
    assert seconds_of("Wed, 21 Oct 99999999999999999999 07:28:00 GMT") == 0

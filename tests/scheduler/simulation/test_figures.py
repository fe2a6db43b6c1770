"""Figures of a simulation, and intervals over paired seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.simulation.bound import Bound
from scheduler.simulation.figures import bootstrap, figures, paired
from scheduler.simulation.outcome import End, Outcome, PostEnd, RequestEnd, jain_index
from tests.scheduler.make import worker_id
from tests.scheduler.simulation.worlds import world

REQUESTS = tuple(replace(one, fee_wei=100, seen_at_ms=0) for one in world(requests=4).requests)


def delivered(at: int, leased_ms: int, computed_ms: int, mined_ms: int) -> RequestEnd:
    return RequestEnd(
        REQUESTS[at],
        End.DELIVERED,
        None,
        worker_id(1),
        leased_ms,
        computed_ms,
        mined_ms,
        first_leased_at_ms=leased_ms,
    )


def outcome(*ends: RequestEnd, posts: tuple[PostEnd, ...] = ()) -> Outcome:
    return Outcome("value", ends, posts, 1, 1, 0, 0)


def post(delivered_results: int, gas: int, revenue_wei: int) -> PostEnd:
    return PostEnd(1, delivered_results, delivered_results, gas, 2, revenue_wei, revenue_wei)


def test_figures_of_a_simulation() -> None:
    found = figures(
        outcome(
            delivered(0, 1_000, 3_000, 10_000),
            delivered(1, 2_000, 3_000, 20_000),
            RequestEnd(REQUESTS[2], End.LATE, None, first_leased_at_ms=9_000, attempts_failed=2),
            RequestEnd(REQUESTS[3], End.NOT_POSTED, None),
            posts=(post(2, 30, 200), post(0, 10, 0)),
        ),
        Bound(240, 1, 1),
    )
    assert found.value_ratio == pytest.approx((200 - 80) / 240)
    assert found.operator_ratio == found.value_ratio
    assert found.on_time == 0.5
    assert (found.queue.p50_s, found.queue.p99_s) == (1.0, 2.0)
    assert (found.run.p50_s, found.run.p99_s) == (1.0, 2.0)
    assert (found.post.p50_s, found.post.p95_s) == (7.0, 17.0)
    assert found.max_wait_s == 9.0
    assert found.gas_per_result == 20.0
    assert (found.posts, found.losing_posts) == (2, 1)
    assert (found.late, found.not_posted, found.failed_leases) == (1, 1, 2)


def test_where_there_is_nothing_to_earn_everything_was_earned() -> None:
    found = figures(outcome(), Bound(1, 0, 0))
    assert (found.value_ratio, found.on_time, found.jain, found.gas_per_result) == (1, 1, 1, 0)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_jain_is_between_a_share_and_one(values: list[float]) -> None:
    assert 1 / len(values) - 1e-9 <= jain_index(values) <= 1 + 1e-9


def test_jain_of_known_cases() -> None:
    assert jain_index([0.3, 0.3, 0.3]) == pytest.approx(1.0)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
def test_an_interval_holds_its_mean_and_is_reproducible(values: list[float]) -> None:
    found = bootstrap(values)
    assert found == bootstrap(values)
    spread = 1e-6 * (1 + max(abs(value) for value in values))
    assert found.low - spread <= found.mean <= found.high + spread
    assert min(values) - spread <= found.low
    assert found.high <= max(values) + spread


def test_an_interval_narrows_like_the_root_of_the_sample() -> None:
    few = bootstrap([0.0, 1.0] * 8)
    many = bootstrap([0.0, 1.0] * 128)
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(4.0, rel=0.15)
    # 1.96 * sigma / sqrt(n)
    assert many.high - many.low == pytest.approx(2 * 1.96 * 0.5 / 16, rel=0.1)


def test_pairing_takes_away_what_seeds_have_in_common() -> None:
    theirs = [one / 10 for one in range(10)]
    found = paired([one + 0.01 for one in theirs], theirs)
    assert found.mean == pytest.approx(0.01)
    assert found.high - found.low < 1e-9


def test_no_values_have_no_interval() -> None:
    with pytest.raises(ValueError, match="no values"):
        bootstrap([])

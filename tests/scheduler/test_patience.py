"""How long an answer is waited for, and when a second worker is asked."""

from __future__ import annotations

from math import exp, isclose

from hypothesis import given
from hypothesis import strategies as st

from scheduler.kinds import Z90
from scheduler.patience import Patience, hedge_after_s, may_hedge, patience_of, time_out_s

MS = st.floats(1, 1e7)
S = st.floats(0.001, 1e5)


@given(MS, st.floats(0, 5), st.floats(0, 5))
def test_the_p99_is_that_of_a_log_normal_law(p90_ms: float, worker: float, tokens: float) -> None:
    expected = patience_of(p90_ms, worker, tokens, 3.0)
    assert p90_ms <= expected.p99_ms <= p90_ms * exp(1.05 * Z90)
    assert isclose(patience_of(p90_ms, 0.5, 0.0, 3.0).p99_ms, p90_ms * 1.6861, rel_tol=1e-3)


@given(MS, MS, S, st.floats(-100, 1e5))
def test_nobody_is_waited_for_beyond_lease_or_deadline(
    p90_ms: float, more_ms: float, lease_s: float, left_s: float
) -> None:
    expected = Patience(p90_ms, p90_ms + more_ms, 3.0)
    found = time_out_s(expected, lease_s=lease_s, left_s=left_s)
    assert 0.0 <= found <= max(0.0, min(lease_s, left_s))
    assert found >= min(lease_s, max(0.0, left_s), 5.0)
    assert found >= min(lease_s, max(0.0, left_s), 2 * expected.p99_ms / 1000)


@given(MS, S, S, MS)
def test_a_second_is_asked_only_where_the_slack_runs_out_and_in_time(
    p90_ms: float, lease_s: float, left_s: float, other_ms: float
) -> None:
    expected = Patience(p90_ms, 2 * p90_ms, 3.0)
    after_s = hedge_after_s(expected, lease_s=lease_s, left_s=left_s, other_p90_ms=other_ms)
    ends_s = left_s - 3.0
    if lease_s + other_ms / 1000 <= ends_s:
        assert after_s is None, "another lease can follow"
    if after_s is not None and other_ms <= 10 * p90_ms:
        assert may_hedge(expected, lease_s=lease_s, left_s=left_s)
    if after_s is not None:
        assert 0 < after_s <= p90_ms / 1000
        assert after_s + other_ms / 1000 <= min(lease_s, ends_s) * (1 + 1e-9) + 1e-9


def test_it_is_asked_when_nine_of_ten_answers_would_be_here() -> None:
    expected = Patience(2_000, 4_000, 3.0)
    assert hedge_after_s(expected, lease_s=10, left_s=14, other_p90_ms=2_000) == 2.0
    assert hedge_after_s(expected, lease_s=3, left_s=6, other_p90_ms=2_000) == 1.0, "last moment"
    assert hedge_after_s(expected, lease_s=10, left_s=60, other_p90_ms=2_000) is None
    assert hedge_after_s(expected, lease_s=2, left_s=5, other_p90_ms=2_500) is None, "too late"

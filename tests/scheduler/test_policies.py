"""The orders: golden values of the raw one, the scale and the bound on waits of the balanced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model import Rules
from scheduler.plan import plan
from scheduler.policies import POLICIES, OrderView, policy_named
from scheduler.policies.balanced import Balanced
from scheduler.policies.orders import WeightedRaw
from scheduler.policies.value import Value
from tests.scheduler.make import ETH, NOW_S, model, request, service, snapshot, worker, worker_id


def _view(fees_wei, wait_s=0.0, slack_s=1_000.0, window=(), **changes: Any) -> OrderView:
    """Requests that differ in fee, wait and slack only."""
    number = len(fees_wei)

    def column(value: Any) -> Any:
        return np.broadcast_to(np.array(value, np.float64), (number,)).copy()

    whole = np.zeros(number, np.int64)
    values = {
        "fee_wei": np.array(fees_wei, np.float64),
        "revenue_wei": np.array(fees_wei, np.float64),
        "gas_need_wei": column(0),
        "gas_cost_wei": column(0),
        "submitted_at_s": column(NOW_S) - wait_s,
        "deadline_s": column(NOW_S + 600),
        "wait_s": column(wait_s),
        "slack_s": column(slack_s),
        "budget_ms": whole + 10_000,
        "service_ms": column(1_000),
        "p90_ms": column(2_000),
        "success_lower": column(1),
        "tokens": column(0),
        "tenant": whole,
        "model": whole,
        "attempts": whole,
        "max_wait_s": 60.0,
        "recent_fees_wei": np.sort(np.array(window, np.float64)),
        "block_number": 100,
        "now_s": float(NOW_S),
    }
    return OrderView(**(values | changes))


@pytest.mark.parametrize(
    ("fee_wei", "age_s", "slack_s", "score"),
    [
        (ETH // 1_000, 0, 600, 0.16),
        (ETH // 1_000, 60, 600, 1.9392),
        (ETH // 100, 3, 600, 1.3),
        (ETH // 20, 1_000, 20, 6.1297),
    ],
)
def test_weighted_raw_has_the_published_values(fee_wei, age_s, slack_s, score):
    view = _view([fee_wei], age_s, slack_s)
    assert WeightedRaw().scores(view) == pytest.approx([score], abs=5e-5)


def _balanced(fee_wei: int, wait_s: float, slack_s: float, window=(1, 2, 3, 4)) -> float:
    return Balanced().scores(_view([fee_wei], wait_s, slack_s, window))[0]


@pytest.mark.parametrize(
    ("fee_wei", "wait_s", "slack_s", "score"),
    [
        (0, 0, 1_000, 0.0),
        (5, 0, 1_000, 0.6),  # above the whole window
        (2, 0, 1_000, 0.6 * 0.375),  # in the middle of its own place in it
        (0, 30, 1_000, 0.15),
        (0, 0, 0, 0.1),
        (0, 0, 45, 0.025),
        (5, 59, 0, 0.6 + 0.3 * 59 / 60 + 0.1),
        (0, 60, 1_000, 1.3),  # second band
        (0, 150, 1_000, 2.3),
    ],
)
def test_balanced_weighs_60_30_10_on_one_scale(fee_wei, wait_s, slack_s, score):
    assert _balanced(fee_wei, wait_s, slack_s) == pytest.approx(score)


def test_fees_are_ranked_among_the_pending_ones_when_there_is_no_window():
    scores = Balanced().scores(_view([ETH * n for n in (1, 2, 3, 4)]))
    assert scores == pytest.approx([0.6 * q for q in (0.125, 0.375, 0.625, 0.875)])


@given(
    st.integers(0, 2**256 - 1),
    st.integers(0, 2**256 - 1),
    st.floats(0, 1e7),
    st.floats(0, 1e7),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.integers(1, 1_000),
)
def test_a_higher_band_beats_any_fee(fee, other_fee, wait, other_wait, slack, other_slack, k):
    """Waited at least k * max_wait_s against less than that."""
    old, young = sorted([wait, other_wait], reverse=True)
    threshold = 60.0 * k
    old, young = max(old, threshold), min(young, threshold - 1e-3)
    window = (1, ETH)
    for policy in (Balanced(), Value()):
        ahead, behind = (
            policy.scores(_view([fee_], wait_, slack_, window))[0]
            for fee_, wait_, slack_ in ((fee, old, slack), (other_fee, young, other_slack))
        )
        assert ahead > behind


@pytest.mark.parametrize("policy", [Value(), Balanced()])
@given(st.integers(1, 8), st.integers(1, 3), st.integers(0, 9), st.integers(0, 20))
@settings(max_examples=15, deadline=None)
def test_a_flood_of_rich_requests_cannot_hold_back_a_poor_one_beyond_the_bound(
    policy, flood, slots, max_wait_s, before
):
    """Rounds of one second; a slot that is given comes free in the next round."""
    rules = Rules(poster_bps=1_000, max_wait_s=max_wait_s)
    fast = worker(slots=slots, service={model(): service(100, 200)})
    pending = {
        r.key: r
        for r in (request(n, fee_wei=ETH, deadline_s=NOW_S + 10_000) for n in range(before))
    }
    poor = request(10_000, fee_wei=ETH // 1_000, deadline_s=NOW_S + 10_000)
    pending[poor.key] = poor
    overtakers, number, served_at = before, before, None
    for second in range(200):
        now_s = NOW_S + second
        for _ in range(flood):
            rich = request(number, fee_wei=ETH, submitted_at_s=now_s, deadline_s=now_s + 300)
            pending[rich.key] = rich
            number += 1
            overtakers += now_s < NOW_S + max(1, max_wait_s)
        round_ = snapshot(
            tuple(pending.values()),
            (fast,),
            now_s=float(now_s),
            rules=rules,
            recent_fees_wei=(ETH // 10,),
        )
        assigned = [decision.key for decision in plan(round_, policy).assigned]
        assert len(assigned) == min(slots, len(pending))
        for key in assigned:
            del pending[key]
        if poor.key in assigned:
            served_at = second
            break
    # One attempt each here, so the A + 1-th slot is the last that the bound allows.
    assert served_at is not None
    assert served_at + 1 <= -(-(overtakers + 1) // slots)


def test_equal_scores_go_by_key():
    requests = tuple(request(n) for n in (3, 1, 2))
    for name in POLICIES:
        decisions = plan(snapshot(requests, (worker(slots=3),)), POLICIES[name]).assigned
        assert [d.key.id for d in decisions] == [1, 2, 3]


def test_fifo_and_edf():
    first = request(2, submitted_at_s=NOW_S - 10, deadline_s=NOW_S + 500)
    urgent = request(1, submitted_at_s=NOW_S - 5, deadline_s=NOW_S + 100)
    round_ = snapshot((urgent, first), (worker(),))
    assert plan(round_, POLICIES["fifo"]).assigned[0].key == first.key
    assert plan(round_, POLICIES["edf"]).assigned[0].key == urgent.key


def test_an_unknown_policy_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'best'.*balanced, edf, fee-first, .*value"):
        policy_named("best")


def test_value_takes_the_worker_with_the_soonest_valid_result() -> None:
    """Who fails every second time is slower than who takes half as long again."""
    flaky = worker(1, service={model(): replace(service(1_000.0), success_lower=0.5)})
    steady = worker(2, service={model(): service(1_500.0)})
    hopeless = worker(3, service={model(): replace(service(1_000.0), success_lower=0.0)})
    asked = (request(1),)
    assert plan(snapshot(asked, (flaky, steady))).assigned[0].worker == worker_id(2)
    assert plan(snapshot(asked, (flaky, steady)), POLICIES["edf"]).assigned[0].worker == (
        worker_id(1)
    )
    assert plan(snapshot(asked, (flaky, hopeless))).assigned[0].worker == worker_id(1)
    assert plan(snapshot(asked, (hopeless,))).assigned[0].worker == worker_id(3)

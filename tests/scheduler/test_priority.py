"""The orders: golden values of the raw one, the scale and the bound on waits of the balanced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.admission import Admitted
from scheduler.model import Rules
from scheduler.plan import plan
from scheduler.policies import POLICIES, policy_named
from scheduler.pool import Facts
from scheduler.priority import balanced_scores, weighted_raw
from tests.scheduler.make import ETH, NOW_S, model, request, service, snapshot, worker

FACTS = Facts(1, 1_000.0, 1_000.0, 1, 1, 1_000.0, 1_000.0)


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
    assert weighted_raw(fee_wei, age_s, slack_s) == pytest.approx(score, abs=5e-5)


def _admitted(fee_wei: int, wait_s: float, slack_s: float) -> Admitted:
    one = request(fee_wei=fee_wei)
    return Admitted(one, wait_s, 10_000, slack_s, fee_wei, 0, False, FACTS)


def _balanced(one: Admitted, window: tuple[int, ...] = (1, 2, 3, 4)) -> float:
    return balanced_scores(snapshot((one.request,), (), recent_fees_wei=window), [one])[0]


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
    assert _balanced(_admitted(fee_wei, wait_s, slack_s)) == pytest.approx(score)


def test_fees_are_ranked_among_the_pending_ones_when_there_is_no_window():
    requests = tuple(request(n, fee_wei=ETH * n) for n in (1, 2, 3, 4))
    admitted = [Admitted(r, 0.0, 10_000, 1_000.0, r.fee_wei, 0, False, FACTS) for r in requests]
    scores = balanced_scores(snapshot(requests, ()), admitted)
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
    assert _balanced(_admitted(fee, old, slack), window) > _balanced(
        _admitted(other_fee, young, other_slack), window
    )


@pytest.mark.parametrize("flood", [1, 3, 8])
@pytest.mark.parametrize("slots", [1, 2])
def test_a_flood_of_rich_requests_cannot_hold_back_a_poor_one_beyond_the_bound(flood, slots):
    """Rounds of one second; a slot that is given comes free in the next round."""
    max_wait_s, before = 10, 7
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
            overtakers += now_s < NOW_S + max_wait_s
        round_ = snapshot(
            tuple(pending.values()),
            (fast,),
            now_s=float(now_s),
            rules=rules,
            recent_fees_wei=(ETH // 10,),
        )
        assigned = [decision.key for decision in plan(round_).assigned]
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
        decisions = plan(snapshot(requests, (worker(slots=3),)), name).assigned
        assert [d.key.id for d in decisions] == [1, 2, 3]


def test_fifo_and_edf():
    first = request(2, submitted_at_s=NOW_S - 10, deadline_s=NOW_S + 500)
    urgent = request(1, submitted_at_s=NOW_S - 5, deadline_s=NOW_S + 100)
    round_ = snapshot((urgent, first), (worker(),))
    assert plan(round_, "fifo").assigned[0].key == first.key
    assert plan(round_, "edf").assigned[0].key == urgent.key


def test_an_unknown_policy_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'best'.*balanced, edf, fifo, weighted-raw"):
        policy_named("best")

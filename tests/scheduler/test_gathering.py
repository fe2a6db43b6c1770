"""The moment at which posting is decided: once a block, and never put off for long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.batching import decide
from scheduler.gathering import MIN_INTERVAL_S, Gathering, gather
from scheduler.model import Block
from scheduler.posting_model import PostReason
from tests.scheduler.make import NOW_S, block, posting, posting_rules, ready

LEAD_S = 1.5


def head(number: int, timestamp_s: int) -> Block:
    return block(number=number, hash=number.to_bytes(32, "big"), timestamp_s=timestamp_s)


def seen(
    before: Gathering | None, number: int, now_s: float, interval_s: float = 12.0, **changes: float
) -> Gathering:
    one = head(number, int(changes.pop("timestamp_s", now_s)))
    return gather(before, one, now_s=now_s, interval_s=interval_s, lead_s=LEAD_S)


@pytest.mark.parametrize("interval_s", [0.0, 0.25, 2.0, 3.9])
def test_where_blocks_are_near_together_or_have_no_rhythm_it_is_decided_at_once(interval_s):
    now = seen(None, 1, NOW_S + 0.5, interval_s)
    assert now.due_at_s <= NOW_S + 0.5
    assert now.decided(NOW_S + 9.0).due_at_s <= NOW_S + 0.5, "and again at any time"
    assert seen(now, 1, NOW_S - 3600.0, interval_s).due_at_s <= NOW_S - 3600.0, "a clock set back"


def test_a_lead_longer_than_half_the_interval_leaves_no_time_to_gather():
    one = gather(None, head(1, NOW_S), now_s=NOW_S, interval_s=12.0, lead_s=6.1)
    assert one.due_at_s <= NOW_S


def test_it_is_decided_shortly_before_the_next_block_is_expected():
    assert seen(None, 1, NOW_S + 2.0, timestamp_s=NOW_S).due_at_s == NOW_S + 10.5


@pytest.mark.parametrize("clock_off_s", [-3600.0, -0.5, 12.0, 3600.0])
def test_where_the_clock_shows_another_time_than_the_chain_its_arrival_counts(clock_off_s):
    now_s = NOW_S + clock_off_s
    assert seen(None, 1, now_s, timestamp_s=NOW_S).due_at_s == now_s + 10.5


def test_under_one_head_nothing_moves():
    first = seen(None, 1, NOW_S)
    assert seen(first, 1, NOW_S + 7.0) is first


def test_after_a_decision_it_is_due_with_the_next_block_that_fails_to_come():
    after = seen(None, 1, NOW_S).decided(NOW_S + 10.6)
    assert after.due_at_s == NOW_S + 22.5
    assert after.decided(NOW_S + 50.0).due_at_s == NOW_S + 58.5


def test_before_it_is_due_no_decision_counts():
    first = seen(None, 1, NOW_S)
    assert first.decided(NOW_S + 10.4) == first


def test_a_block_that_comes_before_the_moment_makes_it_due_at_once_for_what_waits():
    held = seen(None, 1, NOW_S).held()
    early = seen(held, 2, NOW_S + 6.0)
    assert early.due_at_s == NOW_S + 6.0
    assert early.decided(NOW_S + 6.0).due_at_s == NOW_S + 16.5
    assert seen(seen(None, 1, NOW_S), 2, NOW_S + 6.0).due_at_s == NOW_S + 16.5, "nothing waits"


def test_what_comes_after_the_decision_waits_for_the_next_blocks_moment():
    first = seen(None, 1, NOW_S).decided(NOW_S + 10.5).held()
    assert seen(first, 2, NOW_S + 12.0).due_at_s == NOW_S + 22.5


@given(
    st.floats(0.0, 30.0),
    st.floats(0.1, 30.0),
    st.lists(st.floats(0.1, 90.0), min_size=1, max_size=12),
    st.integers(-100, 100),
    st.data(),
)
def test_no_result_waits_for_more_than_two_blocks_whatever_their_rhythm(
    interval_s, lead_s, steps_s, clock_off_s, data
):
    """Or than an interval and the time until the next block."""
    at_s, before, waiting = float(NOW_S), None, []
    for number, step_s in enumerate(steps_s):
        one = head(number, int(at_s) + clock_off_s)
        moments = data.draw(st.lists(st.floats(0.0, step_s, exclude_max=True), max_size=4))
        visits = sorted({0.0, *moments})
        while visits:
            now_s = at_s + visits.pop(0)
            before = gather(before, one, now_s=now_s, interval_s=interval_s, lead_s=lead_s)
            if now_s - at_s in moments:
                waiting.append((number, now_s))
            if now_s < before.due_at_s:
                before = before.held() if waiting else before
                due_s = before.due_at_s - at_s
                if waiting and due_s < step_s and due_s not in visits:
                    visits = sorted([*visits, due_s])  # what the timer is for
                continue
            assert all(number - came <= 2 for came, _ in waiting)
            assert all(now_s - s <= 2 * max(interval_s, *steps_s) for _, s in waiting)
            waiting.clear()
            before = before.decided(now_s)
        assert all(number - came <= 2 for came, _ in waiting)
        at_s += step_s
    assert interval_s >= MIN_INTERVAL_S or not waiting


def test_what_waits_for_its_moment_says_so():
    snapshot = replace(
        posting((ready(1), ready(2)), block_interval_s=12.0), due_at_s=NOW_S + 9.0, now_s=NOW_S
    )
    decision = decide(snapshot)
    assert (decision.reason, decision.results) == (PostReason.GATHERING, ())
    assert decision.again_at_s == NOW_S + 9.0
    assert "decided 9.0 s from now" in decision.sentence
    due = decide(replace(snapshot, now_s=NOW_S + 9.0))
    assert due.reason is not PostReason.GATHERING
    assert due.again_at_s == 0.0


def test_a_deadline_that_nears_does_not_wait_for_the_moment():
    rules = posting_rules(guard_s=30.0)
    near = posting((ready(1, deadline_s=NOW_S + 48),), rules=rules, block_interval_s=12.0)
    waits = decide(replace(near, due_at_s=NOW_S + 9.0))
    assert (waits.reason, waits.again_at_s) == (PostReason.GATHERING, NOW_S + 6.05)
    urgent = decide(replace(near, due_at_s=NOW_S + 9.0, now_s=waits.again_at_s))
    assert urgent.reason is PostReason.DEADLINE_NEAR


def test_a_full_batch_and_what_travels_alone_do_not_wait_for_the_moment():
    rules = posting_rules(max_results=2)
    full = posting((ready(1), ready(2)), rules=rules, block_interval_s=12.0)
    assert decide(replace(full, due_at_s=NOW_S + 9.0)).reason is PostReason.BATCH_FULL
    alone = posting((ready(1, batchable=False),), block_interval_s=12.0)
    assert decide(replace(alone, due_at_s=NOW_S + 9.0)).reason is PostReason.NOT_BATCHABLE

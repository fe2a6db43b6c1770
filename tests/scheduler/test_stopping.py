"""What waiting for a dear base fee is worth: the law's own figures, and its limits."""

from __future__ import annotations

from functools import cache
from math import exp, log
from statistics import median_low

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.gas import in_spike
from scheduler.stopping import HORIZON_BLOCKS, usual_base_fee_wei, waiting_saves_wei
from tests.scheduler.make import GWEI

GAS = 400_000
fees = st.lists(st.integers(GWEI // 10, 50 * GWEI), min_size=1, max_size=12)


@st.composite
def dear_fees(draw) -> tuple[int, ...]:
    """Some usual blocks, and a fee above them that rose at once or by full blocks."""
    last_wei = draw(st.integers(GWEI, 60 * GWEI))
    full = (last_wei * 64 // 81, last_wei * 8 // 9, last_wei)
    return (GWEI,) * 9 + draw(st.sampled_from([(last_wei,), full]))


def _by_recursion(fees_wei, blocks, gas, block_delay_wei) -> float:
    """The same by the definition: at each block the better of stopping and going on."""
    usual_wei = median_low(fees_wei)
    delay = block_delay_wei / (gas * usual_wei)

    def fallen(x):
        return x + log(1 - min(x * x / 2, 1) / 8)

    @cache
    def waiting(x, left, spike):
        if not left:
            return float("inf")
        over = fallen(x)
        after = min(exp(over), waiting(over, left - 1, False))
        if not spike:
            return delay + after
        full = x + log(1.125)
        return delay + 0.85 * min(exp(full), waiting(full, left - 1, True)) + 0.15 * after

    now = log(fees_wei[-1] / usual_wei)
    saved = exp(now) - waiting(now, min(blocks, HORIZON_BLOCKS), in_spike(fees_wei))
    return max(saved * gas * usual_wei, 0.0)


@given(dear_fees(), st.integers(0, 40), st.sampled_from([0, 10**12, 10**13, 10**14, 10**18]))
def test_it_is_the_best_choice_of_when_to_stop(fees_wei, blocks, block_delay_wei):
    assume(fees_wei[-1] > median_low(fees_wei))
    found = waiting_saves_wei(fees_wei, blocks, GAS, block_delay_wei)
    assert found == pytest.approx(
        _by_recursion(fees_wei, blocks, GAS, block_delay_wei), rel=1e-6, abs=10**6
    )


@given(fees, st.integers(-1, 40), st.integers(21_000, 10**7), st.integers(0, 10**16))
def test_it_promises_no_more_than_the_way_back_to_the_usual_fee(fees_wei, blocks, gas, delay_wei):
    saved_wei = waiting_saves_wei(fees_wei, blocks, gas, delay_wei)
    excess_wei = max(fees_wei[-1] - usual_base_fee_wei(fees_wei), 0) * gas
    assert 0 <= saved_wei <= max(excess_wei - delay_wei, 0) + 10**6


@given(dear_fees(), st.integers(0, 40), st.integers(0, 10**14), st.integers(0, 10**14))
def test_a_later_deadline_saves_no_less_and_a_dearer_delay_no_more(fees_wei, blocks, one, other):
    low_wei, high_wei = sorted((one, other))
    saved_wei = waiting_saves_wei(fees_wei, blocks, GAS, low_wei)
    assert waiting_saves_wei(fees_wei, blocks + 1, GAS, low_wei) >= saved_wei
    assert waiting_saves_wei(fees_wei, blocks, GAS, high_wei) <= saved_wei


def test_a_fee_four_times_the_usual_falls_at_the_full_speed():
    usual = (GWEI,) * 9
    # 1/8 a block, while it is above e^1.41 times the usual: 4.375 gwei after one, from 5.
    assert waiting_saves_wei((*usual, 5 * GWEI), 1, 1_000_000, 0) == pytest.approx(
        0.625 * GWEI * 1_000_000
    )
    # ln 1.5 = 0.405: emptier by 8.2 %, which lowers the fee by 1.03 %.
    assert waiting_saves_wei((*usual, 3 * GWEI // 2), 1, 1_000_000, 0) == pytest.approx(
        1.5 * 0.01027 * GWEI * 1_000_000, rel=1e-3
    )


def test_early_in_a_spike_it_waits_for_nothing_and_high_up_for_its_end():
    def in_spike_at(times):
        last_wei = round(times * GWEI)
        return (*(GWEI,) * 9, last_wei * 64 // 81, last_wei * 8 // 9, last_wei)

    delay_wei = 3 * 10**12
    assert in_spike(in_spike_at(1.5))
    assert waiting_saves_wei(in_spike_at(1.5), 20, GAS, delay_wei) == 0
    assert waiting_saves_wei(in_spike_at(12), 20, GAS, delay_wei) > 0
    over = (*in_spike_at(1.5)[:-1], 3 * GWEI // 2, 3 * GWEI // 2)
    assert waiting_saves_wei(over, 20, GAS, delay_wei) > 0


def test_a_fee_at_or_below_the_usual_or_of_nothing_is_not_waited_for():
    assert waiting_saves_wei((2 * GWEI, 2 * GWEI, 2 * GWEI), 20, GAS, 0) == 0
    assert waiting_saves_wei((2 * GWEI, 2 * GWEI, GWEI), 20, GAS, 0) == 0
    assert waiting_saves_wei((0, 0, GWEI), 20, GAS, 0) == 0
    assert waiting_saves_wei((GWEI, GWEI, 2 * GWEI), 0, GAS, 0) == 0

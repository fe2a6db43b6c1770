"""EIP-1559 in integers, its bound, and its forecast."""

from __future__ import annotations

import csv
import os
from fractions import Fraction
from math import ceil, floor, log
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.gas import base_fee_bound, expected_base_fee, next_base_fee
from tests.scheduler.make import GWEI

RECORDED = "INFERD_BASE_FEE_CSV"


@pytest.mark.parametrize(
    ("base_fee_wei", "gas_used", "gas_limit", "following_wei"),
    [
        # The vectors of go-ethereum's TestCalcBaseFee.
        (GWEI, 10_000_000, 20_000_000, GWEI),
        (GWEI, 9_000_000, 20_000_000, 987_500_000),
        (GWEI, 11_000_000, 20_000_000, 1_012_500_000),
        (GWEI, 20_000_000, 20_000_000, 1_125_000_000),
        (GWEI, 0, 20_000_000, 875_000_000),
        (7, 0, 30_000_000, 7),
        (7, 15_000_001, 30_000_000, 8),
        (0, 30_000_000, 30_000_000, 1),
        (0, 0, 30_000_000, 0),
        (10**30 + 1, 3, 5, 10**30 + 1 + (10**30 + 1) // 2 // 8),
    ],
)
def test_next_base_fee(base_fee_wei, gas_used, gas_limit, following_wei):
    assert next_base_fee(base_fee_wei, gas_used, gas_limit) == following_wei


@pytest.mark.parametrize(("used", "limit"), [(-1, 100), (101, 100), (0, 1)])
def test_figures_of_no_block_are_refused(used, limit):
    with pytest.raises(ValueError, match="are of no block"):
        next_base_fee(GWEI, used, limit)


@pytest.mark.skipif(RECORDED not in os.environ, reason=f"{RECORDED} names no file")
def test_recorded_blocks_follow_the_formula():
    with Path(os.environ[RECORDED]).open() as file:
        rows = list(csv.DictReader(file))
    fees = [int(row["base_fee_per_gas_wei"]) for row in rows]
    used = [int(row["gas_used"]) for row in rows]
    limits = [int(row["gas_limit"]) for row in rows]
    predicted = [next_base_fee(*block) for block in zip(fees, used, limits, strict=True)]
    assert predicted[:-1] == fees[1:]
    assert len(fees) > 500
    for blocks in (1, 5, 50):
        pairs = zip(fees, fees[blocks:], strict=False)
        assert all(later <= base_fee_bound(fee, blocks) for fee, later in pairs)


@given(
    st.integers(0, 2**100),
    st.lists(st.tuples(st.integers(5_000, 10**8), st.floats(0, 1)), max_size=6),
)
def test_no_blocks_exceed_the_bound(base_fee_wei, blocks):
    fee_wei = base_fee_wei
    for limit, fullness in blocks:
        fee_wei = next_base_fee(fee_wei, int(limit * fullness), limit)
    assert fee_wei <= base_fee_bound(base_fee_wei, len(blocks))


def test_the_bound_is_near_to_what_full_blocks_reach():
    fee_wei = 10 * GWEI
    for _ in range(10):
        fee_wei = next_base_fee(fee_wei, 30_000_000, 30_000_000)
    assert fee_wei <= base_fee_bound(10 * GWEI, 10) <= fee_wei * 1.001
    assert base_fee_bound(GWEI, 0) == GWEI


def test_the_bound_holds_for_the_least_odd_gas_limit():
    assert next_base_fee(10**12, 5_001, 5_001) == base_fee_bound(10**12, 1) > 10**12 * 9 // 8


def test_drawn_blocks_follow_the_formula_in_all_its_branches():
    """Rises, falls, blocks on the target, empty and full ones, and fees so low that nothing moves
    or the least rise of 1 wei does."""
    rng = Random(1559)
    seen = set()
    for start_wei in (0, 7, 40, GWEI, 10**21):
        fee_wei, limit = start_wei, 30_000_001
        for _ in range(300):
            target = limit // 2
            used = rng.choice([0, target, limit, target + 1, target - 1, rng.randint(0, limit)])
            following_wei = next_base_fee(fee_wei, used, limit)
            distance = Fraction(used - target, target)
            exact_wei = fee_wei + Fraction(fee_wei) * distance / 8
            if used > target:
                assert following_wei == max(floor(exact_wei), fee_wei + 1)
                seen.add("rise" if exact_wei >= fee_wei + 1 else "least rise")
            else:
                assert following_wei == ceil(exact_wei)
                seen.add("same" if used == target else "fall")
                if used < target and following_wei == fee_wei:
                    seen.add("held")
            assert fee_wei * 7 // 8 <= following_wei <= base_fee_bound(fee_wei, 1)
            fee_wei = following_wei
            limit += rng.randint(-limit // 1024, limit // 1024)
    assert seen == {"rise", "least rise", "same", "fall", "held"}


@given(
    st.lists(st.integers(0, 10**14), min_size=1, max_size=40),
    st.integers(5_000, 10**8),
)
def test_a_forecast_is_never_further_away_than_the_rule_allows(base_fees_wei, gas_limit):
    expected_wei = expected_base_fee(base_fees_wei, gas_limit)
    last_wei = base_fees_wei[-1]
    assert last_wei * 7 // 8 <= expected_wei <= base_fee_bound(last_wei, 1)


def test_a_forecast_goes_towards_what_the_fee_was_lately():
    steady = (10 * GWEI,) * 31
    assert expected_base_fee((*steady, 10 * GWEI), 30_000_000) == 10 * GWEI
    assert expected_base_fee((7,), 30_000_000) == 7
    assert expected_base_fee((0, GWEI), 30_000_000) == GWEI
    # 10 % above: the mean takes a quarter of that up at once, and blocks are emptier by the rest.
    above = expected_base_fee((*steady, 11 * GWEI), 30_000_000)
    assert above == pytest.approx(11 * GWEI * (1 - log(1.1) * 0.75 / 8), rel=1e-6)
    assert expected_base_fee((*steady, 9 * GWEI), 30_000_000) > 9 * GWEI


def test_two_full_blocks_in_a_row_are_a_spike():
    once = 10 * GWEI * 9 // 8
    twice = once * 9 // 8
    assert expected_base_fee((10 * GWEI, 10 * GWEI, once), 30_000_000) < once
    spike = expected_base_fee((10 * GWEI, once, twice), 30_000_000)
    assert spike == next_base_fee(twice, 22_500_000, 30_000_000) > twice

"""EIP-1559 in integers, its bound, and the gas model learnt from posts."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.gas import INTRINSIC_GAS, base_fee_bound, fit_gas_model, next_base_fee
from scheduler.model import GasModel
from tests.scheduler.make import GWEI

RECORDED = "INFERD_BASE_FEE_CSV"
PRIOR = GasModel(60_000, 15_000, 6_000)


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


@given(
    st.integers(21_000, 200_000),
    st.integers(0, 50_000),
    st.integers(0, 50_000),
    st.lists(st.tuples(st.integers(1, 10), st.integers(0, 90)), min_size=3, max_size=30),
)
def test_the_fit_finds_planted_coefficients(fixed, per_group, per_result, posts):
    planted = GasModel(fixed, per_group, per_result)
    sizes = [(groups, groups + more) for groups, more in posts]
    (g0, r0), *others = sizes
    assume(any((g - g0) * (s - r0) != (h - g0) * (r - r0) for g, r in others for h, s in others))
    observations = [(g, r, planted.of(g, r)) for g, r in sizes]
    fitted = fit_gas_model(observations, PRIOR)
    for got, expected in (
        (fitted.fixed_gas, fixed),
        (fitted.per_group_gas, per_group),
        (fitted.per_result_gas, per_result),
    ):
        assert abs(got - expected) <= 2


def test_without_observations_it_is_the_prior():
    assert fit_gas_model([], PRIOR) == PRIOR


def test_few_or_equal_posts_correct_the_prior_no_further_than_they_tell():
    one = fit_gas_model([(1, 1, 90_000)], PRIOR)
    assert abs(one.of(1, 1) - 90_000) <= 2
    assert PRIOR.fixed_gas < one.fixed_gas < 90_000
    # All with one group: fixed and group together are known, apart they are not.
    lines = [(1, n, 100_000 + 5_000 * n) for n in (1, 5, 20)]
    model = fit_gas_model(lines, PRIOR)
    assert abs(model.fixed_gas + model.per_group_gas - 100_000) <= 2
    assert abs(model.per_result_gas - 5_000) <= 1
    assert model.fixed_gas > PRIOR.fixed_gas > model.per_group_gas


def test_coefficients_stay_sane_and_the_others_are_fitted_again():
    # A line through these has a fixed part of 10,000, less than any transaction takes.
    model = fit_gas_model([(1, n, 10_000 + 8_000 * n) for n in (1, 2, 3)], GasModel(21_000, 0, 0))
    assert model.fixed_gas >= INTRINSIC_GAS
    assert model.per_group_gas >= 0
    falling = fit_gas_model([(1, 1, 90_000), (1, 9, 70_000), (2, 3, 95_000)], PRIOR)
    assert falling.per_result_gas == 0
    assert 70_000 < falling.of(1, 1) < 90_000


def test_noise_is_averaged():
    posts = [(g, r) for g in (1, 2, 4) for r in (4, 10, 40, 100)]
    planted = GasModel(52_000, 9_000, 5_500)
    noisy = [(g, r, planted.of(g, r) + (700 if i % 2 else -700)) for i, (g, r) in enumerate(posts)]
    fitted = fit_gas_model(noisy, PRIOR)
    assert abs(fitted.fixed_gas - 52_000) < 1_500
    assert abs(fitted.per_group_gas - 9_000) < 500
    assert abs(fitted.per_result_gas - 5_500) < 20

"""The quantiles of the base fee's rises: what they are, and that they cover what comes after."""

from __future__ import annotations

import csv
import os
from itertools import pairwise
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cover import margins_ppm
from scheduler.gas import next_base_fee
from scheduler.model import Rules
from scheduler.rises import HORIZONS, WINDOW_BLOCKS, quantiles
from tests.scheduler.make import GWEI
from tests.scheduler.test_gas import RECORDED

PPM = 1_000_000
LEVELS = st.sampled_from([0.5, 0.9, 0.999])


@st.composite
def chains(draw: st.DrawFn) -> list[int]:
    """Base fees that follow the rule, from nearly nothing to much."""
    fees = [draw(st.integers(1, 10**13))]
    for used in draw(st.lists(st.integers(0, 100), max_size=120)):
        fees.append(next_base_fee(fees[-1], used * 300_000, 30_000_000))
    return fees


@given(chains(), st.integers(1, 40), LEVELS)
def test_each_is_covered_as_often_as_was_asked_and_none_falls(fees, horizons, level):
    found = quantiles(fees, horizons, level)
    assert len(found) <= horizons
    assert all(nearer <= further for nearer, further in pairwise(found))
    for blocks, quantile_ppm in enumerate(found, start=1):
        pairs = [(a, b) for a, b in zip(fees, fees[blocks:], strict=False) if a > 0]
        covered = sum(after * PPM <= quantile_ppm * before * (1 + 1e-12) for before, after in pairs)
        assert covered >= level * len(pairs)
    own = [
        sorted(b / a for a, b in zip(fees, fees[h:], strict=False) if a > 0)
        for h in range(1, len(found) + 1)
    ]
    if found:
        taken = own[0][ceil(level * len(own[0])) - 1]
        assert found[0] == ceil(taken * PPM), "and it is no more than that"


@given(st.integers(1, 10**30), st.integers(0, 200), LEVELS)
def test_a_constant_fee_does_not_rise(fee_wei, blocks, level):
    assert set(quantiles([fee_wei] * blocks, 16, level)) <= {PPM}


@pytest.mark.parametrize(
    ("blocks", "horizons"), [(0, 0), (1, 0), (32, 0), (33, 1), (40, 8), (64, 21), (257, 64)]
)
def test_nothing_is_said_of_horizons_with_too_few_blocks(blocks, horizons):
    assert len(quantiles([GWEI] * blocks, HORIZONS, 0.9)) == horizons


def test_a_longer_horizon_covers_what_a_shorter_one_does():
    """What rises with each block and falls with the next is where it was after two."""
    assert set(quantiles([GWEI, 2 * GWEI] * 50, 8, 0.9)) == {2 * PPM}


def test_blocks_without_a_base_fee_have_no_ratio():
    assert quantiles([0] * 300, HORIZONS, 0.9) == ()
    assert set(quantiles([0] * 100 + [7] * 100, 8, 0.9)) == {PPM}


@given(chains(), LEVELS)
def test_the_margin_stays_within_what_the_rule_allows(fees, level):
    measured = quantiles(fees, HORIZONS, level)
    margins = margins_ppm(Rules(poster_bps=0, gas_margin=1.0, base_fee_quantiles_ppm=measured))
    for blocks, margin_ppm in enumerate(margins, start=1):
        assert PPM <= margin_ppm <= -(-PPM * 9**blocks // 8**blocks)


@pytest.mark.skipif(RECORDED not in os.environ, reason=f"{RECORDED} names no file")
@pytest.mark.parametrize("blocks", [1, 4, 16, 64])
def test_of_recorded_blocks_that_come_later_as_many_are_covered(blocks):
    with Path(os.environ[RECORDED]).open() as file:
        fees = [int(row["base_fee_per_gas_wei"]) for row in csv.DictReader(file)]
    held_out = range(WINDOW_BLOCKS, len(fees) - blocks)
    covered = 0
    for now in held_out:
        if (now - WINDOW_BLOCKS) % 8 == 0:
            seen = quantiles(fees[now - WINDOW_BLOCKS : now + 1], HORIZONS, 0.9)
        covered += fees[now + blocks] * PPM <= seen[blocks - 1] * fees[now]
    # 0.907, 0.903, 0.890, 0.888: what comes is like what was, with a little more of a tail.
    assert 0.87 <= covered / len(held_out) <= 0.93

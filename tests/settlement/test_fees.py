"""Fees: bounded by the caps, accepted by every client's replacement rule, never pointless."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferd.settlement.fees import (
    FeeCaps,
    Fees,
    Market,
    first_fees,
    market_tip,
    replacement_fees,
    within,
)

GWEI = 10**9
WEI = st.integers(0, 10**15)


@st.composite
def caps(draw: st.DrawFn) -> FeeCaps:
    max_fee = draw(WEI)
    max_tip = draw(st.integers(0, max_fee))
    return FeeCaps(max_fee, max_tip, draw(st.integers(0, max_tip)))


def test_first_attempt_offers_twice_the_next_base_fee_and_the_tip() -> None:
    limits = FeeCaps(100 * GWEI, 3 * GWEI)
    room = 1_872_885_229
    assert first_fees(Market(10 * GWEI, 9 * GWEI), limits) == Fees(20 * GWEI + room, room)
    assert first_fees(Market(10 * GWEI, GWEI), limits) == Fees(21 * GWEI, GWEI)
    assert first_fees(Market(60 * GWEI, GWEI), limits) == Fees(100 * GWEI, GWEI)
    assert first_fees(Market(100 * GWEI, GWEI), limits) is None
    assert first_fees(Market(0, 0), limits) == Fees(0, 0)


def test_replacement_is_an_eighth_dearer_on_both_fields_rounded_up() -> None:
    limits = FeeCaps(100 * GWEI, 10 * GWEI)
    assert replacement_fees(Fees(80, 9), Market(1, 0), limits) == Fees(90, 11)
    assert replacement_fees(Fees(81, 0), Market(1, 0), limits) == Fees(92, 1)


def test_replacement_follows_the_market_where_that_is_higher() -> None:
    limits = FeeCaps(1000 * GWEI, 10 * GWEI)
    assert replacement_fees(Fees(10 * GWEI, GWEI), Market(50 * GWEI, 4 * GWEI), limits) == Fees(
        104 * GWEI, 4 * GWEI
    )


@given(WEI, WEI, caps())
def test_first_fees_hold_the_caps_and_pay_for_the_next_block(
    base: int, tip: int, limits: FeeCaps
) -> None:
    fees = first_fees(Market(base, tip), limits)
    if fees is None:
        assert base + limits.min_priority_fee_wei + tip > limits.max_fee_wei
        return
    assert fees.max_fee_wei <= limits.max_fee_wei
    assert limits.min_priority_fee_wei <= fees.priority_fee_wei <= limits.max_priority_fee_wei
    assert fees.max_fee_wei >= base + fees.priority_fee_wei


@given(WEI, WEI, WEI, WEI, caps())
def test_replacement_is_taken_by_every_client_or_not_made(
    old_max: int, old_tip: int, base: int, tip: int, limits: FeeCaps
) -> None:
    previous = Fees(max(old_max, old_tip), old_tip)
    fees = replacement_fees(previous, Market(base, tip), limits)
    if fees is None:
        return
    assert fees.max_fee_wei <= limits.max_fee_wei
    assert fees.priority_fee_wei <= limits.max_priority_fee_wei
    assert fees.priority_fee_wei <= fees.max_fee_wei
    assert fees.max_fee_wei >= base + fees.priority_fee_wei
    for new, old in (
        (fees.max_fee_wei, previous.max_fee_wei),
        (fees.priority_fee_wei, previous.priority_fee_wei),
    ):
        assert new > old
        assert new * 1000 >= old * 1125


@given(WEI, WEI, WEI, caps())
def test_replacements_end_at_the_cap(old_max: int, base: int, tip: int, limits: FeeCaps) -> None:
    fees: Fees | None = Fees(old_max, 0)
    for _ in range(600):
        assert fees is not None
        fees = replacement_fees(fees, Market(base, tip), limits)
        if fees is None:
            return
    raise AssertionError("raised for ever")


@given(WEI, WEI, WEI, caps())
def test_a_gas_price_is_a_maximum_and_a_tip_in_one(
    price: int, old_price: int, cap: int, limits: FeeCaps
) -> None:
    market = Market(0, price, dynamic=False)
    first = first_fees(market, limits)
    if price > limits.max_fee_wei:
        assert first is None
        assert market_tip(market, limits) > limits.max_fee_wei
    elif first is not None:
        asked = max(price, limits.min_priority_fee_wei)
        assert first == Fees(asked, asked, dynamic=False)
        less = within(first, cap)
        assert less.max_fee_wei == less.priority_fee_wei == min(asked, cap)
        assert not less.dynamic
    raised = replacement_fees(Fees(old_price, old_price), market, limits)
    if raised is None:
        return
    assert raised.max_fee_wei == raised.priority_fee_wei <= limits.max_fee_wei
    assert raised.max_fee_wei >= price
    assert raised.max_fee_wei * 8 >= old_price * 9
    assert raised.max_fee_wei > old_price
    assert not raised.dynamic


def test_a_gas_price_has_no_cap_of_a_tip() -> None:
    market = Market(0, 50 * GWEI, dynamic=False)
    limits = FeeCaps(200 * GWEI, 2 * GWEI)
    assert first_fees(market, limits) == Fees(50 * GWEI, 50 * GWEI, dynamic=False)
    raised = replacement_fees(Fees(50 * GWEI, 2 * GWEI), market, limits)
    assert raised == Fees(56_250_000_000, 56_250_000_000, dynamic=False)

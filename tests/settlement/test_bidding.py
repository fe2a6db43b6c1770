"""What a late transaction offers: never beyond caps and budgets, and not beyond its worth unless
that is the smaller loss."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inferd.settlement.bidding import (
    URGENT_BLOCKS,
    Bid,
    Work,
    bid,
    blocks_until,
    first_bid,
    noop_fees,
    patience_blocks,
    urgent_tip,
)
from inferd.settlement.fees import (
    KEPT_FOR_WORK,
    FeeCaps,
    Fees,
    Market,
    first_fees,
    market_tip,
    replacement_fees,
    tip_below,
)

GWEI = 10**9
CAPS = FeeCaps(200 * GWEI, 10 * GWEI)
PREVIOUS = Fees(3 * GWEI, GWEI)
CALM = Market(GWEI, GWEI)
SPIKE = Market(40 * GWEI, GWEI)
POST = Work(gas_limit=200_000, worth_wei=20 * GWEI, blocks_left=100, noop_gas=25_200)

prices = st.integers(0, 500 * GWEI)
works = st.builds(
    Work,
    gas_limit=st.integers(21_000, 16_777_216),
    worth_wei=st.one_of(st.none(), prices),
    blocks_left=st.one_of(st.none(), st.integers(0, 300)),
    in_the_way=st.booleans(),
    noop_gas=st.one_of(st.none(), st.integers(21_000, 100_000)),
)
caps_values = st.builds(FeeCaps, st.integers(1, 300 * GWEI), st.integers(1, 20 * GWEI))
budgets = st.one_of(st.none(), st.integers(0, 10**18))


@given(
    st.builds(Fees, prices, prices), st.builds(Market, prices, prices), caps_values, works, budgets
)
def test_bid__any__within_caps_and_budget_and_dearer_on_both_fields(
    previous: Fees, market: Market, caps: FeeCaps, work: Work, most_wei: int | None
) -> None:
    offered = bid(previous, market, caps, work, most_wei)
    assert offered.raised is None or offered.noop is None or work.in_the_way
    for fees, gas in ((offered.raised, work.gas_limit), (offered.noop, work.noop_gas)):
        if fees is None:
            continue
        assert gas is not None
        assert fees.max_fee_wei <= caps.max_fee_wei
        assert fees.priority_fee_wei <= caps.max_priority_fee_wei
        assert 8 * fees.max_fee_wei >= 9 * previous.max_fee_wei
        assert 8 * fees.priority_fee_wei >= 9 * previous.priority_fee_wei
        assert fees.max_fee_wei >= market.base_fee_wei + fees.priority_fee_wei
        if most_wei is not None:
            assert fees.max_fee_wei * gas <= most_wei
    if work.worth_wei is not None and not work.in_the_way:
        assert offered.noop is None or previous.max_fee_wei > work.worth_wei
        assert offered.raised is None or offered.raised.max_fee_wei <= work.worth_wei


@given(st.builds(Market, prices, prices), caps_values, works)
def test_urgent_tip__nearer__never_less(market: Market, caps: FeeCaps, work: Work) -> None:
    tips = [
        urgent_tip(market, caps, replace(work, blocks_left=left))
        for left in range(URGENT_BLOCKS + 2, -1, -1)
    ]
    assert tips == sorted(tips)
    assert tips[0] == tips[1] == urgent_tip(market, caps, replace(work, blocks_left=None))
    assert tips[-1] <= caps.max_priority_fee_wei


def test_urgent_tip__last_block__all_that_the_work_is_worth() -> None:
    worth = replace(POST, worth_wei=8 * GWEI)
    assert urgent_tip(CALM, CAPS, replace(worth, blocks_left=0)) == 7 * GWEI
    assert urgent_tip(CALM, CAPS, replace(worth, blocks_left=4)) == GWEI + 6 * GWEI // 4
    assert urgent_tip(CALM, CAPS, replace(worth, blocks_left=None)) == GWEI


def test_bid__worth_more_than_the_cap__the_cap_in_the_last_block() -> None:
    precious = replace(POST, worth_wei=900 * GWEI, blocks_left=0)
    near_the_cap = Market(195 * GWEI, GWEI)
    assert bid(PREVIOUS, near_the_cap, CAPS, precious).raised == Fees(200 * GWEI, 5 * GWEI)
    legacy = Market(0, 20 * GWEI, dynamic=False)
    offered = bid(Fees(19 * GWEI, 19 * GWEI), legacy, CAPS, precious).raised
    assert offered == Fees(200 * GWEI, 200 * GWEI, dynamic=False)
    # A budget bounds it like a cap.
    most_wei = 50 * GWEI * precious.gas_limit
    offered = bid(Fees(19 * GWEI, 19 * GWEI), legacy, CAPS, precious, most_wei).raised
    assert offered == Fees(50 * GWEI, 50 * GWEI, dynamic=False)


tip_caps = st.integers(10, 20 * GWEI).map(lambda tip_wei: FeeCaps(2**200, tip_wei))
moments = st.lists(st.tuples(st.builds(Market, prices, prices), works), max_size=12)


@given(st.builds(Market, prices, prices), moments, tip_caps)
def test_whatever_was_offered__a_transaction_without_effect_can_take_its_place(
    market: Market, later: list[tuple[Market, Work]], caps: FeeCaps
) -> None:
    """The cap of the tip never leaves a nonce to bytes that nothing replaces."""
    offered = first_fees(market, caps)
    assert offered is not None
    for market, work in later:
        assert replacement_fees(offered, market, caps) is not None
        in_the_way = replace(work, worth_wei=0, in_the_way=True, noop_gas=21_000)
        offer = bid(offered, market, caps, in_the_way)
        assert offer.noop is not None
        for chosen in (offer, Bid()):
            noop = noop_fees(chosen, offered, caps, 21_000)
            assert offered.priority_fee_wei * 9 <= noop.priority_fee_wei * 8
            assert offered.max_fee_wei * 9 <= noop.max_fee_wei * 8
            assert noop.priority_fee_wei <= caps.max_priority_fee_wei
            assert noop_fees(chosen, offered, caps, 21_000, 1) in (
                offered,
                chosen.noop,
                chosen.raised,
            )
        offered = bid(offered, market, caps, work).raised or offered


@given(st.lists(st.builds(Market, prices, prices), min_size=6, max_size=6), tip_caps)
def test_whatever_the_market_asks__the_work_is_raised_often_enough(
    markets: list[Market], caps: FeeCaps
) -> None:
    """Then the cap holds, and the last raise is left to what takes its place."""
    offered = first_fees(markets[0], caps)
    work = Work(gas_limit=100_000)
    for market in markets[1 : KEPT_FOR_WORK + 1]:
        assert offered is not None
        offered = bid(offered, market, caps, work).raised
    assert offered is not None
    assert offered.priority_fee_wei <= tip_below(caps.max_priority_fee_wei, 1)
    empty = bid(offered, markets[-1], caps, replace(work, without_effect=True)).raised
    assert empty is not None


def test_a_market_at_the_cap__climbs_by_an_eighth() -> None:
    """And is never above it, though the market is."""
    market, work = Market(GWEI, 30 * GWEI), replace(POST, worth_wei=None)
    offered: Fees | None = Fees(2 * GWEI, market_tip(market, CAPS))
    tips = []
    while offered is not None:
        tips.append(offered.priority_fee_wei)
        offered = bid(offered, market, CAPS, work).raised
    assert [round(tip / 10**7) for tip in tips] == [624, 702, 790, 889]
    stuck = replace(work, worth_wei=0, in_the_way=True)
    noop = bid(Fees(20 * GWEI, tips[-1]), market, CAPS, stuck).noop
    assert noop is not None
    assert tips[-1] < noop.priority_fee_wei <= CAPS.max_priority_fee_wei


def test_bid__in_a_spike__waits_where_it_is_in_nobodys_way() -> None:
    assert bid(PREVIOUS, SPIKE, CAPS, POST) == Bid()
    assert bid(PREVIOUS, CALM, CAPS, POST).raised is not None


def test_bid__worth_less_than_it_offers__the_smaller_loss() -> None:
    """200,000 gas at 3 gwei more than they are worth, or 25,200 gas at the price now."""
    left = replace(POST, worth_wei=GWEI)
    offered = Fees(4 * GWEI, GWEI)
    assert bid(offered, Market(4 * GWEI, GWEI), CAPS, left).noop is not None
    assert bid(offered, SPIKE, CAPS, left) == Bid()
    assert bid(offered, Market(4 * GWEI, GWEI), CAPS, replace(left, worth_wei=4 * GWEI)) == Bid()
    assert bid(offered, Market(4 * GWEI, GWEI), CAPS, replace(left, noop_gas=None)) == Bid()


def test_bid__in_a_spike_and_in_the_way__the_smaller_loss() -> None:
    in_the_way = replace(POST, in_the_way=True)
    offered = bid(PREVIOUS, SPIKE, CAPS, in_the_way)
    assert offered.raised is None
    assert offered.noop is not None
    # Two gwei a gas are lost by the work, and 42 by a transaction with an eighth of its gas.
    nearly_worth = replace(in_the_way, worth_wei=39 * GWEI)
    offered = bid(PREVIOUS, SPIKE, CAPS, nearly_worth)
    assert offered.noop is None
    assert offered.raised is not None
    unwanted = replace(in_the_way, worth_wei=0)
    assert bid(PREVIOUS, CALM, CAPS, unwanted).noop is not None
    no_noop = replace(in_the_way, noop_gas=None)
    assert bid(PREVIOUS, SPIKE, CAPS, no_noop).raised is not None


def test_first_bid__what_it_is_worth_and_no_more() -> None:
    assert first_bid(CALM, CAPS, POST).raised == Fees(3 * GWEI, GWEI)
    dear = replace(POST, worth_wei=5 * GWEI // 2)
    assert first_bid(CALM, CAPS, dear).raised == Fees(5 * GWEI // 2, GWEI)
    assert first_bid(CALM, CAPS, replace(POST, worth_wei=2 * GWEI - 1)) == Bid()
    assert first_bid(CALM, CAPS, POST, 2 * GWEI * POST.gas_limit).raised == Fees(2 * GWEI, GWEI)
    assert first_bid(CALM, CAPS, POST, 2 * GWEI * POST.gas_limit - 1) == Bid()
    legacy = Market(0, 20 * GWEI, dynamic=False)
    assert first_bid(legacy, CAPS, POST).raised == Fees(20 * GWEI, 20 * GWEI, dynamic=False)
    assert first_bid(legacy, CAPS, dear) == Bid()


def test_bid__without_a_budget_for_it__neither() -> None:
    in_the_way = replace(POST, in_the_way=True)
    assert bid(PREVIOUS, SPIKE, CAPS, in_the_way, 10**12) == Bid()


def test_patience__shorter_as_the_deadline_nears() -> None:
    assert [patience_blocks(3, left) for left in (None, 100, 12, 8, 4, 1, 0)] == [
        3,
        3,
        3,
        2,
        1,
        1,
        1,
    ]


def test_blocks_until__as_many_as_fit() -> None:
    assert blocks_until(130, 100, 12.0) == 2
    assert blocks_until(90, 100, 12.0) == 0
    assert blocks_until(None, 100, 12.0) is None
    assert blocks_until(130, 100, 0.0) is None

"""What a transaction not signed or not mined in time offers, and whether it is worth that. Pure.

The price rises with urgency: the nearer the first deadline of its work, the sooner a transaction
counts as overdue and the more of what the work is worth goes into its tip. Nothing is offered
beyond the operator's caps, nor so near the one of the tip that no transaction without effect could
take its place, nor, while that blocks nobody, beyond what the work is worth. Where it
is in the way of others, the smaller loss is chosen: raise it all the same, or spend its nonce on a
transaction without effect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inferd.settlement.fees import (
    KEPT_FOR_NOOPS,
    FeeCaps,
    Fees,
    Market,
    caps_in,
    first_fees,
    least_raise,
    market_tip,
    replacement_fees,
    tip_below,
    within,
)

URGENT_BLOCKS = 8
"""Blocks before a deadline in which the tip rises, by the square of those that have passed."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a transaction is for, as far as its price goes."""

    gas_limit: int
    worth_wei: int | None = None
    """The price of a gas at which it costs what it is worth: 0 where nobody wants it any more;
    None where the caps alone say how much it may cost."""
    blocks_left: int | None = None
    """To the first deadline of its items; None where it has none."""
    in_the_way: bool = False
    """Others cannot be mined, or made, before it."""
    noop_gas: int | None = None
    """The gas limit of a transaction without effect; None where none can be made, or it is one."""
    without_effect: bool = False
    """It is one itself: nothing has to take its place."""


@dataclass(frozen=True, slots=True)
class Bid:
    """At most one of the two is to be made."""

    raised: Fees | None = None
    """Of a replacement with the same effect; None where the old bytes are the best there is."""
    noop: Fees | None = None
    """Of one without effect, where the work is not worth what it would cost."""


def patience_blocks(resend_after_blocks: int, blocks_left: int | None) -> int:
    """After how many blocks without being mined a transaction is overdue: a quarter of what is left
    to its deadline, one at least, and what the settings say at most."""
    if blocks_left is None:
        return resend_after_blocks
    return min(resend_after_blocks, max(blocks_left // 4, 1))


def blocks_until(deadline_s: int | None, now_s: int, interval_s: float) -> int | None:
    """How many more blocks there are in time; None without a deadline or a rhythm of blocks."""
    if deadline_s is None or interval_s <= 0:
        return None
    return max(int((deadline_s - now_s) / interval_s), 0)


def first_bid(market: Market, caps: FeeCaps, work: Work, most_wei: int | None = None) -> Bid:
    """Of what was planned and could not be signed then: never more than it is worth, nor than
    `most_wei` for its gas in all; nothing where that does not pay for the next block."""
    fees = first_fees(market, caps)
    if fees is None:
        return Bid()
    bounds = [] if work.worth_wei is None else [work.worth_wei]
    if most_wei is not None:
        bounds.append(most_wei // work.gas_limit)
    offered = within(fees, min(bounds, default=fees.max_fee_wei))
    pays = offered.max_fee_wei >= market.base_fee_wei + fees.priority_fee_wei
    return Bid(raised=offered if pays else None)


def urgent_tip(market: Market, caps: FeeCaps, work: Work) -> int:
    """The market's tip, and near a deadline more, in wei per gas: up to what the work is worth, and
    what the cap of the whole leaves beside the base fee."""
    usual, caps = market_tip(market, caps), caps_in(market, _with_room(caps, work))
    if work.worth_wei is None or work.blocks_left is None:
        return usual
    most_wei = min(work.worth_wei, caps.max_fee_wei)
    most = min(caps.max_priority_fee_wei, most_wei - market.base_fee_wei)
    passed = max(URGENT_BLOCKS - work.blocks_left, 0)
    return usual + max(most - usual, 0) * passed**2 // URGENT_BLOCKS**2


def bid(
    previous: Fees, market: Market, caps: FeeCaps, work: Work, most_wei: int | None = None
) -> Bid:
    """The replacement of a transaction that offers `previous`.

    `most_wei` is what its gas may cost in all, by the operator's budgets; None = any.
    """
    affordable = _affordable(caps, work.gas_limit, most_wei)
    caps_of_work = _with_room(affordable, work)
    # The tip climbs by an eighth at a time where the market asks for more than there is room for.
    calm = replace(market, tip_wei=market_tip(market, caps)) if market.dynamic else market
    within_worth = caps_of_work
    if work.worth_wei is not None:
        limit = min(caps_of_work.max_fee_wei, work.worth_wei)
        within_worth = replace(caps_of_work, max_fee_wei=limit)
    for tip_wei in (urgent_tip(market, affordable, work), calm.tip_wei):
        raised = replacement_fees(previous, replace(market, tip_wei=tip_wei), within_worth)
        if raised is not None:
            return Bid(raised=raised)
    if work.worth_wei is None or not (work.in_the_way or is_offered_too_much(previous, work)):
        return Bid()
    if not work.in_the_way:
        return Bid(noop=_cheaper_noop(previous, calm, caps, work, most_wei))
    at_a_loss = replacement_fees(previous, calm, caps_of_work)
    if work.noop_gas is None:
        return Bid(raised=at_a_loss)
    noop = replacement_fees(previous, calm, _affordable(caps, work.noop_gas, most_wei))
    if at_a_loss is None or noop is None:
        return Bid(raised=at_a_loss, noop=noop)
    loss_wei = work.gas_limit * max(_price_wei(at_a_loss, market) - work.worth_wei, 0)
    if loss_wei < work.noop_gas * _price_wei(noop, market):
        return Bid(raised=at_a_loss)
    return Bid(noop=noop)


def noop_fees(
    offered: Bid, previous: Fees, caps: FeeCaps, noop_gas: int, most_wei: int | None = None
) -> Fees:
    """Of a transaction without effect in the place of one that offers `previous`: what the next
    block asks where that was found worth it, or the least that a pool takes. Where the caps leave
    no room for that, the same once more: no pool that has the other takes it, and one that has it
    not may."""
    least = least_raise(previous, _affordable(caps, noop_gas, most_wei))
    return offered.noop or offered.raised or least or previous


def is_offered_too_much(previous: Fees, work: Work) -> bool:
    """Whether it would be mined at a loss at the most that it offers: some of what it was made for
    is settled by others, or past its time."""
    return work.worth_wei is not None and previous.max_fee_wei > work.worth_wei


def _cheaper_noop(
    previous: Fees, market: Market, caps: FeeCaps, work: Work, most_wei: int | None
) -> Fees | None:
    """One that costs less now than what is lost where the old bytes are mined after all."""
    if work.noop_gas is None or work.worth_wei is None:
        return None
    noop = replacement_fees(previous, market, _affordable(caps, work.noop_gas, most_wei))
    mined_at_wei = min(previous.max_fee_wei, market.base_fee_wei + previous.priority_fee_wei)
    loss_wei = work.gas_limit * max(mined_at_wei - work.worth_wei, 0)
    return noop if noop and loss_wei > work.noop_gas * _price_wei(noop, market) else None


def _with_room(caps: FeeCaps, work: Work) -> FeeCaps:
    """The same with a tip that a transaction without effect can still raise."""
    kept = 0 if work.without_effect else KEPT_FOR_NOOPS
    return replace(caps, max_priority_fee_wei=tip_below(caps.max_priority_fee_wei, kept))


def _affordable(caps: FeeCaps, gas_limit: int, most_wei: int | None) -> FeeCaps:
    if most_wei is None:
        return caps
    return replace(caps, max_fee_wei=min(caps.max_fee_wei, most_wei // gas_limit))


def _price_wei(fees: Fees, market: Market) -> int:
    """Of a gas, in the next block."""
    return min(fees.max_fee_wei, market.base_fee_wei + fees.priority_fee_wei)

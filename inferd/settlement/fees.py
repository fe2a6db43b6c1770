"""Fees of a first attempt and of its replacements. Pure; all amounts are wei per gas.

A chain without EIP-1559 is one whose base fee is 0: a gas price is a maximum and a tip in one
(EIP-1559 says so itself of transactions of the old kind). So one set of rules serves both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

KEPT_FOR_WORK, KEPT_FOR_NOOPS = 3, 1
"""How often a tip can still be raised by an eighth below its cap after the first offer: so many
times for the work, and then once more by a transaction without effect in its place. A pool takes no
dearer transaction that does not raise both fields, so a tip at its cap could not be replaced, nor
its nonce be freed, however cheap gas becomes."""

# Geth takes 10 %, reth wants more than 10 %, and some clients 12.5 %: 9/8 satisfies all.
_RAISE_NUMERATOR, _RAISE_DENOMINATOR = 9, 8


@dataclass(frozen=True, slots=True)
class Fees:
    """What a transaction offers for one unit of gas; the tip is part of the maximum."""

    max_fee_wei: int
    priority_fee_wei: int
    dynamic: bool = True
    """False: to be signed as a transaction of type 0, whose gas price both fields are."""


@dataclass(frozen=True, slots=True)
class Market:
    """What the next block asks."""

    base_fee_wei: int
    tip_wei: int
    """As suggested, not yet bounded by the operator's caps; all of the gas price of a chain without
    EIP-1559."""
    dynamic: bool = True
    """False on a chain without EIP-1559."""


@dataclass(frozen=True, slots=True)
class FeeCaps:
    """What the operator allows; holds for replacements too."""

    max_fee_wei: int
    max_priority_fee_wei: int
    min_priority_fee_wei: int = 0


def first_fees(market: Market, caps: FeeCaps) -> Fees | None:
    """Twice the next base fee and the tip, so that six full blocks do not price it out.

    None where the cap does not even pay for the next block.
    """
    tip = market_tip(market, caps)
    if market.base_fee_wei + tip > caps.max_fee_wei:
        return None
    return Fees(min(2 * market.base_fee_wei + tip, caps.max_fee_wei), tip, market.dynamic)


def replacement_fees(previous: Fees, market: Market, caps: FeeCaps) -> Fees | None:
    """Both fields at least 12.5 % up, and at least what a first attempt would offer now.

    None where that is over a cap, or would still not pay for the next block: then the old bytes
    are the best there is. The market's tip counts as far as `caps` go: who calls keeps room.
    """
    caps = caps_in(market, caps)
    wanted_tip = max(market.tip_wei, caps.min_priority_fee_wei)
    tip = max(min(wanted_tip, caps.max_priority_fee_wei), _raised(previous.priority_fee_wei))
    least = max(_raised(previous.max_fee_wei), market.base_fee_wei + tip)
    if not market.dynamic:
        tip = least
    if least > caps.max_fee_wei or tip > caps.max_priority_fee_wei:
        return None
    wanted = max(least, 2 * market.base_fee_wei + tip)
    return Fees(min(wanted, caps.max_fee_wei), tip, market.dynamic)


def least_raise(previous: Fees, caps: FeeCaps) -> Fees | None:
    """The least that a pool takes in its place, whatever the next block asks; None over a cap."""
    raised = Fees(
        _raised(previous.max_fee_wei), _raised(previous.priority_fee_wei), previous.dynamic
    )
    over = raised.dynamic and raised.priority_fee_wei > caps.max_priority_fee_wei
    return None if over or raised.max_fee_wei > caps.max_fee_wei else raised


def within(fees: Fees, cap_wei: int) -> Fees:
    """The same fees where they offer no more than `cap_wei` a gas, and else so much."""
    return replace(
        fees,
        max_fee_wei=min(fees.max_fee_wei, cap_wei),
        priority_fee_wei=min(fees.priority_fee_wei, cap_wei),
    )


def market_tip(market: Market, caps: FeeCaps) -> int:
    """What a first attempt offers of the suggested tip: so much that it can still be raised below
    the operator's cap; all of the price of a chain without EIP-1559, up to the cap of the whole."""
    capped = caps_in(market, caps)
    most_wei = capped.max_priority_fee_wei
    if market.dynamic:
        # What is offered at least goes first: with a minimum near the cap there is less room.
        room_wei = tip_below(caps.max_priority_fee_wei, KEPT_FOR_WORK + KEPT_FOR_NOOPS)
        most_wei = min(max(room_wei, caps.min_priority_fee_wei), most_wei)
    return min(max(market.tip_wei, capped.min_priority_fee_wei), most_wei)


def tip_below(cap_wei: int, raises: int) -> int:
    """The highest tip that is still within the cap when it was raised so often; 0 at least."""
    for _ in range(raises):
        cap_wei = max(min(cap_wei * _RAISE_DENOMINATOR // _RAISE_NUMERATOR, cap_wei - 1), 0)
    return cap_wei


def caps_in(market: Market, caps: FeeCaps) -> FeeCaps:
    """The tip's own cap says nothing of a gas price: that has the cap of the whole."""
    if market.dynamic:
        return caps
    # One wei more: a price above the cap has to stay above it, to be seen as one.
    return replace(caps, max_priority_fee_wei=caps.max_fee_wei + 1)


def _raised(value: int) -> int:
    # Of 0 wei, 12.5 % is nothing, but a pool wants a strictly higher value.
    return max(-(-value * _RAISE_NUMERATOR // _RAISE_DENOMINATOR), value + 1)

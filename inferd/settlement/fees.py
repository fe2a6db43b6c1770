"""EIP-1559 fees of a first attempt and of its replacements. Pure; all amounts are wei per gas."""

from __future__ import annotations

from dataclasses import dataclass

# Geth takes 10 %, reth wants more than 10 %, and some clients 12.5 %: 9/8 satisfies all.
_RAISE_NUMERATOR, _RAISE_DENOMINATOR = 9, 8


@dataclass(frozen=True, slots=True)
class Fees:
    """What a transaction offers for one unit of gas; the tip is part of the maximum."""

    max_fee_wei: int
    priority_fee_wei: int


@dataclass(frozen=True, slots=True)
class FeeCaps:
    """What the operator allows; holds for replacements too."""

    max_fee_wei: int
    max_priority_fee_wei: int
    min_priority_fee_wei: int = 0


def first_fees(next_base_fee_wei: int, suggested_tip_wei: int, caps: FeeCaps) -> Fees | None:
    """Twice the next base fee and the tip, so that six full blocks do not price it out.

    None where the cap does not even pay for the next block.
    """
    tip = market_tip(suggested_tip_wei, caps)
    if next_base_fee_wei + tip > caps.max_fee_wei:
        return None
    return Fees(min(2 * next_base_fee_wei + tip, caps.max_fee_wei), tip)


def replacement_fees(
    previous: Fees, next_base_fee_wei: int, suggested_tip_wei: int, caps: FeeCaps
) -> Fees | None:
    """Both fields at least 12.5 % up, and at least what a first attempt would offer now.

    None where that is over a cap, or would still not pay for the next block: then the old bytes
    are the best there is.
    """
    tip = max(market_tip(suggested_tip_wei, caps), _raised(previous.priority_fee_wei))
    least = max(_raised(previous.max_fee_wei), next_base_fee_wei + tip)
    if least > caps.max_fee_wei or tip > caps.max_priority_fee_wei:
        return None
    wanted = max(least, 2 * next_base_fee_wei + tip)
    return Fees(min(wanted, caps.max_fee_wei), tip)


def within(fees: Fees, cap_wei: int) -> Fees:
    """The same fees where they offer no more than `cap_wei` a gas, and else so much."""
    return Fees(min(fees.max_fee_wei, cap_wei), min(fees.priority_fee_wei, cap_wei))


def market_tip(suggested_tip_wei: int, caps: FeeCaps) -> int:
    """The endpoint's suggestion within the operator's caps."""
    return min(max(suggested_tip_wei, caps.min_priority_fee_wei), caps.max_priority_fee_wei)


def _raised(value: int) -> int:
    # Of 0 wei, 12.5 % is nothing, but a pool wants a strictly higher value.
    return max(-(-value * _RAISE_NUMERATOR // _RAISE_DENOMINATOR), value + 1)

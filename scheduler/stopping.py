"""What it is worth to wait for a dear base fee to come down.

A spike of demand takes the fee to a multiple of what it usually is, and afterwards blocks are empty
until it is back, some 12 % a block at most. A batch that has waited long enough by its delay alone
may still save many times that by waiting on, and the longer, the further the fee has to fall. So
this looks as many blocks ahead as the nearest deadline allows, and stops where it is best:

    value of waiting = delay of a block + min(fee then, value of waiting on then), on average

by backward induction (optimal stopping; Chow, Robbins, Siegmund, "Great Expectations", 1971). With
x = ln(fee / usual fee), where the usual fee is the median of the recent blocks, the law is

    after a spike   the next block is emptier than its target by x^2 / 2 of it, up to all of it, and
                    EIP-1559 does the rest: 12.5 % from four times the usual fee on, 1.5 % a block
                    at 1.6 times, hardly anything below 1.2 times
    in a spike      (`scheduler.gas.in_spike`) the next block is full with a chance of 85 %

docs/benchmarks/posting.md has what these two figures rest on, and what happens where they are
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from statistics import median_low

from scheduler.gas import in_spike

HORIZON_BLOCKS = 32
"""No further ahead is looked: a fee 50 times the usual one is back by then."""
_ELASTICITY = 0.5
_SPIKE_GOES_ON = 0.85
_FULL_BLOCK = log(9 / 8)
"""What a full block adds to the logarithm of the fee."""


def waiting_saves_wei(
    base_fees_wei: Sequence[int], blocks: int, gas: int, block_delay_wei: int
) -> int:
    """What it saves on average, in wei, to wait at least one and at most `blocks` blocks more.

    The fees are of recent blocks and of the next, oldest first; `gas` is the batch's, and
    `block_delay_wei` what its delay costs a block, which is taken off. 0 = nothing: where the fee
    is not above what it usually is, nothing is ever expected.
    """
    usual_wei, last_wei = usual_base_fee_wei(base_fees_wei), base_fees_wei[-1]
    if blocks < 1 or usual_wei <= 0 or last_wei <= usual_wei:
        return 0
    blocks = min(blocks, HORIZON_BLOCKS)
    usual_cost_wei = gas * usual_wei
    delay = block_delay_wei / usual_cost_wei
    now = log(last_wei / usual_wei)
    value = (
        _waiting_in_spike(now, blocks, delay)
        if in_spike(base_fees_wei)
        else delay + _least(_fallen(now), blocks - 1, delay)
    )
    return max(int((exp(now) - value) * usual_cost_wei), 0)


def usual_base_fee_wei(base_fees_wei: Sequence[int]) -> int:
    """The median: spikes that fill less than half of the blocks do not move it."""
    return median_low(base_fees_wei)


def _fallen(above: float) -> float:
    """The logarithm of the next fee over the usual one, after one with `above`."""
    return above + log(1.0 - min(_ELASTICITY * above * abs(above), 1.0) / 8.0)


def _least(above: float, blocks: int, delay: float) -> float:
    """The least cost of stopping now or at one of the next blocks while the fee falls, in units of
    the gas at the usual fee."""
    least = exp(above)
    for waited in range(1, blocks + 1):
        above = _fallen(above)
        least = min(least, exp(above) + waited * delay)
    return least


def _waiting_in_spike(above: float, blocks: int, delay: float) -> float:
    """The average cost of waiting for one block in a spike and stopping where it is best then."""
    value = float("inf")
    for waited in range(blocks - 1, -1, -1):
        here = above + waited * _FULL_BLOCK
        full = min(exp(here + _FULL_BLOCK), value)
        over = _least(_fallen(here), blocks - 1 - waited, delay)
        value = delay + _SPIKE_GOES_ON * full + (1.0 - _SPIKE_GOES_ON) * over
    return value

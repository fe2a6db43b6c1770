"""What gas costs next: the rule of EIP-1559, its bound, and what it leads to on average."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log

_ELASTICITY = 2
_MAX_CHANGE_DENOMINATOR = 8
_MIN_GAS_LIMIT = 5_000
_MEMORY_BLOCKS = 4
"""What a base fee is compared with forgets by a factor of 1 - 1/4 a block."""
_MEAN_BLOCKS = 32
"""What is older has no weight in that any more: 0.75^32 = 1e-4."""
FORECAST_BLOCKS = 200
"""Recent base fees that decisions are made with: what the fee usually is has to outlast a spike and
the way back from it, some 40 blocks. The indexer keeps 256 blocks."""

INTRINSIC_GAS = 21_000
"""No transaction takes less (Yellow Paper, G_transaction)."""
MAX_TRANSACTION_GAS = 16_777_216
"""No chain since Fusaka takes a transaction with more (EIP-7825)."""

_FLOOR_GAS_PER_TOKEN = 10
_TOKENS_PER_NONZERO_BYTE = 4


def calldata_floor(calldata: bytes) -> int:
    """The least gas limit with which a transaction with this calldata is valid, and the least gas
    that it takes (EIP-7623)."""
    zeros = calldata.count(0)
    tokens = zeros + _TOKENS_PER_NONZERO_BYTE * (len(calldata) - zeros)
    return INTRINSIC_GAS + _FLOOR_GAS_PER_TOKEN * tokens


def next_base_fee(base_fee_wei: int, gas_used: int, gas_limit: int) -> int:
    """The base fee of the block after one with these figures, in wei per gas; exact.

    EIP-1559: the target is half the limit; the fee moves by 1/8 of itself times the relative
    distance from the target, in integers, and by at least 1 wei when it rises.
    """
    if gas_limit < _ELASTICITY or not 0 <= gas_used <= gas_limit:
        raise ValueError(f"gas used {gas_used} and gas limit {gas_limit} are of no block")
    target = gas_limit // _ELASTICITY
    if gas_used == target:
        return base_fee_wei
    if gas_used > target:
        rise = base_fee_wei * (gas_used - target) // target // _MAX_CHANGE_DENOMINATOR
        return base_fee_wei + max(rise, 1)
    return base_fee_wei - base_fee_wei * (target - gas_used) // target // _MAX_CHANGE_DENOMINATOR


def base_fee_bound(base_fee_wei: int, blocks: int) -> int:
    """The most the base fee can be `blocks` blocks after one where it is `base_fee_wei`.

    Full blocks raise it by 1/8 each. An odd gas limit lets a full block overshoot its target, by
    one gas more than the target, which weighs most when the limit is small: the bound takes the
    least limit a chain may have (5,000, go-ethereum `params.MinGasLimit`), so it holds for any.
    """
    target = _MIN_GAS_LIMIT // _ELASTICITY
    for _ in range(blocks):
        rise = base_fee_wei * (target + 1) // target // _MAX_CHANGE_DENOMINATOR
        base_fee_wei += max(rise, 1)
    return base_fee_wei


def expected_base_fee(base_fees_wei: Sequence[int], gas_limit: int) -> int:
    """The base fee to expect in the block after the last of these, oldest first, in wei per gas.

    Demand for gas is elastic: users wait out a fee that is above what it was lately, and catch up
    when it is below. The next block is taken to be emptier than its target by the share that the
    last fee is above an exponential mean of the fees up to it (an elasticity of one, in
    logarithms), and the exact rule does the rest; so the forecast is never further away than the
    rule allows. On 1,000 recorded mainnet blocks the least-squares elasticity is 2.9 (3.3 and 2.5
    in the two halves). A third of it is taken: a decision looks one block ahead only, and with all
    of it would post too early at every dip. After two nearly full blocks in a row, which a spike of
    demand has and calm blocks have not (once in those 1,000), the next is taken to be three
    quarters full.
    Of constant fees, of one, or of none above zero, it is the last.
    """
    last_wei = base_fees_wei[-1]
    recent_wei = base_fees_wei[-_MEAN_BLOCKS:]
    if min(recent_wei) <= 0:
        return last_wei
    mean = log(recent_wei[0])
    for fee_wei in recent_wei[1:]:
        mean += (log(fee_wei) - mean) / _MEMORY_BLOCKS
    target = gas_limit // _ELASTICITY
    if in_spike(base_fees_wei):
        gas_used = gas_limit * 3 // 4
    else:
        gas_used = round(target * (1.0 - (log(last_wei) - mean)))
    return next_base_fee(last_wei, min(max(gas_used, 0), gas_limit), gas_limit)


def in_spike(base_fees_wei: Sequence[int]) -> bool:
    """Whether the last of these base fees, oldest first, rose by more than 11 % twice in a row:
    two blocks fuller than 94 %."""
    rises = [after * 100 > before * 111 for before, after in pairwise(base_fees_wei[-3:])]
    return len(rises) == 2 and all(rises)

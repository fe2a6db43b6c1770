"""What a transaction earns, and what its gas may cost for that. Pure.

What is paid beside gas follows another chain's price, from block to block. So the price of a gas at
which a transaction costs what it earns is reckoned anew each time it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inferd.settlement.data_fee import DataPrice


@dataclass(frozen=True, slots=True)
class Earning:
    revenue_wei: int
    gas: int
    """Of the transaction itself, as estimated."""
    later_gas: int = 0
    """Of the calls of contracts that follow from it, and what they are in bytes and number."""
    later_bytes: int = 0
    later_calls: int = 0

    @classmethod
    def stored(cls, inputs: Mapping[str, Any], gas_limit: int) -> Earning | None:
        """Of the numbers that decided about an intent; None of one that earns nothing."""
        revenue_wei = inputs.get("revenue_wei", inputs.get("earned_wei"))
        if revenue_wei is None:
            return None
        return cls(
            int(revenue_wei),
            int(inputs.get("estimated_gas", gas_limit)),
            int(inputs.get("later_gas", 0)),
            int(inputs.get("later_bytes", 0)),
            int(inputs.get("later_calls", 0)),
        )

    def left(self, part: int, whole: int) -> Earning:
        """Where only so much of what it was made for is still there to be earned: the transaction
        takes what it took, and the calls that follow are fewer."""
        if part >= whole:
            return self
        return Earning(
            self.revenue_wei * part // whole,
            self.gas,
            -(-self.later_gas * part // whole),
            -(-self.later_bytes * part // whole),
            -(-self.later_calls * part // whole),
        )

    def break_even_wei(self, calldata_bytes: int, data: DataPrice) -> int:
        """The price of a gas at which it costs what it earns, with the calls that follow."""
        data_wei = data.of(calldata_bytes + self.later_bytes, self.gas + self.later_gas)
        data_wei += data.fixed_wei * self.later_calls
        return max(self.revenue_wei - data_wei, 0) // (self.gas + self.later_gas)

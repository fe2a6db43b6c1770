"""Values that every reader of the chain shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Address = NewType("Address", bytes)
"""20 bytes."""
Hash32 = NewType("Hash32", bytes)
"""32 bytes."""
Wei = NewType("Wei", int)
"""An amount of the chain's native coin; never a float."""

ZERO_HASH = Hash32(bytes(32))


WEI_PER_GWEI = 10**9
HOUR_S = 3_600
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class BlockRef:
    """The block a read is pinned to. Two values with one hash are the same state of the chain."""

    number: int
    hash: Hash32
    timestamp_s: int
    base_fee_wei: Wei
    gas_limit: int


@dataclass(frozen=True, slots=True)
class Contracts:
    """Where one deployment's contracts live, and the block from which their logs matter."""

    chain_id: int
    start_block: int
    requests: Address
    results: Address
    registry: Address
    stakes: Address
    disputes: Address

    def addresses(self) -> tuple[Address, ...]:
        return (self.requests, self.results, self.registry, self.stakes, self.disputes)

"""A payment that is held back while its result can be disputed.

Layouts: contracts/src/interfaces/IDisputes.sol.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from eth_utils.address import to_checksum_address

from indexer.events import PaymentHeld
from indexer.types import Address, Hash32, Wei
from inferd.protocol.request import Commitment


class HoldStatus(IntEnum):
    NONE = 0
    HELD = 1
    DISPUTED = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class Hold:
    """The contract keeps its hash: whoever acts on it brings the rest along."""

    request_id: int
    commitment: Commitment
    digest: Hash32
    workers: tuple[Address, ...]
    owners: tuple[Address, ...]
    """Who is credited for each worker."""
    payment_wei: Wei
    """What the owners share."""
    poster: Address
    poster_wei: Wei
    """The poster's share of the fee."""
    bond_wei: Wei
    """What a dispute costs to open, and each worker who loses it."""
    disputable_until_s: int
    """The last block timestamp at which the result can be disputed."""

    @classmethod
    def from_event(cls, event: PaymentHeld) -> Hold:
        return cls(
            request_id=event.request_id,
            commitment=Commitment(event.commitment),
            digest=event.digest,
            workers=event.workers,
            owners=event.owners,
            payment_wei=event.payment_wei,
            poster=event.poster,
            poster_wei=event.poster_wei,
            bond_wei=event.bond_wei,
            disputable_until_s=event.disputable_until_s,
        )

    def as_abi(self) -> tuple[object, ...]:
        """The values in the order of the contract's struct."""
        return (
            self.request_id,
            self.commitment,
            self.digest,
            [to_checksum_address(worker) for worker in self.workers],
            [to_checksum_address(owner) for owner in self.owners],
            self.payment_wei,
            to_checksum_address(self.poster),
            self.poster_wei,
            self.bond_wei,
            self.disputable_until_s,
        )

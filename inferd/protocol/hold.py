"""A payment that is held back while its result can be disputed.

Layouts: contracts/src/interfaces/IDisputes.sol.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

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

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Hold:
        """Of a row of chain.hold."""
        return cls(
            request_id=row["request_id"],
            commitment=Commitment(row["commitment"]),
            digest=Hash32(row["digest"]),
            workers=tuple(map(Address, row["workers"])),
            owners=tuple(map(Address, row["owners"])),
            payment_wei=Wei(int(row["payment_wei"])),
            poster=Address(row["poster"]),
            poster_wei=Wei(int(row["poster_wei"])),
            bond_wei=Wei(int(row["bond_wei"])),
            disputable_until_s=row["disputable_until_s"],
        )

    def due_to(self, accounts: Collection[Address], *, also_wei: int = 0) -> Wei:
        """What these accounts get where the result stands: as the contract divides it, the first
        owner has what does not divide. `also_wei` is shared by the owners with the payment."""
        share_wei, rest_wei = divmod(self.payment_wei + also_wei, len(self.owners))
        due_wei = self.poster_wei if self.poster in accounts else 0
        due_wei += share_wei * sum(owner in accounts for owner in self.owners)
        if self.owners[0] in accounts:
            due_wei += rest_wei
        return Wei(due_wei)

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

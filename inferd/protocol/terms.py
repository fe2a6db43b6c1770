"""What a model asks for beyond one worker's signature, as the contracts see it.

Layouts: contracts/src/interfaces/IModelTerms.sol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eth_utils.address import to_canonical_address, to_checksum_address

from indexer.types import WEI_PER_GWEI, Address, Wei
from inferd.protocol.request import ModelId

MAX_QUORUM = 15
MAX_WINDOW_S = 2**32 - 1
"""The field's width; a deployment's own bound is lower."""
MAX_BOND_WEI = Wei((2**56 - 1) * WEI_PER_GWEI)

_NOBODY = Address(bytes(20))
_NO_BOND = Wei(0)


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """A model's terms; one that names nothing but the model has none."""

    model_id: ModelId
    verifier: Address = _NOBODY
    """Checks a proof of each result; the zero address = none."""
    dispute_window_s: int = 0
    bond_wei: Wei = _NO_BOND
    """Whole gwei."""
    min_quorum: int = 0

    def as_abi(self) -> tuple[object, ...]:
        """The values in the order of the contract's struct."""
        return (
            self.model_id,
            to_checksum_address(self.verifier),
            self.dispute_window_s,
            self.bond_wei // WEI_PER_GWEI,
            self.min_quorum,
        )

    @classmethod
    def from_abi(cls, model_id: ModelId, values: Sequence[Any]) -> ModelTerms:
        """The inverse of `as_abi`, for the model that was asked for: no terms name none."""
        _, verifier, window_s, bond_gwei, quorum = values
        bond_wei = Wei(bond_gwei * WEI_PER_GWEI)
        return cls(model_id, Address(to_canonical_address(verifier)), window_s, bond_wei, quorum)

"""Results as the contracts see them. Layouts: contracts/src/interfaces/IInferenceResults.sol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eth_utils.crypto import keccak

from indexer.types import Hash32
from inferd.protocol.request import Commitment
from inferd.protocol.typed_data import CompactSignature

ITEM_BYTES = 60
_MAX_ID = 2**64 - 1


@dataclass(frozen=True, slots=True)
class ResultItem:
    """What a worker signs: this request has this digest as its answer."""

    request_id: int
    commitment: Commitment
    digest: Hash32


@dataclass(frozen=True, slots=True)
class SignedItem:
    """One item of a signed group: what a worker once said about a request."""

    items: bytes
    """The whole group, packed."""
    signature: CompactSignature
    index: int
    """Which of the group's items, from 0."""

    def as_abi(self) -> tuple[object, ...]:
        """The values in the order of the contract's struct."""
        return self.items, (self.signature[:32], self.signature[32:]), self.index


def digest_of(output: bytes) -> Hash32:
    """The digest of an answer: keccak256 of its bytes."""
    return Hash32(keccak(output))


def pack_items(items: Iterable[ResultItem]) -> bytes:
    """id (8 bytes), commitment (20), digest (32), repeated.

    Raises ValueError where a field does not fit its width.
    """
    packed = bytearray()
    for item in items:
        if not 0 <= item.request_id <= _MAX_ID:
            raise ValueError(f"request id {item.request_id} does not fit 8 bytes")
        if len(item.commitment) != 20 or len(item.digest) != 32:
            raise ValueError("a commitment has 20 bytes and a digest 32")
        packed += item.request_id.to_bytes(8, "big") + item.commitment + item.digest
    return bytes(packed)


def unpack_items(packed: bytes) -> tuple[ResultItem, ...]:
    """The inverse of `pack_items`. Raises ValueError where the length is no multiple of 60."""
    if len(packed) % ITEM_BYTES:
        raise ValueError(f"{len(packed)} bytes are no whole number of {ITEM_BYTES}-byte items")
    return tuple(
        ResultItem(
            request_id=int.from_bytes(packed[at : at + 8], "big"),
            commitment=Commitment(packed[at + 8 : at + 28]),
            digest=Hash32(packed[at + 28 : at + 60]),
        )
        for at in range(0, len(packed), ITEM_BYTES)
    )

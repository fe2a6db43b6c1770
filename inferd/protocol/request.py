"""Requests as the contracts see them. Layouts: contracts/src/interfaces/IInferenceRequests.sol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NewType

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from indexer.types import Address, Hash32

Commitment = NewType("Commitment", bytes)
"""20 bytes over chain id, contract, id, requester and parameters."""
ModelId = NewType("ModelId", bytes)
"""keccak256 of a model's name in UTF-8; 32 bytes."""


class InputKind(IntEnum):
    INLINE = 0
    URI = 1


class Delivery(IntEnum):
    EVENT = 0
    STORED = 1
    CALLBACK = 2


@dataclass(frozen=True, slots=True)
class RequestParams:
    """What a requester asks for; field order and widths are the contract's."""

    model_id: ModelId
    max_tokens: int
    deadline_s: int
    memory_mb: int
    input: bytes
    callback_gas_limit: int = 0
    quorum: int = 1
    batchable: bool = True
    delivery: Delivery = Delivery.EVENT
    input_kind: InputKind = InputKind.INLINE

    def as_abi(self) -> tuple[object, ...]:
        """The values in the order of the contract's struct."""
        return (
            self.model_id,
            self.max_tokens,
            self.deadline_s,
            self.memory_mb,
            self.callback_gas_limit,
            self.quorum,
            self.batchable,
            int(self.delivery),
            int(self.input_kind),
            self.input,
        )


def model_id(name: str) -> ModelId:
    """The id a model's name has on chain."""
    return ModelId(keccak(text=name))


def params_hash(params: RequestParams) -> Hash32:
    """keccak256 of the ABI-encoded parameters, with the input replaced by its own keccak256."""
    values = (*params.as_abi()[:-1], keccak(params.input))
    types = (
        "bytes32",
        "uint32",
        "uint40",
        "uint32",
        "uint32",
        "uint8",
        "bool",
        "uint8",
        "uint8",
        "bytes32",
    )
    return Hash32(keccak(encode(types, values)))


def commitment(
    chain_id: int, requests: Address, request_id: int, requester: Address, hash_of_params: Hash32
) -> Commitment:
    """The 20 bytes that tie an id to its requester and parameters on one chain and contract."""
    encoded = encode(
        ("uint256", "address", "uint256", "address", "bytes32"),
        (chain_id, requests, request_id, requester, hash_of_params),
    )
    return Commitment(keccak(encoded)[:20])

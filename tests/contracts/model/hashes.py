"""The protocol's hashes, as its documents give them."""

from __future__ import annotations

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from indexer.types import Address as PlainAddress
from inferd.protocol.typed_data import domain_separator, group_digest
from tests.contracts.abi import Address
from tests.contracts.cast import CHAIN_ID
from tests.contracts.model.values import Params

_PARAMS = [
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
]
_ATTESTATION = keccak(
    text="Attestation(uint256 id,bytes32 modelId,bytes20 commitment,bytes32 digest)"
)


def params_hash(params: Params) -> bytes:
    return keccak(encode(_PARAMS, (*params[:-1], keccak(params.input))))


def commitment_of(requests: Address, id_: int, requester: Address, params: bytes) -> bytes:
    types = ("uint256", "address", "uint256", "address", "bytes32")
    return keccak(encode(types, (CHAIN_ID, requests, id_, requester, params)))[:20]


def group_digest_of(results: Address, items: bytes) -> bytes:
    return group_digest(domain_separator(CHAIN_ID, PlainAddress(results)), items)


def attestation_digest_of(
    verifier: Address, id_: int, model_id: bytes, commitment: bytes, digest: bytes
) -> bytes:
    types = ("bytes32", "uint256", "bytes32", "bytes20", "bytes32")
    struct = keccak(encode(types, (_ATTESTATION, id_, model_id, commitment, digest)))
    domain = domain_separator(CHAIN_ID, PlainAddress(verifier))
    return keccak(b"\x19\x01" + domain + struct)

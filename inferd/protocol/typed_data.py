"""The EIP-712 messages of the protocol and their EIP-2098 signatures.

Types, as the contracts hash them:
  EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)
                                                  with name "inferd" and version "1"
  ResultGroup(bytes items)                        verified by InferenceResults
  WorkerConsent(address owner,address signer)     verified by WorkerRegistry
  EncryptionKey(bytes32 key)                      verified by requesters, contract InferenceRequests

What operators and worker agents sign for each other has a domain of another name: see
inferd.protocol.worker_api_signing.
"""

from __future__ import annotations

from typing import NewType

import coincurve
from eth_abi.abi import encode
from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak

from indexer.types import Address, Hash32

CompactSignature = NewType("CompactSignature", bytes)
"""64 bytes, EIP-2098: r, then s with the recovery bit on top."""

_DOMAIN_TYPEHASH = keccak(
    text="EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
)
_VERSION_HASH = keccak(text="1")
_RESULT_GROUP_TYPEHASH = keccak(text="ResultGroup(bytes items)")
_WORKER_CONSENT_TYPEHASH = keccak(text="WorkerConsent(address owner,address signer)")
_ENCRYPTION_KEY_TYPEHASH = keccak(text="EncryptionKey(bytes32 key)")
_HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0


class BadSignature(ValueError):
    """The bytes are no valid signature."""


def domain_separator(chain_id: int, verifying_contract: Address, *, name: str = "inferd") -> Hash32:
    """EIP-712 `hashStruct(eip712Domain)`."""
    encoded = encode(
        ("bytes32", "bytes32", "bytes32", "uint256", "address"),
        (_DOMAIN_TYPEHASH, keccak(text=name), _VERSION_HASH, chain_id, verifying_contract),
    )
    return Hash32(keccak(encoded))


def group_digest(domain: Hash32, items: bytes) -> Hash32:
    """What a worker signs for a group of packed items."""
    return typed_digest(domain, keccak(_RESULT_GROUP_TYPEHASH + keccak(items)))


def consent_digest(domain: Hash32, owner: Address, signer: Address) -> Hash32:
    """What a worker's key signs to let `owner` register it."""
    encoded = encode(("bytes32", "address", "address"), (_WORKER_CONSENT_TYPEHASH, owner, signer))
    return typed_digest(domain, keccak(encoded))


def encryption_key_digest(domain: Hash32, key: bytes) -> Hash32:
    """What a poster signs to say that this key of X25519 is its own."""
    return typed_digest(domain, keccak(_ENCRYPTION_KEY_TYPEHASH + key))


class DigestSigner:
    """A private key with its public key at hand: to derive that takes longer than a signature."""

    def __init__(self, private_key: PrivateKey) -> None:
        self._key = coincurve.PrivateKey(private_key.to_bytes())

    def sign(self, digest: Hash32) -> CompactSignature:
        """Signs 32 bytes as they are; deterministic (RFC 6979)."""
        signature = self._key.sign_recoverable(digest, hasher=None)
        with_recovery = int.from_bytes(signature[32:64], "big") | signature[64] << 255
        return CompactSignature(signature[:32] + with_recovery.to_bytes(32, "big"))


def sign_digest(private_key: PrivateKey, digest: Hash32) -> CompactSignature:
    """As `DigestSigner.sign`, once."""
    return DigestSigner(private_key).sign(digest)


def compact(signature: bytes) -> CompactSignature:
    """A signature of 65 bytes (r, s, v), as wallets give them, in 64; one of 64 as it is.

    Raises BadSignature for any other length or v.
    """
    if len(signature) == 64:
        return CompactSignature(signature)
    if len(signature) != 65 or signature[64] not in {0, 1, 27, 28} or signature[32] >= 0x80:
        raise BadSignature("a signature has 64 bytes, or 65 with v = 27 or 28")
    parity = (signature[64] + 1) % 2 if signature[64] >= 27 else signature[64]
    return CompactSignature(
        signature[:32] + bytes([signature[32] | parity << 7]) + signature[33:64]
    )


def recover(digest: Hash32, signature: CompactSignature) -> Address:
    """Who signed. Raises BadSignature for what the contracts would refuse."""
    if len(signature) != 64:
        raise BadSignature(f"a compact signature has 64 bytes, not {len(signature)}")
    with_recovery = int.from_bytes(signature[32:], "big")
    v, s = with_recovery >> 255, with_recovery & (1 << 255) - 1
    if s > _HALF_ORDER:
        raise BadSignature("s is in the upper half of the curve's order")
    recoverable = signature[:32] + s.to_bytes(32, "big") + bytes([v])
    try:
        public_key = coincurve.PublicKey.from_signature_and_message(
            recoverable, digest, hasher=None
        )
    except Exception as error:  # of no narrower type where it is not on the curve
        raise BadSignature(str(error)) from error
    return Address(keccak(public_key.format(compressed=False)[1:])[12:])


def typed_digest(domain: Hash32, struct_hash: bytes) -> Hash32:
    """What is signed of a message of this domain: EIP-712 `encode`, hashed."""
    return Hash32(keccak(b"\x19\x01" + domain + struct_hash))

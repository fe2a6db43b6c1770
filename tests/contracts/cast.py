"""Who takes part, and what every deployment of these tests fixes."""

from __future__ import annotations

from dataclasses import dataclass

from eth_keys.datatypes import PrivateKey
from eth_utils.crypto import keccak

from indexer.types import Hash32
from inferd.protocol.typed_data import CompactSignature, sign_digest
from tests.contracts.abi import Address

GWEI = 10**9
ETHER = 10**18
CHAIN_ID = 31_337
START = 1_800_000_000

CANCEL_DELAY = 60
MIN_STAKE = ETHER + 1
UNBONDING_DELAY = 1_000
RULING_PERIOD = 300
REPORTER_BPS = 3_333
POSTER_BPS = (1_234, 0, 10_000)
"""One deployment each: the usual, and both ends."""

MAX_CALLBACK_GAS = 8_000_000
MAX_QUORUM = 15
MAX_FEE = (2**48 - 1) * GWEI
MAX_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Key:
    """A key that signs results or attestations."""

    private: PrivateKey
    address: Address

    def sign(self, digest: bytes) -> CompactSignature:
        return sign_digest(self.private, Hash32(digest))


def _key(name: str) -> Key:
    private = PrivateKey(keccak(text=name))
    return Key(private, Address(private.public_key.to_canonical_address()))


SIGNERS = sorted((_key(f"worker {i}") for i in range(5)), key=lambda key: key.address)
"""In ascending order, as a group wants them."""
ENCLAVES = [_key("enclave 0"), _key("enclave 1")]


def account(name: str) -> Address:
    return Address(keccak(text=name)[12:])


DEPLOYER, ADMIN, HEIR, ARBITER, TREASURY, OWNER_A, OWNER_B, ALICE, BOB, POSTER = PEOPLE = [
    account(name)
    for name in (
        *("deployer", "admin", "heir", "arbiter", "treasury"),
        *("owner a", "owner b", "alice", "bob", "poster"),
    )
]
MODELS = [keccak(text=name) for name in ("plain", "proven", "disputable")]
MODELS.append(b"\xff" + MODELS[2][1:])
"""The last two have all but their first byte in common."""

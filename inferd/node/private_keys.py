"""The poster's word for the key that private inputs are encrypted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eth_keys.datatypes import PrivateKey

from indexer.types import Address, Contracts
from inferd.chain.keys import KeySource, open_account
from inferd.protocol.private import DecryptionKey, EncryptionKey
from inferd.protocol.typed_data import (
    CompactSignature,
    domain_separator,
    encryption_key_digest,
    sign_digest,
)


@dataclass(frozen=True, slots=True)
class KeyStatement:
    """What requesters are told: which key, and whose."""

    key: EncryptionKey
    poster: Address
    signature: CompactSignature | None
    """The poster's; None where a remote signer has its key."""


def statement_of(
    keys: Sequence[DecryptionKey], poster: KeySource, address: Address, contracts: Contracts
) -> KeyStatement:
    """Raises BadKey."""
    key = keys[0].public
    if poster.remote_signer_url is not None:
        return KeyStatement(key, address, None)
    account = open_account(poster, contracts.chain_id, use="poster")
    domain = domain_separator(contracts.chain_id, contracts.requests)
    signature = sign_digest(PrivateKey(bytes(account.key)), encryption_key_digest(domain, key))
    return KeyStatement(key, address, signature)

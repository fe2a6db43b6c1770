"""Who signs transactions. Where a key comes from: inferd.chain.keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from eth_account.signers.local import LocalAccount
from eth_utils.address import to_checksum_address

from indexer.errors import TemporaryError
from indexer.types import Address, Hash32


class SignerTrouble(TemporaryError):
    """Nothing can be signed now. Whoever asked has signed nothing, and asks again later."""

    code: ClassVar[str] = "signer_unavailable"


@dataclass(frozen=True, slots=True)
class SignedTx:
    """The bytes to send, and the hash they will have."""

    raw: bytes
    hash: Hash32


class TransactionSigner(Protocol):
    """Signs for one address. Asynchronous, since a signer may be on another machine."""

    @property
    def address(self) -> Address: ...

    async def sign(self, transaction: Mapping[str, Any]) -> SignedTx:
        """Signs a transaction of type 2, or of type 0 where it has a gas price; in web3's field
        names. Raises SignerTrouble."""
        ...


class LocalSigner:
    """Signs with a key in this process, which is in no text of it."""

    __slots__ = ("_account", "_address")

    def __init__(self, account: LocalAccount) -> None:
        self._account = account
        self._address = Address(bytes.fromhex(account.address.removeprefix("0x")))

    @property
    def address(self) -> Address:
        return self._address

    async def sign(self, transaction: Mapping[str, Any]) -> SignedTx:
        signed = self._account.sign_transaction(dict(transaction))
        return SignedTx(bytes(signed.raw_transaction), Hash32(bytes(signed.hash)))

    def __repr__(self) -> str:
        return f"LocalSigner({to_checksum_address(self._address)})"

"""Who signs transactions. Where a key comes from: inferd.chain.keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from eth_utils.address import to_checksum_address

from indexer.errors import TemporaryError
from indexer.types import Address, Hash32
from inferd.chain.keys import KeySource, address_of, open_account, signer_tls

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount


class SignerTrouble(TemporaryError):
    """Nothing can be signed now. Whoever asked has signed nothing, and asks again later."""

    code: ClassVar[str] = "signer_unavailable"


@dataclass(frozen=True, slots=True)
class SignedTx:
    """The bytes to send, and the hash they will have."""

    raw: bytes
    hash: Hash32


@runtime_checkable
class TransactionSigner(Protocol):
    """Signs for one address. Asynchronous, since a signer may be on another machine."""

    @property
    def address(self) -> Address: ...

    async def sign(self, transaction: Mapping[str, Any]) -> SignedTx:
        """Signs a transaction of type 2, or of type 0 where it has a gas price; in web3's field
        names, without `to` where it creates a contract. Raises SignerTrouble."""
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


def signer_of(key: LocalAccount | TransactionSigner) -> TransactionSigner:
    """Whoever signs already, or a key of this process as one."""
    return key if isinstance(key, TransactionSigner) else LocalSigner(key)


@asynccontextmanager
async def opened_signer(
    source: KeySource, chain_id: int, *, use: str
) -> AsyncIterator[TransactionSigner]:
    """Who signs for `source`; `use` names it in errors ("poster", "deployer").

    Raises BadKey. A remote signer that is away is no error yet: it is asked by each signature.
    """
    if source.remote_signer_url is None:
        yield LocalSigner(open_account(source, chain_id, use=use))
        return
    from inferd.chain.remote_signer import RemoteSigner  # noqa: PLC0415 - a second to load

    address = address_of(source, chain_id, use=use)
    tls = signer_tls(source)
    remote = RemoteSigner(source.remote_signer_url.get_secret_value(), address, tls=tls)
    try:
        await remote.check()
        yield remote
    finally:
        await remote.close()

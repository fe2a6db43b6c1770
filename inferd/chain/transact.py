"""Transactions from one key, each waited for: what a person at a command line needs.

The daemon's own posts go through the settlement outbox instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from eth_utils.address import to_checksum_address

from indexer.errors import OperatorError, RpcUnreachable, TemporaryError
from indexer.rpc import Receipt, Rpc, RpcError
from indexer.rpc.market import suggested_tip
from indexer.rpc.refusals import SendError, classify
from indexer.types import WEI_PER_GWEI, Address, Hash32, Wei
from inferd.chain.signers import TransactionSigner, signer_of
from inferd.protocol.fee_fields import fee_fields
from inferd.protocol.reverts import decode_revert, revert_advice

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_GAS_HEADROOM = 1.2
_MOST_TIP_WEI = 10 * WEI_PER_GWEI
"""Per gas, above which an endpoint's suggestion is held against what recent blocks took."""
_POLL_S = 0.1
_NONCE_TAKEN_S = 15.0  # how long a read node may lag behind the one that took the transaction


class TransactionRefused(OperatorError):
    """The chain would not take, or did not execute, a transaction."""

    code: ClassVar[str] = "transaction_refused"


class InsufficientFunds(OperatorError):
    """The sender cannot pay value and gas."""

    code: ClassVar[str] = "insufficient_funds"


class TransactionPending(TemporaryError):
    """A sent transaction has not been mined in the time given."""

    code: ClassVar[str] = "transaction_pending"


@dataclass(frozen=True, slots=True)
class Sender:
    """A key with the chain it sends to. Sends at the same time get nonces one after another."""

    rpc: Rpc
    key: LocalAccount | TransactionSigner
    chain_id: int
    _nonce: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False, compare=False)
    _under_way: set[int] = field(default_factory=set, repr=False, compare=False)
    """Nonces that were taken and not seen mined: the endpoint that is read may know nothing of
    them, as it lags or is not the one that took them."""

    @property
    def address(self) -> Address:
        return signer_of(self.key).address

    async def send(
        self,
        to: Address | None,
        data: bytes,
        *,
        value_wei: Wei | int = 0,
        timeout_s: float = 120.0,
    ) -> Receipt:
        """Signs, sends and waits for the receipt; `to=None` creates a contract.

        Raises TransactionRefused, InsufficientFunds, TransactionPending, SignerTrouble,
        RpcUnreachable.
        """
        end_s = time.monotonic() + timeout_s
        async with self._nonce:
            transaction = await self._fill(to, data, value_wei)
            signed = await signer_of(self.key).sign(transaction)
            tx_hash = signed.hash
            await self._until_taken(tx_hash, signed.raw, end_s)
            self._under_way.add(transaction["nonce"])
        try:
            receipt = await self._until_mined(tx_hash, end_s)
        finally:
            self._under_way.discard(transaction["nonce"])
        if not receipt.succeeded:
            raise TransactionRefused(
                f"transaction 0x{tx_hash.hex()} was mined and reverted",
                help_text="the state changed between estimate and execution; look at it, retry",
            )
        return receipt

    async def _until_taken(self, tx_hash: Hash32, raw: bytes, end_s: float) -> None:
        """Sends until the endpoint has the transaction.

        An endpoint that fails while it takes a transaction may have taken it: from then on the
        only safe thing is to send the same bytes again and to look for their receipt, whatever an
        endpoint says. "Nonce too low" may be about these very bytes, mined and not visible yet.
        """
        unanswered = False
        nonce_taken_since_s: float | None = None
        while True:
            try:
                await self.rpc.send_raw_transaction(raw)
                return
            except RpcUnreachable:
                unanswered = True
            except RpcError as error:
                meaning = classify(error.message)
                if meaning is SendError.ALREADY_KNOWN or await self._is_mined(tx_hash):
                    return
                if meaning is SendError.NONCE_TOO_LOW:
                    nonce_taken_since_s = nonce_taken_since_s or time.monotonic()
                    _give_up_on_nonce(tx_hash, nonce_taken_since_s)
                elif not unanswered:
                    raise refusal(error, tx_hash) from error
            await _pause(end_s, tx_hash, "may have been sent and was")

    async def _next_nonce(self) -> int:
        shown = await self.rpc.nonce(self.address, "pending")
        return max(shown, *(nonce + 1 for nonce in self._under_way), 0)

    async def _is_mined(self, tx_hash: Hash32) -> bool:
        with contextlib.suppress(RpcUnreachable, RpcError):
            return await self.rpc.receipt(tx_hash) is not None
        return False

    async def _until_mined(self, tx_hash: Hash32, end_s: float) -> Receipt:
        while True:
            with contextlib.suppress(RpcUnreachable, RpcError):
                receipt = await self.rpc.receipt(tx_hash)
                if receipt is not None:
                    return receipt
            await _pause(end_s, tx_hash, "was sent and is")

    async def _fill(self, to: Address | None, data: bytes, value_wei: Wei | int) -> dict[str, Any]:
        head = await self.rpc.header("latest")
        dynamic = head is None or head.has_base_fee
        base_fee_wei = head.base_fee_wei if head else 0
        if dynamic:
            tip_wei = await suggested_tip(self.rpc, _MOST_TIP_WEI)
        else:
            tip_wei = await self.rpc.gas_price()
        try:
            gas = await self.rpc.estimate_gas(self.address, to, data, value_wei)
        except RpcError as error:
            raise refusal(error) from error
        gas_limit = int(gas * _GAS_HEADROOM)
        max_fee_wei = 2 * base_fee_wei + tip_wei
        balance_wei = await self.rpc.balance(self.address)
        if balance_wei < value_wei + gas_limit * max_fee_wei:
            raise InsufficientFunds(
                f"{to_checksum_address(self.address)} holds {balance_wei} wei, and this needs"
                f" {value_wei + gas_limit * max_fee_wei}",
                help_text="fund the account, or lower the fee",
            )
        transaction: dict[str, Any] = {
            "chainId": self.chain_id,
            "nonce": await self._next_nonce(),
            "gas": gas_limit,
            **fee_fields(max_fee_wei, tip_wei, dynamic=dynamic),
            "value": value_wei,
            "data": data,
        }
        if to is not None:
            transaction["to"] = to_checksum_address(to)
        return transaction


async def _pause(end_s: float, tx_hash: Hash32, what: str) -> None:
    """Waits for the next try. Raises TransactionPending where there is no time for one."""
    if time.monotonic() >= end_s:
        raise TransactionPending(
            f"transaction 0x{tx_hash.hex()} {what} not seen mined in the time given",
            help_text="it may still be mined: look it up before you send another",
        )
    await asyncio.sleep(_POLL_S)


def _give_up_on_nonce(tx_hash: Hash32, since_s: float) -> None:
    if time.monotonic() - since_s > _NONCE_TAKEN_S:
        raise TransactionPending(
            f"the nonce of transaction 0x{tx_hash.hex()} is used: by itself, not visible yet, or by"
            " another transaction of the same key",
            help_text="look it up before you send another",
        )


def refusal(error: RpcError, tx_hash: Hash32 | None = None) -> OperatorError:
    """An endpoint's refusal as an error with something to do about it.

    `tx_hash` where the transaction itself was refused, and not the call that tried it out.
    """
    text = error.message.lower()
    if "insufficient funds" in text or "gas required exceeds allowance" in text:
        return InsufficientFunds(
            "the account cannot pay for this transaction", help_text="fund it, or lower the fee"
        )
    if tx_hash is not None:
        return TransactionRefused(
            f"the endpoint refuses transaction 0x{tx_hash.hex()}: {error.message}",
            help_text="look it up before you send another: an earlier endpoint may have taken it",
        )
    return TransactionRefused(
        f"the chain refuses the transaction: {describe_revert(error)}",
        help_text=revert_advice(error.data) or "correct what it names; nothing was sent",
    )


def describe_revert(error: RpcError) -> str:
    """A contract's custom error by name and arguments where it is one of ours."""
    return decode_revert(error.data) or error.message

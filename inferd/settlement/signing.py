"""Signs and stores transactions, of which nothing is sent yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eth_utils.address import to_checksum_address

from indexer.types import BlockRef
from inferd.chain.signers import SignedTx, SignerTrouble, TransactionSigner
from inferd.protocol.fee_fields import fee_fields
from inferd.settlement.chain import ChainRpc, Sight
from inferd.settlement.data_fee import DataPrice
from inferd.settlement.fees import Fees
from inferd.settlement.outbox import Outbox
from inferd.settlement.records import Intent, Payload

_MOST_REST_BLOCKS = 8


class Signing:
    def __init__(
        self, rpc: ChainRpc, outbox: Outbox, signer: TransactionSigner, chain_id: int
    ) -> None:
        self._rpc = rpc
        self._outbox = outbox
        self._signer = signer
        self._chain_id = chain_id
        self._failures = 0
        self._rests_until = 0
        self._trouble: str | None = None

    def rests(self, head: BlockRef) -> str | None:
        """Why nothing new is given to it, where it has not signed of late: for a block, and twice
        as many each time, up to 8. What it signs meanwhile for what is under way ends that."""
        return self._trouble if head.number < self._rests_until else None

    async def first(
        self, intent: Intent, fees: Fees, sight: Sight, *, hole: int | None = None
    ) -> Intent:
        """Gives a planned intent its nonce and first transaction.

        The nonce is the lowest never reserved, unless `hole` names one to fill.
        Raises RPC_TROUBLE, NotPlanned, SignerTrouble.
        """
        latest = await self._rpc.nonce(self._signer.address)

        async def sign(nonce: int) -> SignedTx:
            return await self._signer.sign(self._transaction(intent.payload, nonce, fees))

        with self._watched(sight):
            await self._outbox.sign_first(
                intent.id,
                latest,
                fees,
                sign,
                gas_limit=intent.gas_limit,
                data_fee_wei=_reserve(sight.data, intent.payload),
                value_wei=intent.value_wei,
                hole=hole,
            )
        return await self._outbox.load(intent.id)

    async def replacement(self, intent: Intent, payload: Payload, fees: Fees, sight: Sight) -> None:
        """Another transaction of the same nonce. Raises SignerTrouble."""
        nonce = intent.attempts[-1].nonce
        with self._watched(sight):
            signed = await self._signer.sign(self._transaction(payload, nonce, fees))
        await self._outbox.add_replacement(
            intent.id,
            nonce,
            signed,
            fees,
            payload.gas_limit,
            data_fee_wei=_reserve(sight.data, payload),
            value_wei=payload.value_wei,
        )

    @contextmanager
    def _watched(self, sight: Sight) -> Iterator[None]:
        try:
            yield
        except SignerTrouble as error:
            rest = min(2**self._failures, _MOST_REST_BLOCKS)
            self._failures += 1
            self._rests_until, self._trouble = sight.head.number + rest, error.message
            raise
        self._failures, self._rests_until = 0, 0

    def _transaction(self, payload: Payload, nonce: int, fees: Fees) -> dict[str, Any]:
        return {
            "chainId": self._chain_id,
            "nonce": nonce,
            "to": to_checksum_address(payload.target),
            "value": payload.value_wei,
            "data": payload.calldata,
            "gas": payload.gas_limit,
            **fee_fields(fees.max_fee_wei, fees.priority_fee_wei, dynamic=fees.dynamic),
        }


def _reserve(data: DataPrice, payload: Payload) -> int:
    return data.reserve(len(payload.calldata), payload.gas_limit)

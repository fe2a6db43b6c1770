"""Signs and stores transactions, of which nothing is sent yet."""

from __future__ import annotations

from typing import Any

from eth_utils.address import to_checksum_address

from inferd.chain.signers import SignedTx, TransactionSigner
from inferd.protocol.fee_fields import fee_fields
from inferd.settlement.chain import ChainRpc
from inferd.settlement.data_fee import DataPrice
from inferd.settlement.fees import Fees
from inferd.settlement.outbox import Outbox
from inferd.settlement.records import Intent, Payload


class Signing:
    def __init__(
        self, rpc: ChainRpc, outbox: Outbox, signer: TransactionSigner, chain_id: int
    ) -> None:
        self._rpc = rpc
        self._outbox = outbox
        self._signer = signer
        self._chain_id = chain_id

    async def first(
        self, intent: Intent, fees: Fees, data: DataPrice, *, hole: int | None = None
    ) -> Intent:
        """Gives a planned intent its nonce and first transaction.

        The nonce is the lowest never reserved, unless `hole` names one to fill.
        Raises RPC_TROUBLE, NotPlanned, SignerTrouble.
        """
        latest = await self._rpc.nonce(self._signer.address)

        async def sign(nonce: int) -> SignedTx:
            return await self._signer.sign(self._transaction(intent.payload, nonce, fees))

        await self._outbox.sign_first(
            intent.id,
            latest,
            fees,
            sign,
            gas_limit=intent.gas_limit,
            data_fee_wei=_reserve(data, intent.payload),
            hole=hole,
        )
        return await self._outbox.load(intent.id)

    async def replacement(
        self, intent: Intent, payload: Payload, fees: Fees, data: DataPrice
    ) -> None:
        """Another transaction of the same nonce. Raises SignerTrouble."""
        nonce = intent.attempts[-1].nonce
        signed = await self._signer.sign(self._transaction(payload, nonce, fees))
        await self._outbox.add_replacement(
            intent.id,
            nonce,
            signed,
            fees,
            payload.gas_limit,
            data_fee_wei=_reserve(data, payload),
        )

    def _transaction(self, payload: Payload, nonce: int, fees: Fees) -> dict[str, Any]:
        return {
            "chainId": self._chain_id,
            "nonce": nonce,
            "to": to_checksum_address(payload.target),
            "value": 0,
            "data": payload.calldata,
            "gas": payload.gas_limit,
            **fee_fields(fees.max_fee_wei, fees.priority_fee_wei, dynamic=fees.dynamic),
        }


def _reserve(data: DataPrice, payload: Payload) -> int:
    return data.reserve(len(payload.calldata), payload.gas_limit)

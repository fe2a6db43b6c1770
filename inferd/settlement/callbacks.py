"""Fulfilled requests whose consumer contract has not been called yet, and what calling it takes.

What is owed is read from the chain's tables, so a reorganisation that takes a delivery away, or the
settlement before it, needs nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from indexer.database import Pool
from indexer.types import Address, Hash32
from inferd.protocol import calls
from inferd.protocol.request import Commitment, Delivery, RequestParams
from inferd.settlement.params import params_of
from inferd.settlement.receipts import FAULTS
from inferd.settlement.records import Item

_SETTLING_GAS = 3_000
"""What a digest or a debt takes more in a post than an event: its word is written and not cleared.
Measured by `inferd bench gas`."""
_FIXED_GAS = 25_000
"""Of a transaction that delivers."""
_CLAIM_GAS = 20_000
"""Of one delivery besides the consumer's gas: two calls of the request contract and an event."""
_CALLDATA_GAS_PER_BYTE = 48
"""40 of the calldata floor (EIP-7623), and the copies that are hashed and handed over."""
_PARAMS_BYTES = 640


@dataclass(frozen=True, slots=True)
class Callback:
    """One output for the contract that asked for it."""

    request_id: int
    commitment: Commitment
    requester: Address
    params: RequestParams
    digest: Hash32
    output: bytes
    suspect: bool
    """It was in a transaction that failed, maybe because of it."""

    @property
    def gas(self) -> int:
        """What its delivery takes at most, beside the transaction's own."""
        calldata_bytes = _PARAMS_BYTES + len(self.params.input) + len(self.output)
        return _call_gas(self.params.callback_gas_limit) + _CALLDATA_GAS_PER_BYTE * calldata_bytes

    def outbox_item(self) -> Item:
        return Item(self.request_id, self.commitment, None)


def delivery_gas(
    delivery: Delivery, callback_gas_limit: int, input_bytes: int, max_tokens: int
) -> int:
    """What a request's delivery takes beyond a share of a post; of a callback, in a transaction of
    its own. A token is taken for eight bytes of output."""
    if delivery is Delivery.EVENT:
        return 0
    if delivery is Delivery.STORED:
        return _SETTLING_GAS
    calldata_bytes = _PARAMS_BYTES + input_bytes + 8 * max_tokens
    return (
        _SETTLING_GAS
        + _FIXED_GAS
        + _call_gas(callback_gas_limit)
        + _CALLDATA_GAS_PER_BYTE * calldata_bytes
    )


def _call_gas(callback_gas_limit: int) -> int:
    # A call gets at most 63/64 of the gas there is (EIP-150).
    return _CLAIM_GAS + callback_gas_limit + callback_gas_limit // 63


def fitting(callbacks: Sequence[Callback], max_gas: int) -> list[Callback]:
    """The longest run from the first on that one transaction of `max_gas` can hold. Pure.

    One that may have spoilt a transaction travels alone, after the others.
    """
    trusted = [callback for callback in callbacks if not callback.suspect]
    chosen: list[Callback] = []
    gas = _FIXED_GAS
    for callback in trusted or callbacks[:1]:
        gas += callback.gas
        if gas > max_gas:
            break
        chosen.append(callback)
    return chosen


async def load_callbacks(pool: Pool, limit: int) -> list[Callback]:
    """Those that are owed, whose output is here, and that nobody has tried yet; oldest first.

    One that failed is left to whoever wants it called again: its gas was paid for once.
    """
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT r.*, o.output, EXISTS (SELECT 1 FROM node.tx_item"
            "     WHERE request_id = r.id AND commitment = r.commitment AND worker IS NULL"
            "     AND outcome = ANY($3::text[])) AS suspect"
            " FROM chain.request r CROSS JOIN LATERAL (SELECT output FROM node.result n"
            "     WHERE n.request_id = r.id AND n.commitment = r.commitment"
            "     AND n.digest = r.digest LIMIT 1) o"
            " WHERE r.status = 'fulfilled' AND r.delivery = $2"
            " AND r.callback_delivered_block IS NULL AND r.callback_failures = 0"
            " AND NOT EXISTS (SELECT 1 FROM node.tx_item i WHERE i.request_id = r.id"
            "     AND i.commitment = r.commitment"
            "     AND (i.live OR (i.outcome = 'abandoned' AND i.worker IS NULL)))"
            " ORDER BY r.settled_block, r.id LIMIT $1",
            limit,
            Delivery.CALLBACK,
            list(FAULTS),
        )
    return [_callback(row) for row in rows]


def deliver_calldata(callbacks: Sequence[Callback]) -> bytes:
    """Calldata of `deliver`."""
    return calls.deliver([(c.request_id, c.requester, c.params, c.output) for c in callbacks])


def _callback(row: Any) -> Callback:
    return Callback(
        request_id=row["id"],
        commitment=row["commitment"],
        requester=row["requester"],
        params=params_of(row),
        digest=row["digest"],
        output=row["output"],
        suspect=row["suspect"],
    )

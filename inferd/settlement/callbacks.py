"""Fulfilled requests whose consumer contract has not been called yet.

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
from inferd.protocol.request import Commitment, Delivery, InputKind, ModelId, RequestParams
from inferd.settlement.batch import revenue_of
from inferd.settlement.costs import TRANSACTION_GAS, claim_gas, claims_fit, fits_sql
from inferd.settlement.receipts import FAULTS
from inferd.settlement.records import Item
from inferd.settlement.settings import SettlementSettings

_MOST_COUNTED = 10_000

# The delivery is a constant here, as in the index `request_callback_owed`.
_OWED = f"""
    FROM chain.request r CROSS JOIN LATERAL (
        SELECT output FROM node.result n WHERE n.request_id = r.id AND n.commitment = r.commitment
            AND n.digest = r.digest LIMIT 1) o
    LEFT JOIN chain.worker paid ON paid.signer = r.worker
    WHERE r.status = 'fulfilled' AND r.delivery = {Delivery.CALLBACK:d}
    AND r.callback_delivered_block IS NULL AND r.callback_failures = 0
    AND NOT EXISTS (SELECT FROM node.tx_item i
        WHERE i.request_id = r.id AND i.commitment = r.commitment
            AND (i.live OR (i.outcome = 'abandoned' AND i.worker IS NULL)))
"""  # noqa: S608 - constants
_FITS = fits_sql("r.callback_gas_limit", "length(r.input) + length(o.output)", "$1")


@dataclass(frozen=True, slots=True)
class Callback:
    """One output for the contract that asked for it."""

    request_id: int
    commitment: Commitment
    requester: Address
    params: RequestParams
    digest: Hash32
    output: bytes
    revenue_wei: int
    """What settling it earned, which its delivery may cost."""
    suspect: bool
    """It was in a transaction that failed, maybe because of it."""

    @property
    def data_bytes(self) -> int:
        return len(self.params.input) + len(self.output)

    @property
    def gas(self) -> int:
        """What its delivery takes at most, besides the transaction's own."""
        return claim_gas(self.params.callback_gas_limit, self.data_bytes)

    def outbox_item(self) -> Item:
        return Item(self.request_id, self.commitment, None)


def fitting(callbacks: Sequence[Callback], max_gas: int) -> list[Callback]:
    """Those that one transaction of `max_gas` can hold, the first ones first. Pure.

    One that may have spoilt a transaction travels alone, after the others.
    """
    trusted = [callback for callback in callbacks if not callback.suspect]
    return _filled(trusted, max_gas) or _filled(callbacks, max_gas)[:1]


def worst_gas(callbacks: Sequence[Callback]) -> int:
    """What delivering them takes where every consumer burns all that it asked for. An estimate is
    no measure of that: a consumer can tell it from a transaction."""
    return TRANSACTION_GAS + sum(callback.gas for callback in callbacks)


async def load_callbacks(
    pool: Pool, max_gas: int, settings: SettlementSettings, limit: int
) -> list[Callback]:
    """Those that are owed, whose output is here and fits into a transaction, and that nobody has
    tried yet; oldest first.

    One that failed is left to whoever wants it called again: its gas was paid for once.
    """
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT r.*, o.output, paid.owner, EXISTS (SELECT FROM node.tx_item"
            "     WHERE request_id = r.id AND commitment = r.commitment AND worker IS NULL"
            f"     AND outcome = ANY($3::text[])) AS suspect {_OWED} AND {_FITS}"
            " ORDER BY r.settled_block, r.id LIMIT $2",
            max_gas,
            limit,
            list(FAULTS),
        )
    return [_callback(row, settings) for row in rows]


async def count_too_large(pool: Pool, max_gas: int) -> int:
    """Those that no transaction of this node can hold; no more than ten thousand are counted."""
    async with pool.acquire() as connection:
        number: int = await connection.fetchval(
            f"SELECT count(*) FROM (SELECT 1 {_OWED} AND NOT ({_FITS}) LIMIT $2) AS large",  # noqa: S608 - constants
            max_gas,
            _MOST_COUNTED,
        )
    return number


def deliver_calldata(callbacks: Sequence[Callback]) -> bytes:
    """Calldata of `deliver`."""
    return calls.deliver([(c.request_id, c.requester, c.params, c.output) for c in callbacks])


def _filled(callbacks: Sequence[Callback], max_gas: int) -> list[Callback]:
    chosen: list[Callback] = []
    gas = data_bytes = 0
    for callback in callbacks:
        more_gas, more_bytes = gas + callback.gas, data_bytes + callback.data_bytes
        if claims_fit(more_gas, len(chosen) + 1, more_bytes, max_gas):
            chosen.append(callback)
            gas, data_bytes = more_gas, more_bytes
    return chosen


def _callback(row: Any, settings: SettlementSettings) -> Callback:
    return Callback(
        request_id=row["id"],
        commitment=row["commitment"],
        requester=row["requester"],
        params=RequestParams(
            model_id=ModelId(row["model_id"]),
            max_tokens=row["max_tokens"],
            # The commitment binds the deadline as submitted, whatever a cancellation made of it.
            deadline_s=row["submitted_deadline_s"],
            memory_mb=row["memory_mb"],
            input=row["input"],
            callback_gas_limit=row["callback_gas_limit"],
            quorum=row["quorum"],
            batchable=row["batchable"],
            delivery=Delivery(row["delivery"]),
            input_kind=InputKind(row["input_kind"]),
        ),
        digest=row["digest"],
        output=row["output"],
        revenue_wei=revenue_of(row["fee_wei"], row["owner"], settings),
        suspect=row["suspect"],
    )

"""Expired requests whose fee nobody has given back yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexer.database import Pool
from indexer.types import Address, BlockRef, Hash32
from inferd.protocol import calls
from inferd.protocol.request import (
    Commitment,
    Delivery,
    InputKind,
    ModelId,
    RequestParams,
    params_hash,
)
from inferd.settlement.receipts import FAULTS
from inferd.settlement.records import Item


@dataclass(frozen=True, slots=True)
class Claim:
    """What opens one request's commitment for its refund."""

    request_id: int
    commitment: Commitment
    requester: Address
    params_hash: Hash32
    suspect: bool
    """It was in a transaction that failed, maybe because of it."""

    def outbox_item(self) -> Item:
        return Item(self.request_id, self.commitment, None)


async def load_claims(pool: Pool, head: BlockRef, limit: int) -> list[Claim]:
    """Longest expired first; they stay expired, as the time of blocks does not go back."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT r.*, EXISTS (SELECT 1 FROM node.tx_item WHERE request_id = r.id"
            "     AND commitment = r.commitment AND worker IS NULL"
            "     AND outcome = ANY($3::text[])) AS suspect"
            " FROM chain.request r WHERE r.status = 'pending' AND r.deadline_s < $1"
            " AND NOT EXISTS (SELECT 1 FROM node.tx_item i WHERE i.request_id = r.id"
            "     AND i.commitment = r.commitment"
            "     AND (i.live OR (i.outcome = 'abandoned' AND i.worker IS NULL)))"
            " ORDER BY r.deadline_s, r.id LIMIT $2",
            head.timestamp_s,
            limit,
            list(FAULTS),
        )
    claims = []
    for row in rows:
        params = RequestParams(
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
        )
        claims.append(
            Claim(
                row["id"], row["commitment"], row["requester"], params_hash(params), row["suspect"]
            )
        )
    return claims


def refund_calldata(claims: Sequence[Claim]) -> bytes:
    """Calldata of `refund`."""
    return calls.refund([(c.request_id, c.requester, c.params_hash) for c in claims])

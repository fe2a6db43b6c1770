"""Watches closed intents until the blocks that closed them are final.

A reorganisation can take a transaction away whose intent was closed, put it into another block,
perhaps to another end, or bring one that was given up. Then the intent is opened again. Once its
block is final, that cannot be, and it is never looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import structlog

from indexer.database import Pool
from indexer.rpc import RpcError
from indexer.rpc.wire import quantity
from indexer.types import Address
from inferd.settlement.chain import ChainRpc, Sight, canonical_hash
from inferd.settlement.intents import with_parts
from inferd.settlement.outbox import Outbox
from inferd.settlement.records import Intent
from inferd.settlement.state import (
    CLOSED_SQL,
    Act,
    Observation,
    ReceiptView,
    next_action,
)

_log = structlog.get_logger("settlement")
_AT_ONCE = 100
"""Intents of one step; the next one looks at the others."""
_NONCE_LIMIT = 2**63

# What is in its block and not final needs nothing. Of a block whose header is not stored, as it is
# above the cursor or was forgotten while nobody watched, nothing is known here.
TO_LOOK_AT = f"""
    SELECT i.*, c.finalized_number, mined.block_number, mined.hash AS tx_hash, mined.moved
    FROM node.tx_intent i CROSS JOIN chain.cursor c
    LEFT JOIN LATERAL (
        SELECT a.hash, a.mined_block AS block_number,
               b.hash <> a.mined_block_hash AS moved
        FROM node.tx_attempt a LEFT JOIN chain.block b ON b.number = a.mined_block
        WHERE a.intent_id = i.id AND a.state = 'mined' LIMIT 1
    ) mined ON true
    WHERE i.{CLOSED_SQL}
      AND (mined.hash IS NULL OR mined.moved OR mined.block_number <= c.finalized_number)
    ORDER BY i.id LIMIT {_AT_ONCE}
"""  # noqa: S608 - constants
"""SQL: the closed intents that a step has something to decide about."""


class Watcher:
    """Of all senders: what a former key signed can come back, too."""

    def __init__(self, rpc: ChainRpc, pool: Pool, outbox: Outbox) -> None:
        self._rpc = rpc
        self._pool = pool
        self._outbox = outbox

    async def watch(self, sight: Sight) -> None:
        """Opens again what came back, and lets go of what is final. Raises RPC_TROUBLE."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(TO_LOOK_AT)
            intents = await with_parts(connection, rows)
        final_nonces: dict[Address, int] = {}
        final: list[int] = []
        for row, intent in zip(rows, intents, strict=True):
            seen = await self._observation(row, intent, sight, final_nonces)
            act = next_action(intent.state, [a.view() for a in intent.attempts], seen).act
            if act is Act.FINALISE:
                final.append(intent.id)
            elif act is Act.REOPEN and await self._outbox.reopen(intent.id):
                _log.warning(
                    "closed_transaction_left_its_block",
                    intent_id=intent.id,
                    nonce=intent.nonce,
                    trace_ids=intent.trace_ids,
                )
        if final:
            await self._outbox.finalise(final)

    async def _observation(
        self,
        row: asyncpg.Record,
        intent: Intent,
        sight: Sight,
        final_nonces: dict[Address, int],
    ) -> Observation:
        final_number: int = row["finalized_number"]
        receipts: dict[bytes, ReceiptView] = {}
        final_nonce = 0
        if row["tx_hash"] is not None and row["moved"] is not None:
            if not row["moved"]:
                receipts[row["tx_hash"]] = ReceiptView(row["block_number"], b"", True)
        elif intent.attempts:
            receipts = await self._receipts(intent, sight)
            sender: Address = row["sender"]
            if not receipts and sender not in final_nonces:
                final_nonces[sender] = await self._nonce_at(sender, final_number)
            final_nonce = final_nonces.get(sender, 0)
        return Observation(
            head_number=sight.head.number,
            confirmations=0,
            chain_nonce=sight.chain_nonce,
            settled_nonce=sight.settled_nonce,
            receipts=receipts,
            final_number=final_number,
            final_nonce=final_nonce,
        )

    async def _receipts(self, intent: Intent, sight: Sight) -> dict[bytes, ReceiptView]:
        """As the endpoint shows them now: of what was given up as lost, as it may have lagged, and
        where the tables do not tell."""
        found: dict[bytes, ReceiptView] = {}
        for attempt in intent.attempts:
            receipt = await self._rpc.receipt(attempt.hash)
            if receipt is None:
                continue
            number = receipt.block_number
            if receipt.block_hash == await canonical_hash(
                self._rpc, self._pool, sight.head, number
            ):
                found[attempt.hash] = ReceiptView(number, receipt.block_hash, receipt.succeeded)
        return found

    async def _nonce_at(self, sender: Address, number: int) -> int:
        """0 where the endpoint does not keep the state of that block: then it is asked again."""
        if number < 0:
            return 0
        place: Sequence[str] = ["0x" + sender.hex(), hex(number)]
        try:
            answer = await self._rpc.request("eth_getTransactionCount", place)
            return quantity(answer, _NONCE_LIMIT)
        except (RpcError, AttributeError, TypeError, ValueError):
            return 0

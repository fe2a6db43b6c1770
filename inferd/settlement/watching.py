"""Watches closed intents until the blocks that closed them are final.

A reorganisation can take a transaction away whose intent was closed, put it into another block,
perhaps to another end, or bring one that was given up. Then the intent is opened again. Once its
block is final, that cannot be, and it is never looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
import structlog

from indexer.database import Connection, Pool
from indexer.errors import RpcUnreachable
from indexer.rpc import RpcError
from indexer.types import Address, BlockRef
from inferd.settlement.chain import ChainRpc, Sight, canonical_hash, nonce_at
from inferd.settlement.intents import with_parts
from inferd.settlement.outbox import Outbox
from inferd.settlement.records import Intent
from inferd.settlement.settings import SettlementStatus
from inferd.settlement.state import (
    CLOSED_SQL,
    Act,
    Observation,
    ReceiptView,
    next_action,
)

_log = structlog.get_logger("settlement")
_AT_ONCE = 100
"""Intents of one step; the next one looks at those behind them, and so round and round."""

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
      AND i.id > $1 AND i.id <= $2
    ORDER BY i.id LIMIT $3
"""  # noqa: S608 - constants
"""SQL: the closed intents above one id and up to another that a step has something to decide about,
so many at most."""
_LAST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Spent:
    """Which nonces of a sender were spent at a block that is not final yet."""

    block: BlockRef
    next_nonce: int


class Watcher:
    """Of all senders: what a former key signed can come back, too.

    That a nonce is spent for good shows by the state of a final block. A node need not keep that,
    so the nonce is asked for at a head, and counts once that very block is final: no old state is
    ever asked for. One look of each sender waits for that at a time, in memory.
    """

    def __init__(self, rpc: ChainRpc, pool: Pool, outbox: Outbox, status: SettlementStatus) -> None:
        self._rpc = rpc
        self._pool = pool
        self._outbox = outbox
        self._status = status
        self._looked_at = 0
        self._spent: dict[Address, Spent] = {}
        self._final_nonces: dict[Address, int] = {}

    async def watch(self, sight: Sight) -> None:
        """Opens again what came back, and lets go of what is final. Raises RPC_TROUBLE."""
        async with self._pool.acquire() as connection:
            rows = await self._next(connection)
            intents = await with_parts(connection, rows)
        looked_at: set[Address] = set()
        final: list[int] = []
        try:
            for row, intent in zip(rows, intents, strict=True):
                self._looked_at = intent.id
                try:
                    seen = await self._observation(row, intent, sight, looked_at)
                except RpcError as error:
                    # The node's trouble with this one, which waits for its next turn.
                    _log.warning("closed_not_shown", intent_id=intent.id, error=error.message)
                    continue
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
        except RpcUnreachable:
            await self._let_go(final)
            raise
        await self._let_go(final)

    async def _let_go(self, final: Sequence[int]) -> None:
        if final:
            await self._outbox.finalise(final)
            self._status.keep(final)

    async def _next(self, connection: Connection) -> list[asyncpg.Record]:
        """Those behind what was looked at last, then those before: none holds up another."""
        after = self._looked_at
        rows = await connection.fetch(TO_LOOK_AT, after, _LAST_ID, _AT_ONCE)
        if len(rows) < _AT_ONCE and after:
            rows += await connection.fetch(TO_LOOK_AT, 0, after, _AT_ONCE - len(rows))
        return rows

    async def _observation(
        self,
        row: asyncpg.Record,
        intent: Intent,
        sight: Sight,
        looked_at: set[Address],
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
            if not receipts and sender not in looked_at:
                await self._look_at(sender, sight, final_number)
                looked_at.add(sender)
            final_nonce = self._final_nonces.get(sender, 0)
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

    async def _look_at(self, sender: Address, sight: Sight, final_number: int) -> None:
        """What was seen of a sender counts where its block is final; a branch that the chain left
        takes it along."""
        spent = self._spent.get(sender)
        if spent is not None and spent.block.number <= final_number:
            number = spent.block.number
            if await canonical_hash(self._rpc, self._pool, sight.head, number) == spent.block.hash:
                before = self._final_nonces.get(sender, 0)
                self._final_nonces[sender] = max(before, spent.next_nonce)
            spent = None
        if spent is None:
            nonce = await nonce_at(self._rpc, sender, sight.head)
            self._spent[sender] = Spent(sight.head, nonce)

"""The outbox tables. Each method is one transaction, and its fence is checked inside; a step that
`state` does not know is refused by the database.

A signed transaction is committed here before it is sent for the first time: after a crash the same
bytes are sent again, and the same nonce is never signed for anything else but its replacement.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import asyncpg

from indexer.database import Connection, Fence, Pool
from indexer.rpc import Receipt
from indexer.types import Address, Hash32
from inferd.chain.signers import SignedTx, SignerTrouble
from inferd.settlement.ending import ItemKey, end, revive
from inferd.settlement.fees import Fees
from inferd.settlement.intents import IntentReader
from inferd.settlement.records import Draft, Intent, Item
from inferd.settlement.state import LIVE_SQL, IntentState
from inferd.settlement.steps import NOT_MINED, note_answer, take, unmine
from scheduler.audit import VERSION as LEAF_VERSION

SIGN_WITHIN_S = 6.0
"""How long a signer may hold up the transaction in which a nonce is reserved."""


class AlreadyLive(Exception):
    """An item, or the same effect, is in another live intent, or a decision was anchored by one."""


class NotPlanned(Exception):
    """The intent is no longer waiting for its first signature."""


class NonceHeld(Exception):
    """Another live intent has that nonce: nothing may be signed for two."""


class Outbox(IntentReader):
    """The intents of one sender on one chain."""

    def __init__(
        self, pool: Pool, *, chain_id: int, sender: Address, fence: Fence | None = None
    ) -> None:
        super().__init__(pool, chain_id=chain_id, sender=sender)
        self._fence = fence

    async def plan(self, draft: Draft) -> int:
        """Stores the intent, its items and the decisions it anchors. Raises AlreadyLive."""
        try:
            async with self._transaction() as connection:
                intent_id: int = await connection.fetchval(
                    "INSERT INTO node.tx_intent (kind, key, state, sender, target, calldata,"
                    " gas_limit, decisions_root, reason, inputs, value_wei)"
                    " VALUES ($1, $2, 'planned', $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id",
                    draft.kind,
                    draft.key,
                    self._sender,
                    draft.target,
                    draft.calldata,
                    draft.gas_limit,
                    draft.decisions_root,
                    draft.reason,
                    dict(draft.inputs),
                    draft.value_wei,
                )
                # In one order for all: of two that want the same items in orders of their own, each
                # would wait for the other.
                items = sorted(draft.items, key=_key)
                await connection.executemany(
                    "INSERT INTO node.tx_item (intent_id, request_id, commitment, worker, others)"
                    " VALUES ($1, $2, $3, $4, $5)",
                    [
                        (intent_id, i.request_id, i.commitment, i.worker, list(i.others) or None)
                        for i in items
                    ],
                )
                linked = await connection.fetch(
                    "UPDATE node.decision d SET intent_id = $1, leaf = anchored.leaf,"
                    " leaf_version = CASE WHEN d.leaf IS NULL THEN $4 ELSE d.leaf_version END"
                    " FROM unnest($2::bigint[], $3::bytea[]) AS anchored (id, leaf)"
                    " WHERE d.id = anchored.id AND d.intent_id IS NULL RETURNING d.id",
                    intent_id,
                    [row for row, _ in draft.decisions],
                    [leaf for _, leaf in draft.decisions],
                    LEAF_VERSION,
                )
                if len(linked) != len(draft.decisions):
                    raise AlreadyLive("a decision is anchored by another intent")
                return intent_id
        except asyncpg.UniqueViolationError as error:
            raise AlreadyLive(str(error)) from error

    async def sign_first(
        self,
        intent_id: int,
        chain_nonce: int,
        fees: Fees,
        sign: Callable[[int], Awaitable[SignedTx]],
        *,
        gas_limit: int,
        data_fee_wei: int = 0,
        value_wei: int = 0,
        hole: int | None = None,
    ) -> None:
        """Reserves the next nonce (or fills `hole`) and stores the bytes `sign` makes with it.

        Signing is inside the transaction: where it fails, nothing is reserved.
        Raises NotPlanned, NonceHeld, and SignerTrouble as `sign` does or where it takes too long.
        """
        async with self._transaction() as connection:
            await connection.execute(
                "INSERT INTO node.sender (chain_id, address, next_nonce) VALUES ($1, $2, 0)"
                " ON CONFLICT DO NOTHING",
                self._chain_id,
                self._sender,
            )
            next_nonce: int = await connection.fetchval(
                "SELECT next_nonce FROM node.sender WHERE chain_id = $1 AND address = $2"
                " FOR UPDATE",
                self._chain_id,
                self._sender,
            )
            nonce = max(next_nonce, chain_nonce) if hole is None else hole
            await self._refuse_held(connection, nonce)
            signed = await _within(sign(nonce))
            await self._insert_attempt(
                connection, intent_id, nonce, signed, fees, gas_limit, data_fee_wei, value_wei
            )
            await connection.execute(
                "UPDATE node.sender SET next_nonce = greatest(next_nonce, $3)"
                " WHERE chain_id = $1 AND address = $2",
                self._chain_id,
                self._sender,
                nonce + 1,
            )
            done = await connection.fetchval(
                "UPDATE node.tx_intent SET state = 'signed' WHERE id = $1 AND state = 'planned'"
                " RETURNING id",
                intent_id,
            )
            if done is None:
                raise NotPlanned(f"intent {intent_id}")

    async def add_replacement(
        self,
        intent_id: int,
        nonce: int,
        signed: SignedTx,
        fees: Fees,
        gas_limit: int,
        *,
        data_fee_wei: int = 0,
        value_wei: int = 0,
    ) -> None:
        """Stores the bytes of a dearer transaction with the same nonce."""
        async with self._transaction() as connection:
            await self._insert_attempt(
                connection, intent_id, nonce, signed, fees, gas_limit, data_fee_wei, value_wei
            )

    async def mark_sent(self, intent_id: int, tx_hash: Hash32) -> None:
        """The endpoint took it; older attempts of the nonce are replaced by it."""
        async with self._transaction() as connection:
            await take(connection, intent_id, tx_hash, sends=1)

    async def mark_refused(self, tx_hash: Hash32, error: str) -> None:
        """The endpoint says that it did not take it."""
        async with self._transaction() as connection:
            await note_answer(connection, tx_hash, error)

    async def mark_unanswered(self, intent_id: int, tx_hash: Hash32, error: str) -> None:
        """The endpoint did not say whether it took it; the chain will tell."""
        async with self._transaction() as connection:
            await note_answer(connection, tx_hash, error)
            await connection.execute(
                "UPDATE node.tx_attempt SET state = 'unknown'"
                " WHERE hash = $1 AND state IN ('signed', 'dropped')",
                tx_hash,
            )
            await connection.execute(
                "UPDATE node.tx_intent SET state = 'unknown' WHERE id = $1 AND state = 'signed'",
                intent_id,
            )

    async def mark_found(self, intent_id: int, tx_hash: Hash32) -> None:
        """A pool has it, whatever was answered when it was sent."""
        async with self._transaction() as connection:
            await take(connection, intent_id, tx_hash, sends=0)

    async def mark_dropped(self, tx_hash: Hash32) -> None:
        """The pool that had it has it no more."""
        async with self._transaction() as connection:
            await connection.execute(
                "UPDATE node.tx_attempt SET state = 'dropped' WHERE hash = $1", tx_hash
            )

    async def mark_unknown(self, intent_id: int) -> None:
        """Its nonce is spent, and nobody shows by what."""
        async with self._transaction() as connection:
            await connection.execute(
                "UPDATE node.tx_intent SET state = 'unknown' WHERE id = $1", intent_id
            )

    async def mark_mined(self, intent_id: int, receipt: Receipt, data_fee_wei: int) -> None:
        """One attempt is in a canonical block; the others of its nonce are not. `data_fee_wei` is
        what it cost beside its gas."""
        async with self._transaction() as connection:
            await connection.execute(
                f"UPDATE node.tx_attempt SET state = 'replaced', {NOT_MINED}"  # noqa: S608
                " WHERE intent_id = $1 AND hash <> $2",
                intent_id,
                receipt.tx_hash,
            )
            await connection.execute(
                "UPDATE node.tx_attempt SET state = 'mined', error = NULL, mined_block = $2,"
                " mined_block_hash = $3, status = $4, gas_used = $5,"
                " effective_gas_price_wei = $6, data_fee_wei = $7 WHERE hash = $1",
                receipt.tx_hash,
                receipt.block_number,
                receipt.block_hash,
                receipt.status,
                receipt.gas_used,
                receipt.effective_gas_price_wei,
                data_fee_wei,
            )
            await connection.execute(
                "UPDATE node.tx_intent SET state = 'mined' WHERE id = $1", intent_id
            )

    async def mark_unmined(self, intent_id: int) -> None:
        """A reorganisation took the block of its transaction: it is on its way again."""
        async with self._transaction() as connection:
            await unmine(connection, intent_id)
            await connection.execute(
                "UPDATE node.tx_intent SET state = 'broadcast' WHERE id = $1", intent_id
            )

    async def close(
        self,
        intent: Intent,
        state: IntentState,
        outcome: str,
        outcomes: Mapping[ItemKey, str],
        *,
        max_failures: int,
        receipt: Receipt | None = None,
        groups: int | None = None,
        diagnosis: str | None = None,
    ) -> int:
        """Ends the intent, frees its items, and gives up those that failed too often.

        Where it did not anchor its decisions, the next post shall. `groups` is how many groups a
        post had that settled all of its items: its gas is an observation. Returns how many items
        were given up.
        """
        async with self._transaction() as connection:
            return await end(
                connection,
                intent,
                state,
                outcome,
                outcomes,
                max_failures=max_failures,
                receipt=receipt,
                groups=groups,
                diagnosis=diagnosis,
            )

    async def reopen(self, intent_id: int) -> bool:
        """A closed intent's transaction left the chain: it is live again, with the same bytes.

        False where the same effect is in a live intent by now: then only its bytes matter.
        """
        try:
            async with self._transaction() as connection:
                await revive(connection, intent_id)
                return True
        except asyncpg.UniqueViolationError:
            return False

    async def finalise(self, intent_ids: Sequence[int]) -> None:
        """No reorganisation takes away what closed them: they are never looked at again."""
        async with self._transaction() as connection:
            await connection.execute(
                "UPDATE node.tx_intent SET state = 'final' WHERE id = ANY($1::bigint[])",
                list(intent_ids),
            )

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Connection]:
        async with self._pool.acquire() as connection, connection.transaction():
            if self._fence is not None:
                await self._fence(connection)
            yield connection

    async def _refuse_held(self, connection: Connection, nonce: int) -> None:
        held = await connection.fetchval(
            "SELECT i.id FROM node.tx_attempt a JOIN node.tx_intent i ON i.id = a.intent_id"  # noqa: S608
            f" WHERE a.chain_id = $1 AND a.sender = $2 AND a.nonce = $3 AND i.{LIVE_SQL} LIMIT 1",
            self._chain_id,
            self._sender,
            nonce,
        )
        if held is not None:
            raise NonceHeld(f"intent {held} has nonce {nonce}")

    async def _insert_attempt(
        self,
        connection: Connection,
        intent_id: int,
        nonce: int,
        signed: SignedTx,
        fees: Fees,
        gas_limit: int,
        data_fee_wei: int,
        value_wei: int,
    ) -> None:
        await connection.execute(
            "INSERT INTO node.tx_attempt (hash, intent_id, chain_id, sender, nonce, max_fee_wei,"
            " priority_fee_wei, gas_limit, raw, data_fee_wei, kept_data_fee_wei, value_wei,"
            " state)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, 'signed')",
            signed.hash,
            intent_id,
            self._chain_id,
            self._sender,
            nonce,
            fees.max_fee_wei,
            fees.priority_fee_wei,
            gas_limit,
            signed.raw,
            data_fee_wei,
            value_wei,
        )


async def _within(signing: Awaitable[SignedTx]) -> SignedTx:
    try:
        async with asyncio.timeout(SIGN_WITHIN_S):
            return await signing
    except TimeoutError:
        raise SignerTrouble(
            f"the signer has not signed within {SIGN_WITHIN_S:g} s",
            help_text="look at the signer; nothing was signed, so nothing is lost",
        ) from None


def _key(item: Item) -> ItemKey:
    return item.request_id, item.commitment

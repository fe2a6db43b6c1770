"""Reads intents with their items and attempts."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from indexer.database import Connection, Pool
from indexer.types import Address
from inferd.settlement.earning import Earning
from inferd.settlement.fees import Fees
from inferd.settlement.receipts import OUT_OF_GAS
from inferd.settlement.records import Attempt, Intent, Item
from inferd.settlement.state import LIVE_SQL, AttemptState, IntentState

_FIRST_OF_A_LIST = b"\xc0"
"""Of RLP: a transaction of type 0 is a list, all others begin with their type (EIP-2718)."""


class IntentReader:
    """The intents of one sender on one chain."""

    def __init__(self, pool: Pool, *, chain_id: int, sender: Address) -> None:
        self._pool = pool
        self._chain_id = chain_id
        self._sender = sender

    async def live(self) -> list[Intent]:
        """All intents that are not closed, in the order of their nonces; unsigned ones last."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                f"SELECT * FROM node.tx_intent WHERE sender = $1 AND {LIVE_SQL}",  # noqa: S608
                self._sender,
            )
            intents = await with_parts(connection, rows)
        return sorted(intents, key=lambda i: (i.nonce is None, i.nonce or 0, i.id))

    async def next_nonce(self) -> int:
        """The lowest nonce that was never reserved; 0 for a sender that never sent."""
        async with self._pool.acquire() as connection:
            value: int | None = await connection.fetchval(
                "SELECT next_nonce FROM node.sender WHERE chain_id = $1 AND address = $2",
                self._chain_id,
                self._sender,
            )
        return value or 0

    async def load(self, intent_id: int) -> Intent:
        """One intent as it is now."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch("SELECT * FROM node.tx_intent WHERE id = $1", intent_id)
            (intent,) = await with_parts(connection, rows)
        return intent

    async def logged(self, intent: Intent) -> frozenset[bytes]:
        """Hashes of its transactions that indexed events of its items name."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                "SELECT DISTINCT tx_hash FROM chain.log WHERE request_id = ANY($1::bigint[])"
                " AND tx_hash = ANY($2::bytea[])",
                [item.request_id for item in intent.items],
                [attempt.hash for attempt in intent.attempts],
            )
        return frozenset(row["tx_hash"] for row in rows)

    async def times_out_of_gas(self, items: Sequence[Item]) -> int:
        """In how many transactions that ran out of gas the unluckiest of these items was."""
        async with self._pool.acquire() as connection:
            times: int = await connection.fetchval(
                "SELECT coalesce(max(times), 0) FROM (SELECT count(*) AS times FROM node.tx_item i"
                " JOIN unnest($1::bigint[], $2::bytea[]) AS wanted (request_id, commitment)"
                " USING (request_id, commitment)"
                " WHERE i.outcome = $3 GROUP BY request_id, commitment) AS per_item",
                [item.request_id for item in items],
                [item.commitment for item in items],
                OUT_OF_GAS,
            )
        return times

    async def holders(self, nonces: Sequence[int]) -> list[Intent]:
        """The intents, closed ones included, that have one of these nonces; in their order."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                "SELECT * FROM node.tx_intent WHERE id IN (SELECT intent_id FROM node.tx_attempt"
                " WHERE chain_id = $1 AND sender = $2 AND nonce = ANY($3::bigint[]))",
                self._chain_id,
                self._sender,
                list(nonces),
            )
            intents = await with_parts(connection, rows)
        return sorted(intents, key=lambda i: (i.nonce or 0, i.id))


async def senders_under_way(pool: Pool) -> list[Address]:
    """Who has live intents."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            f"SELECT DISTINCT sender FROM node.tx_intent WHERE {LIVE_SQL} ORDER BY sender"  # noqa: S608
        )
    return [row["sender"] for row in rows]


async def senders_ever(pool: Pool, chain_id: int) -> frozenset[Address]:
    """Whose keys this node ever signed with, on that chain: their money is its operator's."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT address FROM node.sender WHERE chain_id = $1", chain_id
        )
    return frozenset(Address(row["address"]) for row in rows)


async def final_among(pool: Pool, intent_ids: Sequence[int]) -> list[int]:
    """Those of these that are never looked at again, or are forgotten."""
    async with pool.acquire() as connection:
        rows = await connection.fetch(
            "SELECT asked.id FROM unnest($1::bigint[]) AS asked (id)"
            " LEFT JOIN node.tx_intent i ON i.id = asked.id"
            " WHERE i.id IS NULL OR i.state = 'final'",
            intent_ids,
        )
    return [row["id"] for row in rows]


async def with_parts(connection: Connection, rows: Sequence[asyncpg.Record]) -> list[Intent]:
    """Rows of node.tx_intent with their items and attempts, in the same order."""
    ids = [row["id"] for row in rows]
    items: dict[int, list[Item]] = {intent_id: [] for intent_id in ids}
    for row in await connection.fetch(
        "SELECT intent_id, request_id, commitment, worker, others FROM node.tx_item"
        " WHERE intent_id = ANY($1::bigint[]) ORDER BY request_id",
        ids,
    ):
        items[row["intent_id"]].append(
            Item(row["request_id"], row["commitment"], row["worker"], tuple(row["others"] or ()))
        )
    attempts: dict[int, list[Attempt]] = {intent_id: [] for intent_id in ids}
    for row in await connection.fetch(
        "SELECT * FROM node.tx_attempt WHERE intent_id = ANY($1::bigint[])"
        " ORDER BY max_fee_wei, created_at",
        ids,
    ):
        attempts[row["intent_id"]].append(
            Attempt(
                hash=row["hash"],
                nonce=row["nonce"],
                fees=Fees(
                    row["max_fee_wei"],
                    row["priority_fee_wei"],
                    dynamic=row["raw"][:1] < _FIRST_OF_A_LIST,
                ),
                gas_limit=row["gas_limit"],
                raw=row["raw"],
                state=AttemptState(row["state"]),
                error=row["error"],
                data_fee_wei=int(row["data_fee_wei"]),
                value_wei=int(row["value_wei"]),
            )
        )
    return [
        Intent(
            id=row["id"],
            kind=row["kind"],
            state=IntentState(row["state"]),
            target=row["target"],
            calldata=row["calldata"],
            gas_limit=row["gas_limit"],
            items=tuple(items[row["id"]]),
            attempts=tuple(attempts[row["id"]]),
            earning=Earning.stored(row["inputs"], row["gas_limit"]),
            cancel_asked=row["cancel_asked_at"] is not None,
            value_wei=int(row["value_wei"]),
        )
        for row in rows
    ]

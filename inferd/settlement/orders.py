"""What the operator asks of settlement by a command, written down and done by whoever works here.

A command writes an order and does nothing else, so it is safe beside a running daemon. The daemon
does it in a transaction of its own, with its fence, and writes the answer beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import structlog

from indexer.database import Connection, Fence, Pool
from indexer.types import Address
from inferd.settlement.receipts import FAULTS, RETRIED
from inferd.settlement.sharing import Sharing
from inferd.settlement.state import CLOSED, IntentState
from scheduler.words import count

_log = structlog.get_logger("settlement")


class Order(StrEnum):
    RETRY = "retry"
    """Try the given-up items of an intent again."""
    CANCEL = "cancel"
    """Spend an intent's nonce on nothing."""


async def give(connection: Connection, act: Order, intent_id: int, asked_by: str) -> int:
    """Writes an order down; its id."""
    order_id: int = await connection.fetchval(
        "INSERT INTO node.settlement_order (act, intent_id, asked_by) VALUES ($1, $2, $3)"
        " RETURNING id",
        act.value,
        intent_id,
        asked_by,
    )
    return order_id


async def answer_of(connection: Connection, order_id: int) -> str | None:
    """What came of it; None while nobody has done it."""
    answer: str | None = await connection.fetchval(
        "SELECT answer FROM node.settlement_order WHERE id = $1", order_id
    )
    return answer


class Orders:
    def __init__(
        self,
        pool: Pool,
        senders: Collection[Address],
        fence: Fence | None,
        sharing: Sharing | None = None,
    ) -> None:
        """`senders` are the keys that are here. What is about a key that another process has is
        left to it."""
        self._sharing = sharing
        self._pool = pool
        self._senders = senders
        self._fence = fence

    async def obey(self) -> None:
        """Does all that is asked by now. Database errors, and what the fence raises, propagate."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                "SELECT id, act, intent_id, asked_by FROM node.settlement_order"
                " WHERE done_at IS NULL ORDER BY id"
            )
            for row in rows:
                if not await self._do(connection, row["id"], Order(row["act"]), row["intent_id"]):
                    continue
                _log.warning(
                    "order_done",
                    act=row["act"],
                    intent_id=row["intent_id"],
                    asked_by=row["asked_by"],
                )

    async def _do(self, connection: Connection, order_id: int, act: Order, intent_id: int) -> bool:
        """Whether it was done, and not left to another process."""
        async with connection.transaction():
            if self._fence is not None:
                await self._fence(connection)
            doing = _retry if act is Order.RETRY else self._cancel
            answer = await doing(connection, intent_id)
            if answer is None:
                return False
            await connection.execute(
                "UPDATE node.settlement_order SET done_at = now(), answer = $2 WHERE id = $1",
                order_id,
                answer,
            )
        return True

    async def _cancel(self, connection: Connection, intent_id: int) -> str | None:
        row = await connection.fetchrow(
            "SELECT state, outcome, sender FROM node.tx_intent WHERE id = $1 FOR UPDATE", intent_id
        )
        if row is None:
            return f"There is no intent {intent_id}."
        state = IntentState(row["state"])
        if state is IntentState.MINED:
            return "Its transaction is mined: there is nothing to cancel."
        if state in CLOSED or state is IntentState.FINAL:
            return f"It is over already ({row['outcome']})."
        if row["sender"] not in self._senders:
            if self._sharing is not None and await self._sharing.is_elsewhere(row["sender"]):
                return None
            return "It was signed by a key that is not here: nothing can be signed in its place."
        await connection.execute(
            "UPDATE node.tx_intent SET cancel_asked_at = coalesce(cancel_asked_at, now())"
            " WHERE id = $1",
            intent_id,
        )
        if state is IntentState.PLANNED:
            return "It was not signed yet, and will not be; its items are free."
        return (
            "A transaction without effect takes its nonce, unless it is mined first; its items are "
            "free after that."
        )


async def _retry(connection: Connection, intent_id: int) -> str:
    given_up: Sequence[bool] = [
        row["pending"]
        for row in await connection.fetch(
            "SELECT r.status = 'pending' OR (r.status = 'fulfilled' AND i.worker IS NULL)"
            "       AS pending"
            " FROM node.tx_item i LEFT JOIN chain.request r"
            "   ON r.id = i.request_id AND r.commitment = i.commitment"
            " WHERE i.intent_id = $1 AND i.outcome = 'abandoned'",
            intent_id,
        )
    ]
    if not given_up:
        return f"Intent {intent_id} has no item that was given up."
    # All their failures are forgotten, so that they have as many tries as any; they go alone.
    await connection.execute(
        "UPDATE node.tx_item item SET outcome = $3 FROM node.tx_item mine"
        " WHERE mine.intent_id = $1 AND mine.outcome = 'abandoned'"
        " AND item.request_id = mine.request_id AND item.commitment = mine.commitment"
        " AND item.worker IS NOT DISTINCT FROM mine.worker AND NOT item.live"
        " AND (item.outcome = 'abandoned' OR item.outcome = ANY($2::text[]))",
        intent_id,
        list(FAULTS),
        RETRIED,
    )
    over = len(given_up) - sum(map(bool, given_up))
    words = f"{count(len(given_up), 'item')} tried again, alone"
    return f"{words}; {over} of them over on chain already." if over else f"{words}."

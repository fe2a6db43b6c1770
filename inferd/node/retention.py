"""Deletes what was settled long ago and nobody waits for, so that tables stay as small as the work.

Never what is unsettled, undelivered or unpaid, what a reorganisation could still change, or what a
transaction or a worker has in hand. The chain keeps all of it but the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import structlog

from indexer.database import Connection, Fence, Pool
from indexer.forget import SettledRequest, count_on, forget, load_settled, lock_chain
from inferd.node.account_rows import fold

_AT_ONCE = 200
"""Requests in one transaction: the indexer waits for it."""
_NONCES_KEPT = 512
"""Transactions of so many newest nonces can be opened again by a deep reorganisation."""
_SECONDS_A_DAY = 86_400

_IN_HAND = """
    SELECT id FROM unnest($1::bigint[], $2::bytea[]) AS one (id, commitment)
    WHERE EXISTS (SELECT FROM node.tx_item i
                  WHERE i.request_id = one.id AND i.commitment = one.commitment AND i.live)
       OR EXISTS (SELECT FROM node.lease l WHERE l.request_id = one.id
                  AND l.commitment = one.commitment AND l.state = 'active')
"""
_DELETE_OF_REQUESTS = tuple(
    f"DELETE FROM node.{table} t USING unnest($1::bigint[], $2::bytea[]) AS one (id, commitment)"  # noqa: S608 - constants
    " WHERE t.request_id = one.id AND t.commitment = one.commitment"
    for table in ("result", "lease", "refusal", "spot_check")
)
_SELECT_INTENTS = """
    SELECT page.id, page.closed_at,
           NOT EXISTS (SELECT FROM node.tx_item t JOIN chain.request r
                       ON r.id = t.request_id AND r.commitment = t.commitment
                       WHERE t.intent_id = page.id)
           AND NOT EXISTS (SELECT FROM node.tx_attempt a JOIN node.sender s
                           ON s.chain_id = a.chain_id AND s.address = a.sender
                           WHERE a.intent_id = page.id AND a.nonce >= s.next_nonce - $2)
           AND NOT EXISTS (SELECT FROM node.decision d WHERE d.intent_id = page.id) AS done
    FROM (SELECT id, closed_at FROM node.tx_intent
          WHERE closed_at < now() - $1 * interval '1 second' AND (closed_at, id) > ($3, $4)
          ORDER BY closed_at, id LIMIT $5) page
    ORDER BY page.closed_at, page.id
"""
_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_DELETE_INTENTS = (
    "DELETE FROM node.tx_item WHERE intent_id = ANY($1::bigint[])",
    "DELETE FROM node.tx_attempt WHERE intent_id = ANY($1::bigint[])",
    "DELETE FROM node.tx_intent WHERE id = ANY($1::bigint[])",
)

log = structlog.get_logger("node")


class Retention:
    """The periodic job. Errors of the database and of the fence propagate."""

    def __init__(self, pool: Pool, fence: Fence, *, settled_days: int) -> None:
        """`settled_days` of 0 keeps everything."""
        self._pool = pool
        self._fence = fence
        self._keep_s = settled_days * _SECONDS_A_DAY

    async def run(self) -> None:
        """Counts on, then deletes in small transactions until nothing is left that is old."""
        async with self._pool.acquire() as connection, connection.transaction():
            await self._fence(connection)
            await lock_chain(connection)
            await count_on(connection)
        if not self._keep_s:
            return
        requests = await self._forget_requests()
        intents = await self._forget_intents()
        if requests or intents:
            log.info("forgotten", requests=requests, transactions=intents)

    async def _forget_requests(self) -> int:
        forgotten = 0
        last: SettledRequest | None = None
        while True:
            async with self._pool.acquire() as connection, connection.transaction():
                await self._fence(connection)
                await lock_chain(connection)
                await count_on(connection)
                now_s = await connection.fetchval("SELECT timestamp_s FROM chain.cursor")
                if now_s is None:
                    return forgotten
                found = await load_settled(
                    connection,
                    settled_before_s=now_s - self._keep_s,
                    after=last,
                    limit=_AT_ONCE,
                )
                chosen = await _not_in_hand(connection, [r for r in found if r.old and r.done])
                if chosen:
                    await forget(connection, chosen)
                    keys = [one.id for one in chosen], [one.commitment for one in chosen]
                    for statement in _DELETE_OF_REQUESTS:
                        await connection.execute(statement, *keys)
            forgotten += len(chosen)
            # Those that follow a young one were settled later still.
            if len(found) < _AT_ONCE or not found[-1].old:
                return forgotten
            last = found[-1]

    async def _forget_intents(self) -> int:
        """Closed transactions, once all they were about is forgotten; what they cost is kept."""
        forgotten, place = 0, (_EVER, 0)
        while True:
            async with self._pool.acquire() as connection, connection.transaction():
                await self._fence(connection)
                rows = await connection.fetch(
                    _SELECT_INTENTS, self._keep_s, _NONCES_KEPT, *place, _AT_ONCE
                )
                ids = [row["id"] for row in rows if row["done"]]
                if ids:
                    await fold(connection, ids)
                    for statement in _DELETE_INTENTS:
                        await connection.execute(statement, ids)
            forgotten += len(ids)
            if len(rows) < _AT_ONCE:
                return forgotten
            place = (rows[-1]["closed_at"], rows[-1]["id"])


async def _not_in_hand(
    connection: Connection, requests: Sequence[SettledRequest]
) -> list[SettledRequest]:
    rows = await connection.fetch(
        _IN_HAND, [one.id for one in requests], [one.commitment for one in requests]
    )
    busy = {row["id"] for row in rows}
    return [one for one in requests if one.id not in busy]

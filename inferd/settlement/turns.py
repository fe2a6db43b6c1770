"""When a ready result's turn comes, where rivals post results of the same requests.

Nothing of it is stored: after a restart, what is ready waits anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from indexer.database import Pool
from indexer.types import Address, BlockRef
from inferd.settlement.batch import StoredResult
from inferd.settlement.receipts import ALREADY_SETTLED, SETTLED
from inferd.settlement.records import Item
from inferd.settlement.rivalry import MEMORY_BLOCKS, Outcomes, Standing, standing
from inferd.settlement.settings import SettlementSettings
from scheduler.words import count

_log = structlog.get_logger("settlement")
_NEWEST = 128

LOAD_OUTCOMES = """
    SELECT a.mined_block, count(*) FILTER (WHERE i.outcome = $2) AS won,
           count(*) FILTER (WHERE i.outcome = $3 AND NOT EXISTS (
               SELECT FROM chain.request r JOIN node.tx_attempt own ON own.hash = r.settled_tx_hash
               WHERE r.id = i.request_id AND r.commitment = i.commitment)) AS lost
    FROM (
        SELECT id, kind FROM node.tx_intent WHERE closed_at IS NOT NULL
        ORDER BY closed_at DESC, id DESC LIMIT $4
    ) newest
    JOIN node.tx_attempt a ON a.intent_id = newest.id AND a.state = 'mined'
    JOIN node.tx_item i ON i.intent_id = newest.id
    WHERE newest.kind = 'post' AND a.mined_block > $1
    GROUP BY a.mined_block
"""
"""SQL, of all keys of this operator: what another of ours has settled is not lost."""


class Turns:
    def __init__(self, pool: Pool, poster: Address, settings: SettlementSettings) -> None:
        """`poster` stands for all keys of the operator: whichever sends, the wait is one."""
        self._pool = pool
        self._poster = poster
        self._guard_s = settings.guard_s
        self._standing = Standing()
        self._ready_since: dict[Item, int] = {}

    @property
    def has_rivals(self) -> bool:
        """Whether others were first with results of late."""
        return self._standing.window_blocks > 0

    async def look(self, head: BlockRef) -> None:
        """Learns what became of the newest posts."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                LOAD_OUTCOMES,
                head.number - MEMORY_BLOCKS,
                SETTLED,
                ALREADY_SETTLED,
                _NEWEST,
            )
        before = self.has_rivals
        self._standing = standing((Outcomes(*row) for row in rows), head.number)
        if self.has_rivals != before:
            _log.info(
                "rivals_seen" if self.has_rivals else "rivals_gone",
                chance_bps=self._standing.chance_bps,
                window_blocks=self._standing.window_blocks,
            )

    def come(
        self, found: Sequence[StoredResult], head: BlockRef, now_s: float, interval_s: float
    ) -> list[StoredResult]:
        """Those whose turn has come, each with what it earns on average instead of at best.

        Where a deadline is so near that the result would be urgent in the next block, it has.
        """
        since = self._ready_since
        items = [result.outbox_item() for result in found]
        self._ready_since = {item: since.get(item, head.number) for item in items}
        if not self.has_rivals:
            return list(found)
        now_s = max(now_s, float(head.timestamp_s))
        urgent_until_s = max(now_s + self._guard_s, now_s + interval_s) + 2 * interval_s
        return [
            self._at_odds(result)
            for result, item in zip(found, items, strict=True)
            if result.ready.deadline_s < urgent_until_s
            or head.number >= self._ready_since[item] + self._wait_blocks(item)
        ]

    def told(self, waiting: int) -> str:
        """Why so many results are not posted, in one sentence; empty where there are none."""
        if not waiting:
            return ""
        lost = 100 - self._standing.chance_bps // 100
        return (
            f" {count(waiting, 'result')} waiting for a turn, as others were first with"
            f" {lost} % of those sent of late."
        )

    def _wait_blocks(self, item: Item) -> int:
        return self._standing.wait_blocks(item.commitment, self._poster)

    def _at_odds(self, result: StoredResult) -> StoredResult:
        expected_wei = self._standing.expected_wei(result.ready.revenue_wei)
        return replace(result, ready=replace(result.ready, revenue_wei=expected_wei))
